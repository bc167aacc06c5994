"""Shapes, axes and indexing; and plain Python values, which are known during tracing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mithril_nb.backends.jax.kernels.registry import (
    Result,
    as_array,
    is_value,
    kernel,
    narrowed,
    register,
    widened_whole,
)
from mithril_nb.errors import ShapeError
from mithril_nb.graph.spec import Dim, StaticSpec
from mithril_nb.models.library.operations.indexing import IndexArray, index_items, picked_value
from mithril_nb.models.library.operations.reshaping import as_sizes, flat_span, pad_pairs, reshaped, stretched
from mithril_nb.models.shape_inference.dims import MismatchError
from mithril_nb.models.shape_inference.folding import dtype_of
from mithril_nb.program import Array, Arrays, Call


@kernel("reshape")
def _reshape(call: Call, arrays: Arrays) -> Result:
    x, shape = as_array(call, arrays["input"]), static(call, "shape")
    with _inference_errors():
        return x.reshape(_sizes_of(x, reshaped(_dims(x), as_sizes("shape", shape))))


def _dims(x: Array) -> tuple[Dim, ...]:
    return tuple(size if isinstance(size, int) else str(size) for size in x.shape)


def _sizes_of(x: Array, dims: tuple[Dim, ...]) -> tuple[Any, ...]:
    # The rule computes with texts, JAX with its own symbols: a text that is no size of `x` is the one that JAX infers.
    sizes = {str(size): size for size in x.shape}
    return tuple(dim if isinstance(dim, int) else sizes.get(dim, -1) for dim in dims)


@kernel("flatten")
def _flatten(call: Call, arrays: Arrays) -> Result:
    x = arrays["input"]
    span = flat_span(x.shape, static(call, "start_dim"), static(call, "end_dim"))
    assert span is not None
    first, last = span
    # -1 instead of the product would fail for an empty batch.
    return x.reshape(*x.shape[:first], math.prod(x.shape[first:last]), *x.shape[last:])


@kernel("squeeze")
def _squeeze(call: Call, arrays: Arrays) -> Result:
    x, axis = arrays["input"], static(call, "axis")
    # A symbolic size does not count as 1.
    return jnp.squeeze(x, tuple(at for at, size in enumerate(x.shape) if size == 1) if axis is None else axis)


@kernel("broadcast_to")
def _broadcast_to(call: Call, arrays: Arrays) -> Result:
    x, shape = as_array(call, arrays["input"]), static(call, "shape")
    with _inference_errors():
        return jnp.broadcast_to(x, _sizes_of(x, stretched(_dims(x), as_sizes("shape", shape))))


@kernel("pad")
def _pad(call: Call, arrays: Arrays) -> Result:
    x, value = arrays["input"], call.options["value"]
    pairs = pad_pairs(static(call, "pad_width"), x.ndim)
    # jnp.pad rejects the empty list of pairs of a scalar.
    return jnp.pad(x, pairs, constant_values=np.asarray(value).astype(x.dtype)) if x.ndim else x


@kernel("indexer")
def _indexer(call: Call, arrays: Arrays) -> Result:
    x, index = arrays["input"], call.options["index"]
    if isinstance(x, tuple) or is_value(x):
        items = index_items(static(call, "index"))
        if is_value(x):
            return picked_value(StaticSpec(x), items).value
        for item in items:  # a tuple with arrays in it
            x = x if item is ... else x[item]
        return x
    if not isinstance(index, tuple) and not is_value(index):
        return x[widened_whole(index)]
    items = index_items(static(call, "index"))
    # NumPy arrays, not lists: JAX rejects lists as indices.
    return x[tuple(np.asarray(entry.numbers, int) if isinstance(entry, IndexArray) else entry for entry in items)]


def _taken(x: Array, indices: Array, axis: int | None) -> Array:
    if axis is None:
        x, axis = x.ravel(), 0
    if not indices.size:  # jnp.take ignores the shape of empty indices on an empty axis
        position = axis % x.ndim
        return jnp.zeros((*x.shape[:position], *indices.shape, *x.shape[position + 1 :]), x.dtype)
    return jnp.take(x, indices, axis)


@kernel("one_hot")
def _one_hot(call: Call, arrays: Arrays) -> Result:
    dtype = call.options["dtype"] or call.dtype
    count, axis = static(call, "num_classes"), call.options["axis"]
    return jax.nn.one_hot(arrays["input"], count, axis=axis, dtype=dtype)


def static(call: Call, option: str) -> Any:
    """Return an attribute as plain data. A connection may provide it as an array whose values are known."""
    value = call.options[option]
    if is_value(value):
        return value
    try:
        return _plain(value)
    except (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError):
        raise ShapeError(
            f"{option!r} must be known before the program runs.",
            (("given", "an array that the program computes or receives"),),
            "ml.compile(model, jit=False)",
            port=option,
        ) from None


@contextmanager
def _inference_errors() -> Iterator[None]:
    # A `MismatchError` that depends on data, so that shape inference did not find it, becomes a `ShapeError`.
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


@kernel("size")
def _size(call: Call, arrays: Arrays) -> Result:
    shape, dim = jnp.shape(arrays["input"]), call.options["dim"]
    if dim is None:
        return jnp.size(arrays["input"])
    return tuple(shape[axis] for axis in dim) if isinstance(dim, tuple) else shape[dim]


@kernel("item")
def _item(call: Call, arrays: Arrays) -> Result:
    value = arrays["input"]
    while isinstance(value, tuple):
        (value,) = value
    return value if is_value(value) else jnp.reshape(value, ())


@kernel("dtype")
def _dtype(call: Call, arrays: Arrays) -> Result:
    value = arrays["input"]
    return dtype_of(value) if is_value(value) else str(value.dtype)


def _nested(value: Any) -> Any:
    if isinstance(value, tuple) or jnp.ndim(value) == 0:
        return value
    return tuple(_nested(value[index]) for index in range(value.shape[0]))


def _joined(function: Callable[..., Array]) -> Callable[[Call, Arrays], Array]:
    return lambda call, arrays: narrowed(function([*arrays.values()], static(call, "axis")), *arrays.values())


register(
    {
        "permute_tensor": lambda call, arrays: _taken(arrays["input"], arrays["indices"], 0),
        "identity": lambda call, arrays: arrays["input"],
        "concat": _joined(jnp.concatenate),
        "stack": _joined(jnp.stack),
        "repeat_items": lambda call, arrays: jnp.repeat(arrays["input"], call.options["repeats"], static(call, "axis")),
        "roll": lambda call, arrays: jnp.roll(arrays["input"], call.options["shift"], static(call, "axis")),
        "take": lambda call, arrays: _taken(arrays["input"], arrays["indices"], static(call, "axis")),
        "gather": lambda call, arrays: jnp.take_along_axis(
            arrays["input"], arrays["indices"], axis=static(call, "axis")
        ),
        "shape": lambda call, arrays: tuple(jnp.shape(arrays["input"])),
        "length": lambda call, arrays: len(arrays["input"]),
        "cast": lambda call, arrays: jnp.asarray(arrays["input"]).astype(call.options["dtype"]),
        "to_tensor": lambda call, arrays: jnp.asarray(as_array(call, arrays["input"]), call.options["dtype"]),
        "tensor_to_list": lambda call, arrays: _nested(arrays["input"]),
        "to_tuple": lambda call, arrays: _nested(arrays["input"]) if "input" in arrays else tuple(arrays.values()),
        "to_list": lambda call, arrays: _nested(arrays["input"]) if "input" in arrays else tuple(arrays.values()),
        "slice": lambda call, arrays: (("slice", *(call.options[bound] for bound in ("start", "stop", "step")))),
        "value": lambda call, arrays: call.options["value"],
    }
)
