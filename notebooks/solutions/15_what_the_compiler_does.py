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


def by_factors(a, b, x):
    return (a @ x.reshape(16, 16) @ b.T).ravel()


@jax.jit
def by_factors_in_einsum(a, b, x):
    by_b = jnp.einsum("kl,jl->jk", b, x.reshape(16, 16))
    return jnp.einsum("ij,jk->ik", a, by_b).reshape(-1)


def by_factors_row_by_row(a, b, x):
    """Apply b to each piece of x, and mix the pieces with the rows of a."""
    pieces = jax.vmap(lambda piece: b @ piece)(jnp.stack(jnp.split(x, 16)))
    return jnp.concatenate(jax.lax.map(lambda row: row @ pieces, a))


RIGHT = {
    "zeros": (without_matrix, without_matrix_by_scan, without_matrix_in_parallel),
    "all_pairs": (by_formula, by_formula_of_differences, by_formula_of_variance),
    "blocks": (by_factors, by_factors_in_einsum, by_factors_row_by_row),
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
    "blocks": (
        (lambda a, b, x: jnp.kron(a, b) @ x, "FLOPs, and at most"),
        (jax.jit(lambda a, b, x: jnp.einsum("ij,kl->ikjl", a, b).reshape(256, 256) @ x), "FLOPs, and at most"),
        (lambda a, b, x: (b @ x.reshape(16, 16) @ a.T).ravel(), "element .* should be"),
        (lambda a, b, x: (a @ x.reshape(16, 16) @ b).ravel(), "element .* should be"),
        (lambda a, b, x: a @ x.reshape(16, 16) @ b.T, r"should be float32\[256\]"),
    ),
}  # fmt: skip
