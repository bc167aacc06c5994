"""Blocks of `models/library/operations/statics.py`, compared with NumPy and Python."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from hypothesis import strategies as st

from mithril_nb.models import Cast, Dtype, Indexer, Model, Shape, Slice, ToList, ToTensor, ToTuple, Value
from tests.blocks.case import Case, Draw, Drawn, arrays, axis, filled_shapes, on, shapes


def _sizes(input: np.ndarray, dim: int | tuple[int, ...] | None) -> int | list[int]:
    if isinstance(dim, tuple):
        return [input.shape[axis] for axis in dim]
    return input.size if dim is None else input.shape[dim]


def _cast(draw: Draw) -> Drawn:
    dtype = draw(st.sampled_from(("int32", "bool", "float32", "float16")))
    return Cast(dtype), {"input": np.round(draw(arrays(draw(shapes))))}


def _to_tensor(draw: Draw) -> Drawn:
    value = draw(st.sampled_from((3, 1.5, (1, 2), ((1.0, 2.0), (3.0, 4.0)), (True, False))))
    model = Model()
    model |= Value(value)(output="value")
    model |= ToTensor(draw(st.sampled_from((None, "float32"))))(input="value", output="output")
    return model, {}


def _second_of(block: type[Model]) -> Callable[[Draw], Drawn]:
    def draw_block(draw: Draw) -> Drawn:
        model = Model()
        model |= Shape()(input="input", output="shape")
        model |= Value(7)(output="seven")
        model |= block(2)(input1="seven", input2="shape", output="both")
        model |= Indexer(1)(input="both", output="output")
        return model, {"input": draw(arrays(draw(filled_shapes)))}

    return draw_block


def _slice(draw: Draw) -> Drawn:
    bound = st.none() | st.integers(-4, 4)
    model = Model()
    model |= Slice(draw(bound), draw(bound), draw(st.sampled_from((None, 1, -1, 2))))(output="some")
    model |= Indexer()(input="input", index="some", output="output")
    return model, {"input": draw(arrays(draw(filled_shapes)))}


def _sliced(model: Model, input: np.ndarray) -> np.ndarray:
    options = model.graph.by_name["slice_0"].block.options
    return input[options["start"] : options["stop"] : options["step"]]


def _dtype(draw: Draw) -> Drawn:
    # Its string is not an output of a compiled program: it is the dtype of another array.
    model = Model()
    model |= Dtype()(input="input", output="dtype")
    model |= Cast()(input="other", dtype="dtype", output="output")
    return model, {"input": np.zeros(()), "other": draw(arrays(draw(shapes)))}


SINGLE = st.lists(st.just(1), max_size=3).map(tuple)
CASES = [
    Case("Shape", on("Shape"), np.shape, is_differentiable=False),
    Case("Length", on("Length", filled_shapes), len, is_differentiable=False),
    Case(
        "Size",
        on("Size", filled_shapes, dim=lambda shape: st.none() | axis(shape) | st.tuples(axis(shape), axis(shape))),
        _sizes,
        is_differentiable=False,
    ),
    Case("Item", on("Item", SINGLE), lambda input: input.item()),
    Case(
        "Cast",
        _cast,
        lambda input, dtype: input.astype(dtype).astype(float),
        is_differentiable=False,  # its input is rounded to integers, which have no slope
    ),
    Case("Dtype", _dtype, lambda other: other),
    Case("ToTensor", _to_tensor, lambda model: np.asarray(model.graph.nodes[0].block.options["value"])),
    Case("TensorToList", on("TensorToList"), np.positive, is_differentiable=False),
    *(Case(kind.__name__, _second_of(kind), np.shape, is_differentiable=False) for kind in (ToTuple, ToList)),
    Case("Slice", _slice, _sliced),
    Case("Value", lambda draw: (Value(draw(st.sampled_from((1, (2, 3))))), {}), lambda value: value),
]
