"""`ml.explain`: axes, sizes and numbers of its statements, against NumPy, JAX and the costs of other programs."""

from __future__ import annotations

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fresh import run_fresh
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax
from jax_programs import EVERYTHING_PARAMS, everything, programs, spec
from process import EIGHT_DEVICES

import mithril_nb as ml
from mithril_nb.errors import StageUnavailableError
from mithril_nb.inspection import inspect_function as inspect
from mithril_nb.teach.explain import Explainer

ARRAYS = ("jaxpr", "stablehlo", "hlo_before")
PRODUCTS = re.compile(r"(?:stablehlo\.)?(?:dot|dot_general|convolution|conv_general_dilated)$")
REDUCTIONS = re.compile(r"(?:stablehlo\.)?(?:reduce|reduce_(?:sum|max|min|prod|and|or|xor)|argmax|argmin)$")


def array_of(shape):
    return np.random.default_rng(0).integers(-9, 9, shape).astype("float32")


def statements(fn, args, pattern):
    """Yield stage and `what` of each line before optimization whose operation matches."""
    program = inspect(fn, *args)
    explainer = Explainer(program)
    for stage in ARRAYS:
        texts = [
            explainer.of(stage, each)["what"]
            for each in program.stage(stage).instructions
            if re.match(pattern, each.opcode) and each.lines + len(each.operands) > 1
        ]
        assert texts or stage == "hlo_before", stage  # which has no slice of a whole array
        yield from ((stage, text) for text in texts[:1])


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_numpy_computes_a_product_from_the_stated_axes(data) -> None:
    batch = data.draw(st.lists(st.integers(1, 4), max_size=2), label="batch")
    summed = data.draw(st.lists(st.integers(1, 4), max_size=2), label="summed")
    free = [data.draw(st.lists(st.integers(1, 4), max_size=2), label="free") for _ in range(2)]
    shapes, axes = [], []
    for own in free:
        sizes = [*batch, *summed, *own]
        order = data.draw(st.permutations(range(len(sizes))))
        shapes.append([sizes[at] for at in order])
        axes.append([order.index(at) for at in range(len(sizes))])
    several = len(batch), len(batch) + len(summed)
    numbers = (
        tuple(tuple(own[several[0] : several[1]]) for own in axes),
        tuple(tuple(own[: several[0]]) for own in axes),
    )
    left, right = map(array_of, shapes)
    expected = lax.dot_general(left, right, numbers)
    for stage, text in statements(lambda x, y: lax.dot_general(x, y, numbers), (left, right), r".*\bdot"):
        letters = [[*"abcdefgh"[: left.ndim]], [*"ijklmnop"[: right.ndim]]]
        sums, _, batches = text.partition("separately")
        for i, j, size in re.findall(r"axis (\d+) of the left with axis (\d+) of the right \(size (\d+)\)", text):
            assert left.shape[int(i)] == right.shape[int(j)] == int(size), stage
            letters[1][int(j)] = letters[0][int(i)]
        stated = {letters[0][int(i)] for i in re.findall(r"axis (\d+) of the left", batches)}
        gone = {letters[0][int(i)] for i in re.findall(r"axis (\d+) of the left", sums)}
        kept = [letters[0][int(i)] for i in re.findall(r"axis (\d+) of the left", batches)]
        kept += [name for side in letters for name in side if name not in gone | stated]
        result = np.einsum(left, *[[ord(name) - 97 for name in letters[0]]], right,
                           [ord(name) - 97 for name in letters[1]], [ord(name) - 97 for name in kept])  # fmt: skip
        np.testing.assert_array_equal(result, expected, err_msg=f"{stage}: {text}")
        count = result.size * int(np.prod([left.shape[letters[0].index(name)] for name in gone], dtype=int))
        assert f"The result is {spec(*expected.shape).shape if expected.shape else 'one float32'}" in text
        assert f": {count:,} multiply-adds" in text, stage


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_numpy_computes_a_reduction_from_the_stated_axes(data) -> None:
    shape = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    axes = data.draw(st.sets(st.sampled_from(range(len(shape))), min_size=1))
    kind = data.draw(st.sampled_from(["sum", "max", "min", "prod"]))
    array = array_of(shape)
    expected = getattr(jnp, kind)(array, tuple(axes))
    words = {"sum": "Sum", "max": "Largest", "min": "Smallest", "prod": "Product"}
    for stage, text in statements(lambda x: getattr(jnp, kind)(x, tuple(axes)), (array,), r".*\breduce"):
        assert text.startswith(words[kind]), stage
        stated = {int(axis): int(size) for axis, size in re.findall(r"(\d+) \(size (\d+)\)", text)}
        assert stated == {axis: shape[axis] for axis in axes}, stage
        np.testing.assert_allclose(getattr(np, kind)(array, tuple(stated)), expected, rtol=1e-6)


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_numpy_takes_the_stated_part(data) -> None:
    shape = data.draw(st.lists(st.integers(2, 6), min_size=1, max_size=3))
    starts = [data.draw(st.integers(0, size - 1)) for size in shape]
    ends = [data.draw(st.integers(start + 1, size)) for start, size in zip(starts, shape, strict=True)]
    steps = [data.draw(st.integers(1, 3)) for _ in shape]
    array = array_of(shape)
    for stage, text in statements(lambda x: lax.slice(x, starts, ends, steps), (array,), r".*\bslice"):
        part = re.search(r"the part (\[.*?\])", text)
        assert part is not None, stage
        taken = eval(f"array{part[1]}", {"array": array})
        np.testing.assert_array_equal(taken, lax.slice(array, starts, ends, steps), err_msg=stage)


def test_numpy_permutes_and_broadcasts_by_the_stated_axes() -> None:
    array = array_of((2, 3, 4))
    for stage, text in statements(lambda x: x.transpose(2, 0, 1), (array,), r".*\btranspose"):
        assert "those of the result are axes 2, 0 and 1 of the operand" in text, stage
    for stage, text in statements(lambda x: lax.broadcast_in_dim(x, (5, 2, 3, 4), (1, 2, 3)), (array,), r".*broadcast"):
        assert "axis 0 becomes axis 1, axis 1 becomes axis 2 and axis 2 becomes axis 3" in text, stage
        assert "axis 0 (size 5) of the result is new" in text, stage


def test_windows_and_convolutions_have_their_sizes() -> None:
    x, w = spec(2, 12, 13, 3), spec(5, 4, 3, 7)

    def convolve(x, w):
        return lax.conv_general_dilated(x, w, (2, 1), ((1, 2), (0, 3)), dimension_numbers=("NHWC", "HWIO", "NHWC"))

    for stage, text in statements(convolve, (x, w), r".*conv(?!ert)"):
        assert "each window of 5 along axis 1 (size 12) and 4 along axis 2 (size 13), moved by 2 × 1, " in text, stage
        assert "padded by (1, 2) × (0, 3), and over axis 2 (size 3) of the kernel, for 7 output features" in text, stage

    def pool(x):
        return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 3, 1), (1, 2, 1, 1), ((0, 0), (1, 1), (0, 0), (0, 0)))

    for stage, text in statements(pool, (x,), r".*reduce.window"):
        window = (
            "Largest element in each window of 2 along axis 1 (size 12) and 3 along axis 2 (size 13), moved by 2 × 1"
        )
        assert f"{window}, padded by (1, 1) × (0, 0)" in text, stage


def lines_of(program):
    explainer = Explainer(program)
    for stage in program.stages:
        for each in program.stage(stage).instructions:
            yield stage, each, explainer.of(stage, each)


@pytest.mark.parametrize("name", ["everything", "cnn train step", "attention forward"])
def test_every_line_of_every_stage_is_explained(name) -> None:
    fn, args = {**programs(), "everything": (everything, (EVERYTHING_PARAMS, spec(4, 7)))}[name]
    program = inspect(fn, *args)
    program.want(machine_code=True, passes=True)
    for stage, line, explanation in lines_of(program):
        text = explanation["what"]
        assert text or stage in ("python", "graph"), (stage, explanation.code)
        if PRODUCTS.match(line.opcode) or REDUCTIONS.match(line.opcode):
            assert re.search(r"\b(?:axis|axes) \d", text), (stage, text)
        for clause in explanation.clauses:
            assert clause.source
            assert clause.text.endswith("."), clause
            assert "None" not in clause.text, clause


def test_a_better_order_of_products_has_the_costs_of_both_orders() -> None:
    a, b, x = spec(16, 24), spec(24, 40), spec(40)

    def first(a, b, x):
        return (a @ b) @ x

    def second(a, b, x):
        return a @ (b @ x)

    costs = [inspect(fn, a, b, x).cost().total.flops for fn in (first, second)]
    text = ml.explain(inspect(first, a, b, x), "jaxpr", "0")["cheaper"]
    assert f"both products need {costs[1]:,} FLOPs instead of {costs[0]:,}" in text
    for fn in (second, lambda a, b, x: ((a @ b) @ x, a @ b), lambda a, b, x: jnp.tanh(a @ b) @ x):
        program = inspect(fn, a, b, x)
        assert {ml.explain(program, "jaxpr", each.id)["cheaper"] for each in program.equations} == {""}


def test_a_sum_before_a_product_has_the_costs_of_both() -> None:
    a, b = spec(16, 24), spec(24, 40)
    costs = [inspect(fn, a, b).cost().total.flops for fn in (lambda a, b: (a @ b).sum(1), lambda a, b: a @ b.sum(1))]
    text = ml.explain(inspect(lambda a, b: (a @ b).sum(1), a, b), "jaxpr", "0")["cheaper"]
    assert f"both need {costs[1]:,} FLOPs instead of {costs[0]:,}" in text


def test_the_fate_is_that_of_who_changed() -> None:
    def fn(x):
        _ = jnp.cos(jnp.sin(x))
        return jnp.tanh(x) @ jnp.tanh(x)

    program = inspect(fn, spec(4, 4))
    texts = {each.id: ml.explain(program, "jaxpr", each.id)["fate"] for each in program.equations}
    dropped = "No result of the program needs it, so JAX drops it when it lowers the program."
    assert texts["0"] == texts["1"] == dropped  # the cosine reads the sine
    assert re.fullmatch(r"Merged with \S+ by pass \d+ cse \(equation 2\)\.", texts["3"])
    assert texts["4"].startswith("Kept as ")


def test_a_loop_counts_its_runs_together() -> None:
    program = inspect(lambda x: lax.fori_loop(0, 6, lambda _, v: v * 2, x), spec(5))
    body = next(each for each in program.equations if each.primitive == "mul")
    assert "In 6 runs together: 30 FLOPs" in ml.explain(program, "jaxpr", body.id)["cost"]
    assert ml.explain(program, "jaxpr", "0")["what"].startswith("Runs its body 6 times.")


def test_a_line_that_does_not_exist_is_an_error() -> None:
    program = inspect(jnp.sin, spec(3))
    with pytest.raises(StageUnavailableError, match="has no instruction '7'"):
        ml.explain(program, "jaxpr", "7")
    instruction = program.stage("stablehlo").instructions[0]
    assert ml.explain(program, "stablehlo", line=instruction.line).id == instruction.id


def test_the_display_has_each_clause_with_its_source() -> None:
    explanation = ml.explain(inspect(jax.nn.relu, spec(3)), "jaxpr", "0.0")
    bundle = explanation._repr_mimebundle_()
    for clause in explanation.clauses:
        assert clause.text in bundle["text/plain"]
        assert clause.source in bundle["text/html"]


def _fates(program, stage="jaxpr"):
    return {each.opcode: ml.explain(program, stage, each.id)["fate"] for each in program.stage(stage).instructions}


def test_a_fate_is_that_of_the_work_in_the_optimized_hlo() -> None:
    """A product with a vector ends in a reshape, and a running sum in other windows: both are there."""
    product = _fates(inspect(lambda a, b: a @ b, spec(20, 12), spec(12)))["dot_general"]
    assert product.startswith("Rewritten into dot by pass ")
    assert "implified" not in _fates(inspect(lambda x: jax.lax.cumsum(x), spec(300)))["cumsum"]
    assert "used into" in _fates(inspect(lambda x: jnp.sin(x) * 2 + x, spec(300)))["sin"]


def _works_in(program, scope, opcode):
    """Return the fusions of the compiled program that contain an operation of a scope, read from its text."""
    bodies, inside = {}, ""
    for line in program.compiled.as_text().split("\n"):
        if line.startswith("%"):
            inside = line.split()[0].strip("%")
        elif f" {opcode}(" in line and f"/{scope}/" in line:
            bodies.setdefault(inside, []).append(line)
    pairs = re.findall(r"%(\S+) = [^\n]* fusion\([^\n]*calls=%([\w.]+)", program.compiled.as_text())
    return {fusion for fusion, body in pairs if body in bodies}


def test_a_fate_names_all_fusions_that_do_the_work() -> None:
    def fn(x, w, count):
        with jax.named_scope("shared"):
            shifted = x + 1
        with jax.named_scope("first"):
            first = 0.9**count
        with jax.named_scope("second"):
            second = 0.99**count
        return jnp.tanh(shifted) @ w * shifted * first, second * x

    program = inspect(fn, spec(64, 64), spec(64, 64), spec(dtype="int32"))
    fates = {
        (each.shares[0][0], each.opcode): ml.explain(program, "jaxpr", each.id)["fate"]
        for each in program.stage("jaxpr").instructions
        if each.shares
    }
    copies = _works_in(program, "shared", "add")
    assert len(copies) == 2
    assert {*re.findall(r"[\w.-]+_fusion(?:\.\d+)?", fates["shared", "add"])} == copies
    assert "; a copy of it is in " in fates["shared", "add"]
    assert fates["first", "pow"]
    for scope in ("first", "second"):  # XLA converts `count` once for both powers
        work = _works_in(program, scope, "power")
        named = {*re.findall(r"(?:[\w-]+_fusion|wrapped_\w+)(?:\.\d+)?", fates[scope, "pow"])}
        assert not named or work <= named
        assert work == named or not named or "; parts or copies of it are in " in fates[scope, "pow"]


def test_only_calls_are_inlined() -> None:
    fates = _fates(inspect(lambda x: lax.scan(lambda c, _: (jax.nn.relu(c) * 2, None), x, None, 3)[0], spec(4)))
    assert fates["jit"].startswith("Inlined by pass ")
    assert not any("nlined" in fates[name] for name in ("scan", "custom_jvp_call"))


def test_only_a_fusion_reads_and_writes_memory() -> None:
    program = inspect(lambda x: jnp.sin(x[1:]) * 2, spec(300))
    costs = {
        each.id: ml.explain(program, "hlo", each.id)["cost"]
        for each in program.stage("hlo").instructions
        if each.opcode in ("slice", "fusion", "broadcast")
    }
    fusion = next(text for text in costs.values() if "bytes read and written" in text)
    assert fusion.startswith("2,392 bytes read and written.")
    assert {text for text in costs.values() if text != fusion} == {
        "It has no FLOPs; only its fusion reads and writes memory."
    }
    assert "It has no FLOPs: it only reads and writes data." in ml.explain(program, "jaxpr", "0")["cost"]


def test_a_transpose_that_keeps_all_bytes_moves_no_data() -> None:
    program = inspect(lambda a, b: (a.T @ b).T * 2, spec(64, 32), spec(64, 16))
    lines = [each for each in program.stage("hlo_before").instructions if each.opcode == "transpose"]
    assert "{0,1}" in ml.explain(program, "hlo_before", lines[-1].id).code
    assert ml.explain(program, "hlo_before", lines[-1].id)["cost"] == "It computes nothing and moves no data."


def test_a_broadcast_of_a_number_to_a_number_changes_nothing() -> None:
    windows = lambda x: lax.reduce_window(x, 0.0, lax.add, (2,), (1,), "VALID")  # noqa: E731
    program = inspect(windows, spec(9))
    line = next(each for each in program.stage("stablehlo").instructions if each.opcode.endswith("broadcast_in_dim"))
    text = ml.explain(program, "stablehlo", line.id)["what"]
    assert text == "Broadcasts one float32 to one float32: nothing changes."


def test_more_than_four_results_are_counted() -> None:
    def fn(x):
        body = lambda carry: (carry[0] + 1, *(each * 2 for each in carry[1:]))  # noqa: E731
        return lax.while_loop(lambda carry: carry[0] < 9, body, (0, x, x, x, x, x))

    text = ml.explain(inspect(fn, spec(3)), "jaxpr", "0")["what"]
    assert text.endswith("6 results: one int32, (3,) float32, (3,) float32, (3,) float32 and 2 more.")


def test_one_call_is_singular() -> None:
    assert ml.explain(inspect(jnp.exp, spec()), "jaxpr", "0")["cost"].startswith(
        "1 call of exp, log, sqrt or the like,"
    )


MESH = """
import jax, jax.numpy as jnp, mithril_nb as ml
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

mesh = jax.make_mesh((8,), ("d",), axis_types=(AxisType.Auto,))
summed = jax.shard_map(lambda x: lax.psum(jnp.sin(x), "d"), mesh=mesh, in_specs=P("d"), out_specs=P())
split = lambda x: lax.with_sharding_constraint(jnp.sin(x), NamedSharding(mesh, P("d")))
for fn, opcode in ((summed, "sine"), (split, "custom-call")):
    p = ml.inspect(fn, jax.ShapeDtypeStruct((16,), "float32"))
    for stage in ("hlo_before", "hlo"):
        for each in p.stage(stage).instructions:
            if each.opcode == opcode:
                print(stage, ml.explain(p, stage, each.id)["what"], ml.explain(p, stage, each.id)["cost"])
"""


def test_work_of_all_devices_and_marks_for_the_compiler_are_named() -> None:
    before, optimized, constraint = run_fresh(MESH, **EIGHT_DEVICES).splitlines()
    # `sin` of 2 elements on each of 8 devices; the optimized HLO is the program of one device.
    assert "In 8 runs on all devices together: 16 calls" in before
    assert "together" not in optimized
    assert " 2 calls" in optimized
    assert constraint.startswith("hlo_before Declares how an array is split over devices, for the compiler.")
    assert "Its target is" in constraint
    assert constraint.endswith("It has no FLOPs; the compiler may add communication between devices for it.")


def test_what_is_cheaper_is_left_out_if_the_result_is_also_returned() -> None:
    def step(a, x):
        def body(carry, _):
            product = a @ carry
            return product, product @ x

        return jax.lax.scan(body, a, None, length=3)

    program = inspect(step, spec(8, 8), spec(8))
    assert {ml.explain(program, "jaxpr", equation.id)["cheaper"] for equation in program.equations} == {""}
    empty = inspect(lambda a, b, x: (a @ b) @ x, spec(5, 0), spec(0, 3), spec(3))
    assert {ml.explain(empty, "jaxpr", equation.id)["cheaper"] for equation in empty.equations} == {""}


def test_operands_of_integers_are_exact_and_have_sides_only_if_there_are_two() -> None:
    program = inspect(lambda x: (x < 2147483647, jnp.pad(x, 1)), spec(3, dtype="int32"))
    texts = {each.opcode: ml.explain(program, "jaxpr", each.id)["what"] for each in program.stage("jaxpr").instructions}
    assert "The right operand is 2147483647." in texts["lt"]
    assert "operand is" not in texts["pad"]


def test_axes_and_directions_are_those_of_the_params() -> None:
    program = inspect(
        lambda x: (jax.lax.cumsum(x, 0, reverse=True), jax.lax.reshape(x, (6, 2), (1, 0)), jax.lax.reshape(x, (6, 2))),
        spec(3, 4),
    )
    texts = [ml.explain(program, "jaxpr", equation.id)["what"] for equation in program.equations]
    assert "from the last element to the first" in texts[0]
    assert "order of its elements stays" not in texts[1]
    assert "order of its elements stays" in texts[2]


def test_a_line_of_inline_ptx_is_its_load() -> None:
    program = inspect(jnp.sin, spec(3))
    clears = dataclasses.replace(program.stage("asm").instructions[-1], opcode="mov.u32", shapes=())
    code = "mov.u32 %r1, 0x0; mov.u32 %r2, 0x0; @%p1 ld.global.v2.b32 { %r1, %r2 }, [ %rd1 + 0 ];"
    texts = [next(Explainer(program)._what("asm", clears, line))[0] for line in (code, "mov.u32 %r1, 0x0;")]
    assert texts[0].startswith("Reads global memory")
    assert texts[1] == "Copies a value into a register."


def test_a_kernel_of_two_roles_states_both():
    """Its parts may be equal, and then none of the roles is that of most of it."""
    program = ml.inspect(jax.value_and_grad(lambda w, x: (jnp.tanh(x @ w) ** 2).sum()), spec(16, 8), spec(4, 16))
    roles = {equation.id: equation.role for equation in program.equations}
    seen = set()
    for instruction in program.stage("hlo").instructions:
        own = {roles[id] for id in instruction.equations if id in roles}
        text = str(ml.explain(program, "hlo", instruction.id))
        for role in own - {None}:
            assert f"the {role} pass" in text, (instruction.id, text)
        assert "ost of it" not in text
        seen.add(len(own))
    assert max(seen) > 1
