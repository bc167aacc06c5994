"""Lorenz system and its largest Lyapunov exponent.

Runge-Kutta steps of fourth order in a scan. `jvp` carries a small difference along with the state, and the growth of
its length measures chaos; in the jaxpr, each line of the step has its derivative beside it.
"""

import jax
import jax.numpy as jnp

import mithril_nb as ml

STEP = 0.01


def velocity(state):
    x, y, z = state
    return jnp.array([10.0 * (y - x), x * (28.0 - z) - y, x * y - 8.0 / 3.0 * z])


def runge_kutta(state):
    k1 = velocity(state)
    k2 = velocity(state + STEP / 2 * k1)
    k3 = velocity(state + STEP / 2 * k2)
    k4 = velocity(state + STEP * k3)
    return state + STEP / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def lyapunov(state, difference, steps=10_000):
    def advance(carry, _):
        state, difference = jax.jvp(runge_kutta, carry[:1], carry[1:])
        length = jnp.linalg.norm(difference)
        return (state, difference / length), (state, jnp.log(length))

    _, (states, growth) = jax.lax.scan(advance, (state, difference), length=steps)
    return states, growth.sum() / (steps * STEP)


array = jax.ShapeDtypeStruct
p = ml.inspect(lyapunov, array((3,), jnp.float32), array((3,), jnp.float32))
