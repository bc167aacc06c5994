"""Meta-learning with MAML.

The outer gradient goes through a gradient step of each task: a derivative of a derivative, mapped over the tasks.
Compare the FLOPs of the block `adapt`, which is differentiated twice, with those of the block `query`.
"""

import jax
import jax.numpy as jnp

import mithril_nb as ml

RATE = 0.05


def loss(params, x, y):
    hidden = jnp.tanh(x @ params["w0"] + params["b0"])
    return ((hidden @ params["w1"] + params["b1"] - y) ** 2).mean()


def adapt(params, x, y):
    grads = jax.grad(loss)(params, x, y)
    return jax.tree.map(lambda param, grad: param - RATE * grad, params, grads)


def meta_loss(params, support, query):
    def loss_of_task(support, query):
        with jax.named_scope("adapt"):
            adapted = adapt(params, *support)
        with jax.named_scope("query"):
            return loss(adapted, *query)

    return jax.vmap(loss_of_task)(support, query).mean()


array = jax.ShapeDtypeStruct
params = {
    "w0": array((1, 40), jnp.float32),
    "b0": array((40,), jnp.float32),
    "w1": array((40, 1), jnp.float32),
    "b1": array((1,), jnp.float32),
}
points = (array((25, 10, 1), jnp.float32), array((25, 10, 1), jnp.float32))
p = ml.inspect(jax.value_and_grad(meta_loss), params, points, points)
