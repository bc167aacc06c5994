"""Solutions of the puzzles of lesson 10, and wrong tries with the reason that the puzzle gives."""

import jax
import jax.numpy as jnp


def loss(weights, x, y):
    return jnp.mean((x @ weights - y) ** 2)


@jax.jit
def short(weights, x, y, rate):
    return jax.lax.fori_loop(0, 20, lambda _, w: w - rate * jax.grad(loss)(w, x, y), weights)


@jax.jit
def short_by_scan(weights, x, y, rate):
    def body(current, _):
        return current - rate * jax.grad(loss)(current, x, y), None

    return jax.lax.scan(body, weights, length=20)[0]


def short_by_while(weights, x, y, rate):
    def body(state):
        number, current = state
        return number + 1, current - rate * 2 * x.T @ (x @ current - y) / len(y)

    return jax.lax.while_loop(lambda state: state[0] < 20, body, (0, weights))[1]


def _unrolled(weights, x, y, rate):
    for _ in range(20):
        weights = weights - rate * jax.grad(loss)(weights, x, y)
    return weights


def _jitted_inside(weights, x, y, rate):
    return jax.jit(lambda w: jax.lax.fori_loop(0, 20, lambda _, w: w - rate * jax.grad(loss)(w, x, y), w))(weights)


def updated(state, batch):
    count = state["count"] + len(batch)
    return {"count": count, "mean": state["mean"] + (batch - state["mean"]).sum(0) / count}


@jax.jit
def updated_by_total(state, batch):
    count = state["count"] + batch.shape[0]
    total = state["count"] * state["mean"] + jnp.sum(batch, axis=0)
    return {"count": count, "mean": total / count}


def updated_by_scan(state, batch):
    def add(state, row):
        count = state["count"] + 1
        return {"count": count, "mean": state["mean"] + (row - state["mean"]) / count}, None

    return jax.lax.scan(add, state, batch)[0]


def _by_row(state, batch):
    for row in batch:
        count = state["count"] + 1
        state = {"count": count, "mean": state["mean"] + (row - state["mean"]) / count}
    return state


_SEEN = []


@jax.jit
def _with_a_list(state, batch):
    _SEEN.append(len(batch))
    return {"count": state["count"] + len(batch), "mean": batch.mean(0)}


def thrifty(weights, x, y):
    products, target = x.T @ x, x.T @ y
    for _ in range(10):
        weights = weights - 0.01 * (products @ weights - target) / len(y)
    return weights


@jax.jit
def thrifty_loop(weights, x, y):
    products, target = x.T @ x / len(y), x.T @ y / len(y)
    return jax.lax.fori_loop(0, 10, lambda _, w: w - 0.01 * (products @ w - target), weights)


def thrifty_affine(weights, x, y):
    factor = jnp.eye(len(weights)) - 0.01 * x.T @ x / len(y)
    shift = 0.01 * (x.T @ y) / len(y)
    return jax.lax.scan(lambda w, _: (factor @ w + shift, None), weights, None, length=10)[0]


def _slow_loop(weights, x, y):
    return jax.lax.fori_loop(0, 10, lambda _, w: w - 0.01 * x.T @ (x @ w - y) / len(y), weights)


RIGHT = {
    "many_steps": (short, short_by_scan, short_by_while),
    "running_mean": (updated, updated_by_total, updated_by_scan),
    "less_work": (thrifty, thrifty_loop, thrifty_affine),
}
WRONG = {
    "many_steps": (
        (_unrolled, "equations, and at most"),
        (_jitted_inside, "traces|a new function object"),
        (lambda weights, x, y, rate: jax.lax.fori_loop(
            0, 19, lambda _, w: w - rate * jax.grad(loss)(w, x, y), weights), "element .* should be"),
        (lambda weights, x, y, rate: jax.lax.fori_loop(
            0, 20, lambda _, w: w - 0.1 * jax.grad(loss)(w, x, y), weights), "element .* should be"),
        (lambda weights, x, y, rate: weights * 0, "element .* should be"),
    ),
    "running_mean": (
        (_by_row, "equations, and at most"),
        (_with_a_list, "element .* should be"),
        (lambda state, batch: {"count": state["count"] + 1, "mean": updated(state, batch)["mean"]}, "'count'"),
        (lambda state, batch: tuple(updated(state, batch).values()), "structure"),
        (lambda state, batch: {**updated(state, batch), "count": state["count"] + 16.0}, "should be int32"),
    ),
    "less_work": (
        (_slow_loop, "FLOPs, and at most"),
        (lambda weights, x, y: jnp.linalg.lstsq(x, y)[0], "element .* should be"),
        (lambda weights, x, y: thrifty(weights, x[:40], y[:40]), "element .* should be"),
        (lambda weights, x, y: thrifty(weights, x, y)[:, None], r"should be float32\[4\]"),
        (lambda weights, x, y: thrifty(weights, x, y).astype("float16"), "should be float32"),
    ),
}  # fmt: skip
