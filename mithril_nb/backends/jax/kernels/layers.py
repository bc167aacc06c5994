"""Layers with parameters."""

from __future__ import annotations

import jax.numpy as jnp

from mithril_nb.backends.jax.kernels.registry import kernel
from mithril_nb.program import Arrays, Call


@kernel("linear")
def _linear(call: Call, arrays: Arrays) -> Arrays:
    out = jnp.matmul(arrays["input"], arrays["weight"])
    return {"output": out + arrays["bias"] if "bias" in arrays else out}


@kernel("embedding")
def _embedding(call: Call, arrays: Arrays) -> Arrays:
    # An index out of range gives a row of NaN, the default of jnp.take, so that the user notices it.
    return {"output": jnp.take(arrays["weight"], arrays["input"], axis=0)}
