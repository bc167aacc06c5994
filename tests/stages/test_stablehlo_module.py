"""What MLIR's objects tell of a module is what its text tells."""

from __future__ import annotations

import copy
import pickle
import re
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from mithril_nb.stages import Inspection, inspect
from mithril_nb.stages.hlo.stablehlo import read_stablehlo
from mithril_nb.stages.hlo.stablehlo_module import traced_in_module
from mithril_nb.stages.op_names import NamedOperations, OpNames
from tests.jax_programs import programs, spec

VECTOR, MATRIX = spec(6), spec(3, 4)


@jax.jit
def shared(x: Any) -> Any:
    return jax.nn.relu(x) * jnp.where(x > 0, x, 1.0)


def reducers(x: Any) -> Any:
    """One that MLIR writes on one line, two that it writes out, and one over two numbers at once."""
    least = lax.reduce(x, 1.0, lambda a, b: a * b + a, (0,))
    return x.sum(), least, jnp.argmax(x, 1), lax.reduce(x, 0.0, lax.sub, (1,))


def loops(x: Any, n: Any) -> Any:
    def inner(i: Any, y: Any) -> Any:
        return lax.fori_loop(0, i, lambda _, z: shared(z) + x, y)

    first = lax.fori_loop(0, n, inner, x)
    second = lax.while_loop(lambda y: y.sum() < 9.0, lambda y: y * 2.0 + first, x)
    return lax.cond(n > 2, jnp.sin, lambda y: shared(y) + second, second)


def regions(x: Any, at: Any) -> Any:
    pooled = jax.grad(lambda y: lax.reduce_window(y, -jnp.inf, lax.max, (2, 2), (1, 1), "VALID").sum())(x)
    return jnp.sort(pooled, 1), x.at[at].add(1.0), lax.switch(at[0], [jnp.sin, jnp.cos, jnp.tan], x)


def calls(x: Any) -> Any:
    for _ in range(5):
        x = shared(x) + jax.nn.gelu(x)
    return x


def nothing_known(x: Any) -> Any:
    """Constants that no equation makes, results that go out as they came in."""
    return x, jnp.ones(3), 4.0, lax.reduce(x, 0.0, lax.add, (0, 1))


CASES: dict[str, Any] = {
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


def inspected(name: str) -> Inspection:
    fn, args = CASES[name]
    return inspect(fn, *args)


def _pairs(found: tuple[list[str], list[tuple[str, ...]]] | None) -> list[tuple[str, tuple[str, ...]]]:
    assert found is not None
    return list(zip(*found, strict=True))


@pytest.mark.parametrize("name", CASES)
def test_objects_tell_what_the_text_tells(name: str) -> None:
    inspection = inspected(name)
    program = inspection._pipeline.program.get()
    module: Any = inspection.lowered.compiler_ir("stablehlo")
    read = [(one.id, one.equations) for one in inspection.stage("stablehlo").instructions]
    assert _pairs(traced_in_module(module, program.tags, program.ids, program.outside)) == read
    assert any(equations for _, equations in read)


@pytest.mark.parametrize("name", CASES)
def test_links_are_the_same_before_and_after_the_text_is_made(name: str) -> None:
    inspection = inspected(name)
    pairs = [("jaxpr", "stablehlo"), ("stablehlo", "jaxpr"), ("jaxpr", "jaxpr")]
    before = [inspection.links(*pair) for pair in pairs]
    made = {stage: vars(inspection.stage(stage)).keys() & {"text", "instructions"} for stage in ("jaxpr", "stablehlo")}
    assert made == {"jaxpr": set(), "stablehlo": set()}
    assert {one.id for one in inspection.stage("stablehlo").instructions} == before[1].keys()
    assert {one.id for one in inspection.stage("jaxpr").instructions} == before[0].keys()
    assert [inspection.links(*pair) for pair in pairs] == before


def test_what_several_equations_made_is_linked_to_all_of_them() -> None:
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


def test_a_place_in_a_file_is_no_name_of_an_operation() -> None:
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


def test_a_module_that_is_not_known_is_left_to_its_text() -> None:
    inspection = inspected("calls")
    program = inspection._pipeline.program.get()
    module: Any = inspection.lowered.compiler_ir("stablehlo")
    text = str(module).replace(
        "func.func public @main", 'func.func private @"a\\22b"() -> ()\n  func.func public @main'
    )
    with module.context:
        other = type(module).parse(text)
    assert traced_in_module(other, program.tags, program.ids, program.outside) is None


def test_a_stage_shown_later_is_a_stage_like_any_other() -> None:
    stage = inspected("calls").stage("stablehlo")
    again = pickle.loads(pickle.dumps(stage))
    assert again == stage == copy.deepcopy(stage)
    assert (again.text, again.instructions) == (stage.text, stage.instructions)
    assert stage.text.startswith("module @jit_calls")
    assert str(stage) == stage.text
    assert not hasattr(stage, "lines")
