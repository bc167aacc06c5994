"""Blocks of `models/library/objectives/metrics.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st
from sklearn import metrics

from mithril_nb.models import (
    AUC,
    KINDS,
    Accuracy,
    AUCCore,
    ClassDifference,
    ClassesSeen,
    ConfusionMatrix,
    Model,
    TopKAccuracy,
    TopKHits,
)
from tests.blocks.case import Arrays, Case, arrays


def _numbers(draw: st.DrawFn, count: int, shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(draw(st.integers(0, 999))).integers(0, count, shape)


def _pair(draw: st.DrawFn, count: int) -> Arrays:
    shape = tuple(draw(st.lists(st.integers(0, 5), min_size=0, max_size=2)))
    return {"pred": _numbers(draw, count, shape), "label": _numbers(draw, count, shape)}


def _difference(draw: st.DrawFn) -> tuple[Model, Arrays]:
    return ClassDifference(), _pair(draw, 4)


def _counted(kind: str):
    def draw_it(draw: st.DrawFn) -> tuple[Model, Arrays]:
        count = draw(st.integers(1, 5))
        return KINDS[kind](count), _pair(draw, count)

    return draw_it


def _confusion(model: Model, given: Arrays) -> np.ndarray:
    matrix = np.zeros((model.options["n_classes"],) * 2)
    np.add.at(matrix, (given["label"], given["pred"]), 1)
    return matrix


def _counts(model: Model, params: Arrays, given: Arrays) -> dict[str, Any]:
    matrix = _confusion(model, given)
    hits = np.diagonal(matrix)
    return {"true_positive": hits, "false_positive": matrix.sum(0) - hits, "false_negative": matrix.sum(1) - hits}


def _top(draw: st.DrawFn) -> tuple[Model, Arrays]:
    shape, count = tuple(draw(st.lists(st.integers(0, 4), min_size=0, max_size=2))), draw(st.integers(1, 5))
    scores = draw(arrays((*shape, count)))
    scores = np.round(scores) if draw(st.booleans()) else scores  # with ties
    return TopKHits(draw(st.integers(1, 6))), {"pred": scores, "label": _numbers(draw, count, shape)}


def _top_expected(model: Model, params: Arrays, given: Arrays) -> dict[str, Any]:
    best = np.argsort(-given["pred"], -1, kind="stable")[..., : model.options["k"]]
    return {"output": (best == given["label"][..., None]).any(-1)}


def _auc(draw: st.DrawFn) -> tuple[Model, Arrays]:
    shape = (draw(st.integers(1, 3)), draw(st.integers(2, 8)))
    scores = draw(arrays(shape))
    scores = np.round(scores) if draw(st.booleans()) else scores
    label = _numbers(draw, 2, shape)
    label[:, 0], label[:, -1] = 0, 1
    return AUCCore(), {"input": scores, "label": label}


def _auc_expected(model: Model, params: Arrays, given: Arrays) -> dict[str, Any]:
    """Return the rates at each threshold, by their definition: samples at or above the score of each sample."""
    scores, label = given["input"], given["label"] == 1
    lines = np.concatenate([np.full((len(scores), 1), np.inf), -np.sort(-scores, -1)], -1)
    above = scores[:, None, :] >= lines[:, :, None]
    return {
        "output": np.stack([(above & one[:, None]).sum(-1) / one.sum(-1, keepdims=True) for one in (~label, label)])
    }


def _classified(draw: st.DrawFn, count: int) -> tuple[dict[str, bool], Arrays]:
    """Draw predictions and labels in one of their forms."""
    samples = draw(st.integers(1, 6))
    pred, label = _numbers(draw, count, (samples,)), _numbers(draw, count, (samples,))
    flags = {"is_pred_one_hot": draw(st.booleans()), "is_label_one_hot": draw(st.booleans())}
    given = {"pred": pred, "label": label}
    for port, flag in (("pred", "is_pred_one_hot"), ("label", "is_label_one_hot")):
        if flags[flag]:
            given[port] = np.eye(count)[given[port]] * 0.9
    return flags, given


def _plain(model: Model, given: Arrays) -> tuple[np.ndarray, np.ndarray]:
    """Return predictions and labels as class indices."""
    if model.options.get("is_binary"):
        threshold = model.options["threshold"]
        return (given["pred"] > (0.5 if threshold is None else threshold)).astype(int), given["label"]
    return tuple(one if one.ndim == 1 else one.argmax(-1) for one in (given["pred"], given["label"]))  # pyright: ignore


def _binary(draw: st.DrawFn) -> Arrays:
    samples = draw(st.integers(1, 6))
    return {"pred": draw(arrays((samples,), 0.0, 1.0)), "label": _numbers(draw, 2, (samples,))}


def _accuracy(draw: st.DrawFn) -> tuple[Model, Arrays]:
    if draw(st.booleans()):
        return Accuracy(draw(st.sampled_from((None, 0.3))), True), _binary(draw)
    flags, given = _classified(draw, 3)
    return Accuracy(**flags), given


def _accuracy_expected(model: Model, params: Arrays, given: Arrays) -> dict[str, Any]:
    pred, label = _plain(model, given)
    found = {"pred_formatted": pred, "label_formatted": label, "metric_out": pred - label}
    return {**found, "output": metrics.accuracy_score(label, pred)}


def _quotient(kind: str):
    def draw_it(draw: st.DrawFn) -> tuple[Model, Arrays]:
        if draw(st.booleans()):
            return KINDS[kind](threshold=draw(st.sampled_from((None, 0.3))), is_binary=True), _binary(draw)
        flags, given = _classified(draw, 4)
        average = draw(st.sampled_from(("micro", "macro", "weighted")))
        return KINDS[kind](average, None if average == "micro" else 4, **flags), given

    return draw_it


def _quotient_expected(score: Callable[..., float]):
    def expected(model: Model, params: Arrays, given: Arrays) -> dict[str, Any]:
        pred, label = _plain(model, given)
        average = "binary" if model.options["is_binary"] else model.options["average"]
        seen = len(np.union1d(pred, label))
        return {"output": score(label, pred, average=average, zero_division=0), "n_classes": seen}

    return expected


def _area(draw: st.DrawFn) -> tuple[Model, Arrays]:
    count = draw(st.sampled_from((1, 3)))
    if count == 1:
        label = np.concatenate([[0, 1], _numbers(draw, 2, (4,))])
        return AUC(1), {"pred": np.round(draw(arrays((6,))), draw(st.sampled_from((0, 3)))), "label": label}
    label = np.concatenate([[0, 1, 2], _numbers(draw, 3, (draw(st.integers(0, 4)),))])
    scores = np.round(draw(arrays((len(label), 3))), draw(st.sampled_from((0, 3))))
    one_hot = draw(st.booleans())
    return AUC(3, one_hot), {"pred": scores, "label": np.eye(3)[label] if one_hot else label}


def _area_expected(model: Model, params: Arrays, given: Arrays) -> dict[str, Any]:
    """Return the area by counting pairs."""
    label = given["label"].argmax(-1) if given["label"].ndim > 1 else given["label"]
    columns = given["pred"].T if given["pred"].ndim > 1 else [given["pred"]]
    areas = []
    for number, scores in enumerate(columns):
        is_one = label == (number if len(columns) > 1 else 1)
        pairs = [(a, b) for a in scores[is_one] for b in scores[~is_one]]
        areas.append(np.mean([(a > b) + (a == b) / 2 for a, b in pairs]))
    return {"output": np.array(areas) if len(areas) > 1 else areas[0], "label_argmax": label}


def _top_accuracy(draw: st.DrawFn) -> tuple[Model, Arrays]:
    count, samples = draw(st.integers(3, 5)), draw(st.integers(1, 5))
    given = {"pred": draw(arrays((samples, count))), "label": _numbers(draw, count, (samples,))}
    return TopKAccuracy(draw(st.integers(1, 2))), given


def _top_accuracy_expected(model: Model, params: Arrays, given: Arrays) -> dict[str, Any]:
    count = given["pred"].shape[-1]
    found = metrics.top_k_accuracy_score(given["label"], given["pred"], k=model.options["k"], labels=range(count))
    return {"output": found}


def _matrix(draw: st.DrawFn) -> tuple[Model, Arrays]:
    flags, given = _classified(draw, 3)
    return ConfusionMatrix(3, **flags), given


def _matrix_expected(model: Model, params: Arrays, given: Arrays) -> dict[str, Any]:
    pred, label = _plain(model, given)
    return {"output": metrics.confusion_matrix(label, pred, labels=range(3))}


def _targets(kind: str):
    def draw_it(draw: st.DrawFn) -> tuple[Model, Arrays]:
        shape = (draw(st.integers(2, 5)), *draw(st.sampled_from(((), (2,)))))
        return KINDS[kind](), {"input": draw(arrays(shape)), "target": draw(arrays(shape, -2.0, 3.5))}

    return draw_it


CASES = [
    Case("ClassDifference", _difference, lambda _, __, given: {"output": given["pred"] - given["label"]}, False),
    Case("ClassCounts", _counted("ClassCounts"), _counts, False),
    Case(
        "ConfusionCounts",
        _counted("ConfusionCounts"),
        lambda model, _, given: {"output": _confusion(model, given)},
        False,
    ),
    Case(
        "ClassesSeen",
        lambda draw: (ClassesSeen(), _pair(draw, 4)),
        lambda _, __, given: {"output": len(np.union1d(given["pred"], given["label"]))},
        False,
    ),
    Case("TopKHits", _top, _top_expected, False),
    # Rates are float32 for any dtype of the model.
    Case("AUCCore", _auc, _auc_expected, False, tolerance64=1e-6),
    # These are float32 too.
    Case("Accuracy", _accuracy, _accuracy_expected, False, tolerance64=1e-6),
    Case("Precision", _quotient("Precision"), _quotient_expected(metrics.precision_score), False, tolerance64=1e-6),
    Case("Recall", _quotient("Recall"), _quotient_expected(metrics.recall_score), False, tolerance64=1e-6),
    Case("F1", _quotient("F1"), _quotient_expected(metrics.f1_score), False, tolerance64=1e-6),
    Case("AUC", _area, _area_expected, False, tolerance64=1e-6),
    Case("TopKAccuracy", _top_accuracy, _top_accuracy_expected, False, tolerance64=1e-6),
    Case("ConfusionMatrix", _matrix, _matrix_expected, False),
    Case(
        "MeanSquaredError",
        _targets("MeanSquaredError"),
        lambda _, __, given: {"output": metrics.mean_squared_error(given["target"], given["input"])},
    ),
    Case("R2", _targets("R2"), lambda _, __, given: {"output": metrics.r2_score(given["target"], given["input"])}),
]
