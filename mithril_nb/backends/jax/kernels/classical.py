"""Distances, polynomials, and the linear algebra of Gaussian processes."""

from __future__ import annotations

from itertools import combinations_with_replacement
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from mithril_nb.backends.jax.kernels.registry import Result, kernel, register, widened
from mithril_nb.program import Array, Arrays, Call

_STEPS = 64
"""Steps of a bisection between neighbouring powers of two: enough for float64."""


@kernel("distance_matrix")
def _distance_matrix(call: Call, arrays: Arrays) -> Result:
    left, right = arrays["left"], arrays["right"]
    difference = left[:, None, :] - right[None, :, :]
    # If two points coincide, pass no gradient to the power, whose derivative may be infinite.
    distances = jnp.where(difference == 0, 0, jnp.abs(difference))
    return jnp.power(distances, arrays["norm"].astype(distances.dtype)).sum(-1)


@kernel("polynomial_features")
def _polynomial_features(call: Call, arrays: Arrays) -> Result:
    x = arrays["input"]
    monomials: dict[tuple[int, ...], Array] = {}
    for degree in range(1, int(call.options["degree"]) + 1):
        for columns in combinations_with_replacement(range(x.shape[-1]), degree):
            *before, last = columns
            column = x[..., last]
            # One product each: the powers of a column would be computed again for each monomial.
            monomials[columns] = monomials[tuple(before)] * column if before else column
    return jnp.stack([*monomials.values()], -1) if monomials else x


@kernel("tsne_p_joint")
def _tsne_p_joint(call: Call, arrays: Arrays) -> Result:
    squares = lax.stop_gradient(arrays["squared_distances"])
    wide = widened(squares)
    least = call.options["threshold"]
    least = jnp.finfo(squares.dtype).eps if least is None else least
    count = len(wide)
    others = ~jnp.eye(count, dtype=bool)
    # Subtract the distance to the nearest point. Its weight is then 1, even for a narrow distribution.
    beyond = jnp.where(others, wide - jnp.min(wide, 1, where=others, initial=jnp.inf, keepdims=True), 0)
    target_entropy = jnp.log(lax.stop_gradient(arrays["target_perplexity"]).astype(wide.dtype))

    def weights(beta: Array) -> tuple[Array, Array]:
        affinities = jnp.where(others, jnp.exp(-beta[:, None] * beyond), 0)
        return affinities, jnp.maximum(affinities.sum(1), least)

    def narrow(_: int, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bounds
        exponent = (low + high) / 2
        beta = jnp.exp2(exponent)
        affinities, total = weights(beta)
        entropy = jnp.log(total) + beta * (affinities * beyond).sum(1) / total
        wide_enough = entropy > target_entropy
        return jnp.where(wide_enough, exponent, low), jnp.where(wide_enough, high, exponent)

    # A bisection, not Newton's method: it needs no start value, and cannot leave its bounds.
    # Bounds of the exponent of β, wide enough for the scale of the data and for float32. NaN stays NaN.
    mean = beyond.sum(1) / max(count - 1, 1)
    scale = -jnp.log2(jnp.where(mean > 0, mean, 1))
    low, high = lax.fori_loop(0, _STEPS, narrow, (scale - 40, scale + 40))
    affinities, total = weights(jnp.exp2((low + high) / 2))
    conditional = affinities / total[:, None]
    return ((conditional + conditional.T) / (2 * max(count, 1))).astype(squares.dtype)


# JAX's own rule solves with the root, which is NaN for a matrix that is not positive definite.
@jax.custom_jvp
def _root(matrix: Array) -> Array:
    return jnp.linalg.cholesky(matrix)


@_root.defjvp
def _root_slope(primals: tuple[Array], changes: tuple[Array]) -> tuple[Array, Array]:
    # If there is no root, the derivative is 0, because NaN would spread.
    root, (change,) = _root(*primals), changes
    holds = jnp.isfinite(root).all((-2, -1), keepdims=True)
    factor = jnp.where(holds, root, jnp.eye(root.shape[-1], dtype=root.dtype))
    change = jnp.where(holds, change + change.mT, 0) / 2
    across = jax.scipy.linalg.solve_triangular(factor, change, lower=True)
    across = jax.scipy.linalg.solve_triangular(factor, across.mT, lower=True).mT
    return root, factor @ (jnp.tril(across) - across * jnp.eye(root.shape[-1], dtype=root.dtype) / 2)


@kernel("eigvalsh")
def _eigvalsh(call: Call, arrays: Arrays) -> Result:
    matrix, factor, least = arrays["K_term"], arrays["L"], call.options["threshold"]
    least = jnp.finfo(matrix.dtype).eps if least is None else least

    def diagonal(matrix: Array, factor: Array) -> Array:
        return jnp.diagonal(factor)

    def roots(matrix: Array, factor: Array) -> Array:
        return jnp.sqrt(jnp.maximum(jnp.linalg.eigvalsh(matrix), jnp.asarray(least, matrix.dtype)))

    # Different values, but the sum of their logarithms is the same: half the log-determinant.
    return _by_either(factor, diagonal, roots, matrix, factor)


@kernel("gpr_alpha")
def _gpr_alpha(call: Call, arrays: Arrays) -> Result:
    def by_factor(difference: Array, factor: Array, matrix: Array) -> Array:
        return jax.scipy.linalg.cho_solve((factor, True), difference)

    def by_matrix(difference: Array, factor: Array, matrix: Array) -> Array:
        return jnp.linalg.solve(_regular(matrix), difference)

    factor = arrays["L"]
    return _by_either(factor, by_factor, by_matrix, arrays["label_mu_diff"], factor, arrays["K_term"])


@kernel("gpr_v_outer")
def _gpr_v_outer(call: Call, arrays: Arrays) -> Result:
    def by_factor(across: Array, factor: Array, matrix: Array) -> Array:
        v = jax.scipy.linalg.solve_triangular(factor, across, lower=True)
        return v.T @ v

    def by_matrix(across: Array, factor: Array, matrix: Array) -> Array:
        return across.T @ jnp.linalg.solve(_regular(matrix), across)

    factor = arrays["L"]
    return _by_either(factor, by_factor, by_matrix, arrays["K"], factor, arrays["K_term"])


def _by_either(factor: Array, with_it: Any, without: Any, *arrays: Array) -> Array:
    wide = [widened(array) for array in arrays]
    # lax.cond runs one branch. jnp.where would run both, and pass NaN gradients from the other.
    return lax.cond(jnp.isfinite(factor).all(), with_it, without, *wide).astype(jnp.result_type(*arrays))


def _regular(matrix: Array) -> Array:
    # Rounding may make a kernel matrix singular: add what is as small as its rounding error.
    identity = jnp.eye(matrix.shape[-1], dtype=matrix.dtype)
    return matrix + jnp.finfo(matrix.dtype).eps * jnp.trace(matrix) * identity


register(
    {
        "coordinates": lambda call, arrays: arrays["coords"],
        "cholesky": lambda call, arrays: _root(widened(arrays["input"])).astype(arrays["input"].dtype),
    }
)
