"""Rules for matrix products, convolutions, windows, gathers and scatters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from mithril_nb.emission.arrays.rules import changed, plain
from mithril_nb.emission.ggml.elementwise import check_places
from mithril_nb.emission.ggml.rules import Context, rule
from mithril_nb.emission.program import Number, Operand, Statement
from mithril_nb.emission.slices import fill_of, slices_of


@rule("dot_general")
def _dot_general(to: Context, one: Statement) -> str:
    """Return a matrix product. `ggml_mul_mat` of x and y is y @ x.T, and `ggml_out_prod` of x and y is y.T @ x."""
    left, right = one.inputs
    if not left.dtype.startswith("float"):
        raise to.unsupported(one, "integers")
    overs, batches = one.params["dimension_numbers"]
    frees = [
        [axis for axis in range(len(each.shape)) if axis not in (*over, *batch)]
        for each, over, batch in zip(one.inputs, overs, batches, strict=True)
    ]
    groups = [*zip(batches, frees, overs, strict=True)]
    swapped = [(batch, over, free) for batch, free, over in groups]
    if overs[0] and all([*batch, *over, *free] == sorted([*batch, *over, *free]) for batch, over, free in swapped):
        first, second = (_merged(to, each, group) for each, group in zip(one.inputs, swapped, strict=True))
        found = to.call("out_prod", second, first)
    elif not batches[0] and len(right.shape) == 2 and overs[0] == (len(left.shape) - 1,):  # the matrix is broadcast
        return to.call("mul_mat", _merged(to, right, groups[1]), to.tensor(left))
    else:
        first, second = (_merged(to, each, group) for each, group in zip(one.inputs, groups, strict=True))
        found = to.call("mul_mat", second, first)
    sizes = [math.prod(each.shape[axis] for axis in free) for each, free in zip(one.inputs, frees, strict=True)]
    return to.reshaped(found, (*_batch(left, batches[0]), *sizes), one.outputs[0].shape)


def _batch(one: Operand, axes: Sequence[int]) -> list[int]:
    """Return the sizes of the batch axes. More than two axes are merged to one."""
    sizes = [one.shape[axis] for axis in axes]
    return sizes if len(sizes) <= 2 else [math.prod(sizes)]


def _merged(to: Context, one: Operand, groups: tuple[Sequence[int], ...]) -> str:
    """Return an operand with its axes in the order of `groups`. Each group after the batch axes becomes one axis."""
    batch, *others = groups
    order = [axis for group in groups for axis in group]
    shape = [one.shape[axis] for axis in order]
    sizes = [math.prod(one.shape[axis] for axis in group) for group in others]
    return to.reshaped(to.permuted(to.tensor(one), order), shape, (*_batch(one, batch), *sizes))


@rule("conv_general_dilated")
def _conv(to: Context, one: Statement) -> str:
    params, (array, kernel) = one.params, one.inputs
    numbers = params["dimension_numbers"]
    rank = len(array.shape) - 2
    if rank > 2:
        raise to.unsupported(one, f"{rank} spatial axes")
    groups, batch_groups = params["feature_group_count"], params["batch_group_count"]
    if groups > 1 and batch_groups > 1:
        raise to.unsupported(one, "feature_group_count and batch_group_count that are both above 1")
    texts, shapes = [], []
    for each, order in ((array, numbers.lhs_spec), (kernel, numbers.rhs_spec)):
        shape = [each.shape[axis] for axis in order]
        text = to.permuted(to.tensor(each), order)
        full = (*shape[:2], *[1] * (2 - rank), *shape[2:])  # add spatial axes of size 1
        texts.append(to.reshaped(text, shape, full))
        shapes.append(full)
    ones = [1] * (2 - rank)
    strides, dilation = [[*ones, *map(int, params[key])] for key in ("window_strides", "rhs_dilation")]
    gaps = [*ones, *map(int, params["lhs_dilation"])]
    padding = [(0, 0)] * (2 - rank) + [(int(before), int(after)) for before, after in params["padding"]]
    is_even = all(before == after >= 0 for before, after in padding)
    if is_even and gaps == [1, 1] and groups == batch_groups == 1:
        pairs = (strides[::-1], [before for before, _ in padding[::-1]], dilation[::-1])
        found = to.call("conv_2d", texts[1], texts[0], *(number for pair in pairs for number in pair))
    else:
        options = {
            "lhs_dilation": (gaps, [1, 1]), "rhs_dilation": (dilation, [1, 1]), "groups": (groups, 1),
            "batch_groups": (batch_groups, 1),
        }  # fmt: skip
        found = to.helper("conv", *texts, plain(strides), plain(padding), *changed(options))
    output = one.outputs[0].shape
    ordered = [output[axis] for axis in numbers.out_spec]
    full = (*ordered[:2], *ones, *ordered[2:])
    back = sorted(range(rank + 2), key=lambda axis: numbers.out_spec[axis])
    return to.permuted(to.reshaped(found, full, ordered), back)


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

    def __init__(self, to: Context, one: Statement, given: Operand):
        params = one.params
        rank = len(given.shape)
        size = [int(each) for each in params["window_dimensions"]]
        strides = [int(each) for each in params["window_strides"]]
        padding = [(int(before), int(after)) for before, after in params["padding"]]
        base = [int(each) for each in params.get("base_dilation") or [1] * rank]
        if any(int(each) != 1 for each in params.get("window_dilation") or ()):
            raise to.unsupported(one, "window_dilation")
        kept = [axis for axis in range(rank) if (size[axis], strides[axis], padding[axis]) != (1, 1, (0, 0))]
        if len(kept) > 2 or not rank:
            raise to.unsupported(one, f"a window along {len(kept)} axes")
        others = [axis for axis in range(rank) if axis not in kept]
        while len(kept) < min(2, rank):
            kept.insert(0, others.pop())
        self.order = (*others, *kept)
        self.back = sorted(range(rank), key=lambda axis: self.order[axis])
        axes = kept[::-1]
        self.size = [size[axis] for axis in axes] + [1] * (2 - len(axes))
        self.strides = [strides[axis] for axis in axes] + [1] * (2 - len(axes))
        self.config = [(*padding[axis], base[axis] - 1) for axis in self.order[::-1]]
        self.padding = [before for before, after, gap in self.config[:2]] + [0] * (2 - len(axes))
        self.is_even = all(
            before == after >= 0 and not gap and before < one_size
            for (before, after, gap), one_size in zip(self.config, [*self.size, 1, 1], strict=False)
        )

    def padded(self, to: Context, text: str, fill: str) -> str:
        """Return an array with its axes in `order`. Add the padding if GGML's pooling cannot add it."""
        text = to.permuted(text, self.order)
        if self.is_even:
            return text
        self.padding = [0, 0]
        return to.helper("pad", text, fill, plain(self.config))

    @property
    def arguments(self) -> list[int]:
        return [*self.size, *self.strides, *self.padding]


@rule("reduce_window_max", "reduce_window_min", "reduce_window_sum", "reduce_window")
def _pool(to: Context, one: Statement) -> str:
    kind, given = _kind(to, one), one.inputs[0]
    window = _Window(to, one, given)
    text = to.tensor(given)
    text = to.call("neg", text) if kind == "min" else text
    text = window.padded(to, text, "0" if kind == "add" else "-math.inf")
    name = "AVG" if kind == "add" else "MAX"
    found = to.call("pool_2d", text, f"ggml.GGML_OP_POOL_{name}", *window.arguments)
    if kind == "add":
        found = to.call("scale", found, math.prod(window.size))
    found = to.permuted(to.call("neg", found) if kind == "min" else found, window.back)
    return found


def _kind(to: Context, one: Statement) -> str:
    if one.primitive != "reduce_window":
        return {"max": "max", "min": "min", "sum": "add"}[one.primitive.rpartition("_")[2]]
    start = one.inputs[-1]
    if not isinstance(start, Number) or (one.combiner, start.value) not in _STARTS:
        raise to.unsupported(one, "combining items by a function other than add, max or min, or from an initial value")
    return one.combiner


_STARTS = {("add", 0), ("max", -math.inf), ("min", math.inf)}


@rule("select_and_scatter_add")
def _unpool(to: Context, one: Statement) -> str:
    source, given = one.inputs
    if not one.selected:
        raise to.unsupported(one, "selection by a primitive other than ge and le")
    window = _Window(to, one, given)
    text = to.call("neg", to.tensor(given)) if one.selected == "min" else to.tensor(given)
    text = window.padded(to, text, "-math.inf")
    grads = to.permuted(to.tensor(source), window.order)
    found = to.call("pool_2d_back", grads, text, "ggml.GGML_OP_POOL_MAX", *window.arguments)
    if not window.is_even:
        found = to.helper("pad", found, 0, plain([(-before, -after, 0) for before, after, _ in window.config]))
    return to.permuted(found, window.back)


@rule("gather")
def _gather(to: Context, one: Statement) -> str:
    array, indices = one.inputs
    numbers = one.params["dimension_numbers"]
    shape = one.outputs[0].shape
    fill = fill_of(one)
    flag = [] if fill is None else [f"fill={to.number(fill)}"]
    inner = tuple(one.params["slice_sizes"]) == (1, *array.shape[1:])
    starts_first = tuple(numbers.offset_dims) == tuple(range(len(indices.shape) - 1, len(shape)))
    if (
        inner and starts_first and len(array.shape) == 2 and numbers.start_index_map == (0,)
        and numbers.collapsed_slice_dims == (0,) and not numbers.operand_batching_dims
    ):  # fmt: skip
        check_places(to, one, array.shape[0])
        found = to.helper("rows", to.tensor(array), to.tensor(indices), *flag)
        return to.reshaped(found, (math.prod(indices.shape), array.shape[1]), shape)
    if not indices.shape[-1]:
        raise to.unsupported(one, "indices of length 0")
    return to.helper("gather", to.tensor(array), to.tensor(indices), *_places(to, one), *flag)


@rule("scatter", "scatter-add", "scatter_add")
def _scatter(to: Context, one: Statement) -> str:
    array, indices, updates = one.inputs
    numbers, shape = one.params["dimension_numbers"], updates.shape
    is_dropped = one.params["mode"].name != "CLIP"  # XLA drops slices outside of the array
    flag = ["is_dropped=True"] if is_dropped else []
    starts_first = tuple(numbers.update_window_dims) == tuple(range(len(indices.shape) - 1, len(shape)))
    if (
        one.primitive != "scatter" and starts_first and len(array.shape) == 2
        and numbers.scatter_dims_to_operand_dims == (0,) and numbers.inserted_window_dims == (0,)
        and not numbers.operand_batching_dims and shape[-1] == array.shape[1]
    ):  # fmt: skip
        check_places(to, one, array.shape[0] + 1)
        rows = to.reshaped(to.tensor(updates), shape, (math.prod(indices.shape), array.shape[1]))
        found = to.helper("add_rows", rows, to.tensor(indices), array.shape[0], *flag)
        return to.call("add", to.shaped(array, array.shape), found)
    if not indices.shape[-1]:
        raise to.unsupported(one, "indices of length 0")
    name = "scatter" if one.primitive == "scatter" else "scatter_add"
    texts = [to.shaped(array, array.shape), to.tensor(indices), to.shaped(updates, shape)]
    return to.helper(name, *texts, *_places(to, one), *flag)


def _places(to: Context, one: Statement) -> list[str]:
    """Return the arguments `shape`, `starts`, `bounds` and `along` of the helper functions `gather` and `scatter`.

    See the helper function `places_of` for their meaning.

    Raises:
        UnsupportedPrimitiveError: The array has too many items.
    """
    slices = slices_of(one)
    array, shape = slices.array, slices.shape
    check_places(to, one, math.prod(array.shape) + 1)
    distances = _distances(array)
    starts = [1 if axis in slices.window else size for axis, size in enumerate(shape)]
    pairs = zip(slices.kept, slices.window, strict=True)
    along = [(place, distances[axis]) for axis, place in pairs if shape[place] > 1]
    along += [(slices.outer[place], distances[axis]) for axis, place in slices.batching]
    bounds = [(distances[axis], array.shape[axis] - slices.sizes[axis] + 1) for axis in slices.mapped]
    return [plain(each) for each in (shape, starts, bounds, along)]


def _distances(array: Operand) -> list[int]:
    """Return the distance between neighbouring items along each axis, in the flat array."""
    return [math.prod(array.shape[axis + 1 :]) for axis in range(len(array.shape))]


def starts_of(to: Context, indices: Sequence[Any]) -> str:
    """Return the expression of one tensor that contains all start indices of a dynamic slice."""
    texts = [to.tensor(each) for each in indices]
    return texts[0] if len(texts) == 1 else to.helper("joined", 0, f"[{', '.join(texts)}]")


def _dynamic(to: Context, array: Operand, shape: Sequence[int]) -> list[str]:
    distances = _distances(array)
    bounds = [(step, size - part + 1) for step, size, part in zip(distances, array.shape, shape, strict=True)]
    along = [(axis, distances[axis]) for axis, size in enumerate(shape) if size > 1]
    return [plain(each) for each in (shape, (1,) * len(shape), bounds, along)]


@rule("dynamic_slice")
def _dynamic_slice(to: Context, one: Statement) -> str:
    array, *indices = one.inputs
    check_places(to, one, math.prod(array.shape))
    layout = _dynamic(to, array, one.outputs[0].shape)
    return to.helper("gather", to.shaped(array, array.shape), starts_of(to, indices), *layout)


@rule("dynamic_update_slice")
def _dynamic_update_slice(to: Context, one: Statement) -> str:
    array, update, *indices = one.inputs
    check_places(to, one, math.prod(array.shape))
    texts = [to.shaped(array, array.shape), starts_of(to, indices), to.shaped(update, update.shape)]
    return to.helper("scatter", *texts, *_dynamic(to, array, update.shape))
