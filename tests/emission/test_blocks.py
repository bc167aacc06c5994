"""Every block in NumPy, PyTorch, MLX and C: forward and gradients, in float32 and float64, against JAX in float64."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mithril_nb.emission.c.compiling import Routine, load
from mithril_nb.inspection import inspect
from tests.blocks import test_cases
from tests.emission.c_running import STRICT, distance, emitted
from tests.emission.libraries import LACKING, LIBRARIES, run_emitted

NOT_ARRAYS = {"Shape", "Length", "Size", "ToTuple", "ToList", "Value"}
"""Blocks whose result is a Python value."""
CASES = {name: case for name, case in test_cases.CASES.items() if name not in NOT_ARRAYS}
RANDOM = {name for name, case in CASES.items() if case.reference is None}
GGML = frozenset(
    "AUC AUCCore AdaptiveAvgPool2d AdaptiveMaxPool2d Arctan AvgPool3d Cholesky Conv3d ConvTranspose3d Eigvalsh "
    "FloorDivide GPRAlpha GPRVOuter GaussProcessRegressionCore MaxPool3d Mod PrimitiveRandInt PrimitiveRandn "
    "RandInt Randn Repeat Scan ShiftLeft ShiftRight Unique".split()
)
"""Blocks that GGML has no source for."""
REFUSED = {
    ("ggml", "float32"): GGML,
    ("c", "float32"): {"Eigvalsh", "GaussProcessRegressionCore"},
    ("c", "float64"): {"Eigvalsh", "GaussProcessRegressionCore"},
    ("torch", "float64"): RANDOM,
}
"""Blocks that a library has no source for: C has no `eigh`, PyTorch no arithmetic for 64 bits without a sign."""
LATER = {"Erf", "FeedForward", "Gelu", "TransformerBlock", "TransformerEncoder"}
"""Blocks that JAX 0.12 differentiates with unsigned 64 bits in float64, for which PyTorch has no source either."""
NORMAL = {"PrimitiveRandn", "Randn"}
"""Blocks that draw from the normal distribution in float32: the inverse error function is XLA's to 1e-6."""
CANCELLING = {"GroupNorm", "InstanceNorm", "MDS", "TransformerBlock", "TransformerEncoder", "GPT"}
"""Blocks whose examples subtract nearly equal numbers: float32 keeps few digits in any library."""
GROUPS = 12
"""One program each: XLA compiles one small block nearly as long as twenty."""
RUNS = [
    (library, dtype)
    for library in (*LIBRARIES, "c")
    for dtype in ("float32", "float64")
    if library not in LACKING and (library, dtype) != ("mlx", "float64")  # MLX has it for a few functions on a CPU
]

Step = Callable[[Any], Any]


def step_of(
    names: Collection[str], example: Callable[[Any], Any] = test_cases._example
) -> tuple[Step, Callable[[str], Any]]:
    """Return a function to the results and gradients of many blocks, and its arguments by dtype."""
    graphs: dict[str, Any] = {}
    arrays: dict[str, Any] = {}
    for name in names:
        model, inputs = example(CASES[name])
        params, state = test_cases._arrays(test_cases._inferred(model.graph, inputs, "float64"))
        random = np.random.default_rng(1)
        params = {port: random.normal(0.5, 0.5, array.shape) for port, array in params.items()}
        graphs[name] = model.graph
        arrays[name] = params, inputs, state

    def arguments(dtype: str) -> Any:
        return {name: tuple([test_cases._as(each, dtype) for each in three]) for name, three in arrays.items()}

    return lambda given: {name: _results(graphs[name], *three) for name, three in given.items()}, arguments


def _results(graph: Any, params: Any, inputs: Any, state: Any) -> Any:
    floating = {name: one for name, one in inputs.items() if jnp.issubdtype(one.dtype, jnp.floating)}
    dtype = str(next((one.dtype for one in jax.tree.leaves((floating, params))), "float32"))

    def outputs(params: Any, floating: Any) -> Any:
        found = test_cases._run(graph, params, state, {**inputs, **floating}, dtype)
        inexact = {name: one for name, one in found.items() if jnp.issubdtype(one.dtype, jnp.floating)}
        return inexact, {name: one for name, one in found.items() if name not in inexact}

    inexact, back, others = jax.vjp(outputs, params, floating, has_aux=True)
    weights = {name: jnp.cos(jnp.arange(one.size, dtype=one.dtype)).reshape(one.shape) for name, one in inexact.items()}
    return inexact, others, back(weights)


def nearby(array: np.ndarray) -> np.ndarray:
    """Return the array with rounding errors of float32."""
    if array.dtype.kind != "f":
        return array
    return array * (1 + 1e-7 * np.cos(7 * np.arange(array.size)).reshape(array.shape))


def results_in(library: str, dtype: str, step: Step, given: Any) -> list[np.ndarray]:
    """Return the results of the emitted program, flat."""
    with jax.enable_x64(dtype == "float64"):
        inspection = inspect(step, given, name=f"in_{dtype}")
        if library != "c":
            return run_emitted(inspection, library, {"given": given})
        file = emitted(inspection)
    return Routine(load({"program": file.source.text}, ("-O0", *STRICT[1:])), file)(*jax.tree.leaves(given))


@pytest.mark.parametrize("group", range(GROUPS))
def test_results_and_gradients_agree_with_jax(group: int) -> None:
    names = [*CASES][group::GROUPS]
    step, arguments = step_of(names)
    single = arguments("float32")
    with jax.enable_x64(True):
        # The same numbers as in float32.
        given = jax.tree.map(lambda a, b: np.asarray(b).astype(a.dtype), arguments("float64"), single)
        lowered = jax.jit(step).lower(given)
        compiled = lowered.compile(compiler_options={"xla_backend_optimization_level": 0})
        expected, moved = (jax.tree.map(np.asarray, compiled(each)) for each in (given, jax.tree.map(nearby, given)))
    wrong: list[str] = []
    for library, dtype in RUNS:
        refused = REFUSED.get((library, dtype), set())
        if (library, dtype) == ("torch", "float64") and jax.__version_info__ >= (0, 12):
            refused = refused | LATER
        kept = [name for name in names if name not in refused]
        arrays = {name: (given if dtype == "float64" else single)[name] for name in kept}
        flat = results_in(library, dtype, step, arrays)
        found = jax.tree.unflatten(jax.tree.structure({name: expected[name] for name in kept}), flat)
        for name in kept:
            parts = [jax.tree.leaves(each[name]) for each in (found, expected, moved)]
            for one, other, changed in zip(*parts, strict=True):
                if problem := difference(one, other, changed, name, dtype):
                    wrong.append(f"{name} in {library}, {dtype}: {problem}")
    assert wrong == []
    from tests.emission.backends_page import has_gradients, written  # it imports the blocks from here

    shown = written()
    assert {name: has_gradients(expected[name]) for name in names} == {name: shown[name] for name in names}


def difference(one: np.ndarray, other: np.ndarray, changed: np.ndarray, name: str, dtype: str) -> str:
    """Return by how much a result differs from JAX's in float64; `""` if by less than its limit."""
    if other.dtype == jax.dtypes.float0:
        return ""
    if other.dtype.kind not in "fc":
        return "" if np.array_equal(one, other) else f"{one} instead of {other}"
    error = distance(one.astype(other.dtype), other)
    if dtype == "float64":
        limit = 1e-6 if name in NORMAL else 1e-10 if name in CANCELLING else 1e-12
    else:
        # Changing the inputs by a rounding error of float32 may change the results by more than 1e-5.
        change = distance(changed, other) if np.array_equal(np.isfinite(changed), np.isfinite(other)) else np.inf
        limit = 0.05 if name in CANCELLING else max(1e-5, 10 * change)
    return "" if error <= limit else f"error {error:.1e}, limit {limit:.0e}"
