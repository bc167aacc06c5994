"""Layers with parameters."""

from __future__ import annotations

import math

import jax.numpy as jnp

from mithril_nb.backends.jax.kernels.registry import kernel
from mithril_nb.program import Arrays, Call


@kernel("linear")
def _linear(call: Call, arrays: Arrays) -> Arrays:
    out = jnp.matmul(arrays["input"], arrays["weight"])
    return {"output": out + arrays["bias"] if "bias" in arrays else out}


@kernel("flatten")
def _flatten(call: Call, arrays: Arrays) -> Arrays:
    x = arrays["input"]
    return {"output": x.reshape(x.shape[0], math.prod(x.shape[1:]))}  # -1 would not do for an empty batch


@kernel("embedding")
def _embedding(call: Call, arrays: Arrays) -> Arrays:
    # A number that is out of range gives a row of NaN, as jnp.take does by default: it is seen, not clamped.
    return {"output": jnp.take(arrays["weight"], arrays["input"], axis=0)}
