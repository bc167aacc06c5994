"""The inspection as a whole: lazy, exact, with symmetric links."""

from __future__ import annotations

import re
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import combinations_with_replacement

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax_programs import (
    EVERYTHING_PARAMS,
    arrays,
    check_links,
    everything,
    linear_params,
    mlp,
    programs,
    spec,
    train_step,
)

from mithril_nb.errors import StageUnavailableError, UnknownOptionError
from mithril_nb.inspection import inspect_function as inspect
from mithril_nb.stages.stage_kinds import STAGE_KINDS

EVERYTHING = train_step(everything, EVERYTHING_PARAMS, [spec(3, 7)], spec(3, 9))
NEARLY_FREE = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "copy"}
NO_KERNELS = {
    (name, "this program has no separate kernel: all of its work is done in libraries") for name in ("llvm", "asm")
}


def test_a_single_library_call_has_no_machine_code():
    found = inspect(lambda x: x @ x, spec(64, 64))
    assert {(name, found.stage(name).unavailable) for name in ("llvm", "asm")} == NO_KERNELS


def while_loop(x):
    return jax.lax.while_loop(lambda x: x.sum() < 100.0, lambda x: x * 2 + 1, x)


CORPUS = {
    **programs(),
    "everything": EVERYTHING,
    "while": (while_loop, (spec(3, 3),)),
    "sort": (lambda x: (jnp.sort(x), jnp.argmax(x), jnp.cumsum(x)), (spec(9),)),
    "random": (lambda key: jax.random.normal(jax.random.wrap_key_data(key), (5,)), (spec(2, dtype="uint32"),)),
    "solve": (jnp.linalg.solve, (spec(4, 4), spec(4))),
    "nothing": (lambda x: x, (spec(2),)),
    "no inputs": (lambda: jnp.arange(3) + 1, ()),
}


@cache
def inspected(name):
    fn, args = CORPUS[name]
    return inspect(fn, *args)


@pytest.fixture(params=CORPUS)
def name(request):
    return request.param


def test_the_tagged_program_is_the_program(name):
    fn, args = CORPUS[name]
    inspection = inspected(name)
    plain = (fn if hasattr(fn, "lower") else jax.jit(fn)).lower(*args)
    assert inspection.stage("stablehlo").text == inspection.lowered.as_text() == plain.as_text()
    assert inspection.lowered.cost_analysis() == plain.cost_analysis()


@pytest.mark.parametrize("name", ["mlp train step", "everything", "random", "while", "solve"])
def test_the_tagged_program_computes_the_same_bits(name):
    # Only a few: the test above asserts for all that XLA receives the same text, and compiling takes as long again.
    fn, args = CORPUS[name]
    given = arrays(args)
    ours = inspected(name).compiled(*given)
    plain = jax.jit(fn)(*given)
    for left, right in zip(jax.tree.leaves(ours), jax.tree.leaves(plain), strict=True):
        np.testing.assert_array_equal(np.asarray(left), np.asarray(right))


def test_links_agree_in_both_directions(name):
    inspection = inspected(name)
    # Every line of a kernel is linked to every other.
    names = [name for name in inspection.stages if not STAGE_KINDS[name].is_machine_code]
    for source, target in combinations_with_replacement(names, 2):
        check_links(inspection, source, target)
    assert inspection.links("asm", "jaxpr").keys() == {one.id for one in inspection.stage("asm").instructions}


def test_ids_lines_and_shares_are_consistent(name):
    inspection = inspected(name)
    equations = {one.id for one in inspection.equations} | {f"arg{k}" for k in range(len(inspection.inputs))}
    for name in inspection.stages:
        stage = inspection.stage(name)
        if stage.unavailable is not None:
            assert (name, stage.unavailable) in NO_KERNELS
        count = len(stage.text.splitlines())
        assert len({one.id for one in stage.instructions}) == len(stage.instructions)
        assert len({one.line for one in stage.instructions}) == len(stage.instructions)
        for one in stage.instructions:
            assert 1 <= one.line <= one.line + one.lines - 1 <= count
            assert set(one.equations) <= equations
            assert (one.origin is None) == (not one.shares)
            if one.shares:
                assert sum(one.blocks.values()) == pytest.approx(1.0, abs=1e-9)
                assert "" not in one.blocks
                assert min(one.blocks.values()) > 0


@pytest.mark.parametrize("trained", list(programs()))
def test_nearly_every_line_is_attributed(trained):
    inspection = inspected(trained)
    equations = inspection.equations
    assert all(one.block for one in equations)
    stablehlo = inspection.stage("stablehlo").instructions
    assert sum(bool(one.shares) for one in stablehlo) >= 0.98 * len(stablehlo)
    real = [one for one in inspection.stage("hlo").instructions if one.opcode not in NEARLY_FREE]
    assert sum(bool(one.shares) for one in real) >= 0.95 * len(real)


def test_lines_are_attributed_to_the_right_block():
    whole = inspected("everything")
    text = whole.stage("jaxpr").text
    found = {(one.block, one.role) for one in whole.equations if one.primitive == "dot_general"}
    assert found == {
        ("remat", "forward"), ("remat", "backward"), ("scan/cell", "forward"), ("scan/cell", "backward"),
        ("cond", "forward"), ("cond", "backward"),
    }, text  # fmt: skip
    assert {one.block for one in whole.equations} == {
        "relu", "gelu", "remat", "scan", "scan/cell", "vmap", "cond", "(loss)", "(optimizer)",
    }  # fmt: skip


def test_stages_are_computed_on_first_use():
    traced = []

    def fn(x):
        traced.append(1)
        return x + 1

    inspection = inspect(fn, spec(2))
    assert traced == []
    assert repr(inspection) == "Inspection('fn', computed: none yet)"
    inspection.stage("jaxpr")
    assert traced == [1]
    assert not inspection.is_lowered
    assert set(inspection.elapsed) == {"trace"}
    inspection.stage("stablehlo")
    assert not inspection.is_optimized
    inspection.stage("hlo")
    assert inspection.is_optimized
    assert not inspection.is_compiled
    assert traced == [1]
    assert set(inspection.elapsed) == {"trace", "lower", "optimize"}
    inspection.stage("asm")
    assert inspection.is_compiled
    assert traced == [1]
    assert set(inspection.elapsed) == {"trace", "lower", "optimize", "compile"}
    assert repr(inspection) == "Inspection('fn', computed: jaxpr, stablehlo, hlo, asm)"


def test_program_is_converted_to_hlo_once():
    inspection = inspect(lambda x: x + 1, spec(2))
    assert inspection.stage("hlo_before").text
    assert inspection.analysis("lowered")["flops"] == 2
    counts = inspection.lowered._lowering.hlo.cache_info()  # pyright: ignore[reportAttributeAccessIssue]
    assert (counts.misses, counts.hits) == (1, 1)


def test_threads_compute_each_stage_once():
    traced = []

    def fn(x):
        traced.append(1)
        return jnp.tanh(x) @ x

    inspection = inspect(fn, spec(4, 4))
    found: list[int] = []
    threads = [
        threading.Thread(target=lambda name=name: found.append(id(inspection.stage(name))))
        for name in inspection.stages * 4
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert traced == [1]
    assert len(found) == 32
    assert len(set(found)) == 8


def test_nothing_runs_and_no_memory_is_allocated():
    huge = spec(10**6, 10**6)
    inspection = inspect(lambda x: (x @ x).sum(), huge)
    assert inspection.stage("stablehlo").unavailable is None
    assert [one.spec.shape for one in inspection.inputs] == [(10**6, 10**6)]


def test_untraceable_function_shows_the_error_of_jax():
    inspection = inspect(lambda x: x @ x, spec(2, 3))
    stage = inspection.stage("hlo")
    assert stage.text == ""
    assert re.fullmatch(
        r"TypeError: dot_general requires contracting dimensions to have the same shape, got \(3,\) and \(2,\)\.\n"
        r"  at test_inspection\.py:\d+: inspection = inspect\(lambda x: x @ x, spec\(2, 3\)\)",
        stage.unavailable,
    )
    assert str(stage) == f"hlo is not available: {stage.unavailable}"
    with pytest.raises(StageUnavailableError) as error:
        _ = inspection.equations
    assert re.sub(r":\d+:", ":1:", str(error.value)) == (
        "program '<lambda>' cannot be traced.\n"
        "    TypeError  dot_general requires contracting dimensions to have the same shape, got (3,) and (2,).\n"
        "    at         test_inspection.py:1: inspection = inspect(lambda x: x @ x, spec(2, 3))\n"
        '    Try: print(inspection.stage("jaxpr").text)  # shows how far tracing came'
    )


@pytest.mark.parametrize(
    ("request_part", "near"),
    [
        (lambda program: program.stage("mlir"), 'stage("hlo")'),
        (lambda program: program.stage("stable_hlo"), 'stage("stablehlo")'),
        (lambda program: program.analysis("x"), 'analysis("compiled")'),
    ],
)
def test_unknown_names_are_rejected(request_part, near):
    with pytest.raises((StageUnavailableError, UnknownOptionError)) as error:
        request_part(inspect(jnp.sin, spec(2)))
    assert str(error.value).endswith(f"    Try: inspection.{near}")


def test_jaxpr_exists_if_compilation_fails(monkeypatch):
    inspection = inspect(jnp.sin, spec(2))

    def fail(*args, **options):
        raise RuntimeError("no compiler")

    monkeypatch.setattr(jax.stages.Lowered, "compile", fail)
    assert inspection.stage("hlo").unavailable == "RuntimeError: no compiler"
    assert inspection.stage("stablehlo").unavailable is None


def test_arrays_are_replaced_by_shapes_and_released():
    x = jnp.ones((3, 5))
    inspection = inspect(lambda x: x.T @ x, x)
    assert not any(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(inspection._pipeline._args))
    assert inspection.outputs[0].spec.shape == (5, 5)


def test_inputs_have_names_and_blocks():
    step, args = train_step(mlp((5, 7, 3)), linear_params((5, 7, 3)), [spec(2, 5)], spec(2, 3))
    found = {one.name: (one.block, one.is_param) for one in inspect(step, *args).inputs}
    assert found["params['linear_0.weight']"] == ("linear_0", True)
    assert found["state[0].mu['linear_1.bias']"] == ("linear_1", False)
    assert found["state[0].count"] == ("", False)
    assert found["inputs[0]"] == ("", False)
    hlo = {one.id: one for one in inspect(step, *args).stage("hlo").instructions if one.opcode == "parameter"}
    weight = next(one for id, one in hlo.items() if id.startswith("params__linear_0_weight"))
    assert (weight.blocks, weight.origin, weight.equations) == ({"linear_0": 1.0}, "inferred", ("arg1",))


def test_jitted_function_is_traced_and_keeps_donation():
    fn = jax.jit(lambda state, x: (state + x, x * 2), donate_argnums=0)
    inspection = inspect(fn, spec(4), spec(4))
    assert [one.primitive for one in inspection.equations] == ["add", "mul"]
    assert inspection.compiled.memory_analysis().alias_size_in_bytes == 16


def test_tagged_program_gets_separate_tags():
    inner = inspect(lambda x: jnp.sin(x) + 1, spec(3))
    program = inner._pipeline.program.get()
    tagged = program.trace.call(program.tags.tag(program.trace.closed))
    again = inspect(lambda x: tagged(x) * 2, spec(3))
    assert again._pipeline.program.get().tags.marker == "mnb1#"
    hlo = again.stage("hlo").instructions
    assert {"0", "1", "2"} <= {id for one in hlo for id in one.equations}


@pytest.mark.parametrize(
    "context",
    [
        lambda: jax.default_prng_impl("rbg"),
        lambda: jax.numpy_dtype_promotion("strict"),
        lambda: jax.default_matmul_precision("highest"),
        jax.enable_x64,
    ],
)
def test_stages_are_computed_in_the_context_of_inspect(context):
    def look():
        def program(x):  # JAX caches the trace of a function, whatever the default kind of keys is later
            keyed = jax.random.normal(jax.random.key(0), (3,))
            return keyed @ x, jnp.ones(3, "float32") + jnp.ones(3, "int32"), np.float64(2) * x

        return inspect(program, jax.ShapeDtypeStruct((3,), "float32"))

    with context():
        late, early = look(), look()
        expected = early.stage("stablehlo")
    with ThreadPoolExecutor(1) as threads:  # contexts belong to a thread
        found = threads.submit(late.stage, "stablehlo").result()
    assert (found.text, found.unavailable) == (expected.text, expected.unavailable)
    assert look().stage("stablehlo").text != expected.text


def test_a_program_that_does_not_lower_has_no_passes():
    inspection = inspect(lambda x: jax.lax.platform_dependent(x, cuda=jnp.sin), spec(3))
    with pytest.raises(StageUnavailableError, match="program '<lambda>' has no passes"):
        _ = inspection.passes
