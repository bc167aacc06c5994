"""Tensor-parallel MLP.

The first weight is split by columns and the second by rows, so each device has its own part of the hidden layer and no
data moves between the two products. One collective at the end adds the partial results.
"""

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import mithril_nb as ml

mesh = Mesh(jax.devices(), ("model",))


def mlp(params, x):
    with jax.named_scope("up"):
        hidden = jax.nn.gelu(x @ params["up"])
    with jax.named_scope("down"):
        return hidden @ params["down"]


def array(shape, *axes):
    return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, PartitionSpec(*axes)))


hidden = 128 * mesh.size
params = {"up": array((256, hidden), None, "model"), "down": array((hidden, 256), "model", None)}
copied = NamedSharding(mesh, PartitionSpec())
p = ml.inspect(jax.jit(mlp, out_shardings=copied), params, array((64, 256)))
