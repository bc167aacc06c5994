"""Physics-informed network.

A network learns the solution of `u'' = -pi² sin(pi x)` with zero ends: its loss contains a second derivative in the
input, and training takes a gradient of that. See how the three derivatives multiply the equations of one small network.
"""

import jax
import jax.numpy as jnp

import mithril_nb as ml


def network(params, x):
    hidden = jnp.tanh(x * params["w0"] + params["b0"])
    return hidden @ params["w1"]


def loss(params, points):
    second = jax.grad(jax.grad(network, argnums=1), argnums=1)
    with jax.named_scope("inside"):
        curvature = jax.vmap(second, (None, 0))(params, points)
        residual = curvature + jnp.pi**2 * jnp.sin(jnp.pi * points)
    with jax.named_scope("ends"):
        ends = network(params, 0.0) ** 2 + network(params, 1.0) ** 2
    return (residual**2).mean() + ends


def step(params, points, rate=1e-3):
    value, grads = jax.value_and_grad(loss)(params, points)
    return value, jax.tree.map(lambda param, grad: param - rate * grad, params, grads)


weights = jax.ShapeDtypeStruct((64,), jnp.float32)
params = {"w0": weights, "b0": weights, "w1": weights}
p = ml.inspect(step, params, jax.ShapeDtypeStruct((256,), jnp.float32))
