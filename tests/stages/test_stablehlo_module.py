"""Links read from MLIR's objects equal the links read from the text."""

from __future__ import annotations

import copy
import pickle
import random
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from mithril_nb import inspect as inspect_any
from mithril_nb.inspection import inspect_function as inspect
from mithril_nb.stages.given.locations import NamedOperations, OpNames
from mithril_nb.stages.hlo.stablehlo import read_stablehlo
from mithril_nb.stages.hlo.stablehlo_module import traced_in_module
from tests.jax_programs import by_id, programs, spec

VECTOR, MATRIX = spec(6), spec(3, 4)


@jax.jit
def shared(x):
    return jax.nn.relu(x) * jnp.where(x > 0, x, 1.0)


def reducers(x):
    """Return reductions: one that MLIR prints on one line, two in full, and one over two numbers at once."""
    least = lax.reduce(x, 1.0, lambda a, b: a * b + a, (0,))
    return x.sum(), least, jnp.argmax(x, 1), lax.reduce(x, 0.0, lax.sub, (1,))


def loops(x, n):
    def inner(i, y):
        return lax.fori_loop(0, i, lambda _, z: shared(z) + x, y)

    first = lax.fori_loop(0, n, inner, x)
    second = lax.while_loop(lambda y: y.sum() < 9.0, lambda y: y * 2.0 + first, x)
    return lax.cond(n > 2, jnp.sin, lambda y: shared(y) + second, second)


def regions(x, at):
    pooled = jax.grad(lambda y: lax.reduce_window(y, -jnp.inf, lax.max, (2, 2), (1, 1), "VALID").sum())(x)
    return jnp.sort(pooled, 1), x.at[at].add(1.0), lax.switch(at[0], [jnp.sin, jnp.cos, jnp.tan], x)


def calls(x):
    for _ in range(5):
        x = shared(x) + jax.nn.gelu(x)
    return x


def nothing_known(x):
    """Return constants without an equation, and results that are unchanged arguments."""
    return x, jnp.ones(3), 4.0, lax.reduce(x, 0.0, lax.add, (0, 1))


def called(name, fn):
    """Return a function with a given name that calls a jitted function of the same name twice."""

    def inner(x):
        return fn(x) * 2.0

    inner.__name__ = inner.__qualname__ = name
    jitted = jax.jit(inner)

    def twice(x):
        return jitted(x) + jitted(x * 2.0)

    twice.__name__ = twice.__qualname__ = name
    return twice


NAMES = ("σ", "fσ", "a-b", 'a"b', "a\\b", "a b", "a\nb", "1abc", "main", "a.b$c", "ℝ²")


def lambdas(x):
    return jax.jit(lambda y: y * 2.0)(x) + jax.jit(lambda y: jnp.sin(y) * 3.0)(x)


def largest(x):
    """Compute an op that MLIR gives two names."""
    values, places = lax.top_k(x, 2)
    return values, places, lax.top_k(jnp.sin(x), 1)


CASES: dict[str, Any] = {
    "lambdas": (lambdas, (MATRIX,)),
    "largest": (largest, (MATRIX,)),
    "only the largest": (lambda x: lax.top_k(x, 2), (MATRIX,)),
    "reducers": (reducers, (MATRIX,)),
    "loops": (loops, (VECTOR, spec(dtype="int32"))),
    "regions": (regions, (MATRIX, spec(2, dtype="int32"))),
    "calls": (calls, (VECTOR,)),
    "nothing known": (nothing_known, (MATRIX,)),
    "gradient of a scan": (
        jax.grad(lambda x: lax.scan(lambda c, y: (jnp.tanh(c) * y, c.sum()), x, jnp.ones((4, 6)))[1].sum()),
        (VECTOR,),
    ),
    "no blocks": (jax.vmap(lambda x: jnp.linalg.norm(x) + jnp.cumsum(x)), (MATRIX,)),
} | programs()
CASES |= {f"called {name!r}": (called(name, jnp.sin), (VECTOR,)) for name in NAMES}


def inspected(name):
    fn, args = CASES[name]
    return inspect(fn, *args)


def _pairs(found: tuple[list[str], list[tuple[str, ...]]] | None) -> list[tuple[str, tuple[str, ...]]]:
    assert found is not None
    return list(zip(*found, strict=True))


def check_objects(inspection):
    program = inspection._pipeline.program.get()
    module: Any = inspection.lowered.compiler_ir("stablehlo")
    read = [(one.id, one.equations) for one in inspection.stage("stablehlo").instructions]
    assert _pairs(traced_in_module(module, program.tags, program.ids, program.outside)) == read
    assert any(equations for _, equations in read)


@pytest.mark.parametrize("name", CASES)
def test_links_from_objects_equal_links_from_text(name):
    check_objects(inspected(name))


def random_program(seed):
    """Return a program of a few nested calls, loops, branches and ops; jitted functions have unusual names."""
    rng = random.Random(seed)
    plain = (jnp.sin, jnp.cumsum, jnp.sort, lambda x: lax.top_k(x, 6)[0], lambda x: x * 1.5, lambda x: x - x.max())

    def grown(depth):
        parts = [rng.choice(plain) if depth == 0 else grown(depth - 1) for _ in range(rng.randint(1, 3))]

        def chain(x):
            for part in parts:
                x = part(x)
            return x

        wrap: Callable[[Any], Any] = rng.choice(
            [
                lambda fn: called(rng.choice(NAMES), fn),
                lambda fn: jax.jit(lambda x: fn(x)),
                lambda fn: lambda x: lax.fori_loop(0, 3, lambda _, y: fn(y) + x, x),
                lambda fn: lambda x: lax.scan(lambda c, _: (fn(c), c.sum()), x, None, length=2)[0],
                lambda fn: lambda x: lax.cond(x[0] > 0, fn, jnp.cos, x),
                lambda fn: lambda x: jax.vmap(fn)(jnp.stack([x, x]))[0],
                lambda fn: lambda x: jax.grad(lambda y: fn(y).sum())(x),
            ]
        )
        return wrap(chain)

    return grown(2)


def test_object_links_match_text_of_random_programs(stress):
    for seed in range(stress.size(short=12, long=300)):
        check_objects(inspect(random_program(seed), VECTOR))


@pytest.mark.parametrize("name", NAMES)
def test_functions_keep_their_own_names(name):
    inspection = inspect(called(name, jnp.sin), VECTOR)
    shown = f"{name}_0" if name == "main" else name
    links = inspection.links("jaxpr", "stablehlo")
    assert (links["0.0"], links["2.0"]) == ({f"{shown}%0"}, {f"{shown}%0"})
    known = by_id(inspection, "stablehlo")
    assert (known[f"@{shown}"].equations, known[f"@{shown}"].opcode) == (("0", "2"), "func.func")
    assert known[f"{shown}%0"].opcode == "stablehlo.sine"


def test_operation_names_are_decoded():
    """StableHLO and HLO escape characters outside ASCII in different ways."""

    def program(größe):
        with jax.named_scope('größe "a"\\'):
            return called("σ", jnp.sin)(größe) @ größe

    given = inspect_any(jax.jit(program).lower(spec(4, 4)))
    for stage in ("stablehlo", "hlo_before"):
        (product,) = [one for one in given.stage(stage).instructions if "dot" in one.opcode]
        assert product.equations == ('jit(program)/größe "a"\\/dot_general',), stage
        assert {id for one in given.stage(stage).instructions for id in one.equations} >= {
            'jit(program)/größe "a"\\/jit(σ)/sin'
        }
    assert given.links("stablehlo", "hlo_before")["σ%0"]
    traced = inspect(program, spec(4, 4))
    assert traced.stage("hlo_before").instructions[0].equations == ("arg0",)


@pytest.mark.parametrize("name", CASES)
def test_links_are_the_same_before_and_after_the_text_is_made(name):
    inspection = inspected(name)
    pairs = [("jaxpr", "stablehlo"), ("stablehlo", "jaxpr"), ("jaxpr", "jaxpr")]
    before = [inspection.links(*pair) for pair in pairs]
    made = {stage: vars(inspection.stage(stage)).keys() & {"text", "instructions"} for stage in ("jaxpr", "stablehlo")}
    assert made == {"jaxpr": set(), "stablehlo": set()}
    assert {one.id for one in inspection.stage("stablehlo").instructions} == before[1].keys()
    assert {one.id for one in inspection.stage("jaxpr").instructions} == before[0].keys()
    assert [inspection.links(*pair) for pair in pairs] == before


def test_op_of_several_equations_is_linked_to_all():
    inspection = inspect(lambda x: jnp.sin(x) + jnp.cos(x), VECTOR)
    program = inspection._pipeline.program.get()
    module: Any = inspection.lowered.compiler_ir("stablehlo")
    text = inspection.lowered.as_text(debug_info=True)
    sine, cosine = (re.search(rf"^(#loc\d+) = .*/{name}", text, re.MULTILINE) for name in ("sin", "cos"))
    assert sine is not None
    assert cosine is not None
    text = re.sub(r"(stablehlo.add .*) loc\(#loc\d+\)$", r"\1 loc(#both)", text, flags=re.MULTILINE)
    with module.context:
        other = type(module).parse(f"{text}#both = loc(fused[{sine.group(1)}, {cosine.group(1)}])\n")
    found = _pairs(traced_in_module(other, program.tags, program.ids, program.outside))
    assert found[:3] == [("%0", ("0",)), ("%1", ("1",)), ("%2", ("0", "1"))]
    printed = other.operation.get_asm(enable_debug_info=True)
    read = read_stablehlo(printed, program.tags, program.by_id)[1]
    assert [(one.id, one.equations) for one in read] == found


def test_file_location_is_not_an_operation_name():
    read = read_stablehlo(
        "module @m {\n"
        "  func.func public @main(%arg0: tensor<f32>) -> tensor<f32> {\n"
        "    %0 = stablehlo.sine %arg0 : tensor<f32> loc(#loc1)\n"
        "    return %0 : tensor<f32> loc(#loc)\n"
        "  } loc(#loc)\n"
        "} loc(#loc)\n"
        "#loc = loc(unknown)\n"
        '#loc1 = loc(fused["a.py":3:4, "jit(f)/mlp/sin", "b.py":1:2])\n',
        OpNames(),
        NamedOperations(),
    )[1]
    assert [(one.id, one.equations) for one in read][:1] == [("%0", ("jit(f)/mlp/sin",))]


def test_unknown_module_is_read_from_its_text():
    inspection = inspected("calls")
    program = inspection._pipeline.program.get()
    module: Any = inspection.lowered.compiler_ir("stablehlo")
    text = str(module).replace("func.func public @main", "func.func private @outside() -> ()\n  func.func public @main")
    with module.context:
        other = type(module).parse(text)
    assert traced_in_module(other, program.tags, program.ids, program.outside) is None


def test_a_stage_shown_later_is_a_stage_like_any_other():
    stage = inspected("calls").stage("stablehlo")
    again = pickle.loads(pickle.dumps(stage))
    assert again == stage == copy.deepcopy(stage)
    assert (again.text, again.instructions) == (stage.text, stage.instructions)
    assert stage.text.startswith("module @jit_calls")
    assert str(stage) == stage.text
    assert not hasattr(stage, "lines")


def test_an_op_with_regions_has_the_shape_of_its_result():
    def pooled(x):
        return lax.reduce_window(x, -jnp.inf, lax.max, (2, 2), (2, 2), ((0, 0), (1, 1)))

    stage = inspect(jax.grad(lambda x: pooled(x).sum()), spec(8, 6)).stage("stablehlo")
    shapes = {each.opcode: [str(each_spec) for each_spec in each.shapes] for each in stage.instructions}
    assert shapes["stablehlo.select_and_scatter"] == ["(8, 8) float32"]
    stage = inspect(pooled, spec(8, 6)).stage("stablehlo")
    shapes = {each.opcode: [str(each_spec) for each_spec in each.shapes] for each in stage.instructions}
    assert shapes["stablehlo.reduce_window"] == ["(4, 4) float32"]
