"""ONNX operators of primitives that shape, join, reduce and create arrays."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from mithril_nb.emission.onnx.graph import Graph, neutral, rule, wider
from mithril_nb.emission.program import KEEPDIMS, Statement

_REDUCTIONS = {"reduce_sum": "Sum", "reduce_max": "Max", "reduce_min": "Min", "reduce_prod": "Prod"}


@rule("reshape", "squeeze", "expand_dims")
def _reshape(to: Graph, one: Statement) -> str:
    return to.reshape(to.tensor(one.inputs[0]), one.outputs[0].shape)


@rule("broadcast_in_dim")
def _broadcast(to: Graph, one: Statement) -> str:
    given, shape = one.inputs[0], one.outputs[0].shape
    expanded = [1] * len(shape)
    for axis, size in zip(one.params["broadcast_dimensions"], given.shape, strict=True):
        expanded[axis] = size
    name = to.tensor(given)
    if tuple(expanded) != given.shape:
        name = to.reshape(name, expanded)
    return name if tuple(expanded) == shape else to.add("Expand", name, to.integers(shape))


@rule("transpose")
def _transpose(to: Graph, one: Statement) -> str:
    return permuted(to, to.tensor(one.inputs[0]), one.params["permutation"])


def permuted(to: Graph, name: str, order: Sequence[int]) -> str:
    """Add a transpose if the order changes, and return its output."""
    order = [int(axis) for axis in order]
    return name if order == list(range(len(order))) else to.add("Transpose", name, perm=order)


@rule("concatenate")
def _concatenate(to: Graph, one: Statement) -> str:
    return to.add("Concat", *map(to.tensor, one.inputs), axis=int(one.params["dimension"]))


@rule("stack")
def _stack(to: Graph, one: Statement) -> str:
    axis = int(one.params["axis"])
    names = [to.add("Unsqueeze", to.tensor(each), to.integers([axis])) for each in one.inputs]
    return to.add("Concat", *names, axis=axis)


@rule("split")
def _split(to: Graph, one: Statement) -> list[str]:
    sizes, axis = one.params["sizes"], int(one.params["axis"])
    return to.add_all("Split", len(sizes), to.tensor(one.inputs[0]), to.integers(sizes), axis=axis)


@rule("unstack")
def _unstack(to: Graph, one: Statement) -> list[str]:
    axis = int(one.params["axis"])
    name = to.tensor(one.inputs[0])
    return [to.add("Gather", name, to.constant(place, np.int64), axis=axis) for place in range(len(one.outputs))]


@rule("tile")
def _tile(to: Graph, one: Statement) -> str:
    return to.add("Tile", to.tensor(one.inputs[0]), to.integers(one.params["reps"]))


@rule("slice")
def _slice(to: Graph, one: Statement) -> str:
    params = one.params
    steps = params["strides"] or [1] * len(params["start_indices"])
    return sliced(to, to.tensor(one.inputs[0]), params["start_indices"], params["limit_indices"], steps)


def sliced(to: Graph, name: str, starts: Sequence[int], ends: Sequence[int], steps: Sequence[int] = ()) -> str:
    """Add a slice of a tensor along its first axes, and return its output."""
    steps = steps or [1] * len(starts)
    axes = range(len(starts))
    return to.add("Slice", name, *map(to.integers, (starts, ends, axes, steps)))


@rule("rev")
def _reverse(to: Graph, one: Statement) -> str:
    return reversed_along(to, to.tensor(one.inputs[0]), one.params["dimensions"])


def reversed_along(to: Graph, name: str, axes: Sequence[int]) -> str:
    """Add a slice that reverses a tensor along some axes, and return its output."""
    count = len(axes)
    starts, ends = [-1] * count, [np.iinfo(np.int64).min] * count
    return to.add("Slice", name, *map(to.integers, (starts, ends, axes, [-1] * count)))


@rule("pad")
def _pad(to: Graph, one: Statement) -> str:
    array, value = one.inputs
    name, fill, shape = to.tensor(array), to.tensor(value), list(array.shape)
    for axis, (_, _, gap) in enumerate(one.params["padding_config"]):
        name = dilated(to, name, array.dtype, shape, axis, int(gap), fill)
    config = one.params["padding_config"]
    before, after = [pair[0] for pair in config], [pair[1] for pair in config]
    return padded(to, name, array.dtype, [*before, *after], fill)


def padded(to: Graph, name: str, dtype: str, widths: Sequence[int], fill: str) -> str:
    """Add a padding of a tensor by the item `fill`, and return its output. `widths` are those before, then after."""
    if not any(widths):
        return name
    if dtype not in ("int16", "uint16"):
        return to.add("Pad", name, to.integers(widths), fill)
    return to.cast(to.add("Pad", to.cast(name, "int32"), to.integers(widths), to.cast(fill, "int32")), dtype)


def dilated(to: Graph, name: str, dtype: str, shape: list[int], axis: int, gap: int, fill: str) -> str:
    """Insert `gap` equal items between the neighbouring items of a tensor along an axis, and return the new tensor.

    `name` and `fill` are names of tensors; `fill` contains the item to insert. `shape` is the shape of the tensor. The
    function changes this list to the new shape.
    """
    if not gap or shape[axis] < 2:
        return name
    inner = [*shape[: axis + 1], 1, *shape[axis + 1 :]]
    after = [0] * (2 * len(inner))
    after[len(inner) + axis + 1] = gap
    name = padded(to, to.reshape(name, inner), dtype, after, fill)
    size = shape[axis]
    whole = [*shape]
    whole[axis] = size * (gap + 1)
    shape[axis] = whole[axis] - gap
    return sliced(to, to.reshape(name, whole), [0] * len(shape), shape)


@rule("iota")
def _iota(to: Graph, one: Statement) -> str:
    shape, axis = one.outputs[0].shape, one.params["dimension"]
    return to.indices(shape, axis, one.outputs[0].dtype)


@rule("dim_as_value")
def _size_as_tensor(to: Graph, one: Statement) -> str:
    return to.cast(to.scalar(one.params["dim"]), one.outputs[0].dtype)


@rule("empty", "empty2")
def _empty(to: Graph, one: Statement) -> str:
    return to.full(0, one.outputs[0].shape, one.outputs[0].dtype)


@rule(*_REDUCTIONS, "reduce_and", "reduce_or")
def _reduce(to: Graph, one: Statement) -> str:
    name, dtype = to.tensor(one.inputs[0]), one.inputs[0].dtype
    axes, keeps = one.params["axes"], bool(one.params.get(KEEPDIMS))
    if one.primitive in ("reduce_and", "reduce_or") and dtype != "bool":
        raise to.unsupported(one, "integers")
    kind = _REDUCTIONS.get(one.primitive) or {"reduce_and": "Min", "reduce_or": "Max"}[one.primitive]
    return reduced(to, kind, name, dtype, one.inputs[0].shape, axes, keeps)


def reduced(
    to: Graph, kind: str, name: str, dtype: str, shape: Sequence[int], axes: Sequence[int], keeps: bool = False
) -> str:
    """Add a reduction of a tensor by `"Sum"`, `"Prod"`, `"Max"` or `"Min"`, and return its output."""
    over = to.integers(axes)
    kept = [1 if axis in axes else size for axis, size in enumerate(shape) if keeps or axis not in axes]
    if 0 in shape:
        return to.full(neutral(kind, dtype), kept, dtype)
    if kind in ("Sum", "Prod") and np.dtype(dtype).kind in "iu":
        # onnxruntime rounds sums and products of integers to floats.
        outer = [axis for axis in range(len(shape)) if axis not in axes]
        rows, count = (math.prod(shape[axis] for axis in each) for each in (outer, axes))
        name = to.reshape(permuted(to, name, [*outer, *axes]), [rows, count])
        if kind == "Sum":
            name = to.compute("MatMul", dtype, [name, to.full(1, [count, 1], dtype)])
        else:
            ones, first = to.full(1, [rows, 1], dtype), to.full(0, [rows, count], "int64")
            wide = wider("Prod", dtype)
            arrays = [to.cast(ones, wide), first, to.cast(name, wide)]
            name = to.cast(to.add("ScatterElements", *arrays, axis=1, reduction="mul"), dtype)
        return to.reshape(name, kept)
    if kind in ("Sum", "Prod"):
        return to.compute(f"Reduce{kind}", dtype, [name], over, keepdims=int(keeps))
    found = to.from_key(to.add(f"Reduce{kind}", to.key(name, dtype), over, keepdims=int(keeps)), dtype)
    if np.dtype(dtype).kind != "f":
        return found
    is_nan = to.compute("ReduceMax", "bool", [to.add("IsNaN", name)], over, keepdims=int(keeps))
    return to.add("Where", is_nan, to.constant(np.nan, dtype), found)  # onnxruntime skips NaN


@rule("argmax", "argmin")
def _argmax(to: Graph, one: Statement) -> str:
    (axis,), dtype = one.params["axes"], one.inputs[0].dtype
    op = {"argmax": "ArgMax", "argmin": "ArgMin"}[one.primitive]
    name = to.tensor(one.inputs[0])
    found = to.add(op, to.key(name, dtype), axis=int(axis), keepdims=0)
    if np.dtype(dtype).kind == "f":
        is_nan = to.add("IsNaN", name)
        any_nan = to.compute("ReduceMax", "bool", [is_nan], to.integers([axis]), keepdims=0)
        first = to.add("ArgMax", to.cast(is_nan, "int32"), axis=int(axis), keepdims=0)
        found = to.add("Where", any_nan, first, found)
    return to.cast(found, one.outputs[0].dtype)


@rule("cumsum")
def _cumsum(to: Graph, one: Statement) -> str:
    axis = to.constant(one.params["axis"], np.int64)
    array = one.inputs[0]
    return to.compute("CumSum", array.dtype, [to.tensor(array)], axis, reverse=int(one.params["reverse"]))


@rule("sort")
def _sort(to: Graph, one: Statement) -> list[str]:
    axis = int(one.params["dimension"])
    keys = [(to.tensor(each), each.dtype) for each in one.inputs[: one.params["num_keys"]]]
    places = _order(to, keys, axis, one.inputs[0].shape[axis], is_descending=False)
    return [to.add("GatherElements", to.tensor(each), places, axis=axis) for each in one.inputs]


def _order(to: Graph, keys: Iterable[tuple[str, str]], axis: int, size: int, is_descending: bool) -> str:
    """Return the indices that sort tensors by several keys, the most important first. NaN is the largest number.

    TopK keeps the order of equal items, so the keys are sorted one by one, the most important last.
    """
    passes: list[str] = []
    for name, dtype in keys:
        if np.dtype(dtype).kind == "f":
            is_nan = to.add("IsNaN", name)
            passes += [to.cast(is_nan, "int32"), to.add("Where", is_nan, to.constant(0, dtype), name)]
        else:
            passes.append(to.key(name, dtype))
    order = ""
    for name in reversed(passes):
        name = to.add("GatherElements", name, order, axis=axis) if order else name
        _, places = to.add_all("TopK", 2, name, to.integers([size]), axis=axis, largest=int(is_descending))
        order = to.add("GatherElements", order, places, axis=axis) if order else places
    return order


@rule("top_k")
def _top_k(to: Graph, one: Statement) -> list[str]:
    array = one.inputs[0]
    axis = int(one.params.get("axis", one.params.get("operand_axis", -1))) % len(array.shape)
    name = to.tensor(array)
    order = _order(to, [(name, array.dtype)], axis, array.shape[axis], is_descending=True)
    order = to.add("Slice", order, *map(to.integers, ([0], [one.params["k"]], [axis])))
    return [to.add("GatherElements", name, order, axis=axis), to.cast(order, one.outputs[1].dtype)]
