"""Distances, polynomials, and the linear algebra of Gaussian processes."""

from __future__ import annotations

from itertools import combinations_with_replacement

import jax
import jax.numpy as jnp
from jax import lax

from mithril_nb.backends.jax.kernels.registry import kernel
from mithril_nb.program import Array, Arrays, Call

_STEPS = 64
"""Of a bisection between neighbouring powers of two: enough for float64."""


@kernel("norm_modifier")
def _norm_modifier(call: Call, arrays: Arrays) -> Arrays:
    return {"output": 1 + jnp.abs((arrays["input"] + 3) % 8 - 4)}


@kernel("distance_matrix")
def _distance_matrix(call: Call, arrays: Arrays) -> Arrays:
    left, right = arrays["left"], arrays["right"]
    distances = jnp.abs(left[:, None, :] - right[None, :, :])
    return {"output": jnp.power(distances, arrays["norm"].astype(distances.dtype)).sum(-1)}


@kernel("polynomial_features")
def _polynomial_features(call: Call, arrays: Arrays) -> Arrays:
    x = arrays["input"]
    found: dict[tuple[int, ...], Array] = {}
    for degree in range(1, int(call.options["degree"]) + 1):
        for columns in combinations_with_replacement(range(x.shape[-1]), degree):
            *before, last = columns
            column = x[..., last]
            found[columns] = found[tuple(before)] * column if before else column
    return {"output": jnp.stack([*found.values()], -1) if found else x}


@kernel("tsne_p_joint")
def _tsne_p_joint(call: Call, arrays: Arrays) -> Arrays:
    squares = lax.stop_gradient(arrays["squared_distances"])
    wide = squares.astype(jnp.float32) if squares.dtype.itemsize < 4 else squares
    least = call.options["threshold"]
    least = jnp.finfo(squares.dtype).eps if least is None else least
    count = len(wide)
    others = ~jnp.eye(count, dtype=bool)
    # Distances beyond the nearest point: its weight is then 1, however narrow the distribution is.
    beyond = jnp.where(others, wide - jnp.min(wide, 1, where=others, initial=jnp.inf, keepdims=True), 0)
    wanted = jnp.log(lax.stop_gradient(arrays["target_perplexity"]).astype(wide.dtype))

    def weights(beta: Array) -> tuple[Array, Array]:
        found = jnp.where(others, jnp.exp(-beta[:, None] * beyond), 0)
        return found, jnp.maximum(found.sum(1), least)

    def narrow(_: int, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bounds
        exponent = (low + high) / 2
        beta = jnp.exp2(exponent)
        found, total = weights(beta)
        entropy = jnp.log(total) + beta * (found * beyond).sum(1) / total
        wide_enough = entropy > wanted
        return jnp.where(wide_enough, exponent, low), jnp.where(wide_enough, high, exponent)

    # Of the exponent of β: the scale of the data, and of float32, lies well between. NaN goes on as NaN.
    mean = beyond.sum(1) / max(count - 1, 1)
    scale = -jnp.log2(jnp.where(mean > 0, mean, 1))
    low, high = lax.fori_loop(0, _STEPS, narrow, (scale - 40, scale + 40))
    found, total = weights(jnp.exp2((low + high) / 2))
    conditional = found / total[:, None]
    return {"output": ((conditional + conditional.T) / (2 * max(count, 1))).astype(squares.dtype)}


@kernel("cholesky")
def _cholesky(call: Call, arrays: Arrays) -> Arrays:
    return {"output": jnp.linalg.cholesky(arrays["input"], symmetrize_input=False)}


@kernel("eigvalsh")
def _eigvalsh(call: Call, arrays: Arrays) -> Arrays:
    matrix, least = arrays["K_term"], call.options["threshold"]
    least = jnp.finfo(matrix.dtype).eps if least is None else least

    def roots(matrix: Array, factor: Array) -> Array:
        return jnp.sqrt(jnp.maximum(jnp.linalg.eigvalsh(matrix), jnp.asarray(least, matrix.dtype)))

    output = lax.cond(_holds(arrays["L"]), lambda _, factor: jnp.diagonal(factor), roots, matrix, arrays["L"])
    return {"output": output}


@kernel("gpr_alpha")
def _gpr_alpha(call: Call, arrays: Arrays) -> Arrays:
    def by_factor(difference: Array, factor: Array, matrix: Array) -> Array:
        return jax.scipy.linalg.cho_solve((factor, True), difference)

    def by_matrix(difference: Array, factor: Array, matrix: Array) -> Array:
        return jnp.linalg.solve(matrix, difference)

    factor = arrays["L"]
    return {"output": lax.cond(_holds(factor), by_factor, by_matrix, arrays["label_mu_diff"], factor, arrays["K_term"])}


@kernel("gpr_v_outer")
def _gpr_v_outer(call: Call, arrays: Arrays) -> Arrays:
    def by_factor(across: Array, factor: Array, matrix: Array) -> Array:
        v = jax.scipy.linalg.solve_triangular(factor, across, lower=True)
        return v.T @ v

    def by_matrix(across: Array, factor: Array, matrix: Array) -> Array:
        return across.T @ jnp.linalg.solve(matrix, across)

    factor = arrays["L"]
    return {"output": lax.cond(_holds(factor), by_factor, by_matrix, arrays["K"], factor, arrays["K_term"])}


def _holds(factor: Array) -> Array:
    """Whether there is a Cholesky factor: of a matrix that has none it is NaN."""
    return jnp.isfinite(factor).all()


@kernel("coordinates")
def _coordinates(call: Call, arrays: Arrays) -> Arrays:
    return {"output": arrays["coords"]}
