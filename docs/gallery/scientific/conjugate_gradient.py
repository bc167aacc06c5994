"""Conjugate gradients.

An iterative solver for a symmetric positive definite matrix. Its `while_loop` ends when the residual is small, so the
number of iterations and the FLOPs are unknown before it runs; each iteration has one product with the matrix.
"""

import jax
import jax.numpy as jnp

import mithril_nb as ml


def conjugate_gradient(matrix, right_side, tolerance=1e-5):
    def is_far(state):
        _, _, _, square, count = state
        return (square > tolerance**2 * (right_side @ right_side)) & (count < len(right_side))

    def iterate(state):
        x, residual, direction, square, count = state
        image = matrix @ direction
        step = square / (direction @ image)
        x += step * direction
        residual -= step * image
        new_square = residual @ residual
        direction = residual + new_square / square * direction
        return x, residual, direction, new_square, count + 1

    start = jnp.zeros_like(right_side), right_side, right_side, right_side @ right_side, 0
    x, _, _, _, count = jax.lax.while_loop(is_far, iterate, start)
    return x, count


array = jax.ShapeDtypeStruct
p = ml.inspect(conjugate_gradient, array((1_024, 1_024), jnp.float32), array((1_024,), jnp.float32))
