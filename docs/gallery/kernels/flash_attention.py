"""Attention with an online softmax.

The idea of FlashAttention: a scan over blocks of keys keeps a running maximum and sum, so the matrix of all scores is
never stored. Compare the peak of memory with that of the scores of all pairs.
"""

import jax
import jax.numpy as jnp

import mithril_nb as ml

BLOCK = 64


def attention(queries, keys, values):
    heads, _, width = keys.shape
    blocks = [jnp.moveaxis(x.reshape(heads, -1, BLOCK, width), 1, 0) for x in (keys, values)]

    def add_block(state, block):
        maximum, total, output = state
        keys, values = block
        with jax.named_scope("scores"):
            scores = queries @ keys.mT / jnp.sqrt(width)
        with jax.named_scope("rescale"):
            new_maximum = jnp.maximum(maximum, scores.max(-1, keepdims=True))
            weights = jnp.exp(scores - new_maximum)
            factor = jnp.exp(maximum - new_maximum)
            total = total * factor + weights.sum(-1, keepdims=True)
        with jax.named_scope("mix"):
            output = output * factor + weights @ values
        return (new_maximum, total, output), None

    column = (*queries.shape[:-1], 1)
    start = jnp.full(column, -jnp.inf), jnp.zeros(column), jnp.zeros_like(queries)
    (_, total, output), _ = jax.lax.scan(add_block, start, blocks)
    return output / total


x = jax.ShapeDtypeStruct((4, 2_048, 64), jnp.float32)
p = ml.inspect(attention, x, x, x)
