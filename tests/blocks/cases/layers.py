"""Blocks of `models/library/layers/linear.py`; those of images are in `convolution.py`."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from mithril_nb.models import Embedding, Linear
from tests.blocks.case import Arrays, Case, Draw, Drawn, arrays, few, filled_shapes, shapes


def _linear(draw: Draw) -> Drawn:
    x = draw(arrays(draw(filled_shapes)))
    size = draw(st.sampled_from((None, x.shape[-1])))
    return Linear(draw(few), draw(st.booleans()), size), {"input": x}


def _mapped(params: Arrays, input: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return np.tensordot(input, weight, 1) + params.get("bias", 0.0)


def _embedding(draw: Draw) -> Drawn:
    rows, length, shape = draw(st.integers(1, 5)), draw(few), draw(shapes)
    indices = np.random.default_rng(draw(st.integers(0, 999))).integers(0, rows, shape)
    if draw(st.booleans()):
        return Embedding(), {"input": indices, "weight": draw(arrays((rows, length)))}
    return Embedding(rows, length), {"input": indices}


def _picked(input: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return np.equal(input[..., None], np.arange(len(weight))).astype("float64") @ weight


CASES = [Case("Linear", _linear, _mapped), Case("Embedding", _embedding, _picked)]
