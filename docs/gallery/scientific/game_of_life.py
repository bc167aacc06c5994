"""Game of Life.

A cellular automaton on a torus, in integers and booleans only: its FLOPs are additions and tests of these. Sums along
one axis and then along the other count the neighbours; look at the dtypes, where a boolean takes one byte.
"""

import jax
import jax.numpy as jnp

import mithril_nb as ml


def sum_of_three(board, axis):
    return jnp.roll(board, -1, axis) + board + jnp.roll(board, 1, axis)


def generation(board, _=None):
    cells = board.astype(jnp.int8)
    neighbours = sum_of_three(sum_of_three(cells, 0), 1) - cells
    return (neighbours == 3) | (board & (neighbours == 2)), None


def play(board, generations=100):
    return jax.lax.scan(generation, board, length=generations)[0]


p = ml.inspect(play, jax.ShapeDtypeStruct((256, 256), jnp.bool_))
