"""Layers with parameters, and images."""

from __future__ import annotations

import math

import jax.numpy as jnp
from jax import lax

from mithril_nb.backends.jax.kernels.registry import kernel
from mithril_nb.graph.records import Value
from mithril_nb.models.dims import same_padding
from mithril_nb.program import Arrays, Call


@kernel("linear")
def _linear(call: Call, arrays: Arrays) -> Arrays:
    out = jnp.matmul(arrays["input"], arrays["weight"])
    return {"output": out + arrays["bias"] if "bias" in arrays else out}


@kernel("conv2d")
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


@kernel("max_pool2d")
def _max_pool2d(call: Call, arrays: Arrays) -> Arrays:
    image = arrays["input"]
    window, stride = _pair(call.options["kernel_size"]), _pair(call.options["stride"])
    padding = [(0, 0), (0, 0), *_padding(call, image.shape[2:])]
    # -inf as a Python number takes the image's dtype, and reduce_window knows its gradient.
    return {"output": lax.reduce_window(image, -jnp.inf, lax.max, (1, 1, *window), (1, 1, *stride), padding)}


@kernel("flatten")
def _flatten(call: Call, arrays: Arrays) -> Arrays:
    x = arrays["input"]
    return {"output": x.reshape(x.shape[0], math.prod(x.shape[1:]))}  # -1 would not do for an empty batch


@kernel("layer_norm")
def _layer_norm(call: Call, arrays: Arrays) -> Arrays:
    x = arrays["input"]
    mean = x.mean(-1, keepdims=True)
    centered = x - mean
    variance = (centered * centered).mean(-1, keepdims=True)
    out = centered * lax.rsqrt(variance + call.options["eps"])
    if "weight" in arrays:
        out = out * arrays["weight"]
    return {"output": out + arrays["bias"] if "bias" in arrays else out}


@kernel("embedding")
def _embedding(call: Call, arrays: Arrays) -> Arrays:
    # A number that is out of range gives a row of NaN, as jnp.take does by default: it is seen, not clamped.
    return {"output": jnp.take(arrays["weight"], arrays["input"], axis=0)}


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
