"""Solutions of the puzzles of notebook 08, and wrong tries with the reason that the puzzle gives."""

import jax
import jax.numpy as jnp


def ones_first(X):
    return X.at[:, 0].set(1.0)


def ones_first_by_mask(X):
    return X.at[:, :1].set(jnp.ones((len(X), 1)))


@jax.jit
def ones_first_by_parts(X):
    return jnp.concatenate([jnp.ones((len(X), 1)), X[:, 1:]], axis=1)


def _rows_one_by_one(X):
    for row in range(len(X)):
        X = X.at[row, 0].set(1.0)
    return X


def _in_numpy(X):
    X[:, 0] = 1.0
    return X


def updated_state(state, batch):
    count, total = state
    return count + len(batch), total + batch.sum(axis=0)


@jax.jit
def updated_by_product(state, batch):
    return state[0] + len(batch), state[1] + jnp.ones(len(batch)) @ batch


def updated_by_einsum(state, batch):
    return state[0] + batch.shape[0], state[1] + jnp.einsum("ij->j", batch)


def mean_where(x):
    positive = x > 0
    return jnp.where(positive, x, 0.0).sum() / jnp.maximum(positive.sum(), 1)


def mean_by_clipping(x):
    return jnp.maximum(x, 0.0).sum() / jnp.maximum((x > 0).sum(), 1).astype(x.dtype)


@jax.jit
def mean_by_product(x):
    positive = (x > 0).astype(x.dtype)
    return positive @ x / jnp.maximum(positive.sum(), 1.0)


def rows_of_noise(key):
    return jax.vmap(lambda row_key: jax.random.normal(row_key, (3,)))(jax.random.split(key, 8))


@jax.jit
def rows_by_map(key):
    return jax.lax.map(lambda row_key: jax.random.normal(row_key, (3,)), jax.random.split(key, 8))


def rows_by_scan(key):
    def body(none, row_key):
        return none, jax.random.normal(row_key, (3,))

    return jax.lax.scan(body, None, jax.random.split(key, 8))[1]


def _split_row_by_row(key):
    rows = []
    for _ in range(8):
        key, row_key = jax.random.split(key)
        rows.append(jax.random.normal(row_key, (3,)))
    return jnp.stack(rows)


def _row_by_row(key):
    return jnp.stack([jax.random.normal(row_key, (3,)) for row_key in jax.random.split(key, 8)])


RIGHT = {
    "first_column": (ones_first, ones_first_by_mask, ones_first_by_parts),
    "running": (updated_state, updated_by_product, updated_by_einsum),
    "positive": (mean_where, mean_by_clipping, mean_by_product),
    "own_keys": (rows_of_noise, rows_by_map, rows_by_scan),
}
WRONG = {
    "first_column": (
        (_in_numpy, "it raises TypeError"),
        (_rows_one_by_one, "equations, and at most"),
        (lambda X: X.at[0].set(1.0), "element .* should be"),
        (lambda X: X.at[:, 0].add(1.0), "element .* should be"),
    ),
    "running": (
        (lambda state, batch: (state[0] + 1, state[1] + batch.sum(axis=0)), "result.0. is .*, and should be"),
        (lambda state, batch: (state[0] + len(batch), state[1] + batch.mean(axis=0)), "element .* should be"),
        (lambda state, batch: (state[0] + len(batch), state[1] + batch.sum()), "element .* should be"),
        (lambda state, batch: (state[0] + len(batch), state[1] + sum(batch)), "equations, and at most"),
        (lambda state, batch: state[1] + batch.sum(axis=0), "structure"),
    ),
    "positive": (
        (lambda x: x[x > 0].mean(), "it raises NonConcreteBooleanIndexError|its cost is unknown|its number of"),
        (lambda x: jnp.maximum(x, 0.0).mean(), "result is .*, and should be"),
        (lambda x: jnp.abs(x).sum() / (x > 0).sum(), "result is .*, and should be"),
        (lambda x: sum(jnp.maximum(each, 0.0) for each in x) / sum(each > 0 for each in x), "equations, and at most"),
    ),
    "own_keys": (
        (lambda key: jax.random.normal(key, (8, 3)), "element .* should be"),
        (lambda key: jnp.stack(8 * [jax.random.normal(key, (3,))]), "element .* should be"),
        (_split_row_by_row, "element .* should be"),
        (_row_by_row, "equations, and at most"),
    ),
}  # fmt: skip
