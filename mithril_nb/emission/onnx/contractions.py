"""ONNX operators of matrix products, convolutions, windows and indexing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mithril_nb.emission.onnx.graph import OnnxGraph, number_of, rule, wider
from mithril_nb.emission.onnx.shapes import dilated, padded, permuted, reduced
from mithril_nb.emission.params import Slices, fill_of, neutral, product_axes, slices_of, windows_of
from mithril_nb.emission.program import POOLS, Operand, Statement


@rule("dot_general")
def _dot_general(to: OnnxGraph, op: Statement) -> str:
    (left_batch, left_free, left_over), (right_batch, right_free, right_over) = product_axes(op)
    # MatMul multiplies (batch, rows, inner) by (batch, inner, columns), and broadcasts over a missing batch.
    orders = (*left_batch, *left_free, *left_over), (*right_batch, *right_over, *right_free)
    left, right = [permuted(to, to.tensor(each), order) for each, order in zip(op.inputs, orders, strict=True)]
    if len(left_over) == len(right_free) == 1 and (len(left_free) == 1 or not left_batch):
        return to.compute("MatMul", op.dtype, [left, right])
    # Einsum of onnxruntime rounds integers to floats.
    shapes = [operand.shape for operand in op.inputs]
    lead, rows, inner = (math.prod(shapes[0][axis] for axis in axes) for axes in (left_batch, left_free, left_over))
    columns = math.prod(shapes[1][axis] for axis in right_free)
    names = [to.reshape(left, [lead, rows, inner]), to.reshape(right, [lead, inner, columns])]
    return to.reshape(to.compute("MatMul", op.dtype, names), op.shape)


@rule("conv_general_dilated")
def _conv(to: OnnxGraph, op: Statement) -> str:
    params, (array, kernel) = op.params, op.inputs
    numbers = params["dimension_numbers"]
    if params["batch_group_count"] != 1:  # only the gradient of a grouped kernel has it
        raise to.unsupported("batch_group_count above 1")
    dtype = op.dtype
    image, weight = permuted(to, to.tensor(array), numbers.lhs_spec), permuted(to, to.tensor(kernel), numbers.rhs_spec)
    shape = [array.shape[axis] for axis in numbers.lhs_spec]
    filters, *sizes = [kernel.shape[axis] for axis in numbers.rhs_spec]
    fill = to.constant(0, dtype)
    for axis, gap in enumerate(params["lhs_dilation"]):
        image = dilated(to, image, dtype, shape, axis + 2, int(gap) - 1, fill)
    pads = [[int(pair[side]) for pair in params["padding"]] for side in (0, 1)]
    steps, gaps = ([int(each) for each in params[key]] for key in ("window_strides", "rhs_dilation"))
    # Other dtypes become products of matrices: onnxruntime's Conv has floats of 16 and 32 bits only.
    groups, is_plain = int(params["feature_group_count"]), dtype in ("float16", "float32")
    if min(*pads[0], *pads[1], 0) < 0 or not is_plain:  # the operator Conv only widens
        image = padded(to, image, dtype, [0, 0, *pads[0], 0, 0, *pads[1]], fill)
        shape[2:] = [sum(each) for each in zip(shape[2:], *pads, strict=True)]
        pads = [[0] * len(pads[0])] * 2
    if is_plain:
        options = {"strides": steps, "dilations": gaps, "pads": [*pads[0], *pads[1]], "group": groups}
        result = to.Conv(image, weight, **options)
    else:
        # (groups, batch and outputs, features of a window) by (groups, features of a window, filters)
        image, windows = _windows(to, image, shape, sizes[1:], steps, gaps)
        counts, rank, batch = windows[::2], len(sizes) - 1, shape[0]
        image = to.reshape(image, [batch, groups, shape[1] // groups, *windows])
        image = permuted(to, image, [1, 0, *range(3, 3 + 2 * rank, 2), 2, *range(4, 3 + 2 * rank, 2)])
        weight = to.reshape(weight, [groups, filters // groups, math.prod(sizes)])
        image = to.reshape(image, [groups, batch * math.prod(counts), math.prod(sizes)])
        result = to.compute("MatMul", dtype, [image, permuted(to, weight, [0, 2, 1])])
        result = to.reshape(result, [groups, batch, *counts, filters // groups])
        result = permuted(to, result, [1, 0, rank + 2, *range(2, rank + 2)])
        result = to.reshape(result, [batch, filters, *counts])
    rank = len(array.shape)
    return permuted(to, result, sorted(range(rank), key=lambda axis: numbers.out_spec[axis]))


def _windows(
    to: OnnxGraph, name: str, shape: Sequence[int], sizes: Sequence[int], steps: Sequence[int], gaps: Sequence[int]
) -> tuple[str, list[int]]:
    windows: list[int] = []
    axes = range(len(shape) - len(sizes), len(shape))
    for axis, size, step, gap in reversed(list(zip(axes, sizes, steps, gaps, strict=True))):
        # One Gather with a matrix of indices turns an axis into (windows, items of a window).
        count = max((shape[axis] - (size - 1) * gap - 1) // step + 1, 0)
        items = np.arange(count)[:, None] * step + np.arange(size) * gap
        name = to.Gather(name, to.constant(items, np.int64), axis=axis)
        windows = [count, size, *windows]
    return name, windows


_MOST_AXES = 3
"""Maximum number of axes of a window in onnxruntime."""


@rule(*POOLS, "reduce_window")
def _pool(to: OnnxGraph, op: Statement) -> str:
    kind = POOLS.get(op.primitive, op.combiner)
    array, windows = op.operand, windows_of(op)
    rank, dtype = len(array.shape), array.dtype
    base, dilation = windows.base_dilation, windows.dilation
    start = number_of(op.inputs[-1])  # ONNX has no operators from another start
    if kind not in ("add", "max", "min") or (op.primitive not in POOLS and start != neutral(kind, dtype)):
        raise to.unsupported("combining items by a function other than add, max or min, or a start that counts")
    unit = (1,) * rank
    is_plain = base == unit and sum(size > 1 for size in windows.sizes) <= _MOST_AXES
    is_plain = is_plain and (kind != "add" or dilation == unit)  # AveragePool of opset 18 has no dilations
    if dtype not in ("float16", "float32") or not is_plain:
        fill = to.constant(neutral(kind, dtype), dtype)
        name, shape = to.tensor(array), list(array.shape)
        for axis in range(rank):
            name = dilated(to, name, dtype, shape, axis, int(base[axis]) - 1, fill)
        before, after = ([int(pair[side]) for pair in windows.padding] for side in (0, 1))
        name = padded(to, name, dtype, [*before, *after], fill)
        shape = [sum(each) for each in zip(shape, before, after, strict=True)]
        name, shape = _windows(to, name, shape, windows.sizes, windows.strides, dilation)
        return reduced(to, kind, name, dtype, shape, range(1, 2 * rank, 2))
    name, options, outer, inner = _padded_windows(to, op, array, kind)
    lead = [array.shape[axis] for axis in outer]
    if kind == "add":  # ONNX has no sum of windows
        count = math.prod(options["kernel_shape"])
        name = to.Mul(to.AveragePool(name, **options), to.constant(count, dtype))
    else:
        options["dilations"] = [int(dilation[axis]) for axis in inner]
        # MaxPool skips NaN, and returns the lowest number for -inf: pool 2 for NaN, 1 for numbers and 0 for -inf too.
        is_number = to.cast(to.Greater(name, to.constant(-np.inf, dtype)), dtype)
        flags = to.Where(to.IsNaN(name), to.constant(2, dtype), is_number)
        flags, result = (to.MaxPool(each, **options) for each in (flags, name))
        result = to.Where(to.Greater(flags, to.constant(0, dtype)), result, to.constant(-np.inf, dtype))
        name = to.Where(to.Greater(flags, to.constant(1, dtype)), to.constant(np.nan, dtype), result)
    if kind == "min":
        name = to.Neg(name)
    name = to.reshape(name, [*lead, *(op.shape[axis] for axis in inner)])
    return permuted(to, name, np.argsort([*outer, *inner]).tolist())


def _padded_windows(
    to: OnnxGraph, op: Statement, array: Operand, kind: str
) -> tuple[str, dict[str, Any], list[int], list[int]]:
    """Return the input and the attributes of a pooling operator, and the axes without and with windows.

    The first axis of the input merges all axes without windows. An axis of size 1 follows, and then the axes with
    windows. For the kind `"min"`, the items are negated.
    """
    rank, windows = len(array.shape), windows_of(op)
    size, steps, pads = windows.sizes, windows.strides, windows.padding
    inner = [axis for axis in range(rank) if (size[axis], steps[axis], *pads[axis]) != (1, 1, 0, 0)] or [rank - 1]
    outer = [axis for axis in range(rank) if axis not in inner]
    if len(inner) > _MOST_AXES:
        raise to.unsupported(f"windows along more than {_MOST_AXES} axes")
    name = permuted(to, to.tensor(array), [*outer, *inner])
    name = to.reshape(name, [math.prod(array.shape[axis] for axis in outer), 1, *(array.shape[axis] for axis in inner)])
    if kind == "min":
        name = to.Neg(name)
    widths = [int(pads[axis][side]) for side in (0, 1) for axis in inner]
    # By a node, because the padding of MaxPool is the lowest finite number, and that of AveragePool may count or not.
    fill = 0 if kind == "add" else -np.inf
    name = to.Pad(name, to.integers([0, 0, *widths[: len(inner)], 0, 0, *widths[len(inner) :]]),
                  to.constant(fill, array.dtype)) if any(widths) else name  # fmt: skip
    options = {"kernel_shape": [int(size[axis]) for axis in inner], "strides": [int(steps[axis]) for axis in inner]}
    return name, options, outer, inner


@rule("select_and_scatter_add")
def _unpool(to: OnnxGraph, op: Statement) -> str:
    source, array = op.inputs
    if not source.size:
        return to.full(0, array.shape, array.dtype)
    if array.dtype not in ("float32", "float64"):  # whose MaxPool returns indices
        raise to.unsupported("dtypes other than float32 and float64")
    name, options, outer, inner = _padded_windows(to, op, array, to.selected(op))
    _, positions = to.add_all("MaxPool", 2, name, **options)
    pads = [op["padding"][axis] for axis in inner]
    # Indices of MaxPool count the items of the padded input, including all earlier images.
    wide = [array.shape[axis] + before + after for axis, (before, after) in zip(inner, pads, strict=True)]
    lead = math.prod(array.shape[axis] for axis in outer)
    gradient = to.reshape(permuted(to, to.tensor(source), [*outer, *inner]), [-1])
    zeros = to.full(0, [lead * math.prod(wide)], array.dtype)
    result = to.ScatterElements(zeros, to.reshape(positions, [-1]), gradient, axis=0, reduction="add")
    result = to.reshape(result, [lead, *wide])
    axes = range(1, len(wide) + 1)
    ends = [before + array.shape[axis] for axis, (before, _) in zip(inner, pads, strict=True)]
    result = to.Slice(result, to.integers([before for before, _ in pads]), to.integers(ends), to.integers(axes))
    result = to.reshape(result, [array.shape[axis] for axis in (*outer, *inner)])
    return permuted(to, result, np.argsort([*outer, *inner]).tolist())


@rule("gather")
def _gather(to: OnnxGraph, op: Statement) -> str:
    # GatherND needs batch axes first, then the axes with indices.
    array, indices = op.inputs
    numbers, sizes = op["dimension_numbers"], tuple(op["slice_sizes"])
    batch, picked = tuple(numbers.operand_batching_dims), tuple(numbers.start_index_map)
    rest = [axis for axis in range(len(array.shape)) if axis not in (*batch, *picked)]
    fill = fill_of(op)
    if set(numbers.collapsed_slice_dims) != set(picked) or any(sizes[axis] != array.shape[axis] for axis in rest):
        # Slices that are parts of axes: gather item by item from the flat array.
        items, are_inside = _items(to, slices_of(op))
        result = to.Gather(to.reshape(to.tensor(array), [-1]), items, axis=0)
        if fill is not None:
            result = to.where(are_inside, result, to.tensor(fill), array.dtype)
        order = [axis for axis in range(len(op.shape)) if axis not in numbers.offset_dims]
        return permuted(to, result, np.argsort([*order, *numbers.offset_dims]).tolist())
    source = permuted(to, to.tensor(array), [*batch, *picked, *rest])
    count = len(indices.shape) - 1
    first = [int(axis) for axis in numbers.start_indices_batching_dims]
    order = [*first, *(axis for axis in range(count) if axis not in first)]
    positions = permuted(to, to.cast(to.tensor(indices), "int64"), [*order, count])
    inside, are_inside = _clipped(to, positions, [array.shape[axis] - 1 for axis in picked])
    result = to.GatherND(source, inside, batch_dims=len(batch))
    if fill is not None:
        is_inside = to.reshape(are_inside, [*(indices.shape[axis] for axis in order), *[1] * len(rest)])
        result = to.where(is_inside, result, to.tensor(fill), array.dtype)
    offsets = list(numbers.offset_dims)
    others = [axis for axis in range(count + len(rest)) if axis not in offsets]
    return permuted(to, result, np.argsort([*(others[axis] for axis in order), *offsets]).tolist())


def _clipped(to: OnnxGraph, positions: str, limits: list[int]) -> tuple[str, str]:
    # GatherND counts negative indices from the end, and fails for others outside.
    inside = to.Max(to.Min(positions, to.integers(limits)), to.constant(0, np.int64))
    same = to.cast(to.Equal(positions, inside), "int32")
    return inside, to.cast(to.ReduceMin(same, to.integers([-1]), keepdims=0), "bool")


def _items(to: OnnxGraph, slices: Slices) -> tuple[str, str]:
    """Return the indices of the items of slices in the flat array, and a mask of the slices inside the array.

    The tensors have the axes of `slices.indices` without the last, and then the axes of a slice; the mask has size 1
    along the latter.
    """
    shape, picked, lead = slices.array.shape, slices.mapped, slices.indices.shape[:-1]
    rank = len(lead) + len(slices.window)
    steps = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    limits = [shape[axis] - slices.sizes[axis] for axis in picked]
    starts, are_inside = _clipped(to, to.cast(to.tensor(slices.indices), "int64"), limits)
    offsets = to.constant(np.zeros([1] * rank), np.int64)
    along = [(axis, index_axis, shape[axis]) for axis, index_axis in slices.batching]
    along += [(axis, index, slices.sizes[axis]) for index, axis in enumerate(slices.window_axes, len(lead))]
    for axis, index_axis, count in along:
        distances = to.Mul(to.indices([count], 0), to.integers([steps[axis]]))
        offsets = to.Add(offsets, to.reshape(distances, [-1, *[1] * (rank - index_axis - 1)]))
    first = to.Mul(starts, to.integers([steps[axis] for axis in picked]))
    first = to.ReduceSum(first, to.integers([len(lead)]), keepdims=0)
    outer = [*lead, *[1] * len(slices.window)]
    return to.Add(to.reshape(first, outer), offsets), to.reshape(are_inside, outer)


_SCATTERS = {"scatter": "none", "scatter-add": "add", "scatter-mul": "mul", "scatter-max": "max", "scatter-min": "min"}


@rule(*_SCATTERS)
def _scatter(to: OnnxGraph, op: Statement) -> str:
    # ScatterElements takes items in order, as JAX does. Slices that are not inside of the array go to one more item.
    (array, _, updates), slices = op.inputs, slices_of(op)
    dtype = array.dtype
    if op.primitive in ("scatter-max", "scatter-min") and np.dtype(dtype).kind == "f":
        raise to.unsupported("floats, because onnxruntime skips NaN")
    items, are_inside = _items(to, slices)
    if op["mode"].name != "CLIP":
        items = to.Where(are_inside, items, to.scalar(array.size))
    added = to.reshape(permuted(to, to.tensor(updates), [*slices.outer, *slices.window]), [-1])
    flat, wide = to.reshape(to.tensor(array), [-1]), wider("Scatter", dtype)
    compared = op.primitive in ("scatter-max", "scatter-min")
    flat, added = (to.key(each, dtype) if compared else to.cast(each, wide, dtype) for each in (flat, added))
    flat = padded(to, flat, wide, [0, 1], to.constant(0, wide))
    options = {"axis": 0, "reduction": _SCATTERS[op.primitive]}
    result = to.ScatterElements(flat, to.reshape(items, [-1]), added, **options)
    result = to.reshape(to.Slice(result, to.integers([0]), to.integers([array.size])), array.shape)
    return to.from_key(result, dtype) if compared else to.cast(result, dtype, wide)


@rule("dynamic_slice")
def _dynamic_slice(to: OnnxGraph, op: Statement) -> str:
    array, *starts = op.inputs
    sizes = op["slice_sizes"]
    start = _start(to, starts, array, sizes)
    return to.Slice(to.tensor(array), start, to.Add(start, to.integers(sizes)))


@rule("dynamic_update_slice")
def _dynamic_update_slice(to: OnnxGraph, op: Statement) -> str:
    array, update, *starts = op.inputs
    if not array.shape:  # ScatterND needs at least one axis
        return to.tensor(update)
    axes = range(len(update.shape))
    grid = [to.Unsqueeze(to.indices(update.shape, axis), to.integers([-1])) for axis in axes]
    positions = to.Add(to.Concat(*grid, axis=-1), _start(to, starts, array, update.shape))
    return to.ScatterND(to.tensor(array), positions, to.tensor(update))


def _start(to: OnnxGraph, starts: Sequence[Operand], array: Operand, sizes: Sequence[int]) -> str:
    names = [to.reshape(to.cast(to.tensor(each), "int64"), [1]) for each in starts]
    limits = [length - size for length, size in zip(array.shape, sizes, strict=True)]
    return _clipped(to, to.Concat(*names, axis=0), limits)[0]
