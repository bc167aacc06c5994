"""Gradients of each example, clipped (DP-SGD).

`vmap` of `grad` gives one gradient per example, which differentially private training clips and adds with noise. The
sum over the batch is no longer part of the products: look at the memory of one gradient per example.
"""

import jax
import jax.numpy as jnp

import mithril_nb as ml

CLIP, NOISE = 1.0, 0.5


def loss(params, x, label):
    hidden = jnp.tanh(x @ params["hidden"])
    return -jax.nn.log_softmax(hidden @ params["head"])[label]


def private_gradient(params, key, x, labels):
    with jax.named_scope("each"):
        grads = jax.vmap(jax.grad(loss), (None, 0, 0))(params, x, labels)
    with jax.named_scope("clip"):
        squares = jax.tree.map(lambda grad: (grad**2).sum((1, 2)), grads)
        norms = jnp.sqrt(jax.tree.reduce(jnp.add, squares))
        factors = jnp.minimum(1, CLIP / norms)
        clipped = jax.tree.map(lambda grad: jnp.tensordot(factors, grad, 1), grads)
    with jax.named_scope("noise"):
        leaves, structure = jax.tree.flatten(clipped)
        keys = jax.random.split(key, len(leaves))
        noisy = [
            leaf + NOISE * CLIP * jax.random.normal(key, leaf.shape) for key, leaf in zip(keys, leaves, strict=True)
        ]
        return jax.tree.unflatten(structure, [leaf / len(x) for leaf in noisy])


array = jax.ShapeDtypeStruct
params = {"hidden": array((128, 64), jnp.float32), "head": array((64, 10), jnp.float32)}
x, labels = array((32, 128), jnp.float32), array((32,), jnp.int32)
p = ml.inspect(private_gradient, params, jax.random.key(0), x, labels)
