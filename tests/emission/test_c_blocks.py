"""Every block in C: forward and all gradients, in float32 and float64, against JAX in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mithril_nb.emission.c.compiling import Routine, load
from mithril_nb.emission.c.emit import CFile
from mithril_nb.inspection import inspect
from tests.blocks import test_cases
from tests.emission.c_running import STRICT, distance, emitted
from tests.references import run_quickly

REFUSED = {"Eigvalsh": "eigh", "GaussProcessRegressionCore": "eigh"}
"""Blocks that C has no source for, with the primitive."""
NOT_ARRAYS = {"Shape", "Length", "Size", "ToTuple", "ToList", "Value"}
"""Blocks whose result is a Python value."""
CASES = [case for name, case in test_cases.CASES.items() if name not in REFUSED.keys() | NOT_ARRAYS]
NORMAL = {"PrimitiveRandn", "Randn"}
"""Blocks that draw from the normal distribution in float32: the inverse error function is XLA's to 1e-6."""
CANCELLING = {"GroupNorm", "InstanceNorm", "MDS", "TransformerBlock", "TransformerEncoder", "GPT"}
"""Blocks whose examples subtract nearly equal numbers: float32 keeps few digits in any library."""
GROUPS = 6
"""One program each: XLA compiles one small block nearly as long as twenty."""


def steps(group: int) -> tuple[Callable[..., Any], Callable[[str], Any], list[str]]:
    """Return a function to the results and gradients of many blocks, its arguments by dtype, and their names."""
    graphs: dict[str, Any] = {}
    arrays: dict[str, Any] = {}
    for case in CASES[group::GROUPS]:
        model, inputs = test_cases._example(case)
        params, state = test_cases._arrays(test_cases._inferred(model.graph, inputs, "float64"))
        random = np.random.default_rng(1)
        params = {name: random.normal(0.5, 0.5, array.shape) for name, array in params.items()}
        graphs[case.name] = model.graph
        arrays[case.name] = params, inputs, state

    def arguments(dtype: str) -> Any:
        return {name: tuple([test_cases._as(each, dtype) for each in three]) for name, three in arrays.items()}

    def step(given: Any) -> Any:
        return {name: _step(graphs[name], *three) for name, three in given.items()}

    return step, arguments, list(graphs)


def _step(graph: Any, params: Any, inputs: Any, state: Any) -> Any:
    floating = {name: one for name, one in inputs.items() if jnp.issubdtype(one.dtype, jnp.floating)}
    dtype = str(next((one.dtype for one in jax.tree.leaves((floating, params))), "float32"))

    def outputs(params: Any, floating: Any) -> Any:
        found = test_cases._run(graph, params, state, {**inputs, **floating}, dtype)
        inexact = {name: one for name, one in found.items() if jnp.issubdtype(one.dtype, jnp.floating)}
        return inexact, {name: one for name, one in found.items() if name not in inexact}

    inexact, back, others = jax.vjp(outputs, params, floating, has_aux=True)
    weights = {name: jnp.cos(jnp.arange(one.size, dtype=one.dtype)).reshape(one.shape) for name, one in inexact.items()}
    return inexact, others, back(weights)


def _nearby(array: np.ndarray) -> np.ndarray:
    """Return the array with rounding errors of float32."""
    if array.dtype.kind != "f":
        return array
    return array * (1 + 1e-7 * np.cos(7 * np.arange(array.size)).reshape(array.shape))


@pytest.mark.parametrize("group", range(GROUPS))
def test_results_and_gradients_agree_with_jax(group: int) -> None:
    step, arguments, names = steps(group)
    files: dict[str, tuple[CFile, Any]] = {}
    for dtype in ("float32", "float64"):
        with jax.enable_x64(dtype == "float64"):
            given = arguments(dtype)
            files[dtype] = emitted(inspect(step, given, name=f"in_{dtype}")), given
    library = load({dtype: file.source.text for dtype, (file, _) in files.items()}, ("-O0", *STRICT[1:]))
    with jax.enable_x64(True):
        # The same numbers as in float32.
        rounded = jax.tree.map(lambda a, b: np.asarray(b).astype(a.dtype), arguments("float64"), files["float32"][1])
        expected = jax.tree.map(np.asarray, run_quickly(step, rounded))
    routines = {dtype: Routine(library, file) for dtype, (file, _) in files.items()}
    nearby = jax.tree.map(_nearby, rounded)
    runs = ("float32", files["float32"][1]), ("float64", rounded), ("float64", nearby)
    found = [
        jax.tree.unflatten(jax.tree.structure(expected), routines[dtype](*jax.tree.leaves(given)))
        for dtype, given in runs
    ]
    wrong: list[str] = []
    for name in names:
        parts = [jax.tree.leaves(each[name]) for each in (*found, expected)]
        for single, double, changed, other in zip(*parts, strict=True):
            if other.dtype.kind != "f":
                if not (np.array_equal(single, other) and np.array_equal(double, other)):
                    wrong.append(f"{name}: {single} {double} {other}")
                continue
            error, single_error = distance(double, other), distance(single.astype("float64"), other)
            # Changing the inputs by a rounding error of float32 may change the results by more than 1e-5.
            change = distance(changed, double) if np.array_equal(np.isfinite(changed), np.isfinite(double)) else np.inf
            double_limit = 1e-6 if name in NORMAL else 1e-10 if name in CANCELLING else 1e-12
            single_limit = 0.05 if name in CANCELLING else max(1e-5, 10 * change)
            if error > double_limit or single_error > single_limit:
                wrong.append(f"{name}: {single_error} in float32, {error} in float64")
    assert wrong == []
