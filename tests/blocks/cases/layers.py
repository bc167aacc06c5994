"""Blocks of `models/library/layers/linear.py`; those of images are in `convolution.py`."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from mithril_nb.models import Embedding, Linear, Model
from tests.blocks.case import Arrays, Case, arrays, filled_shapes, shapes


def _linear(draw: st.DrawFn) -> tuple[Model, Arrays]:
    x = draw(arrays(draw(filled_shapes)))
    size = draw(st.sampled_from((None, x.shape[-1])))
    return Linear(draw(st.integers(1, 4)), draw(st.booleans()), size), {"input": x}


def _linear_reference(model: Model, params: Arrays, inputs: Arrays) -> Arrays:
    return {"output": np.tensordot(inputs["input"], params["weight"], 1) + params.get("bias", 0.0)}


def _embedding(draw: st.DrawFn) -> tuple[Model, Arrays]:
    rows, length, shape = draw(st.integers(1, 5)), draw(st.integers(1, 4)), draw(shapes)
    places = np.random.default_rng(draw(st.integers(0, 999))).integers(0, rows, shape)
    if draw(st.booleans()):
        return Embedding(), {"input": places, "weight": draw(arrays((rows, length)))}
    return Embedding(rows, length), {"input": places}


def _embedding_reference(model: Model, params: Arrays, inputs: Arrays) -> Arrays:
    weight = {**inputs, **params}["weight"]
    one_hot = np.equal(inputs["input"][..., None], np.arange(len(weight))).astype("float64")
    return {"output": one_hot @ weight}


CASES = [Case("Linear", _linear, _linear_reference), Case("Embedding", _embedding, _embedding_reference)]
