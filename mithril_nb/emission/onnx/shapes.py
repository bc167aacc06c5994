"""ONNX operators of primitives that shape, join, reduce and create arrays."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from mithril_nb.emission.onnx.graph import RULES, OnnxGraph, rule, wider
from mithril_nb.emission.params import expanded_shape, neutral
from mithril_nb.emission.program import KEEPDIMS, REDUCTIONS, Statement

_OPERATORS = {"add": "ReduceSum", "mul": "ReduceProd", "max": "ReduceMax", "min": "ReduceMin"}
"""Operators by the primitive that combines two items."""
_OF_BOOLS = {"and": "min", "or": "max"}

rule("reshape", "squeeze", "expand_dims")(lambda to, op: to.reshape(to.tensor(op.operand), op.shape))
rule("empty", "empty2")(lambda to, op: to.full(0, op.shape, op.dtype))
RULES.update({
    "transpose": lambda to, op: permuted(to, to.tensor(op.operand), op["permutation"]),
    "concatenate": lambda to, op: to.Concat(*to.operands(op), axis=int(op["dimension"])),
    "tile": lambda to, op: to.Tile(to.tensor(op.operand), to.integers(op["reps"])),
    "rev": lambda to, op: reversed_along(to, to.tensor(op.operand), op["dimensions"]),
    "dim_as_value": lambda to, op: to.cast(to.scalar(op["dim"]), op.dtype),
    "iota": lambda to, op: to.indices(op.shape, op["dimension"], op.dtype),
    "cumsum": lambda to, op: to.compute(
        "CumSum", op.dtype, to.operands(op), to.constant(op["axis"], np.int64), reverse=int(op["reverse"])
    ),
    "stack": lambda to, op: to.Concat(
        *(to.Unsqueeze(to.tensor(operand), to.integers([op["axis"]])) for operand in op.inputs), axis=int(op["axis"])
    ),
    "split": lambda to, op: to.add_all(
        "Split", len(op["sizes"]), to.tensor(op.operand), to.integers(op["sizes"]), axis=int(op["axis"])
    ),
    "unstack": lambda to, op: [
        to.Gather(to.tensor(op.operand), to.constant(index, np.int64), axis=int(op["axis"]))
        for index in range(len(op.outputs))
    ],
    "slice": lambda to, op: sliced(
        to, to.tensor(op.operand), op["start_indices"], op["limit_indices"], op["strides"] or ()
    ),
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


def sliced(to: OnnxGraph, name: str, starts: Sequence[int], ends: Sequence[int], steps: Sequence[int] = ()) -> str:
    return to.Slice(name, *map(to.integers, (starts, ends, range(len(starts)), steps or [1] * len(starts))))


def reversed_along(to: OnnxGraph, name: str, axes: Sequence[int]) -> str:
    # An end of -1 would be the last item, so the end is before any first item.
    count = len(axes)
    return to.Slice(name, *map(to.integers, ([-1] * count, [np.iinfo(np.int64).min] * count, axes, [-1] * count)))


@rule("pad")
def _pad(to: OnnxGraph, op: Statement) -> str:
    (name, fill), dtype, shape = to.operands(op), op.dtype, list(op.operand.shape)
    before, after, gaps = zip(*op["padding_config"], strict=True) if shape else ((), (), ())
    for axis, gap in enumerate(gaps):
        name = dilated(to, name, dtype, shape, axis, int(gap), fill)
    return padded(to, name, dtype, [*before, *after], fill)


def padded(to: OnnxGraph, name: str, dtype: str, widths: Sequence[int], fill: str) -> str:
    """Add a padding of a tensor by the item `fill`, and return its output. `widths` are those before, then after."""
    if not any(widths):
        return name
    if dtype not in ("int16", "uint16"):  # which onnxruntime does not pad
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
    shape[axis] *= gap + 1
    name = to.reshape(name, shape)
    shape[axis] -= gap  # the items after the last one
    return sliced(to, name, [0] * len(shape), shape)


@rule(*(name for name, kind in REDUCTIONS.items() if kind != "xor"))
def _reduce(to: OnnxGraph, op: Statement) -> str:
    kind, array = REDUCTIONS[op.primitive], op.operand
    if kind in _OF_BOOLS and array.dtype != "bool":
        raise to.unsupported("integers")
    kind, keeps = _OF_BOOLS.get(kind, kind), bool(op.params.get(KEEPDIMS))
    return reduced(to, kind, to.tensor(array), array.dtype, array.shape, op["axes"], keeps)


def reduced(
    to: OnnxGraph, kind: str, name: str, dtype: str, shape: Sequence[int], axes: Sequence[int], keeps: bool = False
) -> str:
    over, operator, adds = to.integers(axes), _OPERATORS[kind], kind in ("add", "mul")
    result_shape = [1 if axis in axes else size for axis, size in enumerate(shape) if keeps or axis not in axes]
    if 0 in shape:
        return to.full(neutral(kind, dtype), result_shape, dtype)
    if adds and np.dtype(dtype).kind in "iu":
        # onnxruntime rounds sums and products of integers to floats.
        # MatMul of integers is exact, so a sum is a product with ones.
        outer = [axis for axis in range(len(shape)) if axis not in axes]
        rows, count = (math.prod(shape[axis] for axis in each) for each in (outer, axes))
        name = to.reshape(permuted(to, name, [*outer, *axes]), [rows, count])
        if kind == "add":
            name = to.compute("MatMul", dtype, [name, to.full(1, [count, 1], dtype)])
        else:  # ScatterElements multiplies all items of a row to one item
            start, first = to.full(1, [rows, 1], dtype), to.full(0, [rows, count], "int64")
            wide = wider("Prod", dtype)
            arrays = [to.cast(start, wide), first, to.cast(name, wide)]
            name = to.cast(to.ScatterElements(*arrays, axis=1, reduction="mul"), dtype)
        return to.reshape(name, result_shape)
    if adds:
        return to.compute(operator, dtype, [name], over, keepdims=int(keeps))
    result = to.from_key(to.add(operator, to.key(name, dtype), over, keepdims=int(keeps)), dtype)
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
    if np.dtype(dtype).kind == "f":  # JAX returns the index of the first NaN
        is_nan = to.IsNaN(name)
        any_nan = to.compute("ReduceMax", "bool", [is_nan], to.integers([axis]), keepdims=0)
        first = to.ArgMax(to.cast(is_nan, "int32"), axis=int(axis), keepdims=0)
        result = to.Where(any_nan, first, result)
    return to.cast(result, op.dtype)


@rule("sort")
def _sort(to: OnnxGraph, op: Statement) -> list[str]:
    axis = int(op["dimension"])
    keys = [(to.tensor(each), each.dtype) for each in op.inputs[: op["num_keys"]]]
    order = _order(to, keys, axis, op.operand.shape[axis], is_descending=False)
    return [to.GatherElements(to.tensor(each), order, axis=axis) for each in op.inputs]


def _order(to: OnnxGraph, keys: Iterable[tuple[str, str]], axis: int, size: int, is_descending: bool) -> str:
    # TopK keeps the order of equal items, so sort by one key after the other, the most important last. NaN is the
    # largest number.
    passes: list[str] = []  # of one key: whether it is NaN, then the number
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
