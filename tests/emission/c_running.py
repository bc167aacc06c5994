"""Run emitted C, compiled without optimization and with every warning as an error."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mithril_nb.emission.c.compiling import Routine, load
from mithril_nb.emission.c.emit import CFile, emit
from mithril_nb.inspection import Inspection
from tests.emission.evaluating import traced_program

# A program may compare an integer with a number that its dtype cannot hold.
STRICT = ("-O1", "-Wall", "-Wextra", "-Werror", "-Wno-type-limits")


def emitted(inspection: Inspection) -> CFile:
    return emit(traced_program(inspection))


def run_c(inspection: Inspection, *args: Any) -> list[np.ndarray]:
    """Return the results of an emitted program, flat."""
    file = emitted(inspection)
    return Routine(load({"program": file.source.text}, STRICT), file)(*map(_plain, jax.tree.leaves(args)))


def assert_close(found: list[np.ndarray], expected: Any, tolerance: float) -> None:
    """Compare with the results of JAX: max|a - b| / max|b|, and where they are NaN or infinite."""
    for one, other in zip(found, map(_plain, jax.tree.leaves(expected)), strict=True):
        assert one.shape == other.shape
        if one.dtype.kind != "f":
            np.testing.assert_array_equal(one, other)
        else:
            assert one.dtype == other.dtype
            assert distance(one, other) <= tolerance, (one, other)


def distance(one: np.ndarray, other: np.ndarray) -> float:
    """Return max|a - b| / max|b| of the finite items; infinity if other items differ.

    Where `b` is a few rounding errors of 1, the exact result is zero, and `a` may be as large.
    """
    finite = np.isfinite(other)
    if not np.array_equal(one[~finite], other[~finite], equal_nan=True):
        return np.inf
    if not finite.any():
        return 0.0
    error = float(np.max(np.abs(one[finite] - other[finite])))
    largest = float(np.max(np.abs(other[finite])))
    return 0.0 if max(error, largest) <= rounding(other.dtype) else error / max(largest, 1e-30)


def rounding(dtype: np.dtype) -> float:
    """Return four rounding errors of 1 in a floating-point dtype."""
    return 4 * float(np.finfo(dtype).eps)


def _plain(array: Any) -> np.ndarray:
    array = array if hasattr(array, "dtype") else jnp.asarray(array)
    if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        array = jax.random.key_data(array)
    return np.asarray(array)
