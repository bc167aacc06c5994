"""Multi-head attention with a causal mask.

Queries, keys and values of all heads come from one product of matrices. Look at the memory of the scores: it grows with
the square of the sequence length, and nearly half of them are computed only to be masked.
"""

import jax
import jax.numpy as jnp

import mithril_nb as ml

HEADS = 8


def attention(params, x):
    batch, length, width = x.shape
    with jax.named_scope("project"):
        queries, keys, values = jnp.moveaxis((x @ params["qkv"]).reshape(batch, length, 3, HEADS, width // HEADS), 2, 0)
    with jax.named_scope("scores"):
        scores = jnp.einsum("bqhd,bkhd->bhqk", queries, keys) / jnp.sqrt(width // HEADS)
        scores = jnp.where(jnp.tri(length, dtype=bool), scores, -jnp.inf)
        weights = jax.nn.softmax(scores)
    with jax.named_scope("mix"):
        mixed = jnp.einsum("bhqk,bkhd->bqhd", weights, values).reshape(batch, length, width)
    with jax.named_scope("output"):
        return mixed @ params["out"]


array = jax.ShapeDtypeStruct
params = {"qkv": array((256, 3 * 256), jnp.float32), "out": array((256, 256), jnp.float32)}
p = ml.inspect(attention, params, array((4, 128, 256), jnp.float32))
