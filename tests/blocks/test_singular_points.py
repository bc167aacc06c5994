"""Every kind of block at kinks, poles and undefined points: float32 compared with a float64 reference."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from references import run_quickly

import mithril_nb as ml
from mithril_nb.backends.jax import JaxBackend
from mithril_nb.graph.spec import TensorSpec
from mithril_nb.models import KINDS, Flatten, Model
from mithril_nb.models.shape_inference.infer import infer
from mithril_nb.program import run, run_with_state
from tests.blocks.case import Arrays
from tests.blocks.singular import each_item, whole_arrays
from tests.blocks.singular.by_case import (
    FINITE,
    FINITE_ONLY,
    NOT_COMPARED,
    SPECIAL,
    compared_by_case,
    filled,
    is_network,
)
from tests.blocks.singular.point import Point, rounded

POINTS = {one.name: one for one in (*each_item.POINTS, *whole_arrays.POINTS)}
REGISTERED = {kind for kind, made in KINDS.items() if made.__module__.startswith("mithril_nb.")}
AT_POINTS = {one.block.kind for one in POINTS.values()} & REGISTERED
BY_CASE = compared_by_case({kind for kind in REGISTERED - AT_POINTS - NOT_COMPARED.keys() if not is_network(kind)})


def test_each_kind_is_compared_or_has_a_reason():
    compared = AT_POINTS | {name.split(",")[0] for name in BY_CASE}
    assert sorted(kind for kind in REGISTERED - compared - NOT_COMPARED.keys() if not is_network(kind)) == []
    assert sorted(NOT_COMPARED.keys() & compared) == [], "a reason that is out of date"
    assert sorted((NOT_COMPARED.keys() | FINITE_ONLY.keys()) - REGISTERED) == []
    assert sorted(FINITE_ONLY.keys() - {name.split(",")[0] for name in BY_CASE}) == []


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    """Return the outputs and gradients of all points, from one program: one block takes as long to compile."""
    toolkit = JaxBackend().toolkit

    def one_point(name: str, arrays: dict[str, Any]) -> Any:
        def total(wanted: Any) -> Any:
            block, both = POINTS[name].block, {**arrays, **wanted}
            params = {port.name: both.pop(port.name) for port in block.inputs if port.role == "param"}
            found = run(block.graph, toolkit, params, both)
            output = jnp.asarray(found.get("output", 0.0))
            is_floating = jnp.issubdtype(output.dtype, jnp.floating)
            return (output * POINTS[name].weights.astype("float32")).sum() if is_floating else 0.0, found

        slopes, found = jax.grad(total, has_aux=True)({port: arrays[port] for port in POINTS[name].slopes})
        return found, slopes

    def all_points(given: Any) -> Any:
        return {name: one_point(name, arrays) for name, arrays in given.items()}

    given = {name: {port: _on_device(array) for port, array in one.given.items()} for name, one in POINTS.items()}
    return jax.tree.map(np.asarray, run_quickly(all_points, given))


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
    rows = [
        f"{[float(array[tuple(at)]) for array in point.given.values() if array.shape == got.shape]}: "
        f"got {got[tuple(at)]}, expected {expected[tuple(at)]}"
        for at in np.argwhere(~close)[:8]
    ]
    assert not rows, "\n".join([f"{what} at", *rows])


def _on_device(array: np.ndarray) -> jax.Array:
    return jnp.asarray(array.astype("float32") if array.dtype.kind == "f" else array)


@pytest.fixture(scope="module")
def results_by_case() -> dict[str, Any]:
    """Return the outputs of the other kinds at special values, from one program."""

    def all_cases(given: Any) -> Any:
        return {name: _outputs(BY_CASE[name][1], *one) for name, one in given.items()}

    return jax.tree.map(np.asarray, run_quickly(all_cases, {name: _all_on_device(name)[:3] for name in BY_CASE}))


def _outputs(model: Model, params: Any, state: Any, inputs: Any) -> Any:
    return run_with_state(model.graph, JaxBackend().toolkit, params, inputs, state=state)[0]


def _all_on_device(name: str) -> list[dict[str, jax.Array]]:
    return [{port: _on_device(array) for port, array in one.items()} for one in _given(name)]


def _given(name: str) -> tuple[Arrays, Arrays, Arrays, Arrays]:
    """Return params, state, inputs with special values, and inputs with finite values."""
    _, model, inputs = BY_CASE[name]
    found = infer(
        model.graph, {port: TensorSpec(one.shape, str(_on_device(one).dtype)) for port, one in inputs.items()}
    )
    random = np.random.default_rng(0)
    params, state = (
        {one.name: rounded(random.uniform(0.5, 1.5, one.spec.shape)) for one in ones}
        for ones in (found.parameters, found.states)
    )
    values = FINITE if name.split(",")[0] in FINITE_ONLY else SPECIAL
    special, finite = (
        {port: array if array.dtype.kind != "f" else rounded(array) for port, array in filled(inputs, some).items()}
        for some in (values, FINITE)
    )
    return params, state, special, finite


@pytest.mark.parametrize("name", BY_CASE)
def test_values_at_special_items(name: str, results_by_case: dict[str, Any]):
    case, model, _ = BY_CASE[name]
    params, state, special, _ = _given(name)
    for port, value in case.expected(model, {**params, **state}, special).items():
        with np.errstate(over="ignore"):
            rounded_value = np.asarray(value, "float64").astype("float32")
        np.testing.assert_allclose(results_by_case[name][port], rounded_value, 1e-4, 1e-5, err_msg=port)


def test_gradients_are_finite_at_zeros_and_ties(stress: Any):
    names = [name for name, (case, *_) in BY_CASE.items() if case.is_differentiable]
    names = names[:: max(len(names) // stress.size(short=6, long=len(names)), 1)]

    def all_slopes(given: Any) -> Any:
        return {name: one_case(BY_CASE[name][1], *one) for name, one in given.items()}

    def one_case(model: Model, params: Any, state: Any, finite: Any) -> Any:
        floating = {port: array for port, array in finite.items() if jnp.issubdtype(array.dtype, jnp.floating)}

        def total(params: Any, floating: Any) -> Any:
            found = [jnp.asarray(one) for one in _outputs(model, params, state, {**finite, **floating}).values()]
            return sum((one.sum() for one in found if jnp.issubdtype(one.dtype, jnp.floating)), jnp.zeros(()))

        return jax.grad(total, (0, 1))(params, floating)

    given = {name: (*one[:2], one[3]) for name in names for one in [_all_on_device(name)]}
    slopes = run_quickly(all_slopes, given)
    assert [name for name, one in slopes.items() if not all(np.isfinite(x).all() for x in jax.tree.leaves(one))] == []
    stress.report(kinds=len(names))


@pytest.mark.parametrize("shape", [(), (0, 3)])
def test_elementwise_blocks_accept_0_d_and_empty_arrays(shape: tuple[int, ...]):
    for name in each_item.EACH:
        graph = KINDS[name]().graph
        assert infer(graph, {"input": TensorSpec(shape)}).outputs["output"].shape == shape

        def total(x: Any, graph: Any = graph) -> Any:
            found = run(graph, JaxBackend().toolkit, {}, {"input": x})["output"]
            assert found.shape == shape
            return found.astype("float32").sum()

        assert jax.eval_shape(jax.grad(total), jnp.zeros(shape)).shape == shape


def test_a_flat_gradient_reaches_the_shape_before_flatten():
    for block, shape, flat in ((Flatten(0), (2, 3), (6,)), (Flatten(), (2, 3, 2), (2, 6)), (Flatten(0), (0, 3), (0,))):
        model = Model() | KINDS["ElementWiseAffine"]()(input="input", weight="w", bias="b", output="rows")
        model |= block(input="rows", output="output")
        pm = ml.compile(model, shapes={"input": list(shape)})
        x = np.arange(np.prod(shape), dtype="float32").reshape(shape)
        gradient = np.arange(np.prod(flat), dtype="float32").reshape(flat)
        params = {"w": np.ones(shape[-1], "float32"), "b": np.zeros(shape[-1], "float32")}
        _, found = pm.evaluate(params, {"input": x}, {"output": gradient})
        lead, rows = tuple(range(x.ndim - 1)), gradient.reshape(shape)
        np.testing.assert_allclose(found["w"], (x * rows).sum(lead))
        np.testing.assert_allclose(found["b"], rows.sum(lead))
