"""Blocks of `models/library/operations/statics.py`, compared with NumPy and Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from mithril_nb.models import (
    Cast,
    Dtype,
    Indexer,
    Item,
    Length,
    Model,
    Shape,
    Size,
    Slice,
    TensorToList,
    ToList,
    ToTensor,
    ToTuple,
    Value,
)
from tests.blocks.case import Arrays, Case, arrays, filled_shapes, shapes

Drawn = tuple[Model, Arrays]


def _on(block: Callable[[], Model], some: st.SearchStrategy[tuple[int, ...]] = shapes) -> Callable[[st.DrawFn], Drawn]:
    return lambda draw: (block(), {"input": draw(arrays(draw(some)))})


def _size(draw: st.DrawFn) -> Drawn:
    shape = draw(filled_shapes)
    axis = st.integers(-len(shape), len(shape) - 1)
    return Size(draw(st.none() | axis | st.tuples(axis, axis))), {"input": draw(arrays(shape))}


def _sizes(model: Model, params: Arrays, inputs: Arrays) -> dict[str, Any]:
    x, dim = inputs["input"], model.options["dim"]
    if isinstance(dim, tuple):
        return {"output": [x.shape[axis] for axis in dim]}
    return {"output": x.size if dim is None else x.shape[dim]}


def _cast(draw: st.DrawFn) -> Drawn:
    dtype = draw(st.sampled_from(("int32", "bool", "float32", "float16")))
    return Cast(dtype), {"input": np.round(draw(arrays(draw(shapes))))}


def _to_tensor(draw: st.DrawFn) -> Drawn:
    value = draw(st.sampled_from((3, 1.5, (1, 2), ((1.0, 2.0), (3.0, 4.0)), (True, False))))
    model = Model()
    model |= Value(value)(output="value")
    model |= ToTensor(draw(st.sampled_from((None, "float32"))))(input="value", output="output")
    return model, {}


def _told(model: Model, params: Arrays, inputs: Arrays) -> dict[str, Any]:
    return {"output": np.asarray(model.graph.nodes[0].block.options["value"])}


def _tuple(block: type[Model]) -> Callable[[st.DrawFn], Drawn]:
    def draw_one(draw: st.DrawFn) -> Drawn:
        model = Model()
        model |= Shape()(input="input", output="shape")
        model |= Value(7)(output="seven")
        model |= block(2)(input1="seven", input2="shape", output="both")
        model |= Indexer(1)(input="both", output="output")
        return model, {"input": draw(arrays(draw(filled_shapes)))}

    return draw_one


def _slice(draw: st.DrawFn) -> Drawn:
    bound = st.none() | st.integers(-4, 4)
    model = Model()
    model |= Slice(draw(bound), draw(bound), draw(st.sampled_from((None, 1, -1, 2))))(output="some")
    model |= Indexer()(input="input", index="some", output="output")
    return model, {"input": draw(arrays(draw(filled_shapes)))}


def _sliced(model: Model, params: Arrays, inputs: Arrays) -> Arrays:
    options = model.graph.by_name["slice_0"].block.options
    return {"output": inputs["input"][options["start"] : options["stop"] : options["step"]]}


def _dtype(draw: st.DrawFn) -> Drawn:
    # Its string is not an output of a compiled program: it is the dtype of another array.
    model = Model()
    model |= Dtype()(input="input", output="dtype")
    model |= Cast()(input="other", dtype="dtype", output="output")
    shape = draw(shapes)
    return model, {"input": np.zeros(()), "other": draw(arrays(shape))}


CASES = [
    Case("Shape", _on(Shape), lambda _, __, given: {"output": given["input"].shape}, is_differentiable=False),
    Case(
        "Length",
        _on(Length, filled_shapes),
        lambda _, __, given: {"output": len(given["input"])},
        is_differentiable=False,
    ),
    Case("Size", _size, _sizes, is_differentiable=False),
    Case(
        "Item",
        _on(Item, st.lists(st.just(1), max_size=3).map(tuple)),
        lambda _, __, given: {"output": given["input"].item()},
    ),
    Case(
        "Cast",
        _cast,
        lambda model, _, given: {"output": given["input"].astype(model.options["dtype"]).astype(float)},
        is_differentiable=False,  # its input is rounded to integers, which have no slope
    ),
    Case("Dtype", _dtype, lambda _, __, given: {"output": given["other"]}),
    Case("ToTensor", _to_tensor, _told),
    Case("TensorToList", _on(TensorToList), lambda _, __, given: {"output": given["input"]}, is_differentiable=False),
    Case("ToTuple", _tuple(ToTuple), lambda _, __, given: {"output": given["input"].shape}, is_differentiable=False),
    Case("ToList", _tuple(ToList), lambda _, __, given: {"output": given["input"].shape}, is_differentiable=False),
    Case("Slice", _slice, _sliced),
    Case(
        "Value",
        lambda draw: (Value(draw(st.sampled_from((1, (2, 3))))), {}),
        lambda model, _, __: {"output": model.options["value"]},
    ),
]
