"""Rematerialization of a chain of layers.

`jax.checkpoint` keeps only the input of each layer, and the backward pass computes the rest again: more FLOPs for less
memory. Remove the decorator and compare the peak memory, and the products in the loop of the backward pass.
"""

import jax
import jax.numpy as jnp

import mithril_nb as ml


@jax.checkpoint
def layer(x, params):
    hidden = jax.nn.gelu(x @ params["up"])
    return x + jnp.sin(hidden @ params["down"])


def loss(params, x, y):
    with jax.named_scope("layers"):
        x, _ = jax.lax.scan(lambda x, params: (layer(x, params), None), x, params)
    return ((x - y) ** 2).mean()


array = jax.ShapeDtypeStruct
params = {"up": array((6, 128, 512), jnp.float32), "down": array((6, 512, 128), jnp.float32)}
x = array((256, 128), jnp.float32)
p = ml.inspect(jax.grad(loss), params, x, x)
