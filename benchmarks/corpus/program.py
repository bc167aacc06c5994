"""The type of corpus programs, and helpers to build them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

Program = tuple[Callable[..., Any], tuple[Any, ...]]
"""A function that JAX can trace, and the specs of its arguments."""
Make = Callable[[], Program]


def spec(*shape: int, dtype: Any = jnp.float32) -> jax.ShapeDtypeStruct:
    """Return the spec of an array."""
    return jax.ShapeDtypeStruct(shape, dtype)


def ints(*shape: int) -> jax.ShapeDtypeStruct:
    """Return the spec of an array of indices or labels."""
    return spec(*shape, dtype=jnp.int32)


def cross_entropy(logits: Any, labels: Any) -> Any:
    """Return the mean cross-entropy loss of logits and integer labels."""
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def adam_step(forward: Callable[..., Any], params: Any, *batch: Any, loss: Any = cross_entropy) -> Program:
    """Return a typical Adam step; the last item of the batch is the targets."""
    optimizer = optax.adam(1e-3)

    def compute_loss(params: Any, *batch: Any) -> Any:
        return loss(forward(params, *batch[:-1]), batch[-1])

    def step(params: Any, state: Any, *batch: Any) -> Any:
        value, grads = jax.value_and_grad(compute_loss)(params, *batch)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state, value

    return step, (params, jax.eval_shape(optimizer.init, params), *batch)


def sgd_step(forward: Callable[..., Any], params: Any, *batch: Any, loss: Any = cross_entropy) -> Program:
    """Return a hand-written gradient descent step; the last item of the batch is the targets."""

    def compute_loss(params: Any, *batch: Any) -> Any:
        return loss(forward(params, *batch[:-1]), batch[-1])

    def step(params: Any, *batch: Any) -> Any:
        grads = jax.grad(compute_loss)(params, *batch)
        return jax.tree.map(lambda param, grad: param - 0.1 * grad, params, grads)

    return step, (params, *batch)
