"""Solutions of the puzzles of lesson 14, and wrong tries with the reason that the puzzle gives."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

# It is weakly typed, so a conversion is recorded as well.
_WINDOW = 0.5 - 0.5 * jnp.cos(2 * jnp.pi * jnp.arange(64) / 64)
_UNITS = np.array([1, 10, 100], "float32")


def at_once(signal):
    return signal * (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(64) / 64))


@jax.jit
def at_once_from_outside(signal):
    return _WINDOW * signal


def at_once_from_a_list(signal):
    window = [0.5 - 0.5 * math.cos(2 * math.pi * n / 64) for n in range(64)]
    return jnp.multiply(signal, np.array(window, np.float32))


def _moved(state, gradient):
    velocity = 0.9 * state["velocity"] - 0.1 * gradient
    return {"velocity": velocity, "weight": state["weight"] + velocity}


moved_in_place = jax.jit(_moved, donate_argnums=0)
moved_by_name = jax.jit(_moved, donate_argnames="state")


@partial(jax.jit, donate_argnums=(0,))
def moved_by_decorator(state, gradient):
    velocity, weight = state["velocity"], state["weight"]
    new = velocity * 0.9 - gradient * 0.1
    return dict(weight=weight + new, velocity=new)


def in_any_order(x):
    return jax.lax.reduce(x * _UNITS, jnp.float32(-jnp.inf), jnp.logaddexp, (0,))


@jax.jit
def in_any_order_by_logsumexp(x):
    return jax.nn.logsumexp(x * _UNITS, axis=0)


def in_any_order_on_paper(x):
    scaled = x * _UNITS
    largest = scaled.max(axis=0)
    return largest + jnp.log(jnp.exp(scaled - largest).sum(axis=0))


def _row_by_row(x):
    total = jnp.full(x.shape[1], -jnp.inf)
    for row in x * _UNITS:
        total = jnp.logaddexp(total, row)
    return total


RIGHT = {
    "while_tracing": (at_once, at_once_from_outside, at_once_from_a_list),
    "in_place": (moved_in_place, moved_by_name, moved_by_decorator),
    "any_order": (in_any_order, in_any_order_by_logsumexp, in_any_order_on_paper),
}
WRONG = {
    "while_tracing": (
        (lambda signal: signal * (0.5 - 0.5 * jnp.cos(2 * jnp.pi * jnp.arange(64) / 64)), "equations, and at most"),
        (lambda signal: signal * np.hanning(64), "element .* should be"),
        (lambda signal: signal * 0.5, "element .* should be"),
        (lambda signal: np.asarray(signal) * np.asarray(_WINDOW), "its cost is unknown"),
        (lambda signal: signal.astype("float16") * np.float16(_WINDOW), "should be float32"),
    ),
    "in_place": (
        (_moved, "bytes at its peak, and at most"),
        (jax.jit(_moved), "bytes at its peak, and at most"),
        (jax.jit(_moved, donate_argnums=1), "bytes at its peak, and at most"),
        (lambda state, gradient: {**_moved(state, gradient), "weight": state["weight"] + state["velocity"]},
         "element .* should be"),
        (lambda state, gradient: tuple(_moved(state, gradient).values()), "structure"),
    ),
    "any_order": (
        (_row_by_row, "equations, and at most"),
        (lambda x: jax.lax.associative_scan(jnp.logaddexp, x * _UNITS)[-1], "equations, and at most"),
        (lambda x: jax.lax.reduce(x * _UNITS, jnp.float32(0), jnp.logaddexp, (0,)), "element .* should be"),
        (lambda x: (x * _UNITS).max(axis=0), "element .* should be"),
        (lambda x: jnp.log(jnp.exp(x * _UNITS).sum(axis=0)), "element .* is inf, and should be"),
        (lambda x: jax.nn.logsumexp(x * _UNITS, axis=1), r"should be float32\[3\]"),
        (lambda x: jax.nn.logsumexp(x * _UNITS), r"should be float32\[3\]"),
    ),
}  # fmt: skip
