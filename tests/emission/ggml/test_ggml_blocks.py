"""Every block in GGML: forward and gradients in float32, against JAX in float64, or refused by name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from mithril_nb.emission.ggml.emitter import emit_ggml
from mithril_nb.emission.python_text import load
from mithril_nb.emission.source import Source
from mithril_nb.errors import UnsupportedPrimitiveError
from mithril_nb.inspection import inspect_function as inspect
from tests.blocks import test_cases
from tests.emission.test_blocks import CASES, Step, difference, nearby, step_of
from tests.emission.test_blocks import GGML as REFUSED

pytest.importorskip("ggml")
pytestmark = pytest.mark.slow

GROUPS = 12
"""One JAX program each."""
FEW = settings(
    max_examples=12, database=None, derandomize=True, phases=[Phase.generate], deadline=None,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip


def examples(name: str) -> Iterator[Any]:
    """Yield examples of a block without empty arrays, the largest first."""
    found: list[tuple[int, int, Any]] = []

    @FEW
    @given(st.composite(CASES[name].draw)())
    def take(drawn: Any) -> None:
        counts = [np.size(array) for array in drawn[1].values()]
        if all(counts):
            found.append((sum(counts), len(found), drawn))

    take()
    yield from (one[2] for one in sorted(found, key=lambda one: one[:2], reverse=True))


def emitted(name: str) -> tuple[Any, Step, Any, Source] | UnsupportedPrimitiveError:
    """Return an example of a block that GGML has source for, its program, its arguments and its source."""
    first: UnsupportedPrimitiveError | None = None
    for example in examples(name):
        step, arguments = step_of([name], lambda _, example=example: example)
        inspection = inspect(step, arguments("float32"), name="step")
        if inspection.stage("jaxpr").unavailable:  # the result is a Python value
            continue
        try:
            return example, step, arguments, emit_ggml(inspection.traced_program)
        except UnsupportedPrimitiveError as error:
            first = first or error
            if name in REFUSED:
                break
    assert first is not None, name
    return first


@pytest.mark.parametrize("group", range(GROUPS))
def test_results_and_gradients_agree_with_jax_or_are_refused(group: int) -> None:
    found = {name: emitted(name) for name in [*CASES][group::GROUPS]}
    refused = {name: one for name, one in found.items() if isinstance(one, UnsupportedPrimitiveError)}
    assert all(one.backend == "ggml" and one.primitive and "(block '" in str(one) for one in refused.values())
    wrong = [f"{name}: refused, or not" for name in found if (name in refused) != (name in REFUSED)]
    kept = {name: one for name, one in found.items() if not isinstance(one, UnsupportedPrimitiveError)}
    given_examples = {CASES[name].name: one[0] for name, one in kept.items()}
    step, arguments = step_of(kept, lambda case: given_examples[case.name])
    single = arguments("float32")
    with jax.enable_x64(True):
        double = jax.tree.map(lambda a, b: np.asarray(b).astype(a.dtype), arguments("float64"), single)
        compiled = jax.jit(step).lower(double).compile(compiler_options={"xla_backend_optimization_level": 0})
        expected, moved = (jax.tree.map(np.asarray, compiled(each)) for each in (double, jax.tree.map(nearby, double)))
    for name, (_, _, _, source) in kept.items():
        own = jax.tree.map(np.asarray, {name: single[name]})
        results = load(source)(*([own] if jax.tree.leaves(own) else []))
        parts = [map(_wide, jax.tree.leaves(one)) for one in (results[name], expected[name], moved[name])]
        for one, other, changed in zip(*parts, strict=True):
            if problem := difference(one, other, changed, name, "float32"):
                wrong.append(f"{name}: {problem}")
    assert wrong == []


def _wide(array: Any) -> np.ndarray:
    array = np.asarray(array)
    return array.astype("float64") if array.dtype.kind == "f" else array


def test_refused_blocks_exist() -> None:
    assert CASES.keys() >= REFUSED
    assert test_cases.CASES.keys() >= CASES.keys()
