"""Data-parallel training step.

The batch is split over the devices and the parameters are copied to all; nothing else in the program is about devices.
The compiler adds the sum of the gradients over the devices: find the collectives in the optimized HLO.
"""

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import mithril_nb as ml


def loss(params, x, y):
    hidden = jax.nn.relu(x @ params["hidden"])
    return ((hidden @ params["head"] - y) ** 2).mean()


def step(params, x, y):
    grads = jax.grad(loss)(params, x, y)
    return jax.tree.map(lambda param, grad: param - 0.1 * grad, params, grads)


mesh = Mesh(jax.devices(), ("data",))
copied = NamedSharding(mesh, PartitionSpec())
split = NamedSharding(mesh, PartitionSpec("data"))


def array(shape, sharding):
    return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding)


params = {"hidden": array((256, 512), copied), "head": array((512, 16), copied)}
batch = 32 * mesh.size
p = ml.inspect(jax.jit(step, out_shardings=copied), params, array((batch, 256), split), array((batch, 16), split))
