"""Residual block with batch normalization.

The block of ResNet in training: two convolutions, their batch statistics, and the skip connection. The convolutions
have nearly all FLOPs; see in the costs how many bytes the normalizations move for few FLOPs.
"""

import jax
import jax.numpy as jnp

import mithril_nb as ml


def convolution(x, kernel):
    return jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def batch_norm(x, scale, shift):
    mean = x.mean((0, 1, 2))
    variance = x.var((0, 1, 2))
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * scale + shift


def block(params, x):
    y = x
    for number, (kernel, scale, shift) in enumerate(params):
        with jax.named_scope(f"conv_{number}"):
            y = convolution(y, kernel)
        with jax.named_scope(f"norm_{number}"):
            y = batch_norm(y, scale, shift)
        if number == 0:
            y = jax.nn.relu(y)
    with jax.named_scope("skip"):
        return jax.nn.relu(x + y)


array = jax.ShapeDtypeStruct
kernel, channels = array((3, 3, 64, 64), jnp.float32), array((64,), jnp.float32)
p = ml.inspect(block, [(kernel, channels, channels)] * 2, array((8, 32, 32, 64), jnp.float32))
