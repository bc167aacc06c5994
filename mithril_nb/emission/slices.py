"""The slices of an array that a gather reads, or that a scatter changes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax
import numpy as np

from mithril_nb.emission.program import Number, Operand, Statement


@dataclass(frozen=True)
class Slices:
    """The slices of an array.

    Attributes:
        array: The array.
        indices: An array whose last axis contains the starts of a slice.
        shape: Shape of the array with the items of all slices: the result of a gather, or the updates.
        window: The axes of `shape` within a slice.
        kept: The axis of `array` of each axis in `window`.
        mapped: For each index in the start of a slice, the axis of `array` that it refers to.
        batching: Pairs of a batch axis of `array` and the corresponding axis of `indices`.
        sizes: Size of a slice along each axis of `array`.
    """

    array: Operand
    indices: Operand
    shape: tuple[int, ...]
    window: tuple[int, ...]
    kept: tuple[int, ...]
    mapped: tuple[int, ...]
    batching: tuple[tuple[int, int], ...]
    sizes: tuple[int, ...]

    @property
    def outer(self) -> list[int]:
        """The axes of `shape` outside of the slices, which are those of `indices` except the last."""
        return [axis for axis in range(len(self.shape)) if axis not in self.window]


def fill_of(gather: Statement) -> Number | None:
    """Return what a gather reads outside of the array; `None` if it moves slices inside instead.

    The default is NaN for floats, `True` for bool, the smallest signed integer and the largest unsigned one.
    """
    if gather.params["mode"].name != "FILL_OR_DROP":
        return None
    name, value = gather.inputs[0].dtype, gather.params.get("fill_value")
    dtype = jax.numpy.dtype("uint32" if name.startswith("key") else name)
    if value is None and dtype.kind in "iu":
        value = np.iinfo(dtype).min or np.iinfo(dtype).max
    if value is None:
        return Number(True if name == "bool" else math.nan, name)
    return Number(np.asarray(value).astype(dtype).item(), name)


def slices_of(one: Statement) -> Slices:
    """Return the slices of a gather or a scatter."""
    array, indices, numbers = *one.inputs[:2], one.params["dimension_numbers"]
    if one.primitive == "gather":
        shape, window, mapped = one.outputs[0].shape, numbers.offset_dims, numbers.start_index_map
        removed, batch_of_indices = numbers.collapsed_slice_dims, numbers.start_indices_batching_dims
    else:
        shape, window, mapped = one.inputs[2].shape, numbers.update_window_dims, numbers.scatter_dims_to_operand_dims
        removed, batch_of_indices = numbers.inserted_window_dims, numbers.scatter_indices_batching_dims
    batch = numbers.operand_batching_dims
    kept = [axis for axis in range(len(array.shape)) if axis not in (*removed, *batch)]
    sizes = dict.fromkeys(range(len(array.shape)), 1)
    sizes |= {axis: shape[place] for axis, place in zip(kept, window, strict=True)}
    if one.primitive == "gather":
        sizes = dict(enumerate(one.params["slice_sizes"]))
    batching = tuple(zip(batch, batch_of_indices, strict=True))
    return Slices(
        array, indices, shape, tuple(window), tuple(kept), tuple(mapped), batching, tuple(sizes.values())
    )  # fmt: skip
