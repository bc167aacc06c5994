"""Gradient accumulation by scan.

A large batch in small parts: a scan adds the gradients of each part, then one update follows. The result is that of the
whole batch, but memory holds the hidden layer of one part only: look for its shape in the jaxpr.
"""

import jax
import jax.numpy as jnp

import mithril_nb as ml

PARTS = 8


def loss(params, x, y):
    hidden = jax.nn.gelu(x @ params["hidden"])
    return ((hidden @ params["head"] - y) ** 2).mean()


def step(params, x, y):
    parts = jax.tree.map(lambda data: data.reshape(PARTS, -1, *data.shape[1:]), (x, y))

    def add(total, part):
        grads = jax.grad(loss)(params, *part)
        return jax.tree.map(jnp.add, total, grads), None

    total, _ = jax.lax.scan(add, jax.tree.map(jnp.zeros_like, params), parts)
    return jax.tree.map(lambda param, grad: param - 0.1 * grad / PARTS, params, total)


array = jax.ShapeDtypeStruct
params = {"hidden": array((256, 1024), jnp.float32), "head": array((1024, 16), jnp.float32)}
p = ml.inspect(step, params, array((512, 256), jnp.float32), array((512, 16), jnp.float32))
