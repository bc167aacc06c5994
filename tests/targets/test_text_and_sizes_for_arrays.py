"""Text or sizes instead of an array: `"f32[3,4]"` or `(3, 4)` for `jax.ShapeDtypeStruct((3, 4), "float32")`."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import pytest
from flax import nnx

import mithril_nb as ml
from mithril_nb.errors import StageUnavailableError

W = jax.ShapeDtypeStruct((4, 3), "float32")
DENSE = nnx.Linear(64, 3, rngs=nnx.Rngs(0))


def total(x: Any) -> Any:
    return x.sum()


def in_dict(batch: Any) -> Any:
    return batch["x"].dot(batch["w"])


def closing(x: Any) -> Any:
    return DENSE(x * x)


@pytest.mark.parametrize(
    ("target", "argument", "because"),
    [
        (total, "f32[3,4]", "'str' object has no attribute 'sum'"),
        (total, (4, 64), "'tuple' object has no attribute 'sum'"),
        (jax.jit(total), "i8[8]", "Error interpreting argument"),
        (jax.jit(total), (4, 64), "'tuple' object has no attribute 'sum'"),
        (in_dict, {"x": [4, 64], "w": W}, "'list' object has no attribute 'dot'"),
        (in_dict, {"x": "f32[3,4]", "w": W}, "'str' object has no attribute 'dot'"),
        (closing, (4, 64), "can't multiply sequence"),
        (nn.Dense(3), "f32[3,4]", "a module computes with arrays"),
        (nn.Dense(3), (4, 64), "a module computes with arrays"),
        (DENSE, (4, 64), "a module computes with arrays"),
        (eqx.nn.Linear(4, 3, key=jax.random.key(0)), (4, 64), "a module computes with arrays"),
    ],
)
def test_the_error_names_the_argument(target: Any, argument: Any, because: str) -> None:
    with pytest.raises(StageUnavailableError, match="is not an array") as caught:
        ml.inspect(target, argument).cost()
    problem = caught.value.diagnostics[0]
    assert because in dict(problem.facts)["because"]
    assert problem.advice == 'jax.ShapeDtypeStruct((4, 64), "float32")'


def test_text_that_is_meant_stays_text() -> None:
    def scaled(x: Any, how: str) -> Any:
        return x.sum() if how == "f32[3,4]" else how.sum()  # pyright: ignore[reportAttributeAccessIssue]

    assert ml.inspect(scaled, W, "f32[3,4]").cost().total.flops > 0
    static = ml.inspect(scaled, W, "mean", static_argnames="how").stage("jaxpr").unavailable
    assert static is not None
    assert static.startswith("AttributeError: 'str' object has no attribute 'sum'")
    other = ml.inspect(lambda x, how: x.reshape(2, 5), W, "f32[3]").stage("jaxpr").unavailable
    assert other is not None
    assert "cannot reshape" in other


def test_stage_reports_the_error_and_its_line() -> None:
    stage = ml.inspect(closing, (4, 64)).stage("jaxpr")
    assert stage.unavailable is not None
    assert stage.unavailable.startswith("StageUnavailableError: the argument 'x' of 'closing' is not an array.")
    assert stage.unavailable.endswith("return DENSE(x * x)")


def test_intended_sizes_are_accepted() -> None:
    assert ml.inspect(jnp.zeros, (4, 64), static_argnames="shape").outputs[0].spec.shape == (4, 64)
    assert ml.inspect(jnp.reshape, W, (2, 6), static_argnames="shape").stage("jaxpr").unavailable is None
    with pytest.raises(StageUnavailableError, match=r"cannot reshape array of shape \(4, 3\)"):
        ml.inspect(jnp.reshape, W, (5, 64), static_argnames="shape").cost()
    assert ml.inspect(jax.jit(jnp.zeros, static_argnums=0), (4, 64)).stage("jaxpr").unavailable is None
