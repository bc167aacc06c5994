"""What runs each op on JAX: pure functions of arrays, traced once."""

from __future__ import annotations

import math
from collections.abc import Mapping

import jax
import jax.numpy as jnp
from jax import lax

from mithril_nb.graph.records import Value
from mithril_nb.models.dims import same_padding
from mithril_nb.program import Arrays, Call, Kernel


def _linear(call: Call, arrays: Arrays) -> Arrays:
    out = jnp.matmul(arrays["input"], arrays["weight"])
    return {"output": out + arrays["bias"] if "bias" in arrays else out}


def _conv2d(call: Call, arrays: Arrays) -> Arrays:
    image, weight = arrays["input"], arrays["weight"]
    out = lax.conv_general_dilated(
        image,
        weight,
        _pair(call.options["stride"]),
        _padding(call, image.shape[2:]),
        dimension_numbers=("NCHW", "OIHW", "NCHW"),
    )
    return {"output": out + arrays["bias"][:, None, None] if "bias" in arrays else out}


def _max_pool2d(call: Call, arrays: Arrays) -> Arrays:
    image = arrays["input"]
    window, stride = _pair(call.options["kernel_size"]), _pair(call.options["stride"])
    padding = [(0, 0), (0, 0), *_padding(call, image.shape[2:])]
    # -inf as a Python number takes the image's dtype, and reduce_window knows its gradient.
    return {"output": lax.reduce_window(image, -jnp.inf, lax.max, (1, 1, *window), (1, 1, *stride), padding)}


def _flatten(call: Call, arrays: Arrays) -> Arrays:
    x = arrays["input"]
    return {"output": x.reshape(x.shape[0], math.prod(x.shape[1:]))}  # -1 would not do for an empty batch


def _layer_norm(call: Call, arrays: Arrays) -> Arrays:
    x = arrays["input"]
    mean = x.mean(-1, keepdims=True)
    centered = x - mean
    variance = (centered * centered).mean(-1, keepdims=True)
    out = centered * lax.rsqrt(variance + call.options["eps"])
    if "weight" in arrays:
        out = out * arrays["weight"]
    return {"output": out + arrays["bias"] if "bias" in arrays else out}


def _embedding(call: Call, arrays: Arrays) -> Arrays:
    # A number that is out of range gives a row of NaN, as jnp.take does by default: it is seen, not clamped.
    return {"output": jnp.take(arrays["weight"], arrays["input"], axis=0)}


def _softmax(call: Call, arrays: Arrays) -> Arrays:
    axis = call.options["axis"]
    assert isinstance(axis, int)
    return {"output": jax.nn.softmax(arrays["input"], axis=axis)}


def _dropout(call: Call, arrays: Arrays) -> Arrays:
    x, p = arrays["input"], call.options["p"]
    if not dropout_draws(call.options, call.training):
        return {"output": x}
    assert isinstance(p, float)
    assert call.key is not None
    kept = jax.random.bernoulli(call.key, 1.0 - p, x.shape)
    return {"output": jnp.where(kept, x / (1.0 - p), 0.0)}


def dropout_draws(options: Mapping[str, Value], training: bool) -> bool:
    """Return whether a Dropout block drops: its own say, or else the program's."""
    says = options["training"]
    return (training if says is None else bool(says)) and options["p"] != 0.0


KERNELS: dict[str, Kernel] = {
    "linear": _linear,
    "conv2d": _conv2d,
    "max_pool2d": _max_pool2d,
    "flatten": _flatten,
    "layer_norm": _layer_norm,
    "embedding": _embedding,
    "dropout": _dropout,
    "add": lambda call, arrays: {"output": arrays["left"] + arrays["right"]},
    "relu": lambda call, arrays: {"output": jax.nn.relu(arrays["input"])},
    "gelu": lambda call, arrays: {
        "output": jax.nn.gelu(arrays["input"], approximate=bool(call.options["approximate"]))
    },
    "sigmoid": lambda call, arrays: {"output": jax.nn.sigmoid(arrays["input"])},
    "tanh": lambda call, arrays: {"output": jnp.tanh(arrays["input"])},
    "softmax": _softmax,
}
"""Kernel of each op."""


def draws(op: str, options: Mapping[str, Value], training: bool) -> bool:
    """Return whether an op draws random numbers."""
    return op == "dropout" and dropout_draws(options, training)


def _pair(value: Value) -> tuple[int, int]:
    assert isinstance(value, tuple)
    first, second = value
    assert isinstance(first, int)
    assert isinstance(second, int)
    return first, second


def _padding(call: Call, sizes: tuple[int, ...]) -> list[tuple[int, int]]:
    if call.options["padding"] == "valid":
        return [(0, 0), (0, 0)]
    windows, strides = _pair(call.options["kernel_size"]), _pair(call.options["stride"])
    return [same_padding(size, window, step) for size, window, step in zip(sizes, windows, strides, strict=True)]
