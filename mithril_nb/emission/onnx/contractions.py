"""ONNX operators of matrix products, convolutions, windows and indexing."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mithril_nb.emission.arrays.contractions import equation
from mithril_nb.emission.onnx.elementwise import lowest
from mithril_nb.emission.onnx.graph import Graph, number_of, rule
from mithril_nb.emission.onnx.shapes import dilated, permuted
from mithril_nb.emission.program import Operand, Statement


@rule("dot_general")
def _dot_general(to: Graph, one: Statement) -> str:
    (left_over, right_over), (left_batch, right_batch) = one.params["dimension_numbers"]
    left, right = (len(each.shape) for each in one.inputs)
    dtype = one.outputs[0].dtype
    names = [
        name if each.dtype == dtype else to.cast(name, dtype)
        for name, each in zip(map(to.tensor, one.inputs), one.inputs, strict=True)
    ]
    batch = len(left_batch)
    is_leading = tuple(left_batch) == tuple(right_batch) == tuple(range(batch))
    is_plain = (
        is_leading and len(left_over) == 1 and right == batch + 2 and left > batch + 1 and left_over[0] == left - 1
    )
    if is_plain and (left == batch + 2 or not batch):
        if right_over[0] == right - 1:
            names[1] = permuted(to, names[1], [*range(batch), right - 1, right - 2])
        return to.add("MatMul", *names)
    return to.add("Einsum", *names, equation=equation(one))


@rule("conv_general_dilated")
def _conv(to: Graph, one: Statement) -> str:
    params, (array, kernel) = one.params, one.inputs
    numbers = params["dimension_numbers"]
    if params["batch_group_count"] != 1:
        raise to.unsupported(one, "batch_group_count above 1")
    image = permuted(to, to.tensor(array), numbers.lhs_spec)
    weight = permuted(to, to.tensor(kernel), numbers.rhs_spec)
    shape = [array.shape[axis] for axis in numbers.lhs_spec]
    fill = to.constant(0, array.dtype)
    for axis, gap in enumerate(params["lhs_dilation"]):
        image = dilated(to, image, shape, axis + 2, int(gap) - 1, fill)
    pads = [[int(pair[side]) for pair in params["padding"]] for side in (0, 1)]
    if min(*pads[0], *pads[1], 0) < 0:
        image = to.add("Pad", image, to.integers([0, 0, *pads[0], 0, 0, *pads[1]]), fill)
        pads = [[0] * len(pads[0])] * 2
    found = to.add(
        "Conv",
        image,
        weight,
        strides=[int(step) for step in params["window_strides"]],
        dilations=[int(gap) for gap in params["rhs_dilation"]],
        pads=[*pads[0], *pads[1]],
        group=int(params["feature_group_count"]),
    )
    rank = len(array.shape)
    return permuted(to, found, sorted(range(rank), key=lambda axis: numbers.out_spec[axis]))


_MOST_AXES = 3
"""Maximum number of axes of a window in onnxruntime."""
_POOLS = {"reduce_window_max": "max", "reduce_window_sum": "add", "reduce_window_min": "min"}


@rule(*_POOLS, "reduce_window")
def _pool(to: Graph, one: Statement) -> str:
    kind = _POOLS.get(one.primitive) or _combiner(one)
    array, params = one.inputs[0], one.params
    rank, dtype = len(array.shape), array.dtype
    ones = (1,) * rank
    if kind not in ("max", "add", "min") or np.dtype(dtype).kind != "f":
        raise to.unsupported(one, "windows of integers, or combining items by a function other than add, max or min")
    if tuple(params.get("base_dilation") or ones) != ones:
        raise to.unsupported(one, "base_dilation")
    dilation = tuple(params.get("window_dilation") or ones)
    if kind == "add" and dilation != ones:
        raise to.unsupported(one, "window_dilation for sums")
    name, options, outer, inner = _padded_windows(to, one, array, kind)
    lead = [array.shape[axis] for axis in outer]
    if kind == "add":
        count = math.prod(options["kernel_shape"])
        name = to.add("Mul", to.add("AveragePool", name, **options), to.constant(count, dtype))
    else:
        name = to.add("MaxPool", name, **options, dilations=[int(dilation[axis]) for axis in inner])
    if kind == "min":
        name = to.add("Neg", name)
    shape = one.outputs[0].shape
    name = to.reshape(name, [*lead, *(shape[axis] for axis in inner)])
    return permuted(to, name, np.argsort([*outer, *inner]).tolist())


def _padded_windows(
    to: Graph, one: Statement, array: Operand, kind: str
) -> tuple[str, dict[str, Any], list[int], list[int]]:
    """Return the input and the attributes of a pooling operator.

    Args:
        to: The graph.
        one: The statement that reduces windows.
        array: The array that the windows slide over.
        kind: The primitive that combines the items of a window: `"add"`, `"max"` or `"min"`.

    Returns:
        - The name of the padded tensor; for `"min"`, its items are negated. Its first axis merges all axes without
          windows. An axis of size 1 follows, and then the axes with windows.
        - The attributes of the operator.
        - The indices of the axes without windows.
        - The indices of the axes with windows.
    """
    rank, params = len(array.shape), one.params
    size, steps, pads = params["window_dimensions"], params["window_strides"], params["padding"]
    inner = [axis for axis in range(rank) if (size[axis], steps[axis], *pads[axis]) != (1, 1, 0, 0)] or [rank - 1]
    outer = [axis for axis in range(rank) if axis not in inner]
    if len(inner) > _MOST_AXES:
        raise to.unsupported(one, f"windows along more than {_MOST_AXES} axes")
    name = permuted(to, to.tensor(array), [*outer, *inner])
    name = to.reshape(name, [math.prod(array.shape[axis] for axis in outer), 1, *(array.shape[axis] for axis in inner)])
    if kind == "min":
        name = to.add("Neg", name)
    widths = [int(pads[axis][side]) for side in (0, 1) for axis in inner]
    fill = 0 if kind == "add" else lowest(array.dtype)
    name = to.add("Pad", name, to.integers([0, 0, *widths[: len(inner)], 0, 0, *widths[len(inner) :]]),
                  to.constant(fill, array.dtype)) if any(widths) else name  # fmt: skip
    options = {"kernel_shape": [int(size[axis]) for axis in inner], "strides": [int(steps[axis]) for axis in inner]}
    return name, options, outer, inner


@rule("select_and_scatter_add")
def _unpool(to: Graph, one: Statement) -> str:
    """Add each item of the gradient at the largest (or smallest) item of its window."""
    source, array = one.inputs
    if not source.size:
        return to.constant(np.zeros(array.shape), array.dtype)
    if not one.selected or array.dtype not in ("float32", "float64"):
        raise to.unsupported(
            one, "dtypes other than float32 and float64, or selection by another primitive than ge and le"
        )
    name, options, outer, inner = _padded_windows(to, one, array, one.selected)
    _, places = to.add_all("MaxPool", 2, name, **options)
    pads = [one.params["padding"][axis] for axis in inner]
    wide = [array.shape[axis] + before + after for axis, (before, after) in zip(inner, pads, strict=True)]
    lead = math.prod(array.shape[axis] for axis in outer)
    given = to.reshape(permuted(to, to.tensor(source), [*outer, *inner]), [-1])
    zeros = to.constant(np.zeros(lead * math.prod(wide)), array.dtype)
    found = to.add("ScatterElements", zeros, to.reshape(places, [-1]), given, axis=0, reduction="add")
    found = to.reshape(found, [lead, *wide])
    axes = range(1, len(wide) + 1)
    ends = [before + array.shape[axis] for axis, (before, _) in zip(inner, pads, strict=True)]
    found = to.add("Slice", found, to.integers([before for before, _ in pads]), to.integers(ends), to.integers(axes))
    found = to.reshape(found, [array.shape[axis] for axis in (*outer, *inner)])
    return permuted(to, found, np.argsort([*outer, *inner]).tolist())


def _combiner(one: Statement) -> str:
    """Return the primitive with which windows combine items, or `""` if ONNX has no operator for it.

    ONNX has operators only for add, max and min, with an initial value that changes nothing, such as 0 for add.
    """
    neutral = {"add": 0, "max": -math.inf, "min": math.inf}
    return one.combiner if number_of(one.inputs[-1]) == neutral.get(one.combiner, "") else ""


@rule("gather")
def _gather(to: Graph, one: Statement) -> str:
    """Gather items by GatherND. It needs batch axes first, then the axes with indices."""
    array, indices = one.inputs
    numbers, sizes = one.params["dimension_numbers"], tuple(one.params["slice_sizes"])
    batch, picked = tuple(numbers.operand_batching_dims), tuple(numbers.start_index_map)
    rest = [axis for axis in range(len(array.shape)) if axis not in (*batch, *picked)]
    if set(numbers.collapsed_slice_dims) != set(picked) or any(sizes[axis] != array.shape[axis] for axis in rest):
        raise to.unsupported(one, "slices of more than one item along an indexed axis")
    source = permuted(to, to.tensor(array), [*batch, *picked, *rest])
    count = len(indices.shape) - 1
    first = [int(axis) for axis in numbers.start_indices_batching_dims]
    order = [*first, *(axis for axis in range(count) if axis not in first)]
    places = permuted(to, to.cast(to.tensor(indices), "int64"), [*order, count])
    inside, are_inside = _clipped(to, places, [array.shape[axis] for axis in picked])
    found = to.add("GatherND", source, inside, batch_dims=len(batch))
    if one.params["mode"].name == "FILL_OR_DROP":
        is_inside = to.reshape(are_inside, [*(indices.shape[axis] for axis in order), *[1] * len(rest)])
        found = to.add("Where", is_inside, found, to.constant(_fill(one), array.dtype))
    offsets = list(numbers.offset_dims)
    others = [axis for axis in range(count + len(rest)) if axis not in offsets]
    return permuted(to, found, np.argsort([*(others[axis] for axis in order), *offsets]).tolist())


def _clipped(to: Graph, places: str, sizes: list[int]) -> tuple[str, str]:
    """Return indices limited to the sizes of an array, and a mask of the positions that were inside."""
    limits = to.integers([size - 1 for size in sizes])
    inside = to.add("Max", to.add("Min", places, limits), to.constant(0, np.int64))
    same = to.cast(to.add("Equal", places, inside), "int32")
    return inside, to.cast(to.add("ReduceMin", same, to.integers([-1]), keepdims=0), "bool")


@rule("scatter-add")
def _scatter_add(to: Graph, one: Statement) -> str:
    """Add slices by ScatterND. It needs the axes with indices first. Slices outside of the array are left out."""
    array, indices, updates = one.inputs
    numbers = one.params["dimension_numbers"]
    picked = tuple(numbers.scatter_dims_to_operand_dims)
    rest = [axis for axis in range(len(array.shape)) if axis not in picked]
    windows = list(numbers.update_window_dims)
    is_full = [updates.shape[axis] for axis in windows] == [array.shape[axis] for axis in rest]
    if numbers.operand_batching_dims:
        raise to.unsupported(one, "batch axes")
    if set(numbers.inserted_window_dims) != set(picked) or not is_full:
        raise to.unsupported(one, "slices of more than one item along an indexed axis")
    first = [axis for axis in range(len(updates.shape)) if axis not in windows]
    added = permuted(to, to.tensor(updates), [*first, *windows])
    inside, are_inside = _clipped(to, to.cast(to.tensor(indices), "int64"), [array.shape[axis] for axis in picked])
    are_inside = to.reshape(are_inside, [*indices.shape[:-1], *[1] * len(rest)])
    added = to.add("Where", are_inside, added, to.constant(0, array.dtype))
    source = permuted(to, to.tensor(array), [*picked, *rest])
    found = to.add("ScatterND", source, inside, added, reduction="add")
    return permuted(to, found, np.argsort([*picked, *rest]).tolist())


def _fill(one: Statement) -> Any:
    """Return the number that a gather reads outside of an array."""
    dtype = np.dtype(one.inputs[0].dtype)
    if one.params.get("fill_value") is not None:
        return one.params["fill_value"]
    if dtype.kind == "f":
        return np.nan
    return dtype.kind == "b" or (np.iinfo(dtype).max if dtype.kind == "u" else np.iinfo(dtype).min)


@rule("dynamic_slice")
def _dynamic_slice(to: Graph, one: Statement) -> str:
    array, *starts = one.inputs
    sizes = one.params["slice_sizes"]
    names = [to.reshape(to.cast(to.tensor(each), "int64"), [1]) for each in starts]
    start = to.add("Concat", *names, axis=0)
    last = [whole - size for whole, size in zip(array.shape, sizes, strict=True)]
    start = to.add("Max", to.add("Min", start, to.integers(last)), to.constant(0, np.int64))
    end = to.add("Add", start, to.integers(sizes))
    return to.add("Slice", to.tensor(array), start, end)
