"""ONNX operators of matrix products, convolutions, windows and indexing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mithril_nb.emission.onnx.graph import Graph, neutral, number_of, rule, wider
from mithril_nb.emission.onnx.shapes import dilated, padded, permuted, reduced
from mithril_nb.emission.program import Operand, Statement
from mithril_nb.emission.slices import Slices, fill_of, slices_of


@rule("dot_general")
def _dot_general(to: Graph, one: Statement) -> str:
    (left_over, right_over), (left_batch, right_batch) = one.params["dimension_numbers"]
    free = [
        [axis for axis in range(len(each.shape)) if axis not in (*over, *batch)]
        for each, over, batch in zip(one.inputs, (left_over, right_over), (left_batch, right_batch), strict=True)
    ]
    orders = [*left_batch, *free[0], *left_over], [*right_batch, *right_over, *free[1]]
    left, right = [permuted(to, to.tensor(each), order) for each, order in zip(one.inputs, orders, strict=True)]
    dtype = one.outputs[0].dtype
    if len(left_over) == len(free[1]) == 1 and (len(free[0]) == 1 or not left_batch):
        return to.compute("MatMul", dtype, [left, right])
    # Einsum of onnxruntime rounds integers to floats.
    lead, inner = (math.prod(one.inputs[0].shape[axis] for axis in axes) for axes in (left_batch, left_over))
    rows, columns = (math.prod(each.shape[axis] for axis in axes) for each, axes in zip(one.inputs, free, strict=True))
    names = [to.reshape(left, [lead, rows, inner]), to.reshape(right, [lead, inner, columns])]
    return to.reshape(to.compute("MatMul", dtype, names), one.outputs[0].shape)


@rule("conv_general_dilated")
def _conv(to: Graph, one: Statement) -> str:
    params, (array, kernel) = one.params, one.inputs
    numbers = params["dimension_numbers"]
    if params["batch_group_count"] != 1:
        raise to.unsupported(one, "batch_group_count above 1")
    dtype = one.outputs[0].dtype
    image, weight = permuted(to, to.tensor(array), numbers.lhs_spec), permuted(to, to.tensor(kernel), numbers.rhs_spec)
    shape = [array.shape[axis] for axis in numbers.lhs_spec]
    filters, *sizes = [kernel.shape[axis] for axis in numbers.rhs_spec]
    fill = to.constant(0, dtype)
    for axis, gap in enumerate(params["lhs_dilation"]):
        image = dilated(to, image, dtype, shape, axis + 2, int(gap) - 1, fill)
    pads = [[int(pair[side]) for pair in params["padding"]] for side in (0, 1)]
    steps, gaps = ([int(each) for each in params[key]] for key in ("window_strides", "rhs_dilation"))
    groups, is_plain = int(params["feature_group_count"]), dtype in ("float16", "float32")
    if min(*pads[0], *pads[1], 0) < 0 or not is_plain:
        image = padded(to, image, dtype, [0, 0, *pads[0], 0, 0, *pads[1]], fill)
        shape[2:] = [sum(each) for each in zip(shape[2:], *pads, strict=True)]
        pads = [[0] * len(pads[0])] * 2
    if is_plain:
        options = {"strides": steps, "dilations": gaps, "pads": [*pads[0], *pads[1]], "group": groups}
        found = to.add("Conv", image, weight, **options)
    else:
        axes = range(2, len(shape))
        image, windows = _windows(to, image, shape, axes, sizes[1:], steps, gaps)
        counts, rank, batch = windows[::2], len(sizes) - 1, shape[0]
        image = to.reshape(image, [batch, groups, shape[1] // groups, *windows])
        image = permuted(to, image, [1, 0, *range(3, 3 + 2 * rank, 2), 2, *range(4, 3 + 2 * rank, 2)])
        weight = to.reshape(weight, [groups, filters // groups, math.prod(sizes)])
        image = to.reshape(image, [groups, batch * math.prod(counts), math.prod(sizes)])
        found = to.compute("MatMul", dtype, [image, permuted(to, weight, [0, 2, 1])])
        found = to.reshape(found, [groups, batch, *counts, filters // groups])
        found = permuted(to, found, [1, 0, rank + 2, *range(2, rank + 2)])
        found = to.reshape(found, [batch, filters, *counts])
    rank = len(array.shape)
    return permuted(to, found, sorted(range(rank), key=lambda axis: numbers.out_spec[axis]))


def _windows(
    to: Graph,
    name: str,
    shape: Sequence[int],
    axes: Sequence[int],
    sizes: Sequence[int],
    steps: Sequence[int],
    gaps: Sequence[int],
) -> tuple[str, list[int]]:
    """Return a tensor in which each of some increasing axes is two: windows, and their items; and these axes' sizes."""
    windows: list[int] = []
    for axis, size, step, gap in reversed(list(zip(axes, sizes, steps, gaps, strict=True))):
        count = max((shape[axis] - (size - 1) * gap - 1) // step + 1, 0)
        items = np.arange(count)[:, None] * step + np.arange(size) * gap
        name = to.add("Gather", name, to.constant(items, np.int64), axis=axis)
        windows = [count, size, *windows]
    return name, windows


_MOST_AXES = 3
"""Maximum number of axes of a window in onnxruntime."""
_POOLS = {"reduce_window_max": "max", "reduce_window_sum": "add", "reduce_window_min": "min"}
_REDUCTIONS = {"add": "Sum", "max": "Max", "min": "Min"}


@rule(*_POOLS, "reduce_window")
def _pool(to: Graph, one: Statement) -> str:
    kind = _POOLS.get(one.primitive) or _combiner(one)
    array, params = one.inputs[0], one.params
    rank, dtype = len(array.shape), array.dtype
    ones = (1,) * rank
    if kind not in _REDUCTIONS:
        raise to.unsupported(one, "combining items by a function other than add, max or min, or a start that counts")
    base, dilation = (tuple(params.get(key) or ones) for key in ("base_dilation", "window_dilation"))
    sizes, axes = params["window_dimensions"], range(rank)
    is_plain = base == ones and sum(size > 1 for size in sizes) <= _MOST_AXES and (kind != "add" or dilation == ones)
    if dtype not in ("float16", "float32") or not is_plain:
        fill = to.constant(neutral(_REDUCTIONS[kind], dtype), dtype)
        name, shape = to.tensor(array), list(array.shape)
        for axis in axes:
            name = dilated(to, name, dtype, shape, axis, int(base[axis]) - 1, fill)
        before, after = ([int(pair[side]) for pair in params["padding"]] for side in (0, 1))
        name = padded(to, name, dtype, [*before, *after], fill)
        shape = [sum(each) for each in zip(shape, before, after, strict=True)]
        name, windows = _windows(to, name, shape, axes, sizes, params["window_strides"], dilation)
        return reduced(to, _REDUCTIONS[kind], name, dtype, windows, range(1, 2 * rank, 2))
    name, options, outer, inner = _padded_windows(to, one, array, kind)
    lead = [array.shape[axis] for axis in outer]
    if kind == "add":
        count = math.prod(options["kernel_shape"])
        name = to.add("Mul", to.add("AveragePool", name, **options), to.constant(count, dtype))
    else:
        options["dilations"] = [int(dilation[axis]) for axis in inner]
        # MaxPool skips NaN, and returns the lowest number for -inf: pool 2 for NaN, 1 for numbers and 0 for -inf too.
        is_number = to.cast(to.add("Greater", name, to.constant(-np.inf, dtype)), dtype)
        flags = to.add("Where", to.add("IsNaN", name), to.constant(2, dtype), is_number)
        flags, found = (to.add("MaxPool", each, **options) for each in (flags, name))
        found = to.add("Where", to.add("Greater", flags, to.constant(0, dtype)), found, to.constant(-np.inf, dtype))
        name = to.add("Where", to.add("Greater", flags, to.constant(1, dtype)), to.constant(np.nan, dtype), found)
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
    fill = 0 if kind == "add" else -np.inf
    name = to.add("Pad", name, to.integers([0, 0, *widths[: len(inner)], 0, 0, *widths[len(inner) :]]),
                  to.constant(fill, array.dtype)) if any(widths) else name  # fmt: skip
    options = {"kernel_shape": [int(size[axis]) for axis in inner], "strides": [int(steps[axis]) for axis in inner]}
    return name, options, outer, inner


@rule("select_and_scatter_add")
def _unpool(to: Graph, one: Statement) -> str:
    """Add each item of the gradient at the largest (or smallest) item of its window."""
    source, array = one.inputs
    if not source.size:
        return to.full(0, array.shape, array.dtype)
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
    zeros = to.full(0, [lead * math.prod(wide)], array.dtype)
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
    kind = _REDUCTIONS.get(one.combiner)
    return one.combiner if kind and number_of(one.inputs[-1]) == neutral(kind, one.inputs[0].dtype) else ""


@rule("gather")
def _gather(to: Graph, one: Statement) -> str:
    """Gather items by GatherND. It needs batch axes first, then the axes with indices."""
    array, indices = one.inputs
    numbers, sizes = one.params["dimension_numbers"], tuple(one.params["slice_sizes"])
    batch, picked = tuple(numbers.operand_batching_dims), tuple(numbers.start_index_map)
    rest = [axis for axis in range(len(array.shape)) if axis not in (*batch, *picked)]
    fill = fill_of(one)
    if set(numbers.collapsed_slice_dims) != set(picked) or any(sizes[axis] != array.shape[axis] for axis in rest):
        items, are_inside = _items(to, slices_of(one))
        found = to.add("Gather", to.reshape(to.tensor(array), [-1]), items, axis=0)
        if fill is not None:
            found = to.where(are_inside, found, to.tensor(fill), array.dtype)
        order = [axis for axis in range(len(one.outputs[0].shape)) if axis not in numbers.offset_dims]
        return permuted(to, found, np.argsort([*order, *numbers.offset_dims]).tolist())
    source = permuted(to, to.tensor(array), [*batch, *picked, *rest])
    count = len(indices.shape) - 1
    first = [int(axis) for axis in numbers.start_indices_batching_dims]
    order = [*first, *(axis for axis in range(count) if axis not in first)]
    places = permuted(to, to.cast(to.tensor(indices), "int64"), [*order, count])
    inside, are_inside = _clipped(to, places, [array.shape[axis] - 1 for axis in picked])
    found = to.add("GatherND", source, inside, batch_dims=len(batch))
    if fill is not None:
        is_inside = to.reshape(are_inside, [*(indices.shape[axis] for axis in order), *[1] * len(rest)])
        found = to.where(is_inside, found, to.tensor(fill), array.dtype)
    offsets = list(numbers.offset_dims)
    others = [axis for axis in range(count + len(rest)) if axis not in offsets]
    return permuted(to, found, np.argsort([*(others[axis] for axis in order), *offsets]).tolist())


def _clipped(to: Graph, places: str, limits: list[int]) -> tuple[str, str]:
    """Return indices limited to 0 to `limits`, and a mask of the vectors of indices that were inside."""
    inside = to.add("Max", to.add("Min", places, to.integers(limits)), to.constant(0, np.int64))
    same = to.cast(to.add("Equal", places, inside), "int32")
    return inside, to.cast(to.add("ReduceMin", same, to.integers([-1]), keepdims=0), "bool")


def _items(to: Graph, slices: Slices) -> tuple[str, str]:
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
    along += [(axis, place, slices.sizes[axis]) for place, axis in enumerate(slices.kept, len(lead))]
    for axis, index_axis, count in along:
        distances = to.add("Mul", to.indices([count], 0), to.integers([steps[axis]]))
        offsets = to.add("Add", offsets, to.reshape(distances, [-1, *[1] * (rank - index_axis - 1)]))
    first = to.add("Mul", starts, to.integers([steps[axis] for axis in picked]))
    first = to.add("ReduceSum", first, to.integers([len(lead)]), keepdims=0)
    outer = [*lead, *[1] * len(slices.window)]
    return to.add("Add", to.reshape(first, outer), offsets), to.reshape(are_inside, outer)


_SCATTERS = {"scatter": "none", "scatter-add": "add", "scatter-mul": "mul", "scatter-max": "max", "scatter-min": "min"}


@rule(*_SCATTERS)
def _scatter(to: Graph, one: Statement) -> str:
    """Write the items of slices to the flat array by ScatterElements, which takes them in order, as JAX does.

    Slices that are not inside of the array go to an additional item at its end.
    """
    (array, _, updates), slices = one.inputs, slices_of(one)
    dtype = array.dtype
    if one.primitive in ("scatter-max", "scatter-min") and np.dtype(dtype).kind == "f":
        raise to.unsupported(one, "floats, because onnxruntime skips NaN")
    items, are_inside = _items(to, slices)
    if one.params["mode"].name != "CLIP":
        items = to.add("Where", are_inside, items, to.scalar(array.size))
    added = to.reshape(permuted(to, to.tensor(updates), [*slices.outer, *slices.window]), [-1])
    flat, wide = to.reshape(to.tensor(array), [-1]), wider("Scatter", dtype)
    compared = one.primitive in ("scatter-max", "scatter-min")
    flat, added = (to.key(each, dtype) if compared else to.cast(each, wide, dtype) for each in (flat, added))
    flat = padded(to, flat, wide, [0, 1], to.constant(0, wide))
    options = {"axis": 0, "reduction": _SCATTERS[one.primitive]}
    found = to.add("ScatterElements", flat, to.reshape(items, [-1]), added, **options)
    found = to.reshape(to.add("Slice", found, to.integers([0]), to.integers([array.size])), array.shape)
    return to.from_key(found, dtype) if compared else to.cast(found, dtype, wide)


@rule("dynamic_slice")
def _dynamic_slice(to: Graph, one: Statement) -> str:
    array, *starts = one.inputs
    sizes = one.params["slice_sizes"]
    start = _start(to, starts, array, sizes)
    return to.add("Slice", to.tensor(array), start, to.add("Add", start, to.integers(sizes)))


@rule("dynamic_update_slice")
def _dynamic_update_slice(to: Graph, one: Statement) -> str:
    array, update, *starts = one.inputs
    if not array.shape:
        return to.tensor(update)
    axes = range(len(update.shape))
    grid = [to.add("Unsqueeze", to.indices(update.shape, axis), to.integers([-1])) for axis in axes]
    places = to.add("Add", to.add("Concat", *grid, axis=-1), _start(to, starts, array, update.shape))
    return to.add("ScatterND", to.tensor(array), places, to.tensor(update))


def _start(to: Graph, starts: Sequence[Operand], array: Operand, sizes: Sequence[int]) -> str:
    """Return the start of a slice as a vector, moved so that the slice is inside the array."""
    names = [to.reshape(to.cast(to.tensor(each), "int64"), [1]) for each in starts]
    limits = [whole - size for whole, size in zip(array.shape, sizes, strict=True)]
    return _clipped(to, to.add("Concat", *names, axis=0), limits)[0]
