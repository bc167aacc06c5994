"""Solutions of the puzzles of lesson 17, and wrong tries with the reason that the puzzle gives."""

import jax
import jax.numpy as jnp


def _whole(w, x):
    return jax.grad(lambda w: (jnp.tanh(x @ w) ** 2).sum(axis=1).mean())(w)


def part_by_part(w, x):
    def body(total, part):
        return total + _whole(w, part), None

    return jax.lax.scan(body, jnp.zeros_like(w), x.reshape(40, 100, 16))[0] / 40


def mean_of_parts(w, x):
    return jax.lax.map(lambda part: _whole(w, part), x.reshape(20, 200, 16)).mean(axis=0)


@jax.jit
def part_by_part_checkpointed(w, x):
    def loss(w):
        part = jax.checkpoint(lambda part: (jnp.tanh(part @ w) ** 2).sum(axis=1).mean())
        return jax.lax.map(part, x.reshape(50, 80, 16)).mean()

    return jax.grad(loss)(w)


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
    "in_parts": (part_by_part, mean_of_parts, part_by_part_checkpointed),
    "attention": (by_rows, by_batches, by_scan),
    "fewer_steps": (two_levels, two_uneven_levels, three_levels),
}
WRONG = {
    "in_parts": (
        (_whole, "bytes at its peak, and at most"),
        (lambda w, x: jax.vmap(lambda part: _whole(w, part))(x.reshape(20, 200, 16)).mean(0),
         "bytes at its peak, and at most"),
        (lambda w, x: jax.lax.map(lambda row: _whole(w, row[None]), x).mean(0), "bytes at its peak, and at most"),
        (lambda w, x: (_whole(w, x[:2000]) + _whole(w, x[2000:])) / 2, "bytes at its peak, and at most"),
        (lambda w, x: 40 * part_by_part(w, x), "element .* should be"),
        (lambda w, x: _whole(w, x[:100]), "element .* should be"),
        (lambda w, x: mean_of_parts(w, x)[None], r"should be float32\[16, 64\]"),
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
