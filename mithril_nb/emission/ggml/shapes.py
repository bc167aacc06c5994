"""Rules for primitives that shape, join, reduce and create arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mithril_nb.emission.ggml.rules import Context, broadcasts, dim, ne, rule
from mithril_nb.emission.program import Number, Statement


@rule("reshape", "squeeze", "expand_dims")
def _reshape(to: Context, one: Statement) -> str:
    (given,), (output,) = one.inputs[:1], one.outputs
    return to.reshaped(to.tensor(given), given.shape, output.shape)


@rule("broadcast_in_dim")
def _broadcast(to: Context, one: Statement) -> str:
    given, shape = one.inputs[0], one.outputs[0].shape
    if isinstance(given, Number):
        return to.helper("full", to.number(given), *shape)
    expanded = [1] * len(shape)
    for axis, size in zip(one.params["broadcast_dimensions"], given.shape, strict=True):
        expanded[axis] = size
    if not broadcasts(expanded, shape):
        raise to.unsupported(one, f"broadcasting to {len(shape)} axes")
    text = to.reshaped(given.name, given.shape, expanded)
    return text if ne(expanded) == ne(shape) else to.call("repeat_4d", text, *ne(shape))


@rule("transpose")
def _transpose(to: Context, one: Statement) -> str:
    return to.transposed(one, one.params["permutation"])


@rule("concatenate")
def _concatenate(to: Context, one: Statement) -> str:
    texts = [to.shaped(each, each.shape) for each in one.inputs]
    where = dim(one.outputs[0], one.params["dimension"])
    return to.call("concat", *texts, where) if len(texts) == 2 else to.helper("joined", where, _list(texts))


@rule("stack")
def _stack(to: Context, one: Statement) -> str:
    (output,), axis = one.outputs, one.params["axis"]
    shape = [*output.shape]
    shape[axis] = 1
    texts = [to.reshaped(to.tensor(each), each.shape, shape) for each in one.inputs]
    return to.helper("joined", dim(output, axis), _list(texts))


@rule("unstack")
def _unstack(to: Context, one: Statement) -> str:
    (given,), axis = one.inputs, one.params["axis"]
    kept = [*given.shape]
    kept[axis] = 1
    name, where = to.tensor(given), dim(given, axis)
    parts = [to.helper("sliced", name, where, place, 1) for place in range(len(one.outputs))]
    return ", ".join(to.reshaped(part, kept, one.outputs[0].shape) for part in parts)


@rule("tile")
def _tile(to: Context, one: Statement) -> str:
    return to.call("repeat_4d", to.tensor(one.inputs[0]), *ne(one.outputs[0].shape))


@rule("split")
def _split(to: Context, one: Statement) -> str:
    (given,), start, texts = one.inputs, 0, []
    where = dim(given, one.params["axis"])
    for size in one.params["sizes"]:
        texts.append(to.helper("sliced", to.tensor(given), where, start, int(size)))
        start += int(size)
    return ", ".join(texts)


@rule("slice")
def _slice(to: Context, one: Statement) -> str:
    (given,), params = one.inputs, one.params
    text = to.tensor(given)
    steps = params["strides"] or [1] * len(given.shape)
    bounds = zip(params["start_indices"], params["limit_indices"], steps, strict=True)
    for axis, (start, stop, step) in enumerate(bounds):
        count = one.outputs[0].shape[axis]
        if (int(start), int(stop), int(step)) != (0, given.shape[axis], 1):
            text = to.helper("sliced", text, dim(given, axis), int(start), count, *([int(step)] if step != 1 else []))
    return text


@rule("rev")
def _reverse(to: Context, one: Statement) -> str:
    text = to.tensor(one.inputs[0])
    for axis in one.params["dimensions"]:
        text = to.helper("flipped", text, dim(one.inputs[0], axis))
    return text


@rule("pad")
def _pad(to: Context, one: Statement) -> str:
    array, value = one.inputs
    config = [tuple(int(width) for width in each) for each in one.params["padding_config"]]
    if not isinstance(value, Number):
        raise to.unsupported(one, "padding with a computed number")
    if value.value == 0 and all(before >= 0 and after >= 0 and not between for before, after, between in config):
        widths = [width for each in config[::-1] for width in each[:2]]
        return to.call("pad_ext", to.tensor(array), *widths, *[0] * (8 - len(widths)))
    return to.helper("pad", to.shaped(array, array.shape), to.number(value), config[::-1])


@rule("iota")
def _iota(to: Context, one: Statement) -> str:
    shape, axis = one.outputs[0].shape, one.params["dimension"]
    text = to.call("arange", 0, shape[axis], 1)
    one_axis = [size if place == axis else 1 for place, size in enumerate(shape)]
    text = to.reshaped(text, (shape[axis],), one_axis)
    return text if ne(one_axis) == ne(shape) else to.call("repeat_4d", text, *ne(shape))


def rows_of(to: Context, one: Statement, axes: Sequence[int]) -> tuple[str, tuple[int, ...]]:
    """Return the operand of a reduction with all reduced axes merged to the last axis, and the new shape."""
    (given,) = one.inputs
    kept = [axis for axis in range(len(given.shape)) if axis not in axes]
    if kept and list(axes) == list(range(len(axes))):  # the first axes: the columns of a matrix
        columns = (math.prod(given.shape[: len(axes)]), math.prod(given.shape[len(axes) :]))
        return to.permuted(to.reshaped(to.tensor(given), given.shape, columns), (1, 0)), columns[::-1]
    shape = [given.shape[axis] for axis in (*kept, *axes)]
    text = to.transposed(one, (*kept, *axes))
    if len(axes) == 1:
        return text, tuple(shape)
    rows = (math.prod(given.shape[axis] for axis in kept), math.prod(given.shape[axis] for axis in axes))
    return to.reshaped(text, shape, rows), rows


@rule("reduce_sum", "reduce_max", "reduce_min", "reduce_and", "reduce_or")
def _reduce(to: Context, one: Statement) -> str:
    axes = sorted(int(axis) for axis in one.params["axes"])
    shape = one.outputs[0].shape
    if one.primitive == "reduce_sum" and len(axes) == len(one.inputs[0].shape):
        return to.call("sum", to.tensor(one.inputs[0]))
    if one.primitive == "reduce_sum" and axes == list(range(len(axes))):
        width = math.prod(one.inputs[0].shape[len(axes) :])
        return to.reshaped(to.helper("column_sums", to.tensor(one.inputs[0]), width), (width,), shape)
    text, rows = rows_of(to, one, axes)
    if one.primitive in ("reduce_sum", "reduce_or"):
        found = to.call("sum_rows", text)
        found = to.call("step", found) if one.primitive == "reduce_or" else found
    else:
        found = to.helper("largest" if one.primitive == "reduce_max" else "smallest", text)
    return to.reshaped(found, (*rows[:-1], 1), shape)


@rule("argmax", "argmin")
def _argmax(to: Context, one: Statement) -> str:
    text, rows = rows_of(to, one, [int(axis) for axis in one.params["axes"]])
    text = to.call("neg", text) if one.primitive == "argmin" else text
    return to.reshaped(to.helper("first_largest", text), (*rows[:-1], 1), one.outputs[0].shape)


@rule("cumsum")
def _cumsum(to: Context, one: Statement) -> str:
    (given,), axis = one.inputs, one.params["axis"]
    order = [*range(len(given.shape))]
    order[axis], order[-1] = order[-1], order[axis]
    text = to.permuted(to.tensor(given), order)
    if one.params["reverse"]:
        found = to.helper("flipped", to.call("cumsum", to.helper("flipped", text, 0)), 0)
    else:
        found = to.call("cumsum", text)
    return to.permuted(found, order)


@rule("sort")
def _sort(to: Context, one: Statement) -> str:
    axis = int(one.params["dimension"])
    if len(one.inputs) != 1 or one.inputs[0].dtype.startswith("float") or axis != len(one.inputs[0].shape) - 1:
        # GGML's sort fails at NaN, which integers do not have.
        raise to.unsupported(one, "sorting floats, several arrays, or an axis other than the last")
    return to.helper("ascending", to.tensor(one.inputs[0]))


@rule("empty", "empty2")
def _empty(to: Context, one: Statement) -> str:
    return to.helper("full", 0, *one.outputs[0].shape)


def _list(texts: Sequence[str]) -> str:
    return f"[{', '.join(texts)}]"
