"""Rematerialization of a chain of layers.

`jax.checkpoint` keeps only the input of each layer, and the backward pass computes the rest again: more FLOPs for less
memory. The jaxpr has the products of the forward pass twice; see how many of them the optimized HLO still has.
"""

import jax
import jax.numpy as jnp

import mithril_nb as ml


@jax.checkpoint
def layer(x, params):
    hidden = jax.nn.gelu(x @ params["up"])
    return x + jnp.sin(hidden @ params["down"])


def loss(params, x, y):
    for number, layer_params in enumerate(params):
        with jax.named_scope(f"layer_{number}"):
            x = layer(x, layer_params)
    return ((x - y) ** 2).mean()


array = jax.ShapeDtypeStruct
params = [{"up": array((128, 512), jnp.float32), "down": array((512, 128), jnp.float32)}] * 3
x = array((256, 128), jnp.float32)
p = ml.inspect(jax.grad(loss), params, x, x)
