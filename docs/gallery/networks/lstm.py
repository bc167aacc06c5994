"""LSTM by scan.

A recurrent cell that `jax.lax.scan` applies at each time step. The jaxpr contains the cell once, but its cost counts
once per time step; compare with the count of the compiler, which counts the body of a loop once.
"""

import jax
import jax.numpy as jnp

import mithril_nb as ml


def cell(params, state, x):
    hidden, memory = state
    gates = jnp.concatenate([x, hidden], axis=-1) @ params["weight"] + params["bias"]
    update, forget, candidate, output = jnp.split(gates, 4, axis=-1)
    memory = jax.nn.sigmoid(forget + 1) * memory + jax.nn.sigmoid(update) * jnp.tanh(candidate)
    hidden = jax.nn.sigmoid(output) * jnp.tanh(memory)
    return (hidden, memory), hidden


def lstm(params, sequence):
    batch, width = sequence.shape[1], params["bias"].shape[0] // 4
    zeros = jnp.zeros((batch, width), sequence.dtype)
    _, outputs = jax.lax.scan(lambda state, x: cell(params, state, x), (zeros, zeros), sequence)
    return outputs


array = jax.ShapeDtypeStruct
params = {"weight": array((64 + 128, 4 * 128), jnp.float32), "bias": array((4 * 128,), jnp.float32)}
p = ml.inspect(lstm, params, array((50, 16, 64), jnp.float32))
