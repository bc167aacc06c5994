"""Gathers and scatters with indices outside of an array, in every mode, against XLA on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from jax import lax

import mithril_nb as ml
from mithril_nb.emission.arrays.emitter import emit_arrays
from mithril_nb.emission.c.compiling import Routine, load
from mithril_nb.emission.python_text import load as load_python
from tests.emission.c_running import STRICT, emitted
from tests.emission.evaluating import traced_program
from tests.emission.libraries import LACKING, LIBRARIES, to_library

MODES = (lax.GatherScatterMode.PROMISE_IN_BOUNDS, lax.GatherScatterMode.FILL_OR_DROP, lax.GatherScatterMode.CLIP)
SCATTERS = (lax.scatter, lax.scatter_add, lax.scatter_mul, lax.scatter_min, lax.scatter_max)
ROWS, COLUMNS, COUNT = 4, 3, 5
LEAST, LARGEST = -(2**31), 2**31 - 1


def program(x: Any, whole: Any, places: Any, updates: Any, windows: Any, scatters: Any = SCATTERS) -> list[Any]:
    """Return gathers and scatters of rows, items and windows, in every mode."""
    found: list[Any] = []
    rows, windowed = places[:, :1], (2, 2)
    for mode in MODES:
        for array in (x, whole):
            numbers = lax.GatherDimensionNumbers((1,), (0,), (0,))
            found.append(lax.gather(array, rows, numbers, (1, COLUMNS), mode=mode))
            numbers = lax.GatherDimensionNumbers((), (0, 1), (0, 1))
            found.append(lax.gather(array, places, numbers, (1, 1), mode=mode))
            numbers = lax.GatherDimensionNumbers((1, 2), (), (0, 1))
            found.append(lax.gather(array, places, numbers, windowed, mode=mode))
        for scatter in scatters:
            numbers = lax.ScatterDimensionNumbers((1,), (0,), (0,))
            found.append(scatter(x, rows, updates, numbers, mode=mode))
            numbers = lax.ScatterDimensionNumbers((), (0, 1), (0, 1))
            found.append(scatter(x, places, updates[:, 0], numbers, mode=mode))
            numbers = lax.ScatterDimensionNumbers((1, 2), (), (0, 1))
            found.append(scatter(x, places, windows, numbers, mode=mode))
    return found


@cache
def running(library: str) -> Callable[..., list[Any]]:
    """Return the emitted program as a function of NumPy arrays."""
    inspection = ml.inspect(partial(program, scatters=scatters_in(library)), *specs())
    if library == "c":
        file = emitted(inspection)
        return Routine(load({"program": file.source.text}, STRICT), file)
    function = load_python(emit_arrays(traced_program(inspection), library))  # pyright: ignore[reportArgumentType]
    return lambda *given: list(function(*[to_library(library, one) for one in given]))


def specs() -> list[Any]:
    shapes = [(ROWS, COLUMNS), (ROWS, COLUMNS), (COUNT, 2), (COUNT, COLUMNS), (COUNT, 2, 2)]
    dtypes = ["float32", "int32", "int32", "float32", "float32"]
    return [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]


def scatters_in(library: str) -> Any:
    return SCATTERS[:3] if library == "mlx" else SCATTERS  # MLX drops NaN in minima and maxima, so they are refused


jitted = jax.jit(program, static_argnames="scatters")


@pytest.mark.parametrize("library", [one for one in (*LIBRARIES, "c") if one not in LACKING])
@settings(max_examples=20, deadline=None)
@given(
    arrays.arrays(
        "int32", (COUNT, 2), elements=st.integers(-4, 7) | st.sampled_from([LEAST, LARGEST]), fill=st.nothing()
    )
)
def test_indices_outside_do_what_xla_does(library: str, places: Any) -> None:
    numbers = np.arange(100, dtype="float32")
    size = ROWS * COLUMNS
    given = [
        numbers[1 : size + 1].reshape(ROWS, COLUMNS), numbers[:size].astype("int32").reshape(ROWS, COLUMNS), places,
        numbers[20 : 20 + COUNT * COLUMNS].reshape(COUNT, COLUMNS) / 7,
        numbers[40 : 40 + 4 * COUNT].reshape(COUNT, 2, 2) / 5,
    ]  # fmt: skip
    found = running(library)(*given)
    for place, (one, other) in enumerate(zip(found, jitted(*given, scatters=scatters_in(library)), strict=True)):
        np.testing.assert_allclose(np.asarray(one), other, rtol=1e-6, err_msg=f"result {place}")
