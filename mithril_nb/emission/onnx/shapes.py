"""ONNX operators of primitives that shape, join, reduce and create arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mithril_nb.emission.onnx.graph import Graph, rule
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
        name = dilated(to, name, shape, axis, int(gap), fill)
    config = one.params["padding_config"]
    before, after = [pair[0] for pair in config], [pair[1] for pair in config]
    return to.add("Pad", name, to.integers([*before, *after]), fill) if any([*before, *after]) else name


def dilated(to: Graph, name: str, shape: list[int], axis: int, gap: int, fill: str) -> str:
    """Insert `gap` equal items between the neighbouring items of a tensor along an axis, and return the new tensor.

    `name` and `fill` are names of tensors; `fill` contains the item to insert. `shape` is the shape of the tensor. The
    function changes this list to the new shape.
    """
    if not gap or shape[axis] < 2:
        return name
    inner = [*shape[: axis + 1], 1, *shape[axis + 1 :]]
    after = [0] * (2 * len(inner))
    after[len(inner) + axis + 1] = gap
    name = to.add("Pad", to.reshape(name, inner), to.integers(after), fill)
    size = shape[axis]
    whole = [*shape]
    whole[axis] = size * (gap + 1)
    shape[axis] = whole[axis] - gap
    return sliced(to, to.reshape(name, whole), [0] * len(shape), shape)


@rule("iota")
def _iota(to: Graph, one: Statement) -> str:
    shape, axis = one.outputs[0].shape, one.params["dimension"]
    array = np.arange(shape[axis]).reshape([-1 if place == axis else 1 for place in range(len(shape))])
    return to.constant(np.broadcast_to(array, shape), one.outputs[0].dtype)


@rule("empty", "empty2")
def _empty(to: Graph, one: Statement) -> str:
    return to.constant(np.zeros(one.outputs[0].shape), one.outputs[0].dtype)


@rule(*_REDUCTIONS, "reduce_and", "reduce_or")
def _reduce(to: Graph, one: Statement) -> str:
    name, dtype = to.tensor(one.inputs[0]), one.inputs[0].dtype
    axes, keeps = to.integers(one.params["axes"]), int(bool(one.params.get(KEEPDIMS)))
    kind = _REDUCTIONS.get(one.primitive) or {"reduce_and": "Min", "reduce_or": "Max"}[one.primitive]
    if dtype not in ("float32", "float64", "int32", "int64"):
        if one.primitive in ("reduce_and", "reduce_or") and dtype != "bool":
            raise to.unsupported(one, "integers")
        wide = "float32" if dtype == "float16" else "int64" if dtype == "uint32" else "int32"
        return to.cast(to.add(f"Reduce{kind}", to.cast(name, wide), axes, keepdims=keeps), one.outputs[0].dtype)
    return to.add(f"Reduce{kind}", name, axes, keepdims=keeps)


@rule("argmax", "argmin")
def _argmax(to: Graph, one: Statement) -> str:
    (axis,) = one.params["axes"]
    op = {"argmax": "ArgMax", "argmin": "ArgMin"}[one.primitive]
    return to.cast(to.add(op, to.tensor(one.inputs[0]), axis=int(axis), keepdims=0), one.outputs[0].dtype)


@rule("cumsum")
def _cumsum(to: Graph, one: Statement) -> str:
    axis = to.constant(one.params["axis"], np.int64)
    return to.add("CumSum", to.tensor(one.inputs[0]), axis, reverse=int(one.params["reverse"]))


@rule("sort")
def _sort(to: Graph, one: Statement) -> list[str]:
    """Sort by TopK, which keeps the order of equal items, as a stable sort does."""
    axis = int(one.params["dimension"])
    if one.params["num_keys"] != 1:
        raise to.unsupported(one, "sorting by several keys")
    count = to.integers([one.inputs[0].shape[axis]])
    values, places = to.add_all("TopK", 2, to.tensor(one.inputs[0]), count, axis=axis, largest=0)
    rest = [to.add("GatherElements", to.tensor(each), places, axis=axis) for each in one.inputs[1:]]
    return [values, *rest]


@rule("top_k")
def _top_k(to: Graph, one: Statement) -> list[str]:
    axis = int(one.params.get("axis", one.params.get("operand_axis", -1)))
    values, places = to.add_all("TopK", 2, to.tensor(one.inputs[0]), to.integers([one.params["k"]]), axis=axis)
    return [values, to.cast(places, one.outputs[1].dtype)]
