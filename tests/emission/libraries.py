"""Arrays of the libraries that emitted source runs on, and the errors between results."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import pytest

from mithril_nb.emission.arrays.emitter import emit_arrays
from mithril_nb.emission.python_text import load
from mithril_nb.inspection import Inspection
from tests.emission.c_running import rounding
from tests.emission.evaluating import traced_program

LIBRARIES = ("numpy", "torch", "mlx")
LACKING = [name for name in LIBRARIES if importlib.util.find_spec(name) is None]
TOLERANCES = {"float32": 1e-5, "float64": 1e-12}
each_library = pytest.mark.parametrize("library", [one for one in LIBRARIES if one not in LACKING])


def to_library(library: str, array: Any) -> Any:
    """Return an array of a library; a random key as two numbers."""
    if hasattr(array, "dtype") and jax.numpy.issubdtype(array.dtype, jax.dtypes.prng_key):
        array = jax.random.key_data(array)
    array = np.asarray(array)
    if library == "torch":
        torch = importlib.import_module("torch")
        if array.dtype == jax.numpy.bfloat16:
            return torch.tensor(array.view(np.int16)).view(torch.bfloat16)
        return torch.tensor(array.astype(np.int64) if array.dtype == np.uint32 else np.array(array))
    if library == "mlx":
        mx = importlib.import_module("mlx.core")
        return mx.array(array, mx.float64 if array.dtype == np.float64 else None)
    return array


def run_emitted(inspection: Inspection, library: str, arrays: Mapping[str, Any]) -> list[np.ndarray]:
    """Emit a program, run it, and return its results, flat. Warnings are errors.

    Args:
        inspection: The program.
        library: The library.
        arrays: Its arguments by name.
    """
    function = load(emit_arrays(traced_program(inspection), library))  # pyright: ignore[reportArgumentType]
    given = {
        name: jax.tree.map(lambda one: to_library(library, one), tree)
        for name, tree in arrays.items()
        if jax.tree.leaves(tree)
    }
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = function(**given)
    return [np.array(one) if library == "mlx" else np.asarray(one) for one in jax.tree.leaves(found)]


def differences(found: list[np.ndarray], expected: Any, dtype: str) -> list[str]:
    """Return a text for each result that differs from JAX's by more than the tolerance of a dtype.

    The error is max|a - b| / max|b|; 0 if both are a few rounding errors of 1, so the exact result is zero. A result
    that is nearly zero beside the others, such as a gradient that cancels out, is compared with a hundredth of the
    largest.
    """
    leaves = [np.asarray(one) for one in jax.tree.leaves(expected)]
    assert len(found) == len(leaves)
    largest = max([_largest(one) for one in leaves], default=0.0)
    problems = []
    for place, (one, other) in enumerate(zip(found, leaves, strict=True)):
        if other.dtype == jax.dtypes.float0:
            continue
        if one.shape != other.shape:
            problems.append(f"result {place}: shape {one.shape} instead of {other.shape}")
        elif other.dtype.kind not in "fc":
            if not np.array_equal(one, other):
                problems.append(f"result {place}: {one.ravel()[:4]} instead of {other.ravel()[:4]}")
        elif other.size:
            is_same = (np.isnan(one) & np.isnan(other)) | (one == other)
            with np.errstate(invalid="ignore"):
                error = np.where(is_same, 0, np.abs(one.astype(other.dtype) - other)).max()
            is_zero = max(error, _largest(other)) <= rounding(other.dtype)
            error = 0 if is_zero else error / max(_largest(other), largest / 100, 1e-30)
            if not error <= TOLERANCES[dtype]:
                problems.append(f"result {place}: error {error:.1e}")
    return problems


def _largest(array: np.ndarray) -> float:
    if array.dtype.kind not in "fc" or not array.size:
        return 0.0
    return float(np.abs(np.where(np.isfinite(array), array, 0)).max())
