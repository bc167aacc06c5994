"""Solutions of the puzzles of lesson 16, and wrong tries with the reason that the puzzle gives."""

import jax
import jax.numpy as jnp


def ordered(a, b, c, d):
    return a @ ((b @ c) @ d)


def ordered_by_shapes(a, b, c, d):
    return jnp.linalg.multi_dot([a, b, c, d])


@jax.jit
def ordered_by_einsum(a, b, c, d):
    return jnp.einsum("ij,jk,kl,lm->im", a, b, c, d, optimize="optimal")


def own_pairs(rows, form):
    return ((rows @ form) * rows).sum(axis=1)


def own_pairs_by_einsum(rows, form):
    return jnp.einsum("ni,ij,nj->n", rows, form, rows)


def own_pairs_by_row(rows, form):
    return jax.vmap(lambda row: row @ form @ row)(rows)


def by_moments(x, y):
    return (x**2).sum() / len(x) + (y**2).sum() / len(y) - 2 * x.mean(0) @ y.mean(0)


def by_product(x, y):
    return ((x**2).sum(1)[:, None] + (y**2).sum(1) - 2 * x @ y.T).mean()


@jax.jit
def by_variance(x, y):
    return (x.var(0) + y.var(0) + (x.mean(0) - y.mean(0)) ** 2).sum()


RIGHT = {
    "long_chain": (ordered, ordered_by_shapes, ordered_by_einsum),
    "quadratic_forms": (own_pairs, own_pairs_by_einsum, own_pairs_by_row),
    "mean_distance": (by_moments, by_product, by_variance),
}
WRONG = {
    "long_chain": (
        (lambda a, b, c, d: a @ (b @ (c @ d)), "FLOPs, and at most"),
        (lambda a, b, c, d: (a @ (b @ c)) @ d, "FLOPs, and at most"),
        (lambda a, b, c, d: (a @ b) @ (c @ d), "FLOPs, and at most"),
        (lambda a, b, c, d: a @ (b @ c), r"should be float32\[60, 50\]"),
        (lambda a, b, c, d: ordered(a, b, c, -d), "element .* should be"),
    ),
    "quadratic_forms": (
        (lambda rows, form: jnp.diag(rows @ (form @ rows.T)), "FLOPs, and at most"),
        (lambda rows, form: jnp.trace(rows @ form @ rows.T), r"should be float32\[50\]"),
        (lambda rows, form: ((rows @ form.T) * rows.mean(0)).sum(axis=1), "element .* should be"),
        (lambda rows, form: (rows @ form).sum(axis=1), "element .* should be"),
        (lambda rows, form: ((rows @ form) * rows).sum(axis=1, keepdims=True), r"should be float32\[50\]"),
    ),
    "mean_distance": (
        (lambda x, y: ((x[:, None] - y) ** 2).mean() * x.shape[1], "bytes, and at most"),
        (lambda x, y: ((x.mean(0) - y.mean(0)) ** 2).sum(), "result is .*, and should be"),
        (lambda x, y: by_moments(x, y)[None], r"should be float32\[\]"),
        (lambda x, y: (x**2).mean() + (y**2).mean() - 2 * x.mean() * y.mean(), "result is .*, and should be"),
    ),
}  # fmt: skip
