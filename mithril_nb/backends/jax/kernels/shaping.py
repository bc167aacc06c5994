"""Shapes, axes and indexing; and plain Python values, which are known during tracing."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mithril_nb.backends.jax.kernels.registry import as_array, is_value, kernel, narrowed, widened_whole
from mithril_nb.errors import ShapeError
from mithril_nb.graph.spec import Dim, StaticSpec
from mithril_nb.models.library.operations.indexing import IndexArray, index_items, picked_value
from mithril_nb.models.library.operations.reshaping import as_sizes, flat_span, pad_pairs, reshaped, stretched
from mithril_nb.models.shape_inference.dims import MismatchError
from mithril_nb.models.shape_inference.folding import dtype_of
from mithril_nb.program import Array, Arrays, Call


@kernel("identity")
def _identity(call: Call, arrays: Arrays) -> Arrays:
    return {"output": arrays["input"]}


@kernel("reshape")
def _reshape(call: Call, arrays: Arrays) -> Arrays:
    x, shape = as_array(call, arrays["input"]), static(call, "shape")
    with _inference_errors():
        return {"output": x.reshape(_sizes_of(x, reshaped(_dims(x), as_sizes("shape", shape))))}


def _dims(x: Array) -> tuple[Dim, ...]:
    """Return the shape of an array, with symbolic sizes as text."""
    return tuple(size if isinstance(size, int) else str(size) for size in x.shape)


def _sizes_of(x: Array, dims: tuple[Dim, ...]) -> tuple[Any, ...]:
    """Return sizes of a shape rule as sizes for JAX. A text that is not a symbolic size of the array becomes -1."""
    sizes = {str(size): size for size in x.shape}
    return tuple(dim if isinstance(dim, int) else sizes.get(dim, -1) for dim in dims)


@kernel("flatten")
def _flatten(call: Call, arrays: Arrays) -> Arrays:
    x = arrays["input"]
    span = flat_span(x.shape, static(call, "start_dim"), static(call, "end_dim"))
    assert span is not None
    first, last = span
    # -1 instead of the product would fail for an empty batch.
    return {"output": x.reshape(*x.shape[:first], math.prod(x.shape[first:last]), *x.shape[last:])}


@kernel("squeeze")
def _squeeze(call: Call, arrays: Arrays) -> Arrays:
    x, axis = arrays["input"], static(call, "axis")
    # A symbolic size does not count as 1.
    return {
        "output": jnp.squeeze(x, tuple(at for at, size in enumerate(x.shape) if size == 1) if axis is None else axis)
    }


@kernel("broadcast_to")
def _broadcast_to(call: Call, arrays: Arrays) -> Arrays:
    x, shape = as_array(call, arrays["input"]), static(call, "shape")
    with _inference_errors():
        return {"output": jnp.broadcast_to(x, _sizes_of(x, stretched(_dims(x), as_sizes("shape", shape))))}


@kernel("permute_tensor")
def _permute_tensor(call: Call, arrays: Arrays) -> Arrays:
    return {"output": _taken(arrays["input"], arrays["indices"], 0)}


@kernel("concat")
def _concat(call: Call, arrays: Arrays) -> Arrays:
    return {"output": narrowed(jnp.concatenate([*arrays.values()], static(call, "axis")), *arrays.values())}


@kernel("stack")
def _stack(call: Call, arrays: Arrays) -> Arrays:
    return {"output": narrowed(jnp.stack([*arrays.values()], static(call, "axis")), *arrays.values())}


@kernel("repeat_items")
def _repeat(call: Call, arrays: Arrays) -> Arrays:
    return {"output": jnp.repeat(arrays["input"], call.options["repeats"], static(call, "axis"))}


@kernel("pad")
def _pad(call: Call, arrays: Arrays) -> Arrays:
    x, value = arrays["input"], call.options["value"]
    pairs = pad_pairs(static(call, "pad_width"), x.ndim)
    # jnp.pad rejects the empty list of pairs of a scalar.
    return {"output": jnp.pad(x, pairs, constant_values=np.asarray(value).astype(x.dtype)) if x.ndim else x}


@kernel("roll")
def _roll(call: Call, arrays: Arrays) -> Arrays:
    return {"output": jnp.roll(arrays["input"], call.options["shift"], static(call, "axis"))}


@kernel("indexer")
def _indexer(call: Call, arrays: Arrays) -> Arrays:
    x, index = arrays["input"], call.options["index"]
    if isinstance(x, tuple) or is_value(x):
        items = index_items(static(call, "index"))
        return {"output": _picked(x, items)}
    if not isinstance(index, tuple) and not is_value(index):
        return {"output": x[widened_whole(index)]}
    items = index_items(static(call, "index"))
    return {
        "output": x[
            tuple(np.asarray(entry.numbers, int) if isinstance(entry, IndexArray) else entry for entry in items)
        ]
    }


def _picked(value: Any, items: tuple[Any, ...]) -> Any:
    if is_value(value):
        return picked_value(StaticSpec(value), items).value
    for item in items:  # a tuple with arrays in it
        value = value if item is ... else value[item]
    return value


@kernel("take")
def _take(call: Call, arrays: Arrays) -> Arrays:
    return {"output": _taken(arrays["input"], arrays["indices"], static(call, "axis"))}


def _taken(x: Array, indices: Array, axis: int | None) -> Array:
    if axis is None:
        x, axis = x.ravel(), 0
    if not indices.size:  # jnp.take ignores the shape of empty indices on an empty axis
        position = axis % x.ndim
        return jnp.zeros((*x.shape[:position], *indices.shape, *x.shape[position + 1 :]), x.dtype)
    return jnp.take(x, indices, axis)


@kernel("gather")
def _gather(call: Call, arrays: Arrays) -> Arrays:
    return {"output": jnp.take_along_axis(arrays["input"], arrays["indices"], axis=static(call, "axis"))}


@kernel("one_hot")
def _one_hot(call: Call, arrays: Arrays) -> Arrays:
    dtype = call.options["dtype"] or call.dtype
    count, axis = static(call, "num_classes"), call.options["axis"]
    return {"output": jax.nn.one_hot(arrays["input"], count, axis=axis, dtype=dtype)}


def static(call: Call, option: str) -> Any:
    """Return an attribute as plain data. A connection may provide it as an array whose values are known.

    Raises:
        ShapeError: The values are unknown while the program is traced, because they depend on data.
    """
    value = call.options[option]
    if is_value(value):
        return value
    try:
        return _plain(value)
    except (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError):
        raise ShapeError(
            f"{option!r} must be known before the program runs.",
            (("given", "an array that the program computes or receives"),),
            f"{option}=2  # or {option}=x.shape()[0], or ml.compile(model, jit=False)",
            port=option,
        ) from None


@contextmanager
def _inference_errors() -> Iterator[None]:
    """Convert a `MismatchError` that depends on data, so that shape inference did not find it, to a `ShapeError`."""
    try:
        yield
    except MismatchError as error:
        raise ShapeError(f"{error.port!r} does not match.", error.facts, error.advice, port=error.port) from None


def _plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return tuple(_plain(element) for element in value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    items = np.asarray(value)
    return items.item() if items.ndim == 0 else tuple(map(_plain, items))


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
    return tuple(_nested(value[index]) for index in range(value.shape[0]))
