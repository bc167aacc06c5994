"""Small programs with one JAX feature each: remat, cond, while, loops over steps, custom derivatives."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import lax

from benchmarks.corpus.program import Make, spec


def programs(full: bool) -> dict[str, Make]:
    """Return the programs of this family."""
    size = 512 if full else 6
    w, x = spec(size, size), spec(4, size)
    optimizer = optax.adam(1e-3)
    state = jax.eval_shape(optimizer.init, {"w": w})

    def adam(params: Any, grads: Any, state: Any) -> Any:
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    return {
        "remat, gradient": lambda: (jax.grad(remat_chain), (w, x)),
        "cond, gradient": lambda: (jax.grad(either_way), (w, x)),
        "switch, forward": lambda: (one_of_three, (spec(dtype=jnp.int32), w, x)),
        "while, forward": lambda: (power_iteration, (w, x)),
        "custom gradient": lambda: (jax.grad(lambda w, x: careful(x @ w).sum()), (w, x)),
        "steps in a scan": lambda: (steps, (w, spec(3, 4, size))),
        "hessian": lambda: (jax.hessian(lambda x: (smooth(x) ** 2).sum()), (spec(size),)),
        "forward mode": lambda: (jax.jacfwd(smooth), (spec(size),)),
        "Adam alone": lambda: (adam, ({"w": w}, {"w": w}, state)),
    }


def smooth(x: Any) -> Any:
    """Return a smooth function of `x`."""
    return jnp.sin(x) * jax.nn.softplus(x)


def remat_chain(w: Any, x: Any) -> Any:
    """Return the loss of layers that are rematerialized in the backward pass."""

    def layer(x: Any) -> Any:
        return jnp.tanh(x @ w)

    for number in range(3):
        with jax.named_scope(f"layer_{number}"):
            x = jax.checkpoint(layer)(x)
    return (x**2).sum()


def either_way(w: Any, x: Any) -> Any:
    """Return the loss of one of two branches."""

    def straight(x: Any) -> Any:
        return x @ w

    def bent(x: Any) -> Any:
        with jax.named_scope("bent"):
            return jnp.tanh(x) @ w.T

    return lax.cond(x.sum() > 0, straight, bent, x).sum()


def one_of_three(index: Any, w: Any, x: Any) -> Any:
    """Return the result of the branch of this number."""
    return lax.switch(index, [lambda x: x @ w, lambda x: jnp.sin(x), lambda x: x], x)


def power_iteration(w: Any, x: Any) -> Any:
    """Return the dominant eigenvector of a matrix."""

    def is_moving(carry: Any) -> Any:
        x, before, count = carry
        return (jnp.abs(x - before).max() > 1e-6) & (count < 100)

    def turn(carry: Any) -> Any:
        x, _, count = carry
        y = x @ w
        return y / jnp.linalg.norm(y), x, count + 1

    return lax.while_loop(is_moving, turn, (x, x + 1, 0))[0]


@jax.custom_vjp
def careful(x: Any) -> Any:
    """Return the logarithm of 1 + exp(x), with a gradient that does not overflow."""
    return jnp.log1p(jnp.exp(x))


careful.defvjp(lambda x: (careful(x), x), lambda x, g: (g * (1 - 1 / (1 + jnp.exp(x))),))


def steps(w: Any, batches: Any) -> Any:
    """Return the params after one step of descent for each batch."""

    def loss(w: Any, x: Any) -> Any:
        return (jnp.tanh(x @ w) ** 2).mean()

    def step(w: Any, x: Any) -> Any:
        value, grad = jax.value_and_grad(loss)(w, x)
        return w - 0.1 * grad, value

    return lax.scan(step, w, batches)
