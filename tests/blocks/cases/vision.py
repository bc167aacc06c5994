"""Models of `models/library/networks/feedforward.py`, compared with hand-written equivalents."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from mithril_nb.models import CNN, Layer, Linear, Model, Residual, Sequential, Tanh
from tests.blocks.case import Arrays, Case, Draw, Drawn, arrays, few
from tests.blocks.cases.convolution import laid


def _on_rows(model: Model, draw: Draw) -> Drawn:
    return model, {"input": draw(arrays((2, 3)))}


def _two_layers(params: Arrays, input: np.ndarray) -> np.ndarray:
    hidden = np.tanh(input @ params["linear_0.weight"] + params["linear_0.bias"])
    return hidden @ params["linear_1.weight"] + params["linear_1.bias"]


def _residual(draw: Draw) -> Drawn:
    shortcut = draw(st.sampled_from((None, Linear(3, use_bias=False))))
    return _on_rows(Residual(Sequential(Linear(3), Tanh()), shortcut), draw)


def _with_shortcut(params: Arrays, input: np.ndarray) -> np.ndarray:
    (weight,) = (array for name, array in params.items() if name.endswith("linear_0.weight") and "sequential" in name)
    (bias,) = (array for name, array in params.items() if name.endswith("bias"))
    around = input @ params["linear_0.weight"] if "linear_0.weight" in params else input
    return around + np.tanh(input @ weight + bias)


def _classified(params: Arrays, input: np.ndarray) -> np.ndarray:
    windows, _ = laid(input, {"stride": (1, 1), "padding": "same"}, (3, 3), 0.0)
    out = np.einsum("nchwij,ocij->nohw", windows, params["conv2d_0.weight"]) + params["conv2d_0.bias"][:, None, None]
    out = np.maximum(out, 0)[:, :, :, :4].reshape(2, 3, 2, 2, 2, 2).max((3, 5))
    return out.reshape(2, -1) @ params["linear_0.weight"] + params["linear_0.bias"]


CASES = [
    Case(
        "Layer",
        lambda draw: _on_rows(Layer(Tanh(), draw(few)), draw),
        lambda input, weight, bias: np.tanh(input @ weight + bias),
    ),
    Case("Sequential", lambda draw: _on_rows(Sequential(Linear(4), Tanh(), Linear(2)), draw), _two_layers),
    Case("Residual", _residual, _with_shortcut),
    Case("CNN", lambda draw: (CNN([3], 2), {"input": draw(arrays((2, 1, 4, 5)))}), _classified),
]
