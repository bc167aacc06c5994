"""Rules for primitives that shape, join, reduce and create arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

from mithril_nb.emission.ggml.rules import GgmlContext, broadcasts, dim, ne, rule
from mithril_nb.emission.params import expanded_shape
from mithril_nb.emission.program import Number, Statement

rule("reshape", "squeeze", "expand_dims")(lambda to, op: to.reshaped(to.array(op.operand), op.operand.shape, op.shape))
rule("transpose")(lambda to, op: to.transposed(op, op["permutation"]))
rule("tile")(lambda to, op: to.call("repeat_4d", to.array(op.operand), *ne(op.shape)))
rule("empty", "empty2")(lambda to, op: to.helper("full", 0, *op.shape))


@rule("broadcast_in_dim")
def _broadcast(to: GgmlContext, op: Statement) -> str:
    operand, shape = op.operand, op.shape
    if isinstance(operand, Number):
        return to.helper("full", to.number(operand), *shape)
    expanded = expanded_shape(op)
    if not broadcasts(expanded, shape):
        raise to.unsupported(f"broadcasting to {len(shape)} axes")
    text = to.reshaped(operand.name, operand.shape, expanded)
    return text if ne(expanded) == ne(shape) else to.call("repeat_4d", text, *ne(shape))


@rule("concatenate")
def _concatenate(to: GgmlContext, op: Statement) -> str:
    texts = [to.shaped(each, each.shape) for each in op.inputs]
    where = dim(op.output, op["dimension"])
    return to.call("concat", *texts, where) if len(texts) == 2 else to.helper("joined", where, _list(texts))


def _with_one(shape: Sequence[int], axis: int) -> list[int]:
    return [*shape[:axis], 1, *shape[axis + 1 :]]


@rule("stack")
def _stack(to: GgmlContext, op: Statement) -> str:
    shape = _with_one(op.shape, op["axis"])
    texts = [to.reshaped(to.array(operand), operand.shape, shape) for operand in op.inputs]
    return to.helper("joined", dim(op.output, op["axis"]), _list(texts))


@rule("unstack")
def _unstack(to: GgmlContext, op: Statement) -> str:
    name, where, shape = to.array(op.operand), dim(op.operand, op["axis"]), _with_one(op.operand.shape, op["axis"])
    parts = [to.helper("sliced", name, where, index, 1) for index in range(len(op.outputs))]
    return ", ".join(to.reshaped(part, shape, op.shape) for part in parts)


@rule("split")
def _split(to: GgmlContext, op: Statement) -> str:
    sizes, text, axis = [*map(int, op["sizes"])], to.array(op.operand), dim(op.operand, op["axis"])
    starts = accumulate([0, *sizes[:-1]])
    return ", ".join(to.helper("sliced", text, axis, start, size) for start, size in zip(starts, sizes, strict=True))


@rule("slice")
def _slice(to: GgmlContext, op: Statement) -> str:
    (operand,), params = op.inputs, op.params
    text = to.array(operand)
    steps = params["strides"] or [1] * len(operand.shape)
    bounds = zip(params["start_indices"], params["limit_indices"], steps, strict=True)
    for axis, (start, stop, step) in enumerate(bounds):  # a view of GGML has three axes: one slice after another
        count = op.shape[axis]
        if (int(start), int(stop), int(step)) != (0, operand.shape[axis], 1):
            text = to.helper("sliced", text, dim(operand, axis), int(start), count, *([int(step)] if step != 1 else []))
    return text


@rule("rev")
def _reverse(to: GgmlContext, op: Statement) -> str:
    text = to.array(op.operand)
    for axis in op["dimensions"]:
        text = to.helper("flipped", text, dim(op.operand, axis))
    return text


@rule("pad")
def _pad(to: GgmlContext, op: Statement) -> str:
    array, value = op.inputs
    config = [tuple(int(width) for width in each) for each in op["padding_config"]]
    if not isinstance(value, Number):
        raise to.unsupported("padding with a computed number")
    # ggml_pad_ext takes up to four axes, the last axis first, and pads with zeros only.
    if value.value == 0 and all(before >= 0 and after >= 0 and not between for before, after, between in config):
        widths = [width for each in config[::-1] for width in each[:2]]
        return to.call("pad_ext", to.array(array), *widths, *[0] * (8 - len(widths)))
    return to.helper("pad", to.shaped(array, array.shape), to.number(value), config[::-1])


@rule("iota")
def _iota(to: GgmlContext, op: Statement) -> str:
    shape, axis = op.shape, op["dimension"]
    text = to.call("arange", 0, shape[axis], 1)
    one_axis = [size if index == axis else 1 for index, size in enumerate(shape)]
    text = to.reshaped(text, (shape[axis],), one_axis)
    return text if ne(one_axis) == ne(shape) else to.call("repeat_4d", text, *ne(shape))


def _rows(to: GgmlContext, op: Statement, axes: Sequence[int]) -> tuple[str, tuple[int, ...]]:
    """Return the operand of a reduction with all reduced axes merged to the last axis, and the new shape."""
    (operand,) = op.inputs
    kept_axes = [axis for axis in range(len(operand.shape)) if axis not in axes]
    if kept_axes and list(axes) == list(range(len(axes))):  # the first axes: the columns of a matrix
        columns = (math.prod(operand.shape[: len(axes)]), math.prod(operand.shape[len(axes) :]))
        return to.permuted(to.reshaped(to.array(operand), operand.shape, columns), (1, 0)), columns[::-1]
    shape = [operand.shape[axis] for axis in (*kept_axes, *axes)]
    text = to.transposed(op, (*kept_axes, *axes))
    if len(axes) == 1:
        return text, tuple(shape)
    rows = (math.prod(operand.shape[axis] for axis in kept_axes), math.prod(operand.shape[axis] for axis in axes))
    return to.reshaped(text, shape, rows), rows


@rule("reduce_sum", "reduce_max", "reduce_min", "reduce_and", "reduce_or")
def _reduce(to: GgmlContext, op: Statement) -> str:
    axes = sorted(int(axis) for axis in op["axes"])
    shape = op.shape
    # GGML sums and pools along the last axis only, hence the transposes.
    if op.primitive == "reduce_sum" and len(axes) == len(op.operand.shape):
        return to.call("sum", to.array(op.operand))
    if op.primitive == "reduce_sum" and axes == list(range(len(axes))):
        width = math.prod(op.operand.shape[len(axes) :])
        return to.reshaped(to.helper("column_sums", to.array(op.operand), width), (width,), shape)
    text, rows = _rows(to, op, axes)
    if op.primitive in ("reduce_sum", "reduce_or"):  # bools are 0 and 1, and `all` is their minimum
        result = to.call("sum_rows", text)
        result = to.call("step", result) if op.primitive == "reduce_or" else result
    else:
        result = to.helper("largest" if op.primitive == "reduce_max" else "smallest", text)
    return to.reshaped(result, (*rows[:-1], 1), shape)


@rule("argmax", "argmin")
def _argmax(to: GgmlContext, op: Statement) -> str:
    text, rows = _rows(to, op, [int(axis) for axis in op["axes"]])
    text = to.call("neg", text) if op.primitive == "argmin" else text
    return to.reshaped(to.helper("first_largest", text), (*rows[:-1], 1), op.shape)


@rule("cumsum")
def _cumsum(to: GgmlContext, op: Statement) -> str:
    order, axis = [*range(len(op.shape))], op["axis"]
    order[axis], order[-1] = order[-1], order[axis]  # GGML's function runs along the last axis
    text = to.permuted(to.array(op.operand), order)
    flipped = (lambda text: to.helper("flipped", text, 0)) if op["reverse"] else lambda text: text
    return to.permuted(flipped(to.call("cumsum", flipped(text))), order)


@rule("sort")
def _sort(to: GgmlContext, op: Statement) -> str:
    axis = int(op["dimension"])
    if len(op.inputs) != 1 or op.operand.dtype.startswith("float") or axis != len(op.operand.shape) - 1:
        # GGML's sort fails at NaN, which integers do not have.
        raise to.unsupported("sorting floats, several arrays, or an axis other than the last")
    return to.helper("ascending", to.array(op.operand))


def _list(texts: Sequence[str]) -> str:
    return f"[{', '.join(texts)}]"
