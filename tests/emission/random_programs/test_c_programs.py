"""Random programs in C and NumPy: compositions of operations, loops and transforms, compared with JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

import mithril_nb as ml
from tests.emission.c_running import assert_close, run_c
from tests.emission.libraries import run_emitted
from tests.references import run_quickly

Step = Callable[[Any, Any], Any]
"""From two arrays of shape (4, 4) to another."""
STEPS: list[Step] = [
    lambda x, y: x + y,
    lambda x, y: x * jnp.tanh(y),
    lambda x, y: x @ y.T / 4,
    lambda x, y: jnp.einsum("ab,cb->ca", x, y) / 4,
    lambda x, y: jnp.where(x > y, x, jnp.sin(y)),
    lambda x, y: jnp.maximum(x, y[::-1]),
    lambda x, y: jax.nn.softmax(x, axis=0) + y[:, :1],
    lambda x, y: (x - x.mean(1, keepdims=True)) * lax.rsqrt(y.var(1, keepdims=True) + 1),
    lambda x, y: jnp.concatenate([x[1:], y[:1]], 0),
    lambda x, y: jnp.cumsum(x, 1) / 4 + y,
    lambda x, y: x[jnp.argsort(y[0])],
    lambda x, y: x.at[jnp.array([0, 2, 2])].add(y[:3]),
    lambda x, y: x.reshape(2, 8).T.reshape(4, 4) - y,
    lambda x, y: jnp.pad(x[1:3, 1:], ((1, 1), (0, 1))) + y,
    lambda x, y: lax.dynamic_update_slice(x, y[:2, :2], (jnp.argmax(x[0]), 1)),
    lambda x, y: lax.reduce_window(x, -jnp.inf, lax.max, (2, 2), (1, 1), "SAME") + y,
    lambda x, y: jax.nn.relu(x) + jnp.maximum(y, 0.25),
    lambda x, y: jnp.sort(x, 0) * jnp.where(y > 0, y, 0.5),
    lambda x, y: jnp.linalg.norm(x, axis=-1, keepdims=True) + y,
    lambda x, y: x.at[1].set(y[0]).at[:, 0].add(1.0),
    lambda x, y: jnp.concatenate([x[:1], y[1:] ** 3]),
    lambda x, y: x[jnp.array([2, 0, 1, 3])] - y,
]
WRAPS: list[Callable[[Step], Step]] = [
    lambda step: step,
    lambda step: jax.jit(step),
    lambda step: lambda x, y: jax.jvp(lambda x: step(x, y), (x,), (jnp.ones_like(x),))[1],
    lambda step: jax.checkpoint(step),
    lambda step: lambda x, y: jax.vmap(lambda s: step(x * s, y))(jnp.arange(1.0, 4.0)).mean(0),
    lambda step: jax.grad(lambda x, y: jnp.sum(jnp.cos(step(x, y)))),
    lambda step: lambda x, y: lax.scan(lambda c, s: (jnp.sin(step(c, y * s)), c[0]), x, jnp.arange(3.0))[0],
    lambda step: lambda x, y: lax.fori_loop(0, 2, lambda i, c: jnp.sin(step(c, y) + i), x),
    lambda step: lambda x, y: lax.cond(x[0, 0] > y[0, 0], lambda: step(x, y), lambda: jnp.sin(x)),
]


@st.composite
def programs(draw: st.DrawFn) -> Callable[[Any, Any], Any]:
    """Draw a program of up to 10 steps; each reads two earlier arrays."""
    step = st.tuples(st.sampled_from(STEPS), st.sampled_from(WRAPS), st.integers(0, 5), st.integers(0, 5))
    steps = draw(st.lists(step, min_size=4, max_size=10))
    is_gradient = draw(st.booleans())

    def results(x: Any, y: Any) -> Any:
        known = [x, y]
        for step, wrap, first, second in steps:
            known.append(wrap(step)(known[-1 - first % len(known)], known[-1 - second % len(known)]))
        return known[2:]

    def loss(x: Any, y: Any) -> Any:
        return sum(jnp.mean(jnp.sin(one)) for one in results(x, y))

    return jax.value_and_grad(loss, (0, 1)) if is_gradient else results


@given(programs())
@settings(max_examples=8, derandomize=True, deadline=None)
def test_random_programs_agree_with_jax(program: Callable[[Any, Any], Any]) -> None:
    with jax.enable_x64(True):  # without a tie or a jump that rounding decides
        x, y = np.random.default_rng(7).normal(size=(2, 4, 4))
        expected, inspection = run_quickly(program, x, y), ml.inspect(program, x, y)
        assert_close(run_c(inspection, x, y), expected, 1e-9)
        assert_close(run_emitted(inspection, "numpy", {"x": x, "y": y}), expected, 1e-9)
