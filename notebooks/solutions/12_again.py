"""Solutions of the puzzles of lesson 12, and wrong tries with the reason that the puzzle gives."""

from functools import partial

import jax
import jax.numpy as jnp


@jax.jit
def padded_mean(batch, length):
    mask = jnp.arange(len(batch)) < length
    return jnp.where(mask[:, None], batch, 0.0).sum(axis=0) / length


def padded_mean_by_product(batch, length):
    return (jnp.arange(len(batch)) < length).astype(batch.dtype) @ batch / length


def padded_mean_by_loop(batch, length):
    return jax.lax.fori_loop(0, length, lambda i, total: total + batch[i], jnp.zeros(batch.shape[1])) / length


@partial(jax.jit, static_argnums=1)
def _sliced(batch, length):
    return batch[:length].mean(0)


@jax.jit
def any_power(x, n):
    return x**n


def any_power_by_loop(x, n):
    return jax.lax.fori_loop(0, n, lambda _, result: result * x, jnp.ones_like(x))


@jax.jit
def any_power_by_product(x, n):
    return jnp.prod(jnp.where(jnp.arange(9)[:, None] < n, x, 1.0), axis=0)


@partial(jax.jit, static_argnames="n")
def _static_power(x, n):
    return x**n


@jax.jit
def chosen(batch, which):
    return jax.lax.switch(which % 3, [jnp.sin, jnp.tanh, jnp.square], batch)


def chosen_by_index(batch, which):
    return jnp.stack([jnp.sin(batch), jnp.tanh(batch), batch**2])[which % 3]


@jax.jit
def chosen_by_where(batch, which):
    number = which % 3
    return jnp.where(number == 0, jnp.sin(batch), jnp.where(number == 1, jnp.tanh(batch), batch * batch))


@partial(jax.jit, static_argnames="function")
def _applied(batch, function):
    return function(batch)


def _one_by_one(batch, which):
    return jnp.stack([chosen_by_index(row, which) for row in batch])


RIGHT = {
    "not_full": (padded_mean, padded_mean_by_product, padded_mean_by_loop),
    "exponent": (any_power, any_power_by_loop, any_power_by_product),
    "selected": (chosen, chosen_by_index, chosen_by_where),
}
WRONG = {
    "not_full": (
        (lambda batch, length: _sliced(batch, int(length)), "calls trace `_sliced` . times, and 1 is allowed"),
        (_sliced, "it raises ValueError"),
        (lambda batch, length: batch[: int(length)].sum(0) / length, "its cost is unknown"),
        (lambda batch, length: batch.mean(0), "element .* should be"),
        (lambda batch, length: padded_mean(batch, length - 1), "element .* should be"),
        (lambda batch, length: sum(jnp.where(i < length, row, 0.0) for i, row in enumerate(batch)) / length,
         "equations, and at most"),
    ),
    "exponent": (
        (lambda x, n: _static_power(x, int(n)), "calls trace `_static_power` . times, and 1 is allowed"),
        (_static_power, "it raises ValueError"),
        (lambda x, n: jax.jit(lambda x: x**n)(x), "a new function object"),
        (lambda x, n: jnp.exp(n * jnp.log(x)), "element .* is nan"),
        (lambda x, n: x**3, "element .* should be"),
        (lambda x, n: any_power(x, n).astype("float16"), "should be float32"),
    ),
    "selected": (
        (lambda batch, which: _applied(batch, [jnp.sin, jnp.tanh, jnp.square][int(which) % 3]),
         "times, and 1 is allowed: static argument `function`|its cost is unknown"),
        (lambda batch, which: jax.jit(lambda x: chosen_by_where(x, which))(batch), "a new function object"),
        (lambda batch, which: jax.lax.switch(which, [jnp.sin, jnp.tanh, jnp.square], batch), "element .* should be"),
        (lambda batch, which: jnp.sin(batch), "element .* should be"),
        (lambda batch, which: chosen_by_index(batch, which)[0], r"should be float32\[6, 4\]"),
        (_one_by_one, "equations, and at most"),
    ),
}  # fmt: skip
