"""Blocks of `models/library/operations`: reshaping, joining and indexing, compared with NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from mithril_nb.models import (
    KINDS,
    BroadcastTo,
    CartesianDifference,
    Concat,
    Flatten,
    Gather,
    Indexer,
    OneHot,
    PermuteTensor,
    Reshape,
    Split,
    Squeeze,
    Stack,
    Take,
    TransposedDiagonal,
)
from tests.blocks.case import Case, Draw, Drawn, Shape, arrays, axis, few, filled_shapes, new_axis, on, shapes

Axes = st.SearchStrategy[Any]


def _reshape(draw: Draw) -> Drawn:
    shape = draw(shapes)
    target = list(draw(st.permutations(shape)))
    if len(target) > 1 and draw(st.booleans()):
        target[:2] = [target[0] * target[1]]
    if target and draw(st.booleans()):
        target[draw(st.integers(0, len(target) - 1))] = -1
    return Reshape(tuple(target)), {"input": draw(arrays(shape))}


def _flatten(draw: Draw) -> Drawn:
    shape = draw(filled_shapes)
    first = draw(st.integers(0, len(shape) - 1))
    last = draw(st.integers(first, len(shape) - 1))
    return Flatten(first, draw(st.sampled_from((last, last - len(shape))))), {"input": draw(arrays(shape))}


def _flat(input: np.ndarray, start_dim: int, end_dim: int) -> np.ndarray:
    return input.reshape(*input.shape[:start_dim], -1, *input.shape[end_dim % input.ndim + 1 :])


def _squeeze(draw: Draw) -> Drawn:
    shape = draw(st.lists(st.sampled_from((1, 1, 3)), max_size=4).map(tuple))
    ones = [axis - draw(st.sampled_from((0, len(shape)))) for axis, size in enumerate(shape) if size == 1]
    return Squeeze(draw(st.sampled_from([None, *ones, tuple(ones)]))), {"input": draw(arrays(shape))}


def _broadcast_to(draw: Draw) -> Drawn:
    target = draw(shapes)
    offset = draw(st.integers(0, len(target)))
    shape = tuple(draw(st.sampled_from((1, size))) for size in target[offset:])
    return BroadcastTo(target), {"input": draw(arrays(shape))}


@st.composite
def _order(draw: Draw, shape: Shape) -> Shape | None:
    rank = len(shape)
    order = tuple(axis - draw(st.sampled_from((0, rank))) for axis in draw(st.permutations(range(rank))))
    return draw(st.sampled_from((None, order or None)))


def _indices(draw: Draw, shape: Shape, below: int) -> np.ndarray:
    return np.random.default_rng(draw(st.integers(0, 999))).integers(0, below, shape)


def _permute(draw: Draw) -> Drawn:
    shape = draw(filled_shapes)
    return PermuteTensor(), {"input": draw(arrays(shape)), "indices": _indices(draw, draw(shapes), shape[0])}


def _concat(draw: Draw) -> Drawn:
    shape = draw(filled_shapes)
    along, count = draw(axis(shape)), draw(st.integers(1, 3))
    lengths = [draw(st.integers(0, 3)) for _ in range(count)]
    at = along % len(shape)
    inputs = {
        f"input{number}": draw(arrays((*shape[:at], length, *shape[at + 1 :])))
        for number, length in enumerate(lengths, 1)
    }
    return Concat(count, draw(st.sampled_from((along, None)))), inputs


def _stack(draw: Draw) -> Drawn:
    shape, count = draw(shapes), draw(st.integers(1, 3))
    return Stack(count, draw(new_axis(shape))), {f"input{number + 1}": draw(arrays(shape)) for number in range(count)}


def _all_or(strategy: Callable[[Shape], Axes]) -> Callable[[Shape], Axes]:
    return lambda shape: st.none() | strategy(shape)


@st.composite
def _widths(draw: Draw, shape: Shape) -> Any:
    pairs = tuple((draw(st.integers(0, 2)), draw(st.integers(0, 2))) for _ in shape)
    return draw(st.sampled_from((pairs, pairs[0], pairs[0][0])))


def _split(draw: Draw) -> Drawn:
    shape = list(draw(filled_shapes))
    along, parts = draw(axis(tuple(shape))), draw(st.integers(1, 3))
    shape[along] *= parts
    return Split(parts, along), {"input": draw(arrays(tuple(shape)))}


def _roll(draw: Draw) -> Drawn:
    shape = draw(filled_shapes)
    along, shift = draw(axis(shape)), draw(st.integers(-5, 5))
    return KINDS["Roll"](*draw(st.sampled_from(((shift, None), (shift, along), ((shift,), (along,)))))), {
        "input": draw(arrays(shape))
    }


def _cartesian(draw: Draw) -> Drawn:
    n, m, d = (draw(few) for _ in range(3))
    return CartesianDifference(), {"left": draw(arrays((n, d))), "right": draw(arrays((m, d)))}


def draw_index(draw: Draw, shape: Shape) -> tuple[Any, ...]:
    """Draw a NumPy index of numbers, slices, new axes, and arrays of integers and booleans."""
    bound = st.none() | st.integers(-6, 6)
    some = [axis for axis in range(len(shape)) if shape[axis]]
    numbers = draw(st.sampled_from(((), (2,), (2, 1))))
    items: list[Any] = []
    for at in range(draw(st.integers(0, len(shape)))):
        size = shape[at]
        kind = draw(st.sampled_from(("slice", "number", "array", "mask") if at in some else ("slice",)))
        if kind == "slice":
            items.append(slice(draw(bound), draw(bound), draw(st.sampled_from((None, 1, 2, -1, -2)))))
        elif kind == "number":
            items.append(draw(st.integers(-size, size - 1)))
        elif kind == "array":
            items.append((_indices(draw, numbers or (2,), 2 * size) - size).tolist())
        else:
            # As many items as the other arrays, or one: they must broadcast.
            mask = [False] * size
            mask[draw(st.integers(0, size - 1))] = True
            items.append(mask)
    whole = draw(st.integers(0, len(items)))
    if draw(st.booleans()) and len(items) == whole:
        items.append(...)
    for _ in range(draw(st.integers(0, 1))):
        items.insert(draw(st.integers(0, len(items))), None)
    return tuple(items)


def as_data(index: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return an index as plain data, in the form of `connection.py`."""
    return tuple(
        ("slice", item.start, item.stop, item.step) if isinstance(item, slice) else "..." if item is ... else item
        for item in index
    )


def as_numpy(index: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a plain index as a NumPy index: the inverse of `as_data`."""

    def back(item: Any) -> Any:
        if isinstance(item, tuple):
            return slice(*item[1:]) if item[:1] == ("slice",) else np.array(item)
        return ... if item == "..." else item

    return tuple(map(back, index))


def _indexer(draw: Draw) -> Drawn:
    shape = draw(shapes)
    return Indexer(as_data(draw_index(draw, shape))), {"input": draw(arrays(shape))}


def _take(draw: Draw) -> Drawn:
    shape = draw(filled_shapes)
    along = draw(_all_or(axis)(shape))
    below = int(np.prod(shape)) if along is None else shape[along]
    return Take(along), {"input": draw(arrays(shape)), "indices": _indices(draw, draw(shapes), below)}


def _gather(draw: Draw) -> Drawn:
    shape = draw(filled_shapes)
    along = draw(axis(shape))
    size = list(shape)
    size[along] = draw(st.integers(1, 3))
    return Gather(along), {"input": draw(arrays(shape)), "indices": _indices(draw, tuple(size), shape[along])}


def _one_hot(draw: Draw) -> Drawn:
    shape = draw(shapes)
    return OneHot(3, draw(new_axis(shape))), {"input": _indices(draw, shape, 5)}


def _diagonal(draw: Draw) -> Drawn:
    return TransposedDiagonal(), {"input": draw(arrays((draw(few), draw(few))))}


matrices = st.lists(few, min_size=2, max_size=4).map(tuple)
numbers = st.integers(0, 3)
CASES = [
    Case("Reshape", _reshape, np.reshape),
    Case("Flatten", _flatten, _flat),
    Case("Squeeze", _squeeze, np.squeeze),
    Case("ExpandDims", on("ExpandDims", axis=lambda shape: new_axis(shape) | st.just((0, -1))), np.expand_dims),
    Case("AtLeast1D", on("AtLeast1D"), np.atleast_1d),
    Case("BroadcastTo", _broadcast_to, np.broadcast_to),
    Case("Transpose", on("Transpose", axes=_order), np.transpose),
    Case("SwapAxes", on("SwapAxes", filled_shapes, axis1=axis, axis2=axis), np.swapaxes),
    Case("PermuteTensor", _permute, lambda input, indices: input[indices]),
    Case("Identity", on("Identity"), np.positive),
    Case("Concat", _concat, lambda inputs, axis: np.concatenate([*inputs.values()], axis)),
    Case("Stack", _stack, lambda inputs, axis: np.stack([*inputs.values()], axis)),
    Case("RepeatItems", on("RepeatItems", filled_shapes, repeats=numbers, axis=_all_or(axis)), np.repeat),
    Case("Tile", on("Tile", reps=numbers | st.lists(numbers, max_size=5).map(tuple)), np.tile),
    Case(
        "Pad",
        on("Pad", filled_shapes, pad_width=_widths, value=(0.0, 1.5)),
        lambda input, pad_width, value: np.pad(input, pad_width, constant_values=value),
    ),
    Case("Split", _split, lambda input, split_size, axis: np.stack(np.split(input, split_size, axis))),
    Case("Flip", on("Flip", filled_shapes, axis=lambda shape: _all_or(axis)(shape) | st.tuples(axis(shape))), np.flip),
    Case("Roll", _roll, np.roll),
    Case("CartesianDifference", _cartesian, lambda left, right: np.array([[a - b for b in right] for a in left])),
    Case("Indexer", _indexer, lambda input, index: input[as_numpy(index)]),
    Case("Take", _take, np.take),
    Case("Gather", _gather, np.take_along_axis),
    Case(
        "OneHot",
        _one_hot,
        lambda input, axis: np.moveaxis((input[..., None] == np.arange(3)).astype(float), -1, axis),
    ),
    Case("Triu", on("Triu", matrices, k=st.integers(-4, 4)), np.triu),
    Case("Tril", on("Tril", matrices, k=st.integers(-4, 4)), np.tril),
    Case("TransposedDiagonal", _diagonal, lambda input: np.diag(input)[:, None]),
]
