"""Solutions of the puzzles of lesson 17, and wrong tries with the reason that the puzzle gives."""

from functools import partial

import jax
import jax.numpy as jnp


def _moved(param, momentum, gradient):
    momentum = 0.9 * momentum + gradient
    return param - 0.1 * momentum, momentum


moved_in_place = jax.jit(_moved, donate_argnums=(0, 1))


@partial(jax.jit, donate_argnames=("momentum", "gradient"))
def moved_by_name(param, momentum, gradient):
    momentum = 0.9 * momentum + gradient
    return param - 0.1 * momentum, momentum


@partial(jax.jit, donate_argnums=(0, 2))
def moved_elsewhere(param, momentum, gradient):
    average = gradient + momentum * 0.9
    return param - average * 0.1, average


def by_rows(queries, keys, values):
    return jax.lax.map(lambda query: jax.nn.softmax(keys @ query) @ values, queries)


def by_batches(queries, keys, values):
    return jax.lax.map(lambda query: jax.nn.softmax(query @ keys.T) @ values, queries, batch_size=50)


@jax.jit
def by_scan(queries, keys, values):
    def body(_, part):
        return None, jax.nn.softmax(part @ keys.T) @ values

    return jax.lax.scan(body, None, queries.reshape(20, 50, -1))[1].reshape(queries.shape)


def _stepped(h, w):
    return jnp.tanh(0.2 * h @ w)


def two_levels(w, h, outer=8):
    def total(w):
        def part(h, _):
            return jax.lax.scan(lambda h, _: (_stepped(h, w), None), h, None, length=64 // outer)

        return jax.lax.scan(jax.checkpoint(part), h, None, length=outer)[0].sum()

    return jax.grad(total)(w)


def two_uneven_levels(w, h):
    return two_levels(w, h, outer=16)


def three_levels(w, h):
    def repeated(function):
        return jax.checkpoint(lambda h: jax.lax.scan(lambda h, _: (function(h), None), h, None, length=4)[0])

    def total(w):
        return repeated(repeated(repeated(lambda h: _stepped(h, w))))(h).sum()

    return jax.grad(total)(w)


def _kept(w, h):
    return jax.grad(lambda w: jax.lax.scan(lambda h, _: (_stepped(h, w), None), h, None, length=64)[0].sum())(w)


def _around_all(w, h):
    def total(w):
        return jax.lax.scan(lambda h, _: (_stepped(h, w), None), h, None, length=64)[0].sum()

    return jax.grad(jax.checkpoint(total))(w)


def _unrolled(w, h):
    def total(w):
        state = h
        for _ in range(64):
            state = _stepped(state, w)
        return state.sum()

    return jax.grad(total)(w)


RIGHT = {
    "in_place": (moved_in_place, moved_by_name, moved_elsewhere),
    "attention": (by_rows, by_batches, by_scan),
    "fewer_steps": (two_levels, two_uneven_levels, three_levels),
}
WRONG = {
    "in_place": (
        (_moved, "bytes at its peak, and at most"),
        (jax.jit(_moved), "bytes at its peak, and at most"),
        (jax.jit(_moved, donate_argnums=0), "bytes at its peak, and at most"),
        (jax.jit(lambda p, m, g: _moved(p, m, g)[::-1], donate_argnums=(0, 1)), "element .* should be"),
        (jax.jit(lambda p, m, g: _moved(p, m, g)[0], donate_argnums=0), "structure"),
    ),
    "attention": (
        (lambda q, k, v: jax.vmap(lambda row: jax.nn.softmax(row @ k.T) @ v)(q), "bytes at its peak, and at most"),
        (lambda q, k, v: jax.lax.map(lambda row: jax.nn.softmax(row @ k.T) @ v, q, batch_size=500),
         "bytes at its peak, and at most"),
        (lambda q, k, v: (q @ k.T) @ v, "element .* should be"),
        (lambda q, k, v: jax.nn.softmax(q @ k.T, axis=0) @ v, "element .* should be"),
        (lambda q, k, v: by_rows(q[:50], k, v), r"should be float32\[1000, 8\]"),
    ),
    "fewer_steps": (
        (_kept, "bytes at its peak, and at most"),
        (_around_all, "bytes at its peak, and at most"),
        (_unrolled, "bytes at its peak, and at most"),
        (lambda w, h: two_levels(w, h, outer=9), "element .* should be"),
        (lambda w, h: jax.grad(lambda h: _stepped(h, w).sum())(h), r"should be float32\[32, 32\]"),
    ),
}  # fmt: skip
