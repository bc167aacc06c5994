"""Blocks of `models/metrics.py`."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from mithril_nb.models import AUCCore, ClassCounts, ClassDifference, ConfusionCounts, Model, TopKHits
from tests.blocks.case import Arrays, Case, arrays


def _numbers(draw: st.DrawFn, count: int, shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(draw(st.integers(0, 999))).integers(0, count, shape)


def _pair(draw: st.DrawFn, count: int) -> Arrays:
    shape = tuple(draw(st.lists(st.integers(0, 5), min_size=0, max_size=2)))
    return {"pred": _numbers(draw, count, shape), "label": _numbers(draw, count, shape)}


def _difference(draw: st.DrawFn) -> tuple[Model, Arrays]:
    return ClassDifference(), _pair(draw, 4)


def _counted(kind: type[Model]):
    def draw_it(draw: st.DrawFn) -> tuple[Model, Arrays]:
        count = draw(st.integers(1, 5))
        return kind(count), _pair(draw, count)

    return draw_it


def _confusion(model: Model, given: Arrays) -> np.ndarray:
    matrix = np.zeros((model.options["n_classes"],) * 2)
    np.add.at(matrix, (given["label"], given["pred"]), 1)
    return matrix


def _counts(model: Model, params: Arrays, given: Arrays) -> Arrays:
    matrix = _confusion(model, given)
    hits = np.diagonal(matrix)
    return {"true_positive": hits, "false_positive": matrix.sum(0) - hits, "false_negative": matrix.sum(1) - hits}


def _top(draw: st.DrawFn) -> tuple[Model, Arrays]:
    shape, count = tuple(draw(st.lists(st.integers(0, 4), min_size=0, max_size=2))), draw(st.integers(1, 5))
    scores = draw(arrays((*shape, count)))
    scores = np.round(scores) if draw(st.booleans()) else scores  # with ties
    return TopKHits(draw(st.integers(1, 6))), {"pred": scores, "label": _numbers(draw, count, shape)}


def _top_expected(model: Model, params: Arrays, given: Arrays) -> Arrays:
    best = np.argsort(-given["pred"], -1, kind="stable")[..., : model.options["k"]]
    return {"output": (best == given["label"][..., None]).any(-1)}


def _auc(draw: st.DrawFn) -> tuple[Model, Arrays]:
    shape = (draw(st.integers(1, 3)), draw(st.integers(2, 8)))
    scores = draw(arrays(shape))
    scores = np.round(scores) if draw(st.booleans()) else scores
    label = _numbers(draw, 2, shape)
    label[:, 0], label[:, -1] = 0, 1
    return AUCCore(), {"input": scores, "label": label}


def _auc_expected(model: Model, params: Arrays, given: Arrays) -> Arrays:
    """Rates at each line, straight from their definition: samples at or above the score of each sample."""
    scores, label = given["input"], given["label"] == 1
    lines = np.concatenate([np.full((len(scores), 1), np.inf), -np.sort(-scores, -1)], -1)
    above = scores[:, None, :] >= lines[:, :, None]
    return {
        "output": np.stack([(above & one[:, None]).sum(-1) / one.sum(-1, keepdims=True) for one in (~label, label)])
    }


CASES = [
    Case("ClassDifference", _difference, lambda _, __, given: {"output": given["pred"] - given["label"]}, False),
    Case("ClassCounts", _counted(ClassCounts), _counts, False),
    Case(
        "ConfusionCounts",
        _counted(ConfusionCounts),
        lambda model, _, given: {"output": _confusion(model, given)},
        False,
    ),
    Case("TopKHits", _top, _top_expected, False),
    # Rates are float32 whatever the model computes in.
    Case("AUCCore", _auc, _auc_expected, False, tolerance64=1e-6),
]
