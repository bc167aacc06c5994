"""Models of `models/library/networks/feedforward.py`, compared with hand-written equivalents."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from mithril_nb.models import CNN, Layer, Linear, Model, Residual, Sequential, Tanh
from tests.blocks.case import Arrays, Case, arrays
from tests.blocks.cases.convolution import laid


def _layer(draw: st.DrawFn) -> tuple[Model, Arrays]:
    return Layer(Tanh(), draw(st.integers(1, 4))), {"input": draw(arrays((2, 3)))}


def _sequential(draw: st.DrawFn) -> tuple[Model, Arrays]:
    return Sequential(Linear(4), Tanh(), Linear(2)), {"input": draw(arrays((2, 3)))}


def _sequential_reference(model: Model, params: Arrays, inputs: Arrays) -> Arrays:
    hidden = np.tanh(inputs["input"] @ params["linear_0.weight"] + params["linear_0.bias"])
    return {"output": hidden @ params["linear_1.weight"] + params["linear_1.bias"]}


def _residual(draw: st.DrawFn) -> tuple[Model, Arrays]:
    shortcut = draw(st.sampled_from((None, Linear(3, use_bias=False))))
    return Residual(Sequential(Linear(3), Tanh()), shortcut), {"input": draw(arrays((2, 3)))}


def _residual_reference(model: Model, params: Arrays, inputs: Arrays) -> Arrays:
    x = inputs["input"]
    (weight,) = (array for name, array in params.items() if name.endswith("linear_0.weight") and "sequential" in name)
    (bias,) = (array for name, array in params.items() if name.endswith("bias"))
    around = x @ params["linear_0.weight"] if "linear_0.weight" in params else x
    return {"output": around + np.tanh(x @ weight + bias)}


def _cnn(draw: st.DrawFn) -> tuple[Model, Arrays]:
    return CNN([3], 2), {"input": draw(arrays((2, 1, 4, 5)))}


def _cnn_reference(model: Model, params: Arrays, inputs: Arrays) -> Arrays:
    options = {"stride": (1, 1), "padding": "same"}
    windows, _ = laid(inputs["input"], options, (3, 3), 0.0)
    out = np.einsum("nchwij,ocij->nohw", windows, params["conv2d_0.weight"]) + params["conv2d_0.bias"][:, None, None]
    out = np.maximum(out, 0)[:, :, :, :4].reshape(2, 3, 2, 2, 2, 2).max((3, 5))
    return {"output": out.reshape(2, -1) @ params["linear_0.weight"] + params["linear_0.bias"]}


CASES = [
    Case(
        "Layer",
        _layer,
        lambda _, params, given: {"output": np.tanh(given["input"] @ params["weight"] + params["bias"])},
    ),
    Case("Sequential", _sequential, _sequential_reference),
    Case("Residual", _residual, _residual_reference),
    Case("CNN", _cnn, _cnn_reference),
]
