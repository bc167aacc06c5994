"""Gravity of many bodies.

All pairs of bodies attract each other, and leapfrog steps move them. Broadcasting writes arrays with one entry per pair
in the jaxpr; see in the peak of memory whether they are ever stored.
"""

import jax
import jax.numpy as jnp

import mithril_nb as ml

STEP, SOFTENING = 0.001, 0.01


def acceleration(positions, masses):
    differences = positions[None, :] - positions[:, None]
    squares = (differences**2).sum(-1) + SOFTENING**2
    return (masses[None, :, None] * differences * squares[..., None] ** -1.5).sum(1)


def simulate(positions, velocities, masses, steps=100):
    def leapfrog(state, _):
        positions, velocities, forces = state
        velocities += STEP / 2 * forces
        positions += STEP * velocities
        forces = acceleration(positions, masses)
        velocities += STEP / 2 * forces
        return (positions, velocities, forces), None

    start = (positions, velocities, acceleration(positions, masses))
    (positions, velocities, _), _ = jax.lax.scan(leapfrog, start, length=steps)
    return positions, velocities


array = jax.ShapeDtypeStruct
vectors = array((512, 3), jnp.float32)
p = ml.inspect(simulate, vectors, vectors, array((512,), jnp.float32))
