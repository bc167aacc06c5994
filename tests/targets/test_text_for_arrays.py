"""Text instead of an array: `"f32[3,4]"` instead of `jax.ShapeDtypeStruct((3, 4), "float32")`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import pytest

import mithril_nb as ml
from mithril_nb.errors import MithrilError
from mithril_nb.models import Linear

W = jax.ShapeDtypeStruct((4, 3), "float32")


def total(x: Any) -> Any:
    return x.sum()


def product(x: Any, w: Any, times: int = 1) -> Any:
    return x.dot(w) * times


def in_dict(batch: Any) -> Any:
    return batch["x"].dot(batch["w"])


jitted = jax.jit(total)

CASES: dict[str, tuple[Callable[[], Any], str]] = {
    "a function": (
        lambda: ml.inspect(total, "f32[3,4]"),
        """the argument 'x' of 'total' contains text instead of an array.
    given    'f32[3,4]'
    because  AttributeError: 'str' object has no attribute 'sum'
    Try: ml.inspect(total, jax.ShapeDtypeStruct((3, 4), "float32"))""",
    ),
    "one of several arguments": (
        lambda: ml.inspect(product, "bf16[3, 4]", W, times=2),
        """the argument 'x' of 'product' contains text instead of an array.
    given    'bf16[3, 4]'
    because  AttributeError: 'str' object has no attribute 'dot'
    Try: ml.inspect(product, jax.ShapeDtypeStruct((3, 4), "bfloat16"), w, times=2)""",
    ),
    "several of them": (
        lambda: ml.inspect(product, "i32[]", w="float32[]"),
        """the argument 'x' of 'product' contains text instead of an array.
    given    'i32[]'
    because  AttributeError: 'str' object has no attribute 'dot'
    Try: ml.inspect(product, jax.ShapeDtypeStruct((), "int32"), w=jax.ShapeDtypeStruct((), "float32"))""",
    ),
    "a function of JAX": (
        lambda: ml.inspect(jnp.tanh, "f32[8]"),
        """the argument 'x' of 'tanh' contains text instead of an array.
    given    'f32[8]'
    because  TypeError: Error interpreting argument to <function tanh> as an abstract array. The prob...
    Try: ml.inspect(jax.numpy.tanh, jax.ShapeDtypeStruct((8,), "float32"))""",
    ),
    "a function that is jitted": (
        lambda: ml.inspect(jitted, "i8[8]"),
        """the argument 'x' of 'total' contains text instead of an array.
    given    'i8[8]'
    because  TypeError: Error interpreting argument to <function total> as an abstract array. The pro...
    Try: ml.inspect(total, jax.ShapeDtypeStruct((8,), "int8"))""",
    ),
    "text in a container": (
        lambda: ml.inspect(in_dict, {"x": "f32[3,4]", "w": W}),
        """the argument 'batch' of 'in_dict' contains text instead of an array.
    given    {'x': 'f32[3,4]', 'w': ShapeDtypeStruct(shape=(4, 3), dtype=float32)}
    because  AttributeError: 'str' object has no attribute 'dot'
    Try: jax.ShapeDtypeStruct((3, 4), "float32")  # instead of 'f32[3,4]'""",
    ),
    "text that is not a type": (
        lambda: ml.inspect(total, "3 by 4"),
        """the argument 'x' of 'total' contains text instead of an array.
    given    '3 by 4'
    because  AttributeError: 'str' object has no attribute 'sum'
    Try: jax.ShapeDtypeStruct((4, 64), "float32")  # instead of the text""",
    ),
    "a module of linen": (
        lambda: ml.inspect(nn.Dense(3), "f32[3,4]"),
        """the argument 'inputs' of 'Dense' contains text instead of an array.
    given    'f32[3,4]'
    because  a module computes with arrays
    Try: ml.inspect(module, jax.ShapeDtypeStruct((3, 4), "float32"))""",
    ),
    "a module of Equinox": (
        lambda: ml.inspect(eqx.nn.Linear(4, 3, key=jax.random.key(0)), "f32[4]"),
        """the argument 'x' of 'Linear' contains text instead of an array.
    given    'f32[4]'
    because  a module computes with arrays
    Try: ml.inspect(module, jax.ShapeDtypeStruct((4,), "float32"))""",
    ),
    "a model": (
        lambda: ml.inspect(Linear(3), "f32[3,4]"),
        """input 'input' must be an array, or a jax.ShapeDtypeStruct, not 'f32[3,4]'.
    Try: ml.inspect(model, jax.ShapeDtypeStruct((3, 4), "float32"))""",
    ),
}


@pytest.mark.parametrize("what", CASES)
def test_text_in_the_place_of_an_array_leads_to_the_array(what: str) -> None:
    run, text = CASES[what]
    with pytest.raises(MithrilError) as caught:
        run().cost()
    assert str(caught.value) == text
    names = {
        "ml": ml,
        "jax": jax,
        "model": Linear(3),
        "module": nn.Dense(3),
        "w": W,
        "total": total,
        "product": product,
    }
    advised = eval(caught.value.diagnostics[0].advice.partition("  # ")[0], names)
    assert isinstance(advised, jax.ShapeDtypeStruct) or "Equinox" in what or advised.cost().total.bytes_accessed


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
