"""Blocks of `models/library/operations/activations.py`."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from scipy import special

from mithril_nb.models import KINDS, Constant, Dropout, Gelu, Glu, Model
from tests.blocks.case import Arrays, Case, arrays, filled_shapes, shapes


def _gelu(draw: st.DrawFn) -> tuple[Model, Arrays]:
    return Gelu(draw(st.booleans())), {"input": draw(arrays(draw(shapes)))}


def _gelu_reference(model: Model, params: Arrays, inputs: Arrays) -> Arrays:
    x = inputs["input"]
    if model.options["approximate"]:
        return {"output": 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))}
    return {"output": x * special.ndtr(x)}


def _along_axis(kind: str):
    def drawn(draw: st.DrawFn) -> tuple[Model, Arrays]:
        shape = draw(filled_shapes)
        return KINDS[kind](draw(st.integers(-len(shape), len(shape) - 1))), {"input": draw(arrays(shape))}

    return drawn


def _with_number(kind: str):
    return lambda draw: (KINDS[kind](draw(st.sampled_from((0.1, 0.5, 1.75)))), {"input": draw(arrays(draw(shapes)))})


def _glu(draw: st.DrawFn) -> tuple[Model, Arrays]:
    shape = list(draw(filled_shapes))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    shape[axis] *= 2
    return Glu(draw(st.sampled_from(list(_GATES))), axis), {"input": draw(arrays(tuple(shape)))}


_GATES = {
    "sigmoid": special.expit,
    "silu": lambda x: x * special.expit(x),
    "gelu": lambda x: x * special.ndtr(x),
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
}


def _glu_reference(model: Model, params: Arrays, inputs: Arrays) -> Arrays:
    value, gate = np.split(inputs["input"], 2, model.options["axis"])
    return {"output": value * _GATES[model.options["activation"]](gate)}


def _of_number(function):
    """Return a reference from a function of the input and the block's only attribute."""
    return lambda model, _, given: {"output": function(given["input"], *model.options.values())}


def _plain(kind: str, function) -> Case:
    return Case(
        kind,
        lambda draw: (KINDS[kind](), {"input": draw(arrays(draw(shapes)))}),
        lambda _, __, given: {"output": function(given["input"])},
    )


def _constant(draw: st.DrawFn) -> tuple[Model, Arrays]:
    return Constant(draw(arrays(draw(shapes)))), {}


def _dropout(draw: st.DrawFn) -> tuple[Model, Arrays]:
    return Dropout(draw(st.sampled_from((0.0, 0.5)))), {"input": draw(arrays(draw(shapes)))}


def _softmax_reference(model: Model, params: Arrays, inputs: Arrays) -> Arrays:
    return {"output": special.softmax(inputs["input"], axis=model.options["axis"])}


CASES = [
    _plain("Relu", lambda x: np.maximum(x, 0)),
    _plain("Sigmoid", special.expit),
    _plain("Tanh", np.tanh),
    Case("Gelu", _gelu, _gelu_reference),
    Case("Dropout", _dropout, lambda _, __, given: {"output": given["input"]}),
    Case("Softmax", _along_axis("Softmax"), _softmax_reference),
    Case(
        "LogSoftmax",
        _along_axis("LogSoftmax"),
        lambda model, _, given: {"output": special.log_softmax(given["input"], axis=model.options["axis"])},
    ),
    Case("Glu", _glu, _glu_reference),
    Case("LeakyRelu", _with_number("LeakyRelu"), _of_number(lambda x, slope: np.where(x > 0, x, slope * x))),
    Case("Elu", _with_number("Elu"), _of_number(lambda x, alpha: np.where(x > 0, x, alpha * np.expm1(x)))),
    Case("Celu", _with_number("Celu"), _of_number(lambda x, alpha: np.where(x > 0, x, alpha * np.expm1(x / alpha)))),
    _plain("Relu6", lambda x: np.clip(x, 0, 6)),
    _plain("Softplus", lambda x: np.logaddexp(x, 0)),
    _plain("SiLU", lambda x: x * special.expit(x)),
    _plain("Mish", lambda x: x * np.tanh(np.logaddexp(x, 0))),
    # The paper's two constants, in full precision.
    _plain("Selu", lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x))),
    _plain("HardSigmoid", lambda x: np.clip(x + 3, 0, 6) / 6),
    _plain("HardTanh", lambda x: np.clip(x, -1, 1)),
    _plain("HardSwish", lambda x: x * np.clip(x + 3, 0, 6) / 6),
    _plain("LogSigmoid", special.log_expit),
    _plain("Softsign", lambda x: x / (1 + np.abs(x))),
    Case("Constant", _constant, lambda model, _, __: {"output": np.asarray(model.options["value"])}),
]
