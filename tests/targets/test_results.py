"""Errors for functions that return no arrays, and results with arrays and other values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import mithril_nb as ml
from mithril_nb.errors import StageUnavailableError

X = jax.ShapeDtypeStruct((4, 5), "float32")


class Answer:
    def __init__(self, mean: Any):
        self.mean = mean
        self.unit = "m"


class Silent(eqx.Module):
    def __call__(self, x: Any) -> None:
        jnp.tanh(x)


class Told(eqx.Module):
    def __call__(self, x: Any) -> str:
        return f"{x.shape}"


def forgetful(x: Any) -> None:
    jnp.tanh(x)


def closing_over(module: Any) -> Callable[[Any], None]:
    def function(x: Any) -> None:
        module(x)

    return function


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: "done", "'<lambda>' returns no array"),
        (lambda x: {1}, "'<lambda>' returns no array"),
        (lambda x: np.array(["a"]), "'<lambda>' returns no array"),
        (lambda x: forgetful, "'<lambda>' returns no array"),
        (lambda x: Answer(x.mean()), "'<lambda>' returns no array"),
        (lambda x: (row.sum() for row in x), "'<lambda>' returns an iterator"),
        (lambda x: {"sum": x.sum(), "rows": map(jnp.sin, x)}, "'<lambda>' returns an iterator"),
        (Told(), "'Told' returns no array"),
    ],
)
def test_results_without_arrays_are_rejected(function: Any, message: str) -> None:
    with pytest.raises(StageUnavailableError, match=message):
        ml.inspect(function, jax.ShapeDtypeStruct((5,), "float32")).cost()


def test_sizes_are_static_by_name() -> None:
    found = ml.inspect(lambda n: jnp.tanh(jnp.ones(n)), 3, static_argnames="n")
    assert found.cost().total.bytes_accessed == 4 + 12 + 2 * 12
    assert ml.inspect(lambda x: x.shape[0], X).cost().total.flops == 0


@pytest.mark.parametrize("function", [forgetful, closing_over(eqx.nn.Linear(5, 3, key=jax.random.key(0))), Silent()])
def test_empty_result_is_accepted_as_in_jit(function: Any) -> None:
    found = ml.inspect(function, jax.ShapeDtypeStruct((5,), "float32"))
    assert found.stage("jaxpr").unavailable is None
    assert found.outputs == ()
    assert found.equations[-1].primitive in ("tanh", "add")
    assert found.cost().total.flops == 0
    assert found.cost().notes[0] == "all costs are 0: the results of the program do not depend on any of its equations"


def test_function_with_effects_may_return_nothing() -> None:
    def telling(x: Any) -> None:
        jax.debug.print("{}", x.sum())

    assert ml.inspect(telling, X).cost().total.flops == 19


def test_function_that_changes_its_module_may_return_nothing() -> None:
    def update(model: nnx.Linear, x: Any) -> None:
        model.kernel[...] = model.kernel[...] + x.sum()

    assert (ml.inspect(update, nnx.Linear(5, 3, rngs=nnx.Rngs(0)), X).cost().total.flops or 0) > 0


def test_empty_array_is_a_result() -> None:
    assert ml.inspect(lambda params: jax.tree.map(jnp.tanh, params), {}).cost().total.flops == 0


def test_text_in_results_is_dropped() -> None:
    found = ml.inspect(lambda x: (x + 1, "label", None), X)
    assert [one.name for one in found.outputs] == ["result[0]"]
    assert found.cost().total.flops == 20
