"""Shapes, lengths, dtypes and tuples: plain Python values, which are known during tracing."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from mithril_nb.backends.jax.kernels.dtypes import as_array, is_value
from mithril_nb.backends.jax.kernels.registry import kernel
from mithril_nb.models.shape_inference.folding import dtype_of
from mithril_nb.program import Arrays, Call


@kernel("shape")
def _shape(call: Call, arrays: Arrays) -> Arrays:
    return {"output": tuple(jnp.shape(arrays["input"]))}


@kernel("length")
def _length(call: Call, arrays: Arrays) -> Arrays:
    return {"output": len(arrays["input"])}


@kernel("size")
def _size(call: Call, arrays: Arrays) -> Arrays:
    shape, dim = jnp.shape(arrays["input"]), call.options["dim"]
    if dim is None:
        return {"output": jnp.size(arrays["input"])}
    return {"output": tuple(shape[axis] for axis in dim) if isinstance(dim, tuple) else shape[dim]}


@kernel("item")
def _item(call: Call, arrays: Arrays) -> Arrays:
    value = arrays["input"]
    while isinstance(value, tuple):
        (value,) = value
    return {"output": value if is_value(value) else jnp.reshape(value, ())}


@kernel("cast")
def _cast(call: Call, arrays: Arrays) -> Arrays:
    return {"output": jnp.asarray(arrays["input"]).astype(call.options["dtype"])}


@kernel("dtype")
def _dtype(call: Call, arrays: Arrays) -> Arrays:
    value = arrays["input"]
    return {"output": dtype_of(value) if is_value(value) else str(value.dtype)}


@kernel("to_tensor")
def _to_tensor(call: Call, arrays: Arrays) -> Arrays:
    return {"output": jnp.asarray(as_array(call, arrays["input"]), call.options["dtype"])}


@kernel("tensor_to_list")
def _tensor_to_list(call: Call, arrays: Arrays) -> Arrays:
    return {"output": _nested(arrays["input"])}


@kernel("to_tuple")
@kernel("to_list")
def _to_tuple(call: Call, arrays: Arrays) -> Arrays:
    return {"output": _nested(arrays["input"]) if "input" in arrays else tuple(arrays.values())}


@kernel("slice")
def _slice(call: Call, arrays: Arrays) -> Arrays:
    return {"output": ("slice", *(call.options[bound] for bound in ("start", "stop", "step")))}


@kernel("value")
def _value(call: Call, arrays: Arrays) -> Arrays:
    return {"output": call.options["value"]}


def _nested(value: Any) -> Any:
    if isinstance(value, tuple) or jnp.ndim(value) == 0:
        return value
    return tuple(_nested(value[place]) for place in range(value.shape[0]))
