"""Every block: shapes compared with JAX, values with references, gradients with finite differences."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mithril_nb.backends.jax import JaxBackend
from mithril_nb.graph.records import LogicalGraph
from mithril_nb.graph.spec import LEADING, TensorSpec
from mithril_nb.models.op import OPS
from mithril_nb.models.shape_inference.flat import flat
from mithril_nb.models.shape_inference.infer import Inference, infer
from mithril_nb.program import run_with_state
from tests.blocks.case import Arrays, all_cases, examples

CASES = {case.name: case for case in all_cases()}
MORE = int(os.environ.get("MITHRIL_NB_EXAMPLES", "1"))
"""How many examples. Each new shape is compiled op by op: the usual run takes few, always the same."""
each = pytest.mark.parametrize("name", CASES)


def test_each_op_has_a_case():
    """Without a case, an op would not be tested."""
    ops = {op.block.op for case in CASES.values() for model, _ in examples(case) for op in flat(model.graph).ops}
    made_in_tests = {op for op, made in OPS.items() if not made.__module__.startswith("mithril_nb.")}
    assert sorted(OPS.keys() - ops - made_in_tests) == []


@each
def test_shapes_and_dtypes_agree_with_jax(name: str):
    drawn = examples(CASES[name], MORE)
    for model, inputs in (*drawn[:MORE], *drawn[-MORE:]):  # the largest, and the smallest
        graph = model.graph
        inference = _inferred(graph, inputs)
        assert inference.problems == ()
        outputs = jax.eval_shape(
            lambda p, s, i, graph=graph: _run(graph, p, s, i), *_specs(inference), _as(inputs, "float32")
        )
        _assert_agrees(inference, outputs)
        # The same with named sizes: the known parts must agree.
        named = infer(graph, {port: TensorSpec(_names(array), _dtype(array)) for port, array in inputs.items()})
        for output, spec in named.outputs.items():
            if isinstance(spec, TensorSpec) and spec.shape[:1] != (LEADING,) and output in outputs:
                real = outputs[output].shape
                assert len(spec.shape) == len(real), output
                assert all(isinstance(a, str) or a == b for a, b in zip(spec.shape, real, strict=True)), output


@each
def test_values_agree_with_references(name: str):
    case = CASES[name]
    if case.reference is None:
        return
    for model, inputs in examples(case, MORE)[:MORE]:
        for dtype, tolerance in (("float64", case.tolerance64), ("float32", case.tolerance)):
            with jax.enable_x64(dtype == "float64"):
                params, state = _arrays(_inferred(model.graph, inputs, dtype))
                # Both start from the same float32 values: only the computation is compared.
                given = {port: _rounded(array, dtype) for port, array in inputs.items()}
                compiled = jax.jit(lambda p, s, i, dtype=dtype, graph=model.graph: _run(graph, p, s, i, dtype))
                outputs = compiled(_as(params, dtype), _as(state, dtype), _as(given, dtype))
                rounded = {name: _rounded(array, dtype) for name, array in {**params, **state}.items()}
            for port, value in case.expected(model, rounded, given).items():
                np.testing.assert_allclose(
                    np.asarray(outputs[port], "float64"),
                    value,
                    tolerance,
                    tolerance,
                    err_msg=f"{model}, {port}, {dtype}",
                )


@each
def test_gradients_agree_with_finite_differences(name: str):
    case = CASES[name]
    for model, inputs in examples(case, MORE)[:MORE] if case.is_differentiable else ():
        with jax.enable_x64(True):
            params, state = _arrays(_inferred(model.graph, inputs, "float64"))
            floating = {port: array for port, array in inputs.items() if array.dtype.kind == "f"}
            if not params and not floating:
                continue
            rest = _as({port: array for port, array in inputs.items() if port not in floating}, "float64")
            state = _as(state, "float64")

            def outputs(params: Any, floating: Any, model: Any = model, rest: Any = rest, state: Any = state) -> Any:
                values = _run(model.graph, params, state, {**floating, **rest}, "float64").values()
                return [value for value in values if jnp.issubdtype(jnp.asarray(value).dtype, jnp.floating)]

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


def _specs(inference: Inference) -> tuple[dict[str, Any], dict[str, Any]]:
    params, state = (
        {array.name: jax.ShapeDtypeStruct(array.spec.shape, array.spec.dtype) for array in group}
        for group in (inference.parameters, inference.states)
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
