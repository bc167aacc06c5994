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
    ExpandDims,
    Flatten,
    Flip,
    Gather,
    Indexer,
    Model,
    OneHot,
    Pad,
    PermuteTensor,
    RepeatItems,
    Reshape,
    Roll,
    Split,
    Squeeze,
    Stack,
    SwapAxes,
    Take,
    Tile,
    Transpose,
    TransposedDiagonal,
)
from tests.blocks.case import Arrays, Case, arrays, filled_shapes, shapes

Drawn = tuple[Model, Arrays]


def _like(function: Callable[..., Any], *options: str) -> Callable[[Model, Arrays, Arrays], Arrays]:
    """Return a reference: a NumPy function of the input and some attributes, by position."""
    return lambda model, params, inputs: {
        "output": function(*inputs.values(), *(model.options[option] for option in options))
    }


def _axis(draw: st.DrawFn, shape: tuple[int, ...]) -> int:
    return draw(st.integers(-len(shape), len(shape) - 1))


def _on_any(kind: str) -> Callable[[st.DrawFn], Drawn]:
    return lambda draw: (KINDS[kind](), {"input": draw(arrays(draw(shapes)))})


def _reshape(draw: st.DrawFn) -> Drawn:
    shape = draw(shapes)
    target = list(draw(st.permutations(shape)))
    if len(target) > 1 and draw(st.booleans()):
        target[:2] = [target[0] * target[1]]
    if target and draw(st.booleans()):
        target[draw(st.integers(0, len(target) - 1))] = -1
    return Reshape(tuple(target)), {"input": draw(arrays(shape))}


def _flatten(draw: st.DrawFn) -> Drawn:
    shape = draw(filled_shapes)
    first = draw(st.integers(0, len(shape) - 1))
    last = draw(st.integers(first, len(shape) - 1))
    return Flatten(first, draw(st.sampled_from((last, last - len(shape))))), {"input": draw(arrays(shape))}


def _flat(model: Model, params: Arrays, inputs: Arrays) -> Arrays:
    x, first, last = inputs["input"], model.options["start_dim"], model.options["end_dim"]
    last %= x.ndim
    return {"output": x.reshape(*x.shape[:first], -1, *x.shape[last + 1 :])}


def _squeeze(draw: st.DrawFn) -> Drawn:
    shape = draw(st.lists(st.sampled_from((1, 1, 3)), max_size=4).map(tuple))
    ones = [axis - draw(st.sampled_from((0, len(shape)))) for axis, size in enumerate(shape) if size == 1]
    axis = draw(st.sampled_from([None, *ones, tuple(ones)]))
    return Squeeze(axis), {"input": draw(arrays(shape))}


def _expand_dims(draw: st.DrawFn) -> Drawn:
    shape = draw(shapes)
    one = draw(st.integers(-len(shape) - 1, len(shape)))
    axis = draw(st.sampled_from((one, (0, -1))))
    return ExpandDims(axis), {"input": draw(arrays(shape))}


def _broadcast_to(draw: st.DrawFn) -> Drawn:
    target = draw(shapes)
    offset = draw(st.integers(0, len(target)))
    shape = tuple(draw(st.sampled_from((1, size))) for size in target[offset:])
    return BroadcastTo(target), {"input": draw(arrays(shape))}


def _transpose(draw: st.DrawFn) -> Drawn:
    shape = draw(shapes)
    order = tuple(axis - draw(st.sampled_from((0, len(shape)))) for axis in draw(st.permutations(range(len(shape)))))
    return Transpose(draw(st.sampled_from((None, order or None)))), {"input": draw(arrays(shape))}


def _swap_axes(draw: st.DrawFn) -> Drawn:
    shape = draw(filled_shapes)
    return SwapAxes(_axis(draw, shape), _axis(draw, shape)), {"input": draw(arrays(shape))}


def _whole(draw: st.DrawFn, shape: tuple[int, ...], below: int) -> np.ndarray:
    return np.random.default_rng(draw(st.integers(0, 999))).integers(0, below, shape)


def _permute(draw: st.DrawFn) -> Drawn:
    shape = draw(filled_shapes)
    return PermuteTensor(), {"input": draw(arrays(shape)), "indices": _whole(draw, draw(shapes), shape[0])}


def _concat(draw: st.DrawFn) -> Drawn:
    shape = draw(filled_shapes)
    axis, count = _axis(draw, shape), draw(st.integers(1, 3))
    lengths = [draw(st.integers(0, 3)) for _ in range(count)]
    place = axis % len(shape)
    inputs = {
        f"input{number}": draw(arrays((*shape[:place], length, *shape[place + 1 :])))
        for number, length in enumerate(lengths, 1)
    }
    return Concat(count, draw(st.sampled_from((axis, None)))), inputs


def _stack(draw: st.DrawFn) -> Drawn:
    shape, count = draw(shapes), draw(st.integers(1, 3))
    axis = draw(st.integers(-len(shape) - 1, len(shape)))
    return Stack(count, axis), {f"input{number + 1}": draw(arrays(shape)) for number in range(count)}


def _joined(function: Callable[..., Any]) -> Callable[[Model, Arrays, Arrays], Arrays]:
    return lambda model, _, inputs: {"output": function(list(inputs.values()), axis=model.options["axis"])}


def _repeat(draw: st.DrawFn) -> Drawn:
    shape = draw(filled_shapes)
    axis = draw(st.sampled_from((None, _axis(draw, shape))))
    return RepeatItems(draw(st.integers(0, 3)), axis), {"input": draw(arrays(shape))}


def _tile(draw: st.DrawFn) -> Drawn:
    reps = draw(st.integers(0, 3) | st.lists(st.integers(0, 3), max_size=5).map(tuple))
    return Tile(reps), {"input": draw(arrays(draw(shapes)))}


def _pad(draw: st.DrawFn) -> Drawn:
    shape, few = draw(filled_shapes), st.integers(0, 2)
    pairs = tuple((draw(few), draw(few)) for _ in shape)
    width = draw(st.sampled_from((pairs, pairs[0], pairs[0][0])))
    return Pad(width, draw(st.sampled_from((0.0, 1.5)))), {"input": draw(arrays(shape))}


def _padded(model: Model, params: Arrays, inputs: Arrays) -> Arrays:
    return {"output": np.pad(inputs["input"], model.options["pad_width"], constant_values=model.options["value"])}


def _split(draw: st.DrawFn) -> Drawn:
    shape = list(draw(filled_shapes))
    axis, parts = _axis(draw, tuple(shape)), draw(st.integers(1, 3))
    shape[axis] *= parts
    return Split(parts, axis), {"input": draw(arrays(tuple(shape)))}


def _flip(draw: st.DrawFn) -> Drawn:
    shape = draw(filled_shapes)
    axis = _axis(draw, shape)
    return Flip(draw(st.sampled_from((None, axis, (axis,))))), {"input": draw(arrays(shape))}


def _roll(draw: st.DrawFn) -> Drawn:
    shape = draw(filled_shapes)
    axis, shift = _axis(draw, shape), draw(st.integers(-5, 5))
    return Roll(*draw(st.sampled_from(((shift, None), (shift, axis), ((shift,), (axis,)))))), {
        "input": draw(arrays(shape))
    }


def _cartesian(draw: st.DrawFn) -> Drawn:
    n, m, d = (draw(st.integers(1, 4)) for _ in range(3))
    return CartesianDifference(), {"left": draw(arrays((n, d))), "right": draw(arrays((m, d)))}


def _rows_by_rows(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    return np.array([[a - b for b in right] for a in left])


def draw_index(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Draw a NumPy index of numbers, slices, new axes, and arrays of integers and booleans."""
    bound = st.none() | st.integers(-6, 6)
    some = [axis for axis in range(len(shape)) if shape[axis]]
    numbers = draw(st.sampled_from(((), (2,), (2, 1))))
    items: list[Any] = []
    for axis in range(draw(st.integers(0, len(shape)))):
        size = shape[axis]
        kind = draw(st.sampled_from(("slice", "number", "array", "mask") if axis in some else ("slice",)))
        if kind == "slice":
            items.append(slice(draw(bound), draw(bound), draw(st.sampled_from((None, 1, 2, -1, -2)))))
        elif kind == "number":
            items.append(draw(st.integers(-size, size - 1)))
        elif kind == "array":
            items.append((_whole(draw, numbers or (2,), 2 * size) - size).tolist())
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


def _indexer(draw: st.DrawFn) -> Drawn:
    shape = draw(shapes)
    return Indexer(as_data(draw_index(draw, shape))), {"input": draw(arrays(shape))}


def _take(draw: st.DrawFn) -> Drawn:
    shape = draw(filled_shapes)
    axis = draw(st.sampled_from((None, _axis(draw, shape))))
    below = int(np.prod(shape)) if axis is None else shape[axis]
    return Take(axis), {"input": draw(arrays(shape)), "indices": _whole(draw, draw(shapes), below)}


def _gather(draw: st.DrawFn) -> Drawn:
    shape = draw(filled_shapes)
    axis = _axis(draw, shape)
    some = list(shape)
    some[axis] = draw(st.integers(1, 3))
    return Gather(axis), {"input": draw(arrays(shape)), "indices": _whole(draw, tuple(some), shape[axis])}


def _one_hot(draw: st.DrawFn) -> Drawn:
    shape = draw(shapes)
    axis = draw(st.integers(-len(shape) - 1, len(shape)))
    return OneHot(3, axis), {"input": _whole(draw, shape, 5)}


def _rows_of_one(model: Model, params: Arrays, inputs: Arrays) -> Arrays:
    rows = inputs["input"][..., None] == np.arange(3)
    return {"output": np.moveaxis(rows.astype(float), -1, model.options["axis"])}


def _triangle(kind: str) -> Callable[[st.DrawFn], Drawn]:
    def draw_one(draw: st.DrawFn) -> Drawn:
        shape = draw(st.lists(st.integers(1, 4), min_size=2, max_size=4).map(tuple))
        return KINDS[kind](draw(st.integers(-4, 4))), {"input": draw(arrays(shape))}

    return draw_one


def _diagonal(draw: st.DrawFn) -> Drawn:
    return TransposedDiagonal(), {"input": draw(arrays((draw(st.integers(1, 4)), draw(st.integers(1, 4)))))}


CASES = [
    Case("Reshape", _reshape, _like(np.reshape, "shape")),
    Case("Flatten", _flatten, _flat),
    Case("Squeeze", _squeeze, _like(np.squeeze, "axis")),
    Case("ExpandDims", _expand_dims, _like(np.expand_dims, "axis")),
    Case("AtLeast1D", _on_any("AtLeast1D"), _like(np.atleast_1d)),
    Case("BroadcastTo", _broadcast_to, _like(np.broadcast_to, "shape")),
    Case("Transpose", _transpose, _like(np.transpose, "axes")),
    Case("SwapAxes", _swap_axes, _like(np.swapaxes, "axis1", "axis2")),
    Case("PermuteTensor", _permute, _like(lambda x, indices: x[indices])),
    Case("Identity", _on_any("Identity"), _like(lambda x: x)),
    Case("Concat", _concat, _joined(np.concatenate)),
    Case("Stack", _stack, _joined(np.stack)),
    Case("RepeatItems", _repeat, _like(np.repeat, "repeats", "axis")),
    Case("Tile", _tile, _like(np.tile, "reps")),
    Case("Pad", _pad, _padded),
    Case("Split", _split, _like(lambda x, parts, axis: np.stack(np.split(x, parts, axis)), "split_size", "axis")),
    Case("Flip", _flip, _like(np.flip, "axis")),
    Case("Roll", _roll, _like(np.roll, "shift", "axis")),
    Case("CartesianDifference", _cartesian, _like(_rows_by_rows)),
    Case("Indexer", _indexer, lambda model, _, given: {"output": given["input"][as_numpy(model.options["index"])]}),
    Case("Take", _take, _like(np.take, "axis")),
    Case("Gather", _gather, _like(np.take_along_axis, "axis")),
    Case("OneHot", _one_hot, _rows_of_one),
    Case("Triu", _triangle("Triu"), _like(np.triu, "k")),
    Case("Tril", _triangle("Tril"), _like(np.tril, "k")),
    Case("TransposedDiagonal", _diagonal, _like(lambda x: np.diag(x)[:, None])),
]
