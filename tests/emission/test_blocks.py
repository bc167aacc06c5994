"""Every block in NumPy, PyTorch, MLX and C: forward and gradients, in float32 and float64, against JAX in float64."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from mithril_nb.emission.arrays.emitter import emit_arrays
from mithril_nb.emission.c.compiling import Routine, load
from mithril_nb.emission.python_text import load as load_python
from mithril_nb.inspection import Inspection
from mithril_nb.inspection import inspect_function as inspect
from tests.blocks import test_cases
from tests.blocks.case import Arrays, Case
from tests.emission.c_running import STRICT, distance, emitted
from tests.emission.evaluating import traced_program
from tests.emission.libraries import LACKING, LIBRARIES, run_emitted
from tests.process import QUICK_CODE

NOT_ARRAYS = {"Shape", "Length", "Size", "TensorToList", "ToTuple", "ToList", "Value"}
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
NORMAL = {"PrimitiveRandn", "Randn"}
"""Blocks that draw from the normal distribution in float32: the inverse error function is XLA's to 1e-6."""
CANCELLING = {"GroupNorm", "InstanceNorm", "MDS", "TransformerBlock", "TransformerEncoder", "GPT"}
"""Blocks whose examples subtract nearly equal numbers: float32 keeps few digits in any library."""
GROUPS = 12
"""One program each: XLA compiles one small block nearly as long as twenty."""
RUNS = [
    (library, dtype)
    for library in (*LIBRARIES, "c", "jax")
    for dtype in ("float32", "float64")
    # MLX has float64 for a few functions on a CPU.
    if library not in LACKING and (library, dtype) not in {("mlx", "float64"), ("jax", "float32")}
]

WEIGHTS = [1.5, 0.5, -0.75, 2.0, 0.25, 1.25, -0.5]
"""Gradients of the results, repeated. They are exact in each dtype, and their sum is not nearly zero."""
OPTIONS: dict[str, Any] = {**QUICK_CODE, "xla_backend_optimization_level": 0}
FEW = settings(
    max_examples=3, database=None, phases=[Phase.generate], deadline=None, suppress_health_check=list(HealthCheck)
)

Step = Callable[[Any], Any]


def largest_example(case: Case) -> Any:
    """Return the largest of a few random examples: the first one that Hypothesis draws has sizes of 1."""
    found: list[Any] = []

    @seed(3)
    @FEW
    @given(st.composite(case.draw)())
    def take(drawn: Any) -> None:
        found.append(drawn)

    take()
    return max(found, key=_preference)


def _preference(example: tuple[Any, Arrays]) -> Any:
    """Return what to prefer in an example: no empty array, no 16 bits, which C does not have, floats, many items."""
    model, inputs = example
    outputs = [getattr(one, "dtype", "") for one in test_cases._inferred(model.graph, inputs).outputs.values()]
    is_floating = "float32" in outputs and (not inputs or any(array.dtype.kind == "f" for array in inputs.values()))
    is_usual = all(array.size for array in inputs.values()) and not {"float16", "bfloat16"} & {*outputs}
    return is_usual, is_floating, sum(array.size for array in inputs.values())


def step_of(
    names: Collection[str], example: Callable[[Any], Any] = largest_example
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
        # NumPy arrays: JAX compiles a program for each shape that it copies.
        return jax.tree.map(lambda array: array.astype(test_cases._dtype(array, dtype)), arrays)

    return lambda given: {name: _results(graphs[name], *three) for name, three in given.items()}, arguments


def _results(graph: Any, params: Any, inputs: Any, state: Any) -> Any:
    floating = {name: one for name, one in inputs.items() if jnp.issubdtype(one.dtype, jnp.floating)}
    dtype = str(next((one.dtype for one in jax.tree.leaves((floating, params))), "float32"))

    def outputs(params: Any, floating: Any) -> Any:
        found = test_cases._run(graph, params, state, {**inputs, **floating}, dtype)
        inexact = {name: one for name, one in found.items() if jnp.issubdtype(one.dtype, jnp.floating)}
        return inexact, {name: one for name, one in found.items() if name not in inexact}

    inexact, back, others = jax.vjp(outputs, params, floating, has_aux=True)
    weights = {name: jnp.asarray(np.resize(WEIGHTS, one.shape), one.dtype) for name, one in inexact.items()}
    return inexact, others, back(weights)


def nearby(array: np.ndarray) -> np.ndarray:
    """Return the array with rounding errors of float32."""
    if array.dtype.kind != "f":
        return array
    return array * (1 + 1e-7 * np.cos(7 * np.arange(array.size)).reshape(array.shape))


def results_in(library: str, inspection: Inspection, given: Any) -> list[np.ndarray]:
    """Return the results of the emitted program, flat."""
    arguments = [given] if jax.tree.leaves(given) else []
    if library == "c":
        file = emitted(inspection)
        return Routine(load({"program": file.source.text}, ("-O0", *STRICT[1:])), file)(*jax.tree.leaves(given))
    if library == "jax":  # the emitted JAX program runs in NumPy, which needs no compilation
        function = load_python(emit_arrays(traced_program(inspection), "jax"))
        inspection, library = inspect(function, *arguments, name="in_jax"), "numpy"
    return run_emitted(inspection, library, {"given": given})


@pytest.mark.parametrize("group", range(GROUPS))
def test_results_and_gradients_agree_with_jax(group: int) -> None:
    names = [*CASES][group::GROUPS]
    step, arguments = step_of(names)
    single = arguments("float32")
    with jax.enable_x64(True):
        # The same numbers as in float32.
        double = jax.tree.map(lambda a, b: np.asarray(b).astype(a.dtype), arguments("float64"), single)
        compiled = jax.jit(step).lower(double).compile(compiler_options=OPTIONS)
        expected, moved = (jax.tree.map(np.asarray, compiled(each)) for each in (double, jax.tree.map(nearby, double)))
    wrong: list[str] = []
    traced: dict[Any, Inspection] = {}
    for library, dtype in RUNS:
        kept = [name for name in names if name not in REFUSED.get((library, dtype), ())]
        arrays = {name: (double if dtype == "float64" else single)[name] for name in kept}
        with jax.enable_x64(dtype == "float64"):
            key = (dtype, *kept)
            if key not in traced:
                traced[key] = inspect(step, arrays, name=f"in_{dtype}")
            flat = results_in(library, traced[key], arrays)
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
    if max(np.abs(one).max(initial=0), 1e6 * np.abs(other).max(initial=0)) < (1e-6 if dtype == "float32" else 1e-13):
        return ""  # the exact result is zero
    error = distance(one.astype(other.dtype), other)
    if dtype == "float64":
        # Without floating inputs, a block computes in float32.
        is_single = name in NORMAL or other.dtype != "float64"
        limit = 1e-6 if is_single else 1e-10 if name in CANCELLING else 1e-12
    else:
        # Changing the inputs by a rounding error of float32 may change the results by more than 1e-5.
        change = distance(changed, other) if np.array_equal(np.isfinite(changed), np.isfinite(other)) else np.inf
        limit = 0.05 if name in CANCELLING else max(1e-5, 10 * change)
    return "" if error <= limit else f"error {error:.1e}, limit {limit:.0e}"
