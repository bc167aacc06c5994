"""Every kind of block where its formula has a kink, a pole or no value: float32 beside a float64 reference."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from references import run_quickly

from mithril_nb.backends.jax import JaxBackend
from mithril_nb.program import run
from tests.blocks.singular.point import Point


def _all_points() -> dict[str, Point]:
    package = importlib.import_module("tests.blocks.singular")
    modules = [
        importlib.import_module(f"{package.__name__}.{one.name}") for one in pkgutil.iter_modules(package.__path__)
    ]
    return {one.name: one for module in modules for one in getattr(module, "POINTS", ())}


POINTS = _all_points()


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    """Outputs and gradients of all points, from one program: each program of its own takes XLA as long."""
    toolkit = JaxBackend().toolkit
    given = {
        name: {
            port: jnp.asarray(array.astype("float32") if array.dtype.kind == "f" else array)
            for port, array in one.given.items()
        }
        for name, one in POINTS.items()
    }

    def one_point(name: str, arrays: dict[str, Any]) -> Any:
        wanted = {port: arrays[port] for port in POINTS[name].slopes}

        def total(wanted: Any) -> Any:
            block, both = POINTS[name].block, {**arrays, **wanted}
            params = {port.name: both.pop(port.name) for port in block.inputs if port.role == "param"}
            found = run(block.graph, toolkit, params, both)
            output = found.get("output", jnp.zeros(()))
            is_floating = jnp.issubdtype(jnp.asarray(output).dtype, jnp.floating)
            return (output * POINTS[name].weights.astype("float32")).sum() if is_floating else 0.0, found

        slopes, found = jax.grad(total, has_aux=True)(wanted)
        return found, slopes

    return jax.tree.map(
        np.asarray, run_quickly(lambda given: {name: one_point(name, one) for name, one in given.items()}, given)
    )


@pytest.mark.parametrize("name", POINTS)
def test_values_and_gradients_at_singular_points(name: str, results: dict[str, Any]):
    point, (found, slopes) = POINTS[name], results[name]
    for what, expected, got in (("value", point.values, found), ("gradient", point.slopes, slopes)):
        for port, reference in expected.items():
            _same(f"{what} of {port}", point, reference, got[port])


def _same(what: str, point: Point, reference: Any, got: np.ndarray) -> None:
    with np.errstate(over="ignore"):
        expected = np.broadcast_to(np.asarray(reference, "float64").astype("float32"), got.shape)
    close = np.isclose(got, expected, point.tolerance, point.tolerance, equal_nan=True)
    if not close.all():
        where = np.argwhere(~close)[:8]
        rows = [
            f"{[float(array[tuple(at)]) if array.shape == got.shape else '?' for array in point.given.values()]}: "
            f"got {got[tuple(at)]}, expected {expected[tuple(at)]}"
            for at in where
        ]
        pytest.fail(f"{what} at\n" + "\n".join(rows))
