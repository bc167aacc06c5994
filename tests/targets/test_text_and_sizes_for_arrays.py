"""Text or sizes instead of an array: `"f32[3,4]"` or `(3, 4)` for `jax.ShapeDtypeStruct((3, 4), "float32")`."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import pytest
from flax import nnx
from transcript import message_of, read_transcript

import mithril_nb as ml
from mithril_nb.errors import StageUnavailableError
from mithril_nb.models import Linear

W, V = (jax.ShapeDtypeStruct((rows, 3), "float32") for rows in (4, 64))
LINEN, MODEL = nn.Dense(3), Linear(3)
DENSE = nnx.Linear(64, 3, rngs=nnx.Rngs(0))
EQUINOX = eqx.nn.Linear(64, 3, key=jax.random.key(0))


def total(x: Any) -> Any:
    return x.sum()


def product(x: Any, w: Any, times: int = 1) -> Any:
    return x.dot(w) * times


def in_dict(batch: Any) -> Any:
    return batch["x"].dot(batch["w"])


def closing(x: Any) -> Any:
    return DENSE(x * x)


jitted = jax.jit(total)
scaled = jax.jit(lambda x, w: x.mean() * w)

TEXTS = """
ml.inspect(total, "f32[3,4]")
StageUnavailableError: the argument 'x' of 'total' contains text instead of an array.
    given    'f32[3,4]'
    because  AttributeError: 'str' object has no attribute 'sum'
    Try: jax.ShapeDtypeStruct((3, 4), "float32")  # instead of the text

ml.inspect(product, "bf16[3, 4]", W, times=2)
StageUnavailableError: the argument 'x' of 'product' contains text instead of an array.
    given    'bf16[3, 4]'
    because  AttributeError: 'str' object has no attribute 'dot'
    Try: jax.ShapeDtypeStruct((3, 4), "bfloat16")  # instead of the text

ml.inspect(product, "i32[]", w="float32[]")
StageUnavailableError: the argument 'x' of 'product' contains text instead of an array.
    given    'i32[]'
    because  AttributeError: 'str' object has no attribute 'dot'
    Try: jax.ShapeDtypeStruct((), "int32")  # instead of the text

ml.inspect(jnp.tanh, "f32[8]")
StageUnavailableError: the argument 'x' of 'tanh' contains text instead of an array.
    given    'f32[8]'
    because  TypeError: Error interpreting argument to <function tanh> as an abstract array. The prob...
    Try: jax.ShapeDtypeStruct((8,), "float32")  # instead of the text

ml.inspect(jitted, "i8[8]")
StageUnavailableError: the argument 'x' of 'total' contains text instead of an array.
    given    'i8[8]'
    because  TypeError: Error interpreting argument to <function total> as an abstract array. The pro...
    Try: jax.ShapeDtypeStruct((8,), "int8")  # instead of the text

ml.inspect(in_dict, {"x": "f32[3,4]", "w": W})
StageUnavailableError: the argument 'batch' of 'in_dict' contains text instead of an array.
    given    {'x': 'f32[3,4]', 'w': ShapeDtypeStruct(shape=(4, 3), dtype=float32)}
    because  AttributeError: 'str' object has no attribute 'dot'
    Try: jax.ShapeDtypeStruct((3, 4), "float32")  # instead of the text

ml.inspect(total, "3 by 4")
StageUnavailableError: the argument 'x' of 'total' contains text instead of an array.
    given    '3 by 4'
    because  AttributeError: 'str' object has no attribute 'sum'
    Try: jax.ShapeDtypeStruct((4, 64), "float32")  # instead of the text

ml.inspect(LINEN, "f32[3,4]")
StageUnavailableError: the argument 'inputs' of 'Dense' contains text instead of an array.
    given    'f32[3,4]'
    because  a module computes with arrays
    Try: jax.ShapeDtypeStruct((3, 4), "float32")  # instead of the text

ml.inspect(eqx.nn.Linear(4, 3, key=jax.random.key(0)), "f32[4]")
StageUnavailableError: the argument 'x' of 'Linear' contains text instead of an array.
    given    'f32[4]'
    because  a module computes with arrays
    Try: jax.ShapeDtypeStruct((4,), "float32")  # instead of the text

ml.inspect(MODEL, "f32[3,4]")
UnknownOptionError: input 'input' must be an array, or a jax.ShapeDtypeStruct, not 'f32[3,4]'.
    Try: jax.ShapeDtypeStruct((3, 4), "float32")  # instead of the text
"""
SIZES = """
ml.inspect(total, (4, 64))
StageUnavailableError: the argument 'x' of 'total' contains sizes instead of an array.
    given    (4, 64)
    because  AttributeError: 'tuple' object has no attribute 'sum'
    Try: jax.ShapeDtypeStruct((4, 64), "float32")  # instead of the sizes

ml.inspect(scaled, (4, 64), W)
StageUnavailableError: the argument 'x' of '<lambda>' contains sizes instead of an array.
    given    (4, 64)
    because  AttributeError: 'tuple' object has no attribute 'mean'
    Try: jax.ShapeDtypeStruct((4, 64), "float32")  # instead of the sizes

ml.inspect(in_dict, {"x": [4, 64], "w": V})
StageUnavailableError: the argument 'batch' of 'in_dict' contains sizes instead of an array.
    given    {'x': [4, 64], 'w': ShapeDtypeStruct(shape=(64, 3), dtype=float32)}
    because  AttributeError: 'list' object has no attribute 'dot'
    Try: jax.ShapeDtypeStruct((4, 64), "float32")  # instead of the sizes

ml.inspect(closing, (4, 64))
StageUnavailableError: the argument 'x' of 'closing' contains sizes instead of an array.
    given    (4, 64)
    because  TypeError: can't multiply sequence by non-int of type 'tuple'
    Try: jax.ShapeDtypeStruct((4, 64), "float32")  # instead of the sizes

ml.inspect(LINEN, (4, 64))
StageUnavailableError: the argument 'inputs' of 'Dense' contains sizes instead of an array.
    given    (4, 64)
    because  a module computes with arrays
    Try: jax.ShapeDtypeStruct((4, 64), "float32")  # instead of the sizes

ml.inspect(DENSE, (4, 64))
StageUnavailableError: the argument 'inputs' of 'Linear' contains sizes instead of an array.
    given    (4, 64)
    because  a module computes with arrays
    Try: jax.ShapeDtypeStruct((4, 64), "float32")  # instead of the sizes

ml.inspect(EQUINOX, (4, 64))
StageUnavailableError: the argument 'x' of 'Linear' contains sizes instead of an array.
    given    (4, 64)
    because  a module computes with arrays
    Try: jax.ShapeDtypeStruct((4, 64), "float32")  # instead of the sizes
"""


@pytest.mark.parametrize(("code", "message"), read_transcript(TEXTS))
def test_text_in_the_place_of_an_array_leads_to_the_array(code: str, message: str) -> None:
    assert message_of(f"{code}.cost()", globals()) == message
    advised = eval(message.rpartition("Try: ")[2].partition("  # ")[0])
    assert isinstance(advised, jax.ShapeDtypeStruct)


@pytest.mark.parametrize(("code", "message"), read_transcript(SIZES))
def test_shape_instead_of_array_is_rejected_with_advice(code: str, message: str) -> None:
    assert message_of(f"{code}.cost()", globals()) == message
    if "EQUINOX" not in code:
        spec = message.rpartition("Try: ")[2].partition("  # ")[0]
        assert eval(code.replace("(4, 64)", spec).replace("[4, 64]", spec)).cost().total.flops != 0


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
    assert stage.unavailable.startswith(
        "StageUnavailableError: the argument 'x' of 'closing' contains sizes instead of an array."
    )
    assert stage.unavailable.endswith("return DENSE(x * x)")


def test_intended_sizes_are_accepted() -> None:
    assert ml.inspect(jnp.zeros, (4, 64), static_argnames="shape").outputs[0].spec.shape == (4, 64)
    assert ml.inspect(jnp.reshape, W, (2, 6), static_argnames="shape").stage("jaxpr").unavailable is None
    with pytest.raises(StageUnavailableError, match=r"cannot reshape array of shape \(4, 3\)"):
        ml.inspect(jnp.reshape, W, (5, 64), static_argnames="shape").cost()
    assert ml.inspect(jax.jit(jnp.zeros, static_argnums=0), (4, 64)).stage("jaxpr").unavailable is None
