"""Constants."""

from __future__ import annotations

import jax.numpy as jnp

from mithril_nb.backends.jax.kernels.registry import kernel
from mithril_nb.models.shape_inference.folding import dtype_of
from mithril_nb.program import Arrays, Call


@kernel("constant")
def _constant(call: Call, arrays: Arrays) -> Arrays:
    value = call.options["value"]
    return {"output": jnp.asarray(value, call.options["dtype"] or dtype_of(value) or call.dtype)}
