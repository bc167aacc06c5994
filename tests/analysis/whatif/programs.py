"""Functions that make programs from settings; small, so that they trace fast."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp

Made = tuple[Any, tuple[Any, ...]]


def spec(*shape: int, dtype: Any = "float32") -> jax.ShapeDtypeStruct:
    """Return the shape of an array."""
    return jax.ShapeDtypeStruct(shape, dtype)


def transformer(
    batch: int = 2, tokens: int = 8, width: int = 24, depth: int = 5, heads: int = 4, remat: bool = False
) -> Made:
    """Return a train step with operations that fail on JAX's symbols: `range`, a square root, a batch index."""
    shapes = {"embedding": (50, width), "places": (64, width)}
    for place in range(depth):
        shapes |= {
            f"block_{place}/{name}": size for name, size in {"qkv": (width, 3 * width), "out": (width, 4)}.items()
        }
        shapes[f"block_{place}/back"] = (4, width)

    def block(params: Any, place: int, x: Any) -> Any:
        with jax.named_scope(f"block_{place}"):
            whole = (x @ params[f"block_{place}/qkv"]).reshape(*x.shape[:2], 3, heads, width // heads)
            query, key, value = whole[:, :, 0], whole[:, :, 1], whole[:, :, 2]
            scores = jnp.einsum("bthd,bshd->bhts", query, key) / (width // heads) ** 0.5
            mixed = jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(scores), value).reshape(x.shape)
            with jax.named_scope("mlp"):
                return mixed + jnp.tanh(x @ params[f"block_{place}/out"]) @ params[f"block_{place}/back"]

    def loss(params: Any, tokens: Any) -> Any:
        with jax.named_scope("embed"):
            x = params["embedding"][tokens] + params["places"][: tokens.shape[1]]
        for place in range(depth):
            x = (jax.checkpoint(block, static_argnums=1) if remat else block)(params, place, x)
        return (x @ params["embedding"].T).mean()

    def step(params: Any, tokens: Any) -> Any:
        value, gradient = jax.value_and_grad(loss)(params, tokens)
        return jax.tree.map(lambda one, change: one - 0.1 * change, params, gradient), value

    return step, ({name: spec(*size) for name, size in shapes.items()}, spec(batch, tokens, dtype="int32"))


def recurrent(batch: int = 4, tokens: int = 10, width: int = 8) -> Made:
    """Return the loss of a loop over tokens, whose trip count depends on a setting."""

    def run(weight: Any, x: Any) -> Any:
        def cell(carried: Any, token: Any) -> Any:
            after = jnp.tanh(carried @ weight + token)
            return after, after.sum()

        return jax.lax.scan(cell, jnp.zeros((batch, width)), x)[1].mean()

    return run, (spec(width, width), spec(tokens, batch, width))


def convolutional(batch: int = 4, image: int = 9, channels: int = 3) -> Made:
    """Return a convolution whose result is half as large, rounded up."""

    def run(kernel: Any, x: Any) -> Any:
        return jax.lax.conv_general_dilated(x, kernel, (2, 2), "SAME").sum()

    return run, (spec(5, channels, 3, 3), spec(batch, channels, image, image))


def padded(batch: int = 4, width: int = 128) -> Made:
    """Return a product whose inner size is rounded up to a multiple."""
    inner = math.ceil(width / 128) * 128
    return jnp.matmul, (spec(batch, inner), spec(inner, 8))


def capped(batch: int = 4, window: int = 16) -> Made:
    """Return a product that grows with a setting up to a cap."""
    return jnp.matmul, (spec(batch, min(window, 48)), spec(min(window, 48), 8))


def perceptron(batch: int = 8, width: int = 16, dtype: Any = "float32", layers: tuple[int, ...] = (32, 4)) -> Made:
    """Return a chain of layers."""
    sizes = (width, *layers)

    def run(params: Any, x: Any) -> Any:
        for weight in params:
            x = jnp.tanh(x @ weight)
        return x

    weights = [spec(first, second, dtype=dtype) for first, second in pairwise(sizes)]
    return run, (weights, spec(batch, width, dtype=dtype))
