"""What the params of JAX's primitives say: axes of products and broadcasts, windows, slices of gathers and scatters."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from mithril_nb.emission.program import Number, Operand, Statement
from mithril_nb.emission.sizes import number

Axes = tuple[int, ...]


def neutral(kind: str, dtype: str) -> Any:
    """Return the number that changes no result of a primitive, such as the smallest for `"max"`, as a Python number."""
    if kind in ("max", "min") and dtype.startswith(("float", "bfloat")):
        return -math.inf if kind == "max" else math.inf
    if kind in ("max", "min", "and") and dtype != "bool":
        limits = np.iinfo(dtype)
        ends = {"max": limits.min, "min": limits.max, "and": -1 if limits.min else limits.max}  # "and": all bits
        return int(ends[kind])
    return int(kind in ("mul", "min", "and"))


def expanded_shape(broadcast: Statement) -> Axes:
    """Return the shape that the operand of a `broadcast_in_dim` has with further axes of size 1."""
    shape = [1] * len(broadcast.shape)
    for axis, size in zip(broadcast["broadcast_dimensions"], broadcast.operand.shape, strict=True):
        shape[axis] = size
    return tuple(shape)


def product_axes(product: Statement) -> list[tuple[Axes, Axes, Axes]]:
    """Return the batch axes, the other axes and the summed axes of both operands of a `dot_general`."""
    return [
        (batch, tuple([axis for axis in range(len(operand.shape)) if axis not in (*over, *batch)]), over)
        for operand, over, batch in zip(product.inputs, *product["dimension_numbers"], strict=True)
    ]


@dataclass(frozen=True)
class Windows:
    """The windows of a pooling or of its gradient, by axis of the array that they slide over."""

    sizes: Axes
    strides: Axes
    padding: tuple[tuple[int, int], ...]
    base_dilation: Axes
    dilation: Axes


def windows_of(statement: Statement) -> Windows:
    """Return the windows of a pooling or of its gradient."""
    params: Any = statement.params
    sizes = _ints(params["window_dimensions"])
    unit = (1,) * len(sizes)  # gradients of poolings have no dilations
    return Windows(
        sizes, _ints(params["window_strides"]), tuple(map(_ints, params["padding"])),
        _ints(params.get("base_dilation") or unit), _ints(params.get("window_dilation") or unit),
    )  # fmt: skip


def _ints(sizes: Any) -> Any:
    return tuple(map(number, sizes))


@dataclass(frozen=True)
class Slices:
    """The slices of an array that a gather reads, or that a scatter changes.

    Attributes:
        indices: An array whose last axis contains the starts of a slice.
        shape: Shape of the array with the items of all slices: the result of a gather, or the updates.
        window: The axes of `shape` within a slice.
        window_axes: The axis of `array` of each axis in `window`.
        mapped: For each index in the start of a slice, the axis of `array` that it refers to.
        batching: Pairs of a batch axis of `array` and the corresponding axis of `indices`.
        sizes: Size of a slice along each axis of `array`.
    """

    array: Operand
    indices: Operand
    shape: Axes
    window: Axes
    window_axes: Axes
    mapped: Axes
    batching: tuple[tuple[int, int], ...]
    sizes: Axes

    @property
    def outer(self) -> list[int]:
        """The axes of `shape` outside of the slices, which are those of `indices` except the last."""
        return [axis for axis in range(len(self.shape)) if axis not in self.window]


def fill_of(gather: Statement) -> Number | None:
    """Return what a gather reads outside of the array; `None` if it moves slices inside instead.

    The default is NaN for floats, `True` for bool, the smallest signed integer and the largest unsigned one.
    """
    if gather["mode"].name != "FILL_OR_DROP":
        return None
    name, value = gather.operand.dtype, gather.params.get("fill_value")
    dtype = jax.numpy.dtype("uint32" if name.startswith("key") else name)
    if value is None and dtype.kind in "iu":
        value = np.iinfo(dtype).min or np.iinfo(dtype).max
    if value is None:
        return Number(True if name == "bool" else math.nan, name)
    return Number(np.asarray(value).astype(dtype).item(), name)


def slices_of(statement: Statement) -> Slices:
    """Return the slices of a gather or a scatter."""
    array, indices, numbers = *statement.inputs[:2], statement["dimension_numbers"]
    if statement.primitive == "gather":
        shape, window, mapped = statement.shape, numbers.offset_dims, numbers.start_index_map
        removed, batch_of_indices = numbers.collapsed_slice_dims, numbers.start_indices_batching_dims
    else:
        shape, window = statement.inputs[2].shape, numbers.update_window_dims
        mapped, removed = numbers.scatter_dims_to_operand_dims, numbers.inserted_window_dims
        batch_of_indices = numbers.scatter_indices_batching_dims
    batch = numbers.operand_batching_dims
    window_axes = tuple([axis for axis in range(len(array.shape)) if axis not in (*removed, *batch)])
    sizes = statement.params.get("slice_sizes")
    if sizes is None:  # a scatter has them only as the shape of its updates
        inner = {axis: shape[position] for axis, position in zip(window_axes, window, strict=True)}
        sizes = [inner.get(axis, 1) for axis in range(len(array.shape))]
    batching = tuple(zip(batch, batch_of_indices, strict=True))
    return Slices(array, indices, shape, tuple(window), window_axes, tuple(mapped), batching, tuple(sizes))
