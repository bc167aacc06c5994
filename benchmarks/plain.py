"""The models of the benchmarks, written by hand in plain JAX: what ours is compared with."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

CLASSES = 10
SIZES = {
    "MLP 4x256, batch 128": ((64, 256, 256, 256, 256, CLASSES), 128, 1.02),
    "MLP 4x32, batch 8": ((64, 32, 32, 32, 32, CLASSES), 8, 1.05),
}
"""Widths, batch size, and bar of each model."""


def mlp_params(widths: tuple[int, ...], seed: int = 0) -> dict[str, Any]:
    """Return the params of an MLP by name, weights stored as (in, out)."""
    rng = np.random.default_rng(seed)
    params: dict[str, Any] = {}
    for place, (rows, columns) in enumerate(pairwise(widths)):
        params[f"linear_{place}.weight"] = jnp.asarray(rng.normal(size=(rows, columns)) / rows**0.5, jnp.float32)
        params[f"linear_{place}.bias"] = jnp.zeros(columns)
    return params


def mlp_forward(params: dict[str, Any], x: Any) -> Any:
    """Return the logits: linear blocks with a relu between them."""
    depth = len(params) // 2
    for place in range(depth):
        x = x @ params[f"linear_{place}.weight"] + params[f"linear_{place}.bias"]
        if place < depth - 1:
            x = jax.nn.relu(x)
    return x


def samples(batch_size: int, features: int, seed: int = 1) -> tuple[Any, Any]:
    """Return inputs and labels of one batch."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(batch_size, features)).astype(np.float32)
    return jnp.asarray(x), jnp.asarray(rng.integers(0, CLASSES, batch_size), jnp.int32)


def adam_step(learning_rate: float) -> tuple[Callable[..., Any], Any]:
    """Return a step as one writes it by hand, jitted and donated, and its optimizer."""
    optimizer = optax.adam(learning_rate)

    def loss(params: Any, x: Any, labels: Any) -> Any:
        return optax.softmax_cross_entropy_with_integer_labels(mlp_forward(params, x), labels).mean()

    def step(params: Any, opt_state: Any, x: Any, labels: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(params, x, labels)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, value

    return jax.jit(step, donate_argnums=(0, 1)), optimizer
