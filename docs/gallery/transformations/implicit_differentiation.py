"""Gradient through a fixed point.

A layer whose output solves `z = tanh(W z + x)`, found by a `while_loop` that reverse mode cannot differentiate. A
`custom_vjp` solves a second fixed point instead; the FLOPs are unknown, because the loops end when they converge.
"""

import jax
import jax.numpy as jnp

import mithril_nb as ml


def fixed_point(f, start):
    """Iterate until the relative change is small; this ends if `f` is a contraction."""

    def is_moving(state):
        old, new = state
        return jnp.abs(new - old).max() > 1e-6 * jnp.abs(new).max()

    return jax.lax.while_loop(is_moving, lambda state: (state[1], f(state[1])), (start, f(start)))[1]


def equation(weight, x, z):
    return jnp.tanh(z @ weight + x)


@jax.custom_vjp
def layer(weight, x):
    return fixed_point(lambda z: equation(weight, x, z), jnp.zeros_like(x))


def layer_forward(weight, x):
    z = layer(weight, x)
    return z, (weight, x, z)


def layer_backward(saved, cotangent):
    _, pull = jax.vjp(equation, *saved)
    adjoint = fixed_point(lambda u: cotangent + pull(u)[2], cotangent)
    return pull(adjoint)[:2]


layer.defvjp(layer_forward, layer_backward)


def loss(weight, x, target):
    return ((layer(weight, x) - target) ** 2).sum()


array = jax.ShapeDtypeStruct
x = array((32, 64), jnp.float32)
p = ml.inspect(jax.value_and_grad(loss, argnums=(0, 1)), array((64, 64), jnp.float32), x, x)
