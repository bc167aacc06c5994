"""Blocks of `models/library/objectives/metrics.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st
from sklearn import metrics

from mithril_nb.models import AUC, KINDS, Accuracy, AUCCore, ConfusionMatrix, Model, TopKAccuracy, TopKHits
from tests.blocks.case import Arrays, Case, Draw, Drawn, Shape, arrays


def _numbers(draw: Draw, count: int, shape: Shape) -> np.ndarray:
    return np.random.default_rng(draw(st.integers(0, 999))).integers(0, count, shape)


def _counted(kind: str, *count: int) -> Callable[[Draw], Drawn]:
    def draw_block(draw: Draw) -> Drawn:
        (classes,) = count or (draw(st.integers(1, 5)),)
        shape = tuple(draw(st.lists(st.integers(0, 5), min_size=0, max_size=2)))
        given = {"pred": _numbers(draw, classes, shape), "label": _numbers(draw, classes, shape)}
        return KINDS[kind](*() if count else (classes,)), given

    return draw_block


def _confusion(pred: np.ndarray, label: np.ndarray, n_classes: int) -> np.ndarray:
    matrix = np.zeros((n_classes,) * 2)
    np.add.at(matrix, (label, pred), 1)
    return matrix


def _counts(pred: np.ndarray, label: np.ndarray, n_classes: int) -> dict[str, Any]:
    matrix = _confusion(pred, label, n_classes)
    hits = np.diagonal(matrix)
    return {"true_positive": hits, "false_positive": matrix.sum(0) - hits, "false_negative": matrix.sum(1) - hits}


def _with_ties(draw: Draw, scores: np.ndarray) -> np.ndarray:
    return np.round(scores) if draw(st.booleans()) else scores


def _top(draw: Draw) -> Drawn:
    shape, count = tuple(draw(st.lists(st.integers(0, 4), min_size=0, max_size=2))), draw(st.integers(1, 5))
    scores = _with_ties(draw, draw(arrays((*shape, count))))
    return TopKHits(draw(st.integers(1, 6))), {"pred": scores, "label": _numbers(draw, count, shape)}


def _hits(pred: np.ndarray, label: np.ndarray, k: int) -> np.ndarray:
    return (np.argsort(-pred, -1, kind="stable")[..., :k] == label[..., None]).any(-1)


def _auc(draw: Draw) -> Drawn:
    shape = (draw(st.integers(1, 3)), draw(st.integers(2, 8)))
    scores = _with_ties(draw, draw(arrays(shape)))
    label = _numbers(draw, 2, shape)
    label[:, 0], label[:, -1] = 0, 1
    return AUCCore(), {"input": scores, "label": label}


def _rates(input: np.ndarray, label: np.ndarray) -> np.ndarray:
    """Return the rates at each threshold, by their definition: samples at or above the score of each sample."""
    lines = np.concatenate([np.full((len(input), 1), np.inf), -np.sort(-input, -1)], -1)
    above = input[:, None, :] >= lines[:, :, None]
    return np.stack(
        [(above & is_one[:, None]).sum(-1) / is_one.sum(-1, keepdims=True) for is_one in (label != 1, label == 1)]
    )


def _classified(draw: Draw, count: int) -> tuple[dict[str, bool], Arrays]:
    """Draw predictions and labels in one of their forms."""
    samples = draw(st.integers(1, 6))
    given = {"pred": _numbers(draw, count, (samples,)), "label": _numbers(draw, count, (samples,))}
    flags = {"is_pred_one_hot": draw(st.booleans()), "is_label_one_hot": draw(st.booleans())}
    for port in given:
        if flags[f"is_{port}_one_hot"]:
            given[port] = np.eye(count)[given[port]] * 0.9
    return flags, given


def _plain(model: Model, given: Arrays) -> list[np.ndarray]:
    """Return predictions and labels as class indices."""
    if model.options.get("is_binary"):
        threshold = model.options["threshold"]
        return [(given["pred"] > (0.5 if threshold is None else threshold)).astype(int), given["label"]]
    return [given[port] if given[port].ndim == 1 else given[port].argmax(-1) for port in ("pred", "label")]


def _binary(draw: Draw) -> Arrays:
    samples = draw(st.integers(1, 6))
    return {"pred": draw(arrays((samples,), 0.0, 1.0)), "label": _numbers(draw, 2, (samples,))}


def _accuracy(draw: Draw) -> Drawn:
    if draw(st.booleans()):
        return Accuracy(draw(st.sampled_from((None, 0.3))), True), _binary(draw)
    flags, given = _classified(draw, 3)
    return Accuracy(**flags), given


def _accuracy_score(model: Model, inputs: Arrays) -> dict[str, Any]:
    pred, label = _plain(model, inputs)
    parts = {"pred_formatted": pred, "label_formatted": label, "metric_out": pred - label}
    return {**parts, "output": metrics.accuracy_score(label, pred)}


def _quotient(kind: str, score: Callable[..., float]) -> Case:
    def draw_block(draw: Draw) -> Drawn:
        if draw(st.booleans()):
            return KINDS[kind](threshold=draw(st.sampled_from((None, 0.3))), is_binary=True), _binary(draw)
        flags, given = _classified(draw, 4)
        average = draw(st.sampled_from(("micro", "macro", "weighted")))
        return KINDS[kind](average, None if average == "micro" else 4, **flags), given

    def expected(model: Model, inputs: Arrays) -> dict[str, Any]:
        pred, label = _plain(model, inputs)
        average = "binary" if model.options["is_binary"] else model.options["average"]
        seen = len(np.union1d(pred, label))
        return {"output": score(label, pred, average=average, zero_division=0), "n_classes": seen}

    return Case(kind, draw_block, expected, False, tolerance64=1e-6)


def _area(draw: Draw) -> Drawn:
    count = draw(st.sampled_from((1, 3)))
    if count == 1:
        label = np.concatenate([[0, 1], _numbers(draw, 2, (4,))])
        return AUC(1), {"pred": np.round(draw(arrays((6,))), draw(st.sampled_from((0, 3)))), "label": label}
    label = np.concatenate([[0, 1, 2], _numbers(draw, 3, (draw(st.integers(0, 4)),))])
    scores = np.round(draw(arrays((len(label), 3))), draw(st.sampled_from((0, 3))))
    one_hot = draw(st.booleans())
    return AUC(3, one_hot), {"pred": scores, "label": np.eye(3)[label] if one_hot else label}


def _areas(pred: np.ndarray, label: np.ndarray) -> dict[str, Any]:
    """Return the area by counting pairs."""
    label = label.argmax(-1) if label.ndim > 1 else label
    columns = pred.T if pred.ndim > 1 else [pred]
    areas = []
    for number, scores in enumerate(columns):
        is_one = label == (number if len(columns) > 1 else 1)
        pairs = [(a, b) for a in scores[is_one] for b in scores[~is_one]]
        areas.append(np.mean([(a > b) + (a == b) / 2 for a, b in pairs]))
    return {"output": np.array(areas) if len(areas) > 1 else areas[0], "label_argmax": label}


def _top_accuracy(draw: Draw) -> Drawn:
    count, samples = draw(st.integers(3, 5)), draw(st.integers(1, 5))
    given = {"pred": draw(arrays((samples, count))), "label": _numbers(draw, count, (samples,))}
    return TopKAccuracy(draw(st.integers(1, 2))), given


def _matrix(draw: Draw) -> Drawn:
    flags, given = _classified(draw, 3)
    return ConfusionMatrix(3, **flags), given


def _targets(kind: str) -> Callable[[Draw], Drawn]:
    def draw_block(draw: Draw) -> Drawn:
        shape = (draw(st.integers(2, 5)), *draw(st.sampled_from(((), (2,)))))
        return KINDS[kind](), {"input": draw(arrays(shape)), "target": draw(arrays(shape, -2.0, 3.5))}

    return draw_block


CASES = [
    Case("ClassDifference", _counted("ClassDifference", 4), np.subtract, False),
    Case("ClassCounts", _counted("ClassCounts"), _counts, False),
    Case("ConfusionCounts", _counted("ConfusionCounts"), _confusion, False),
    Case("ClassesSeen", _counted("ClassesSeen", 4), lambda pred, label: len(np.union1d(pred, label)), False),
    Case("TopKHits", _top, _hits, False),
    # Rates are float32 for any dtype of the model.
    Case("AUCCore", _auc, _rates, False, tolerance64=1e-6),
    # These are float32 too.
    Case("Accuracy", _accuracy, _accuracy_score, False, tolerance64=1e-6),
    _quotient("Precision", metrics.precision_score),
    _quotient("Recall", metrics.recall_score),
    _quotient("F1", metrics.f1_score),
    Case("AUC", _area, _areas, False, tolerance64=1e-6),
    Case(
        "TopKAccuracy",
        _top_accuracy,
        lambda pred, label, k: metrics.top_k_accuracy_score(label, pred, k=k, labels=range(pred.shape[-1])),
        False,
        tolerance64=1e-6,
    ),
    Case(
        "ConfusionMatrix",
        _matrix,
        lambda model, inputs: metrics.confusion_matrix(*_plain(model, inputs)[::-1], labels=range(3)),
        False,
    ),
    Case("MeanSquaredError", _targets("MeanSquaredError"), metrics.mean_squared_error),
    Case("R2", _targets("R2"), lambda input, target: metrics.r2_score(target, input)),
]
