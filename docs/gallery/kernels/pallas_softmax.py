"""Softmax as a Pallas kernel.

A kernel that reads a block of rows once and writes it once, interpreted here so that it runs on a CPU. The jaxpr
contains the kernel with its own lines; its bytes are the blocks that it fetches.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

import mithril_nb as ml

ROWS = 32


def kernel(x_ref, out_ref):
    x = x_ref[...]
    exponentials = jnp.exp(x - x.max(axis=1, keepdims=True))
    out_ref[...] = exponentials / exponentials.sum(axis=1, keepdims=True)


def softmax(x):
    rows, columns = x.shape
    block = pl.BlockSpec((ROWS, columns), lambda i: (i, 0))
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return pl.pallas_call(kernel, shape, grid=(rows // ROWS,), in_specs=[block], out_specs=block, interpret=True)(x)


p = ml.inspect(softmax, jax.ShapeDtypeStruct((256, 512), jnp.float32))
