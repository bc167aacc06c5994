"""Heat equation on a periodic grid.

An explicit finite-difference scheme whose neighbours come from `jnp.roll`. Each roll is two slices and a concatenation
in the jaxpr; see how many of these copies are left after fusion.
"""

import jax
import jax.numpy as jnp

import mithril_nb as ml

RATIO = 0.2  # diffusivity times time step over spacing squared; stable up to 1/4


def laplacian(field):
    rows = jnp.roll(field, -1, 0) + jnp.roll(field, 1, 0)
    columns = jnp.roll(field, -1, 1) + jnp.roll(field, 1, 1)
    return rows + columns - 4 * field


def diffuse(field, steps=500):
    def step(field, _):
        return field + RATIO * laplacian(field), None

    return jax.lax.scan(step, field, length=steps)[0]


p = ml.inspect(diffuse, jax.ShapeDtypeStruct((256, 256), jnp.float32))
