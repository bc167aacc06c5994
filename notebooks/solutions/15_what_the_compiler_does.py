"""Solutions of the puzzles of lesson 15, and wrong tries with the reason that the puzzle gives."""

import jax
import jax.numpy as jnp


def without_matrix(x):
    return jnp.cumsum(x)


@jax.jit
def without_matrix_by_scan(x):
    def add(total, value):
        total = total + value
        return total, total

    return jax.lax.scan(add, jnp.float32(0), x)[1]


def without_matrix_in_parallel(x):
    return jax.lax.associative_scan(jnp.add, x)


def by_formula(x):
    return 2 * len(x) * (x**2).sum() - 2 * x.sum() ** 2


@jax.jit
def by_formula_of_differences(x):
    centered = x - x.mean()
    return 2 * x.size * jnp.vdot(centered, centered)


def by_formula_of_variance(x):
    return 2 * x.size**2 * jnp.var(x)


def piece_by_piece(queries, keys, values):
    return jax.lax.map(lambda query: jax.nn.softmax(keys @ query) @ values, queries)


@jax.jit
def piece_by_block(queries, keys, values):
    def attend(block):
        return jax.nn.softmax(block @ keys.T) @ values

    return jax.lax.map(attend, queries.reshape(32, 16, -1)).reshape(queries.shape)


def piece_by_key(queries, keys, values):
    """Go through the keys, with a running maximum: the algorithm of flash attention."""

    def add(state, block):
        largest, total, result = state
        scores = queries @ block[0].T
        new = jnp.maximum(largest, scores.max(axis=1))
        powers, scale = jnp.exp(scores - new[:, None]), jnp.exp(largest - new)
        return (new, scale * total + powers.sum(axis=1), scale[:, None] * result + powers @ block[1]), None

    start = jnp.full(len(queries), -jnp.inf), jnp.zeros(len(queries)), jnp.zeros(values.shape)
    blocks = keys.reshape(64, 8, -1), values.reshape(64, 8, -1)
    (_, total, result), _ = jax.lax.scan(add, start, blocks)
    return result / total[:, None]


def _attention(queries, keys, values):
    return jax.nn.softmax(queries @ keys.T) @ values


RIGHT = {
    "zeros": (without_matrix, without_matrix_by_scan, without_matrix_in_parallel),
    "all_pairs": (by_formula, by_formula_of_differences, by_formula_of_variance),
    "in_memory": (piece_by_piece, piece_by_block, piece_by_key),
}
WRONG = {
    "zeros": (
        (lambda x: jnp.tril(jnp.ones((256, 256))) @ x, "FLOPs, and at most"),
        (lambda x: jnp.tri(256) @ x, "FLOPs, and at most"),
        (lambda x: jnp.cumsum(x)[::-1], "element .* should be"),
        (lambda x: jnp.cumsum(x) - x, "element .* should be"),
        (lambda x: x.sum(), r"should be float32\[256\]"),
    ),
    "all_pairs": (
        (lambda x: ((x[:, None] - x) ** 2).sum(), "FLOPs, and at most"),
        (lambda x: 2 * len(x) * (x**2).sum(), "element .* should be|should be"),
        (lambda x: by_formula(x) / 2, "should be"),
        (lambda x: jax.vmap(lambda a: ((a - x) ** 2).sum())(x).sum(), "FLOPs, and at most"),
        (lambda x: by_formula(x)[None], r"should be float32\[\]"),
    ),
    "in_memory": (
        (_attention, "bytes at its peak, and at most"),
        (jax.jit(_attention), "bytes at its peak, and at most"),
        (lambda queries, keys, values: jax.vmap(lambda query: jax.nn.softmax(keys @ query) @ values)(queries),
         "bytes at its peak, and at most"),
        (lambda queries, keys, values: queries @ (keys.T @ values), "element .* should be"),
        (lambda queries, keys, values: piece_by_piece(queries, keys, values).T, r"should be float32\[512, 16\]"),
    ),
}  # fmt: skip
