"""Comparison of blocks with references: outputs and gradients for the same params and inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

import mithril_nb as ml

TOLERANCE = {"float64": 1e-9, "float32": 1e-5}
Arrays = dict[str, np.ndarray]
Reference = Callable[[Arrays, Arrays, np.ndarray], tuple[np.ndarray, Arrays]]
"""Function from params, inputs and the cotangent to the output, and the gradients of params and floating inputs."""


class Case(NamedTuple):
    """One model, its inputs, and its reference."""

    model: ml.Model
    inputs: Mapping[str, np.ndarray]
    reference: Reference


def assert_same(cases: Mapping[str, Case], dtype: str) -> None:
    """Compare outputs, and gradients of params and inputs, with references in the same precision.

    All cases are one program, because XLA compiles one small block nearly as long as twenty.
    """
    given, forwards = {}, {}
    for number, (name, case) in enumerate(cases.items()):
        random = np.random.default_rng(number)
        inputs = {port: cast(array, dtype) for port, array in case.inputs.items()}
        shapes = {port: array.shape for port, array in inputs.items()}
        pm = ml.compile(case.model, ml.JaxBackend(dtype=dtype), shapes=shapes)
        assert str(pm.output_specs["output"].dtype) == dtype
        # Off their starting values, so that a bias of zeros or a scale of ones cannot hide.
        params = {one.name: cast(random.normal(size=one.spec.shape), dtype) for one in pm.parameters}
        cotangent = cast(random.normal(size=pm.output_specs["output"].shape), dtype)
        given[name], forwards[name] = (params, inputs, cotangent), pm.forward

    def run(given: Any) -> Any:
        return {name: with_gradients(forwards[name], *arrays) for name, arrays in given.items()}

    results = run_quickly(run, given)
    for name, case in cases.items():
        expected, wanted = case.reference(*given[name])
        output, gradients = results[name]
        assert str(output.dtype) == dtype, name
        close(output, expected, dtype, f"{name}: output")
        assert gradients.keys() >= given[name][0].keys()
        for leaf, gradient in gradients.items():
            close(gradient, wanted[leaf], dtype, f"{name}: gradient of {leaf}")


def run_quickly(function: Callable[..., Any], *arguments: Any) -> Any:
    """Run a function as one program without XLA optimizations, which the comparison does not need."""
    lowered = jax.jit(function).lower(*arguments)
    return lowered.compile(compiler_options={"xla_backend_optimization_level": 0})(*arguments)


def with_gradients(forward: Callable[..., Any], params: Any, inputs: Any, cotangent: Any) -> Any:
    """Return the output, and the gradients of all params and floating inputs."""
    floating = {port: array for port, array in inputs.items() if jax.numpy.issubdtype(array.dtype, jax.numpy.floating)}

    def output(params: Any, floating: Any) -> Any:
        return forward(params, {**inputs, **floating})["output"]

    value, pull_back = jax.vjp(output, params, floating)
    by_params, by_inputs = pull_back(cotangent)
    return value, {**by_params, **by_inputs}


def cast(array: np.ndarray, dtype: str) -> np.ndarray:
    """Return the array in the precision of a test; integers stay unchanged."""
    return np.asarray(array, dtype if np.asarray(array).dtype.kind == "f" else None)


def close(got: Any, expected: Any, dtype: str, what: str) -> None:
    """Compare relative to the largest item: sums over a batch cancel, so relative bounds per item do not hold."""
    got, expected = np.asarray(got), np.asarray(expected)
    assert got.shape == expected.shape, what
    scale = max(1.0, float(np.abs(expected).max(initial=0.0)))
    np.testing.assert_allclose(got / scale, expected / scale, rtol=0, atol=TOLERANCE[dtype], err_msg=what)
