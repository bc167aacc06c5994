"""Multilayer perceptron for digits.

Two hidden layers and a head. Nearly all FLOPs are in the products of matrices; look at how the bias and the ReLU of a
layer join in one fusion of the optimized HLO.
"""

from itertools import pairwise

import jax
import jax.numpy as jnp

import mithril_nb as ml

SIZES = [784, 512, 256, 10]


def mlp(params, images):
    x = images.reshape(len(images), -1)
    for number, (weight, bias) in enumerate(params):
        with jax.named_scope(f"layer_{number}"):
            x = x @ weight + bias
            if number < len(params) - 1:
                x = jax.nn.relu(x)
    return jax.nn.log_softmax(x)


array = jax.ShapeDtypeStruct
params = [(array((a, b), jnp.float32), array((b,), jnp.float32)) for a, b in pairwise(SIZES)]
p = ml.inspect(mlp, params, array((32, 28, 28), jnp.float32))
