"""Blocks of `models/library/objectives/losses.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from scipy import special

from mithril_nb.models import (
    KINDS,
    BinaryCrossEntropy,
    CosineSimilarity,
    CrossEntropy,
    FocalLoss,
    InfoNCE,
    Model,
    QuadraticFormRegularizer,
    SoftCrossEntropy,
)
from tests.blocks.case import Arrays, Case, Draw, Drawn, Shape, arrays, axis, few, on, shapes

FORMS = st.sampled_from(("logits", "probs", "log_probs"))


def _pair(draw: Draw, least: float = -3.0, most: float = 3.0) -> Arrays:
    """Draw input and target of one shape; or one of them broadcasts along some axes."""
    shape = draw(shapes)
    other = tuple(draw(st.sampled_from((size, 1))) for size in shape)[draw(st.integers(0, len(shape))) :]
    # Other bounds: otherwise the same seed gives equal numbers, where a distance has no slope.
    pair = [draw(arrays(shape, least, most)), draw(arrays(other, 0.9 * least, 0.8 * most))]
    if draw(st.booleans()):
        pair.reverse()
    return {"input": pair[0], "target": pair[1]}


def _paired(kind: str, reference: Any, *bounds: float, **options: tuple[float, ...]) -> Case:
    def draw_block(draw: Draw) -> Drawn:
        drawn = {name: draw(st.sampled_from(choices)) for name, choices in options.items()}
        return KINDS[kind](**drawn), _pair(draw, *bounds)

    return Case(kind, draw_block, reference)


def _quantile(input: np.ndarray, target: np.ndarray, quantile: float) -> np.ndarray:
    return np.where(target >= input, quantile * (target - input), (1 - quantile) * (input - target))


def _binary(draw: Draw) -> Drawn:
    input_type = draw(st.sampled_from(("logits", "probs")))
    pair = _pair(draw, 0.05, 0.95)
    shape = np.broadcast_shapes(pair["input"].shape, pair["target"].shape)
    weight = draw(st.sampled_from((1.0, 2.5, "auto", *(((0.5,) * shape[-1],) if shape else ()))))
    if input_type == "logits":
        pair["input"] = 6 * pair["input"] - 3
    return BinaryCrossEntropy(input_type, weight, None, draw(st.booleans())), pair


def _binary_entropy(input: np.ndarray, target: np.ndarray, input_type: str, pos_weight: Any) -> np.ndarray:
    p, t = np.broadcast_arrays(special.expit(input) if input_type == "logits" else input, target)
    weight = (1 - t).sum() / t.sum() if pos_weight == "auto" else np.asarray(pos_weight)
    return -(weight * t * np.log(p) + (1 - t) * np.log1p(-p))


def _focal(draw: Draw) -> Drawn:
    block = FocalLoss(draw(st.sampled_from((0.0, 0.5, 2.0))), draw(st.sampled_from((None, 0.25))))
    shape = draw(shapes)
    return block, {"input": draw(arrays(shape)), "target": draw(arrays(shape, 0.0, 1.0))}


def _focal_loss(input: np.ndarray, target: np.ndarray, gamma: float, alpha: float | None) -> np.ndarray:
    p, t = special.expit(input), target
    entropy = -(t * np.log(p) + (1 - t) * np.log1p(-p))
    loss = entropy * (1 - p * t - (1 - p) * (1 - t)) ** gamma
    return loss if alpha is None else loss * (alpha * t + (1 - alpha) * (1 - t))


def _classes(draw: Draw) -> tuple[Shape, int, int]:
    """Draw a shape of samples, the number of classes, and their axis."""
    rest = tuple(draw(st.lists(st.integers(0 if draw(st.booleans()) else 1, 3), min_size=1, max_size=3)))
    at = draw(st.sampled_from((1, -1)))
    return rest, draw(few), at


def _scores(draw: Draw, rest: Shape, count: int, at: int, input_type: str) -> np.ndarray:
    scores = draw(arrays((*rest, count)))
    form = {"logits": lambda x, _: x, "probs": special.softmax, "log_probs": special.log_softmax}[input_type]
    return np.moveaxis(form(scores, -1), -1, at)


def _weights(draw: Draw, count: int) -> Any:
    return draw(st.sampled_from(("", "auto", tuple(0.5 + i for i in range(count)))))


def _categorical(draw: Draw) -> Drawn:
    rest, count, at = _classes(draw)
    input_type = draw(FORMS)
    block = CrossEntropy(
        input_type,
        _weights(draw, count),
        draw(st.booleans()),
        axis=at,
        label_smoothing=draw(st.sampled_from((0.0, 0.1))),
    )
    target = np.random.default_rng(draw(st.integers(0, 99))).integers(0, count, rest)
    return block, {"input": _scores(draw, rest, count, at, input_type), "target": target}


def _soft(draw: Draw, kind: type[Model] = SoftCrossEntropy) -> Drawn:
    rest, count, at = _classes(draw)
    input_type = draw(FORMS)
    more = {"categorical": False} if kind is CrossEntropy else {}
    block = kind(input_type, _weights(draw, count), draw(st.booleans()), axis=at, **more)
    return block, {
        "input": _scores(draw, rest, count, at, input_type),
        "target": _scores(draw, rest, count, at, "probs"),
    }


def _cross_entropy(model: Model, input: np.ndarray, target: np.ndarray) -> np.ndarray:
    options = model.options
    x = np.moveaxis(input, options["axis"], -1)
    count = x.shape[-1]
    logarithm = {"logits": lambda x: special.log_softmax(x, -1), "probs": np.log, "log_probs": np.positive}[
        options["input_type"]
    ](x)
    t = np.eye(count)[target] if options.get("categorical") else np.moveaxis(target, options["axis"], -1)
    weights, smoothing = options["weights"], options["label_smoothing"]
    if isinstance(weights, str):
        counts = t.reshape(-1, count).sum(0)
        balanced = np.divide(counts.sum() / count, counts, out=np.zeros(count), where=counts > 0)
        weights = balanced if weights else np.ones(count)
    if smoothing or not options.get("categorical"):
        t = (1 - smoothing) * t + smoothing / count
    return -(np.asarray(weights) * t * logarithm).sum(-1)


def _cosine(draw: Draw) -> Drawn:
    shape = draw(st.lists(few, min_size=1, max_size=3).map(tuple))
    return CosineSimilarity(draw(axis(shape))), {"left": draw(arrays(shape)), "right": draw(arrays(shape))}


def _unit(x: np.ndarray, axis: int) -> np.ndarray:
    return x / np.linalg.norm(x, axis=axis, keepdims=True)


def _info(draw: Draw) -> Drawn:
    shape = (draw(few), draw(few))
    return InfoNCE(draw(st.sampled_from((0.1, 1.0)))), {"input": draw(arrays(shape)), "target": draw(arrays(shape))}


def _info_loss(input: np.ndarray, target: np.ndarray, temperature: float) -> np.ndarray:
    return -np.diagonal(special.log_softmax(_unit(input, 1) @ _unit(target, 1).T / temperature, -1))


def _quadratic(draw: Draw) -> Drawn:
    count = draw(few)
    shape = draw(st.sampled_from(((count,), (count, 1), (count, 2))))
    return QuadraticFormRegularizer(), {"input": draw(arrays(shape)), "kernel": draw(arrays((count, count)))}


def _form(input: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    x = input.reshape(len(input), -1)
    return np.trace(x.T @ kernel @ x) / 2


CASES = [
    _paired("SquaredError", lambda input, target: (input - target) ** 2),
    _paired("AbsoluteError", lambda input, target: np.abs(input - target)),
    _paired("HuberLoss", lambda input, target, delta: special.huber(delta, input - target), delta=(0.5, 1.0)),
    _paired("LogCosh", lambda input, target: np.logaddexp(input - target, target - input) - np.log(2)),
    _paired("QuantileLoss", _quantile, quantile=(0.1, 0.5)),
    _paired("HingeLoss", lambda input, target: np.maximum(0, 1 - input * target)),
    _paired("QuadHingeLoss", lambda input, target: np.maximum(0, 1 - input * target) ** 2),
    _paired("KLDivergence", lambda input, target: special.rel_entr(target, input), 0.05, 1.0),
    Case("BinaryCrossEntropy", _binary, _binary_entropy),
    Case("FocalLoss", _focal, _focal_loss),
    Case("CrossEntropy", _categorical, _cross_entropy),
    Case("CrossEntropy, probabilities", lambda draw: _soft(draw, CrossEntropy), _cross_entropy),
    Case("SoftCrossEntropy", _soft, _cross_entropy),
    Case("CosineSimilarity", _cosine, lambda left, right, axis: (_unit(left, axis) * _unit(right, axis)).sum(axis)),
    Case("InfoNCE", _info, _info_loss),
    Case("L1", on("L1"), lambda input: np.abs(input).sum()),
    Case("L2", on("L2"), lambda input: np.square(input).sum() / 2),
    Case("QuadraticFormRegularizer", _quadratic, _form),
]
