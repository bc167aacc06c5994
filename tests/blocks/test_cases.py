"""Every block: shapes compared with JAX, values with references, gradients with finite differences."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mithril_nb.backends.jax import JaxBackend
from mithril_nb.graph.records import LogicalGraph
from mithril_nb.graph.spec import LEADING, TensorSpec
from mithril_nb.models import Model
from mithril_nb.models.op import OPS
from mithril_nb.models.shape_inference.flat import flat
from mithril_nb.models.shape_inference.infer import Inference, infer
from mithril_nb.program import run_with_state
from tests.blocks.case import Arrays, Case, all_cases

CASES = {case.name: case for case in all_cases()}
MORE = int(os.environ.get("MITHRIL_NB_EXAMPLES", "1"))
"""How many times as many examples. Each new shape is compiled op by op: the usual run takes few, always the same."""
TRACED, RUN, DIFFERENTIATED = (settings(max_examples=count * MORE, derandomize=MORE == 1) for count in (2, 1, 1))
each = pytest.mark.parametrize("name", CASES)


def test_each_op_has_a_case():
    """Without a case, an op would not be tested."""
    ops: set[str] = set()
    for case in CASES.values():
        for _ in range(3):
            ops |= {op.block.op for op in flat(_example(case)[0].graph).ops}
    assert sorted(OPS.keys() - ops - _made_in_tests()) == []


@each
@TRACED
@given(data=st.data())
def test_shapes_and_dtypes_agree_with_jax(name: str, data: st.DataObject):
    model, inputs = _drawn(CASES[name], data)
    graph = model.graph
    found = _inferred(graph, inputs)
    assert found.problems == ()
    outputs = jax.eval_shape(lambda p, s, i: _run(graph, p, s, i), *_specs(found), _as(inputs, "float32"))
    _assert_agrees(found, outputs)
    # The same with named sizes: the known parts must agree.
    named = infer(graph, {port: TensorSpec(_names(array), _dtype(array)) for port, array in inputs.items()})
    for output, spec in named.outputs.items():
        if isinstance(spec, TensorSpec) and spec.shape[:1] != (LEADING,) and output in outputs:
            real = outputs[output].shape
            assert len(spec.shape) == len(real), output
            assert all(isinstance(a, str) or a == b for a, b in zip(spec.shape, real, strict=True)), output


@each
@RUN
@given(data=st.data())
def test_values_agree_with_references(name: str, data: st.DataObject):
    case = CASES[name]
    if case.reference is None:
        return
    model, inputs = _drawn(case, data)
    for dtype, tolerance in (("float64", case.tolerance64), ("float32", case.tolerance)):
        with jax.enable_x64(dtype == "float64"):
            params, state = _arrays(_inferred(model.graph, inputs, dtype))
            # Both start from the same float32 values: only the computation is compared.
            given_ = {port: _rounded(array, dtype) for port, array in inputs.items()}
            compiled = jax.jit(lambda p, s, i, dtype=dtype: _run(model.graph, p, s, i, dtype))
            found = compiled(_as(params, dtype), _as(state, dtype), _as(given_, dtype))
            rounded = {name: _rounded(array, dtype) for name, array in {**params, **state}.items()}
        expected = case.reference(model, rounded, given_)
        for port, value in expected.items():
            np.testing.assert_allclose(
                np.asarray(found[port], "float64"), value, tolerance, tolerance, err_msg=f"{port}, {dtype}"
            )


@each
@DIFFERENTIATED
@given(data=st.data())
def test_gradients_agree_with_finite_differences(name: str, data: st.DataObject):
    case = CASES[name]
    if not case.is_differentiable:
        return
    model, inputs = _drawn(case, data)
    with jax.enable_x64(True):
        params, state = _arrays(_inferred(model.graph, inputs, "float64"))
        floating = {port: array for port, array in inputs.items() if array.dtype.kind == "f"}
        if not params and not floating:
            return
        whole = {port: array for port, array in inputs.items() if array.dtype.kind != "f"}

        def outputs(params: Any, floating: Any) -> Any:
            found = _run(model.graph, params, _as(state, "float64"), {**floating, **_as(whole, "float64")}, "float64")
            return [value for value in found.values() if jnp.issubdtype(jnp.asarray(value).dtype, jnp.floating)]

        _assert_agrees_with_differences(outputs, (params, floating))


def _assert_agrees_with_differences(function: Any, at: Any, step: float = 1e-5, tolerance: float = 1e-4) -> None:
    """Do what JAX's `check_grads` does in reverse mode, but compile one program instead of many."""
    random = np.random.default_rng(0)

    def like(tree: Any) -> Any:
        return jax.tree.map(lambda leaf: random.normal(size=np.shape(leaf)), tree)

    @jax.jit
    def both(at: Any, weights: Any) -> Any:
        values, back = jax.vjp(function, *at)
        weights = [weight.astype(value.dtype) for weight, value in zip(weights, values, strict=True)]
        return function(*at), values, back(weights)

    way, weights = like(at), like(jax.eval_shape(function, *at))
    values, again, found = both(at, weights)
    jax.tree.map(lambda left, right: np.testing.assert_allclose(left, right, tolerance, tolerance), values, again)
    after, before = (
        jax.device_get(both(jax.tree.map(lambda leaf, along, by=by: leaf + by * along, at, way), weights)[0])
        for by in (step, -step)
    )
    slopes = jax.tree.map(lambda more, less: (more - less) / (2 * step), after, before)
    np.testing.assert_allclose(_inner(way, found), _inner(weights, slopes), tolerance, tolerance)


def _inner(left: Any, right: Any) -> float:
    return sum(float(np.vdot(a, b)) for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True))


def _drawn(case: Case, data: st.DataObject) -> tuple[Model, Arrays]:
    return data.draw(st.composite(case.draw)())


def _example(case: Case) -> tuple[Model, Arrays]:
    found: list[tuple[Model, Arrays]] = []

    @settings(max_examples=1, database=None)
    @given(st.composite(case.draw)())
    def take(drawn: tuple[Model, Arrays]) -> None:
        found.append(drawn)

    take()
    return found[-1]


def _made_in_tests() -> set[str]:
    return {op for op, made in OPS.items() if not made.__module__.startswith("mithril_nb.")}


def _rounded(array: np.ndarray, dtype: str) -> np.ndarray:
    return array.astype(dtype).astype("float64") if array.dtype.kind == "f" else array


def _inferred(graph: LogicalGraph, inputs: Arrays, dtype: str = "float32") -> Inference:
    specs = {port: TensorSpec(array.shape, _dtype(array, dtype)) for port, array in inputs.items()}
    return infer(graph, specs, dtype)


def _dtype(array: np.ndarray, floating: str = "float32") -> str:
    return floating if array.dtype.kind == "f" else "bool" if array.dtype.kind == "b" else "int32"


def _names(array: np.ndarray) -> tuple[str, ...]:
    return tuple(f"n{axis}" for axis in range(array.ndim))


def _as(arrays: Arrays, dtype: str) -> dict[str, jax.Array]:
    return {port: jnp.asarray(array.astype(_dtype(array, dtype))) for port, array in arrays.items()}


def _specs(found: Inference) -> tuple[dict[str, Any], dict[str, Any]]:
    params, state = (
        {one.name: jax.ShapeDtypeStruct(one.spec.shape, one.spec.dtype) for one in ones}
        for ones in (found.parameters, found.states)
    )
    return params, state


def _arrays(found: Inference) -> tuple[Arrays, Arrays]:
    """Return params and states that are neither zeros nor ones; running variances stay positive."""
    random = np.random.default_rng(0)
    params = {one.name: random.uniform(0.2, 1.2, one.spec.shape) for one in found.parameters}
    return params, {one.name: random.uniform(0.5, 1.5, one.spec.shape) for one in found.states}


def _run(graph: LogicalGraph, params: Any, state: Any, inputs: Any, dtype: str = "float32") -> dict[str, Any]:
    # A float64 backend would switch JAX to float64 permanently.
    toolkit = replace(JaxBackend().toolkit, dtype=dtype)
    return run_with_state(graph, toolkit, params, inputs, state=state, key=jax.random.key(0))[0]


def _assert_agrees(found: Inference, outputs: dict[str, Any]) -> None:
    for output, spec in found.outputs.items():
        if isinstance(spec, TensorSpec):
            real = outputs[output]
            assert (spec.shape, spec.dtype) == (real.shape, str(real.dtype)), output
