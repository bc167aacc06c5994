"""ONNX operators of primitives that shape, join, reduce and create arrays."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from mithril_nb.emission.onnx.graph import RULES, OnnxGraph, neutral, rule, wider
from mithril_nb.emission.params import expanded_shape
from mithril_nb.emission.program import KEEPDIMS, Statement

_REDUCTIONS = {"reduce_sum": "Sum", "reduce_max": "Max", "reduce_min": "Min", "reduce_prod": "Prod"}


rule("reshape", "squeeze", "expand_dims")(lambda to, op: to.reshape(to.tensor(op.operand), op.shape))
rule("empty", "empty2")(lambda to, op: to.full(0, op.shape, op.dtype))
RULES.update({
    "transpose": lambda to, op: permuted(to, to.tensor(op.operand), op["permutation"]),
    "concatenate": lambda to, op: to.Concat(*to.operands(op), axis=int(op["dimension"])),
    "tile": lambda to, op: to.Tile(to.tensor(op.operand), to.integers(op["reps"])),
    "rev": lambda to, op: reversed_along(to, to.tensor(op.operand), op["dimensions"]),
    "dim_as_value": lambda to, op: to.cast(to.scalar(op["dim"]), op.dtype),
    "iota": lambda to, op: to.indices(op.shape, op["dimension"], op.dtype),
})  # fmt: skip


@rule("broadcast_in_dim")
def _broadcast(to: OnnxGraph, op: Statement) -> str:
    expanded, name = expanded_shape(op), to.tensor(op.operand)
    if expanded != op.operand.shape:
        name = to.reshape(name, expanded)
    return name if expanded == op.shape else to.Expand(name, to.integers(op.shape))


def permuted(to: OnnxGraph, name: str, order: Sequence[int]) -> str:
    order = [int(axis) for axis in order]
    return name if order == list(range(len(order))) else to.Transpose(name, perm=order)


@rule("stack")
def _stack(to: OnnxGraph, op: Statement) -> str:
    axis = int(op["axis"])
    names = [to.Unsqueeze(to.tensor(each), to.integers([axis])) for each in op.inputs]
    return to.Concat(*names, axis=axis)


@rule("split")
def _split(to: OnnxGraph, op: Statement) -> list[str]:
    sizes, axis = op["sizes"], int(op["axis"])
    return to.add_all("Split", len(sizes), to.tensor(op.operand), to.integers(sizes), axis=axis)


@rule("unstack")
def _unstack(to: OnnxGraph, op: Statement) -> list[str]:
    axis = int(op["axis"])
    name = to.tensor(op.operand)
    return [to.Gather(name, to.constant(index, np.int64), axis=axis) for index in range(len(op.outputs))]


@rule("slice")
def _slice(to: OnnxGraph, op: Statement) -> str:
    params = op.params
    steps = params["strides"] or [1] * len(params["start_indices"])
    return sliced(to, to.tensor(op.operand), params["start_indices"], params["limit_indices"], steps)


def sliced(to: OnnxGraph, name: str, starts: Sequence[int], ends: Sequence[int], steps: Sequence[int] = ()) -> str:
    steps = steps or [1] * len(starts)
    axes = range(len(starts))
    return to.Slice(name, *map(to.integers, (starts, ends, axes, steps)))


def reversed_along(to: OnnxGraph, name: str, axes: Sequence[int]) -> str:
    count = len(axes)
    starts, ends = [-1] * count, [np.iinfo(np.int64).min] * count
    return to.Slice(name, *map(to.integers, (starts, ends, axes, [-1] * count)))


@rule("pad")
def _pad(to: OnnxGraph, op: Statement) -> str:
    array, value = op.inputs
    name, fill, shape = to.tensor(array), to.tensor(value), list(array.shape)
    for axis, (_, _, gap) in enumerate(op["padding_config"]):
        name = dilated(to, name, array.dtype, shape, axis, int(gap), fill)
    config = op["padding_config"]
    before, after = [pair[0] for pair in config], [pair[1] for pair in config]
    return padded(to, name, array.dtype, [*before, *after], fill)


def padded(to: OnnxGraph, name: str, dtype: str, widths: Sequence[int], fill: str) -> str:
    """Add a padding of a tensor by the item `fill`, and return its output. `widths` are those before, then after."""
    if not any(widths):
        return name
    if dtype not in ("int16", "uint16"):
        return to.Pad(name, to.integers(widths), fill)
    return to.cast(to.Pad(to.cast(name, "int32"), to.integers(widths), to.cast(fill, "int32")), dtype)


def dilated(to: OnnxGraph, name: str, dtype: str, shape: list[int], axis: int, gap: int, fill: str) -> str:
    """Insert `gap` times the item `fill` between neighbouring items of a tensor, and change the list `shape`."""
    if not gap or shape[axis] < 2:
        return name
    inner = [*shape[: axis + 1], 1, *shape[axis + 1 :]]
    after = [0] * (2 * len(inner))
    after[len(inner) + axis + 1] = gap
    name = padded(to, to.reshape(name, inner), dtype, after, fill)
    size = shape[axis]
    wide = [*shape]
    wide[axis] = size * (gap + 1)
    shape[axis] = wide[axis] - gap
    return sliced(to, to.reshape(name, wide), [0] * len(shape), shape)


@rule(*_REDUCTIONS, "reduce_and", "reduce_or")
def _reduce(to: OnnxGraph, op: Statement) -> str:
    name, dtype = to.tensor(op.operand), op.operand.dtype
    axes, keeps = op["axes"], bool(op.params.get(KEEPDIMS))
    if op.primitive in ("reduce_and", "reduce_or") and dtype != "bool":
        raise to.unsupported("integers")
    kind = _REDUCTIONS.get(op.primitive) or {"reduce_and": "Min", "reduce_or": "Max"}[op.primitive]
    return reduced(to, kind, name, dtype, op.operand.shape, axes, keeps)


def reduced(
    to: OnnxGraph, kind: str, name: str, dtype: str, shape: Sequence[int], axes: Sequence[int], keeps: bool = False
) -> str:
    over = to.integers(axes)
    result_shape = [1 if axis in axes else size for axis, size in enumerate(shape) if keeps or axis not in axes]
    if 0 in shape:
        return to.full(neutral(kind, dtype), result_shape, dtype)
    if kind in ("Sum", "Prod") and np.dtype(dtype).kind in "iu":
        # onnxruntime rounds sums and products of integers to floats.
        outer = [axis for axis in range(len(shape)) if axis not in axes]
        rows, count = (math.prod(shape[axis] for axis in each) for each in (outer, axes))
        name = to.reshape(permuted(to, name, [*outer, *axes]), [rows, count])
        if kind == "Sum":
            name = to.compute("MatMul", dtype, [name, to.full(1, [count, 1], dtype)])
        else:
            start, first = to.full(1, [rows, 1], dtype), to.full(0, [rows, count], "int64")
            wide = wider("Prod", dtype)
            arrays = [to.cast(start, wide), first, to.cast(name, wide)]
            name = to.cast(to.ScatterElements(*arrays, axis=1, reduction="mul"), dtype)
        return to.reshape(name, result_shape)
    if kind in ("Sum", "Prod"):
        return to.compute(f"Reduce{kind}", dtype, [name], over, keepdims=int(keeps))
    result = to.from_key(to.add(f"Reduce{kind}", to.key(name, dtype), over, keepdims=int(keeps)), dtype)
    if np.dtype(dtype).kind != "f":
        return result
    is_nan = to.compute("ReduceMax", "bool", [to.IsNaN(name)], over, keepdims=int(keeps))
    return to.Where(is_nan, to.constant(np.nan, dtype), result)  # onnxruntime skips NaN


@rule("argmax", "argmin")
def _argmax(to: OnnxGraph, op: Statement) -> str:
    (axis,), dtype = op["axes"], op.operand.dtype
    operator = {"argmax": "ArgMax", "argmin": "ArgMin"}[op.primitive]
    name = to.tensor(op.operand)
    result = to.add(operator, to.key(name, dtype), axis=int(axis), keepdims=0)
    if np.dtype(dtype).kind == "f":
        is_nan = to.IsNaN(name)
        any_nan = to.compute("ReduceMax", "bool", [is_nan], to.integers([axis]), keepdims=0)
        first = to.ArgMax(to.cast(is_nan, "int32"), axis=int(axis), keepdims=0)
        result = to.Where(any_nan, first, result)
    return to.cast(result, op.dtype)


@rule("cumsum")
def _cumsum(to: OnnxGraph, op: Statement) -> str:
    axis = to.constant(op["axis"], np.int64)
    array = op.operand
    return to.compute("CumSum", array.dtype, [to.tensor(array)], axis, reverse=int(op["reverse"]))


@rule("sort")
def _sort(to: OnnxGraph, op: Statement) -> list[str]:
    axis = int(op["dimension"])
    keys = [(to.tensor(each), each.dtype) for each in op.inputs[: op["num_keys"]]]
    order = _order(to, keys, axis, op.operand.shape[axis], is_descending=False)
    return [to.GatherElements(to.tensor(each), order, axis=axis) for each in op.inputs]


def _order(to: OnnxGraph, keys: Iterable[tuple[str, str]], axis: int, size: int, is_descending: bool) -> str:
    # TopK keeps the order of equal items, so sort by one key after the other, the most important last. NaN is the
    # largest number.
    passes: list[str] = []
    for name, dtype in keys:
        if np.dtype(dtype).kind == "f":
            is_nan = to.IsNaN(name)
            passes += [to.cast(is_nan, "int32"), to.Where(is_nan, to.constant(0, dtype), name)]
        else:
            passes.append(to.key(name, dtype))
    order = ""
    for name in reversed(passes):
        name = to.GatherElements(name, order, axis=axis) if order else name
        _, positions = to.add_all("TopK", 2, name, to.integers([size]), axis=axis, largest=int(is_descending))
        order = to.GatherElements(order, positions, axis=axis) if order else positions
    return order


@rule("top_k")
def _top_k(to: OnnxGraph, op: Statement) -> list[str]:
    array = op.operand
    axis = int(op.params.get("axis", op.params.get("operand_axis", -1))) % len(array.shape)
    name = to.tensor(array)
    order = _order(to, [(name, array.dtype)], axis, array.shape[axis], is_descending=True)
    order = to.Slice(order, *map(to.integers, ([0], [op["k"]], [axis])))
    return [to.GatherElements(name, order, axis=axis), to.cast(order, op.outputs[1].dtype)]
