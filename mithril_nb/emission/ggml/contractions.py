"""Rules for matrix products, convolutions, windows, gathers and scatters."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import chain

from mithril_nb.emission.arrays.rules import changed, plain
from mithril_nb.emission.ggml.rules import GgmlContext, check_indices, rule
from mithril_nb.emission.params import fill_of, product_axes, slices_of, windows_of
from mithril_nb.emission.program import Number, Operand, Statement


@rule("dot_general")
def _dot_general(to: GgmlContext, op: Statement) -> str:
    # `ggml_mul_mat` of x and y is y @ x.T, and `ggml_out_prod` of x and y is y.T @ x.
    left, right = op.inputs
    if not left.dtype.startswith("float"):  # their sums may exceed 2**24, up to which float32 is exact
        raise to.unsupported("integers")
    groups = product_axes(op)
    left_batch, _, left_over = groups[0]
    swapped = [(batch, over, free) for batch, free, over in groups]
    if left_over and all([*chain(*group)] == sorted(chain(*group)) for group in swapped):
        first, second = map(partial(_merged, to), op.inputs, swapped)
        text = to.call("out_prod", second, first)
    elif not left_batch and len(right.shape) == 2 and left_over == (len(left.shape) - 1,):  # the matrix is broadcast
        return to.call("mul_mat", _merged(to, right, groups[1]), to.array(left))
    else:
        first, second = map(partial(_merged, to), op.inputs, groups)
        text = to.call("mul_mat", second, first)
    sizes = [math.prod(each.shape[axis] for axis in free) for each, (_, free, _) in zip(op.inputs, groups, strict=True)]
    return to.reshaped(text, (*_batch(left, left_batch), *sizes), op.shape)


def _batch(operand: Operand, axes: Sequence[int]) -> list[int]:
    # With rows and columns, four axes in all.
    sizes = [operand.shape[axis] for axis in axes]
    return sizes if len(sizes) <= 2 else [math.prod(sizes)]


def _merged(to: GgmlContext, operand: Operand, groups: tuple[Sequence[int], ...]) -> str:
    order = [*chain(*groups)]
    shape = [operand.shape[axis] for axis in order]
    sizes = [math.prod(operand.shape[axis] for axis in group) for group in groups[1:]]
    return to.reshaped(to.permuted(to.array(operand), order), shape, (*_batch(operand, groups[0]), *sizes))


@rule("conv_general_dilated")
def _conv(to: GgmlContext, op: Statement) -> str:
    params, (array, kernel) = op.params, op.inputs
    numbers = params["dimension_numbers"]
    rank = len(array.shape) - 2
    if rank > 2:  # with batch and features, a fifth axis
        raise to.unsupported(f"{rank} spatial axes")
    groups, batch_groups = params["feature_group_count"], params["batch_group_count"]
    if groups > 1 and batch_groups > 1:
        raise to.unsupported("feature_group_count and batch_group_count that are both above 1")
    unit = [1] * (2 - rank)  # for the spatial axes that GGML has and the arrays do not have
    texts: list[str] = []
    for each, order in ((array, numbers.lhs_spec), (kernel, numbers.rhs_spec)):
        shape = [each.shape[axis] for axis in order]
        texts.append(to.reshaped(to.permuted(to.array(each), order), shape, (*shape[:2], *unit, *shape[2:])))
    keys = ("window_strides", "rhs_dilation", "lhs_dilation")
    strides, dilation, gaps = ([*unit, *map(int, params[key])] for key in keys)
    padding = [(0, 0)] * (2 - rank) + [(int(before), int(after)) for before, after in params["padding"]]
    # ggml_conv_2d has one width of padding for each axis, and no groups. Its arguments list the last axis first.
    is_even = all(before == after >= 0 for before, after in padding)
    if is_even and gaps == [1, 1] and groups == batch_groups == 1:
        widths = [before for before, _ in padding[::-1]]
        result = to.call("conv_2d", *texts[::-1], *strides[::-1], *widths, *dilation[::-1])
    else:
        options = {
            "lhs_dilation": (gaps, [1, 1]), "rhs_dilation": (dilation, [1, 1]), "groups": (groups, 1),
            "batch_groups": (batch_groups, 1),
        }  # fmt: skip
        result = to.helper("conv", *texts, plain(strides), plain(padding), *changed(options))
    ordered = [op.shape[axis] for axis in numbers.out_spec]
    full = (*ordered[:2], *unit, *ordered[2:])
    back = sorted(range(rank + 2), key=lambda axis: numbers.out_spec[axis])
    return to.permuted(to.reshaped(result, full, ordered), back)


class _Window:
    """The window of a pooling operation, along at most two axes. GGML needs these axes as the last axes.

    Attributes:
        order: A permutation of the axes that moves the axes of the window to the end.
        back: The inverse permutation.
        size: Size of the window along the last axis and the axis before it, in this order.
        strides: Step of the window along the same axes.
        padding: Padding along the same axes that GGML's pooling adds; 0 after `padded` has added the padding.
        config: For each axis, from the last axis in `order` to the first: (before, after, between) as in `pad`.
        is_even: True if GGML's pooling can add the padding.
    """

    def __init__(self, to: GgmlContext, op: Statement):
        windows = windows_of(op)
        size, strides, padding = windows.sizes, windows.strides, windows.padding
        rank = len(size)
        if {*windows.dilation} - {1}:  # GGML pools neighbouring items
            raise to.unsupported("window_dilation")
        sliding = [axis for axis in range(rank) if (size[axis], strides[axis], padding[axis]) != (1, 1, (0, 0))]
        if len(sliding) > 2 or not rank:
            raise to.unsupported(f"a window along {len(sliding)} axes")
        others = [axis for axis in range(rank) if axis not in sliding]
        while len(sliding) < min(2, rank):
            sliding.insert(0, others.pop())
        self.order = (*others, *sliding)
        self.back = sorted(range(rank), key=lambda axis: self.order[axis])
        axes = sliding[::-1]
        self.size = [size[axis] for axis in axes] + [1] * (2 - len(axes))
        self.strides = [strides[axis] for axis in axes] + [1] * (2 - len(axes))
        self.config = [(*padding[axis], windows.base_dilation[axis] - 1) for axis in self.order[::-1]]
        self.padding = [before for before, _, _ in self.config[:2]] + [0] * (2 - len(axes))
        # GGML's pooling leaves out a window that lies within the padding, so that is added before.
        self.is_even = all(
            before == after >= 0 and not gap and before < width
            for (before, after, gap), width in zip(self.config, [*self.size, 1, 1], strict=False)
        )

    def padded(self, to: GgmlContext, text: str, fill: str) -> str:
        text = to.permuted(text, self.order)
        if self.is_even:
            return text
        self.padding = [0, 0]
        return to.helper("pad", text, fill, plain(self.config))

    @property
    def arguments(self) -> list[int]:
        return [*self.size, *self.strides, *self.padding]


@rule("reduce_window_max", "reduce_window_min", "reduce_window_sum", "reduce_window")
def _pool(to: GgmlContext, op: Statement) -> str:
    kind, text, window = _kind(to, op), to.array(op.operand), _Window(to, op)
    negated = (lambda text: to.call("neg", text)) if kind == "min" else lambda text: text
    text = window.padded(to, negated(text), "0" if kind == "add" else "-math.inf")
    name = "AVG" if kind == "add" else "MAX"
    text = to.call("pool_2d", text, f"ggml.GGML_OP_POOL_{name}", *window.arguments)
    if kind == "add":  # GGML has averages, also over the padding
        text = to.call("scale", text, math.prod(window.size))
    return to.permuted(negated(text), window.back)


def _kind(to: GgmlContext, op: Statement) -> str:
    if op.primitive != "reduce_window":
        return {"max": "max", "min": "min", "sum": "add"}[op.primitive.rpartition("_")[2]]
    start = op.inputs[-1]
    if not isinstance(start, Number) or (op.combiner, start.value) not in _STARTS:
        raise to.unsupported("combining items by a function other than add, max or min, or from an initial value")
    return op.combiner


_STARTS = {("add", 0), ("max", -math.inf), ("min", math.inf)}


@rule("select_and_scatter_add")
def _unpool(to: GgmlContext, op: Statement) -> str:
    source, operand = op.inputs
    is_min = to.selected(op) == "min"
    window, text = _Window(to, op), to.array(operand)
    text = window.padded(to, to.call("neg", text) if is_min else text, "-math.inf")
    grads = to.permuted(to.array(source), window.order)
    text = to.call("pool_2d_back", grads, text, "ggml.GGML_OP_POOL_MAX", *window.arguments)
    if not window.is_even:
        text = to.helper("pad", text, 0, plain([(-before, -after, 0) for before, after, _ in window.config]))
    return to.permuted(text, window.back)


@rule("gather")
def _gather(to: GgmlContext, op: Statement) -> str:
    array, indices = op.inputs
    numbers = op["dimension_numbers"]
    shape = op.shape
    fill = fill_of(op)
    flag = [] if fill is None else [f"fill={to.number(fill)}"]
    inner = tuple(op["slice_sizes"]) == (1, *array.shape[1:])
    starts_first = tuple(numbers.offset_dims) == tuple(range(len(indices.shape) - 1, len(shape)))
    if (
        inner and starts_first and len(array.shape) == 2 and numbers.start_index_map == (0,)
        and numbers.collapsed_slice_dims == (0,) and not numbers.operand_batching_dims
    ):  # fmt: skip
        check_indices(to, array.shape[0])
        result = to.helper("rows", to.array(array), to.array(indices), *flag)
        return to.reshaped(result, (math.prod(indices.shape), array.shape[1]), shape)
    if not indices.shape[-1]:  # an empty tensor
        raise to.unsupported("indices of length 0")
    return to.helper("gather", to.array(array), to.array(indices), *_places(to, op), *flag)


@rule("scatter", "scatter-add", "scatter_add")
def _scatter(to: GgmlContext, op: Statement) -> str:
    array, indices, updates = op.inputs
    numbers, shape = op["dimension_numbers"], updates.shape
    is_dropped = op["mode"].name != "CLIP"  # XLA drops slices outside of the array
    flag = ["is_dropped=True"] if is_dropped else []
    # The gradient of an embedding adds rows, for which GGML has the backward pass of `get_rows`.
    starts_first = tuple(numbers.update_window_dims) == tuple(range(len(indices.shape) - 1, len(shape)))
    if (
        op.primitive != "scatter" and starts_first and len(array.shape) == 2
        and numbers.scatter_dims_to_operand_dims == (0,) and numbers.inserted_window_dims == (0,)
        and not numbers.operand_batching_dims and shape[-1] == array.shape[1]
    ):  # fmt: skip
        check_indices(to, array.shape[0] + 1)
        rows = to.reshaped(to.array(updates), shape, (math.prod(indices.shape), array.shape[1]))
        result = to.helper("add_rows", rows, to.array(indices), array.shape[0], *flag)
        return to.call("add", to.shaped(array, array.shape), result)
    if not indices.shape[-1]:
        raise to.unsupported("indices of length 0")
    name = "scatter" if op.primitive == "scatter" else "scatter_add"
    texts = [to.shaped(array, array.shape), to.array(indices), to.shaped(updates, shape)]
    return to.helper(name, *texts, *_places(to, op), *flag)


def _places(to: GgmlContext, op: Statement) -> list[str]:
    slices = slices_of(op)
    array, shape = slices.array, slices.shape
    check_indices(to, math.prod(array.shape) + 1)
    distances = _distances(array)
    starts = [1 if axis in slices.window else size for axis, size in enumerate(shape)]
    pairs = zip(slices.window_axes, slices.window, strict=True)
    along = [(index_axis, distances[axis]) for axis, index_axis in pairs if shape[index_axis] > 1]
    along += [(slices.outer[index_axis], distances[axis]) for axis, index_axis in slices.batching]
    bounds = [(distances[axis], array.shape[axis] - slices.sizes[axis] + 1) for axis in slices.mapped]
    return [plain(each) for each in (shape, starts, bounds, along)]


def _distances(array: Operand) -> list[int]:
    return [math.prod(array.shape[axis + 1 :]) for axis in range(len(array.shape))]


def _starts(to: GgmlContext, indices: Iterable[Operand]) -> str:
    texts = [to.array(each) for each in indices]
    return texts[0] if len(texts) == 1 else to.helper("joined", 0, f"[{', '.join(texts)}]")


def _dynamic(to: GgmlContext, array: Operand, shape: Sequence[int]) -> list[str]:
    distances = _distances(array)
    bounds = [(step, size - part + 1) for step, size, part in zip(distances, array.shape, shape, strict=True)]
    along = [(axis, distances[axis]) for axis, size in enumerate(shape) if size > 1]
    return [plain(each) for each in (shape, (1,) * len(shape), bounds, along)]


@rule("dynamic_slice")
def _dynamic_slice(to: GgmlContext, op: Statement) -> str:
    array, *indices = op.inputs
    check_indices(to, math.prod(array.shape))
    layout = _dynamic(to, array, op.shape)
    return to.helper("gather", to.shaped(array, array.shape), _starts(to, indices), *layout)


@rule("dynamic_update_slice")
def _dynamic_update_slice(to: GgmlContext, op: Statement) -> str:
    array, update, *indices = op.inputs
    check_indices(to, math.prod(array.shape))
    texts = [to.shaped(array, array.shape), _starts(to, indices), to.shaped(update, update.shape)]
    return to.helper("scatter", *texts, *_dynamic(to, array, update.shape))
