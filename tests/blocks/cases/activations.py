"""Blocks of `models/activations.py`."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from scipy import special

from mithril_nb.models import Constant, Dropout, Gelu, Model, Relu, Sigmoid, Softmax, Tanh
from tests.blocks.case import Arrays, Case, arrays, filled_shapes, shapes


def _elementwise(block: type[Model]):
    return lambda draw: (block(), {"input": draw(arrays(draw(shapes)))})


def _gelu(draw: st.DrawFn) -> tuple[Model, Arrays]:
    return Gelu(draw(st.booleans())), {"input": draw(arrays(draw(shapes)))}


def _gelu_reference(model: Model, params: Arrays, inputs: Arrays) -> Arrays:
    x = inputs["input"]
    if model.options["approximate"]:
        return {"output": 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))}
    return {"output": x * special.ndtr(x)}


def _softmax(draw: st.DrawFn) -> tuple[Model, Arrays]:
    shape = draw(filled_shapes)
    return Softmax(draw(st.integers(-len(shape), len(shape) - 1))), {"input": draw(arrays(shape))}


def _constant(draw: st.DrawFn) -> tuple[Model, Arrays]:
    return Constant(draw(arrays(draw(shapes)))), {}


def _dropout(draw: st.DrawFn) -> tuple[Model, Arrays]:
    return Dropout(draw(st.sampled_from((0.0, 0.5)))), {"input": draw(arrays(draw(shapes)))}


def _softmax_reference(model: Model, params: Arrays, inputs: Arrays) -> Arrays:
    return {"output": special.softmax(inputs["input"], axis=model.options["axis"])}


CASES = [
    Case("Relu", _elementwise(Relu), lambda _, __, given: {"output": np.maximum(given["input"], 0)}),
    Case("Sigmoid", _elementwise(Sigmoid), lambda _, __, given: {"output": special.expit(given["input"])}),
    Case("Tanh", _elementwise(Tanh), lambda _, __, given: {"output": np.tanh(given["input"])}),
    Case("Gelu", _gelu, _gelu_reference),
    Case("Dropout", _dropout, lambda _, __, given: {"output": given["input"]}),
    Case("Softmax", _softmax, _softmax_reference),
    Case("Constant", _constant, lambda model, _, __: {"output": np.asarray(model.options["value"])}),
]
