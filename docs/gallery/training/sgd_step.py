"""Training step with gradient descent.

A classifier with one hidden layer: loss, gradients and update in one program. The old parameters are donated, so the
new ones reuse their memory; each product of the forward pass has up to two in the backward pass.
"""

import jax
import jax.numpy as jnp

import mithril_nb as ml


def loss(params, images, labels):
    with jax.named_scope("hidden"):
        x = jax.nn.relu(images @ params["w0"] + params["b0"])
    with jax.named_scope("head"):
        scores = jax.nn.log_softmax(x @ params["w1"] + params["b1"])
        return -jnp.take_along_axis(scores, labels[:, None], axis=1).mean()


def step(params, images, labels, rate=0.1):
    value, grads = jax.value_and_grad(loss)(params, images, labels)
    return value, jax.tree.map(lambda param, grad: param - rate * grad, params, grads)


array = jax.ShapeDtypeStruct
params = {
    "w0": array((784, 256), jnp.float32),
    "b0": array((256,), jnp.float32),
    "w1": array((256, 10), jnp.float32),
    "b1": array((10,), jnp.float32),
}
train = jax.jit(step, donate_argnums=0)
p = ml.inspect(train, params, array((64, 784), jnp.float32), array((64,), jnp.int32))
