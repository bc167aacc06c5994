"""Blocks of `models/library/objectives/losses.py`."""

from __future__ import annotations

from collections.abc import Callable
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
    HuberLoss,
    InfoNCE,
    KLDivergence,
    Model,
    QuadraticFormRegularizer,
    QuantileLoss,
    SoftCrossEntropy,
)
from tests.blocks.case import Arrays, Case, arrays, shapes


def _pair(draw: st.DrawFn, least: float = -3.0, most: float = 3.0) -> Arrays:
    """Draw input and target of one shape; or one of them broadcasts along some axes."""
    shape = draw(shapes)
    other = tuple(draw(st.sampled_from((size, 1))) for size in shape)[draw(st.integers(0, len(shape))) :]
    # Other bounds: otherwise the same seed gives equal numbers, where a distance has no slope.
    pair = [draw(arrays(shape, least, most)), draw(arrays(other, 0.9 * least, 0.8 * most))]
    if draw(st.booleans()):
        pair.reverse()
    return {"input": pair[0], "target": pair[1]}


def _drawn(make: Callable[[st.DrawFn], Model], least: float = -3.0, most: float = 3.0):
    return lambda draw: (make(draw), _pair(draw, least, most))


def _paired(kind: str):
    return _drawn(lambda draw: KINDS[kind]())


def _expected(function: Callable[[Any, Any, Any], Any]):
    return lambda model, _, given: {"output": function(model.options, given["input"], given["target"])}


def _quantile(options: Any, x: np.ndarray, t: np.ndarray) -> np.ndarray:
    q = options["quantile"]
    return np.where(t >= x, q * (t - x), (1 - q) * (x - t))


def _huber(options: Any, x: np.ndarray, t: np.ndarray) -> np.ndarray:
    return special.huber(options["delta"], x - t)


def _binary(draw: st.DrawFn) -> tuple[Model, Arrays]:
    input_type = draw(st.sampled_from(("logits", "probs")))
    pair = _pair(draw, 0.05, 0.95)
    shape = np.broadcast_shapes(pair["input"].shape, pair["target"].shape)
    weight = draw(st.sampled_from((1.0, 2.5, "auto", *(((0.5,) * shape[-1],) if shape else ()))))
    if input_type == "logits":
        pair["input"] = 6 * pair["input"] - 3
    return BinaryCrossEntropy(input_type, weight, None, draw(st.booleans())), pair


def _binary_expected(options: Any, x: np.ndarray, t: np.ndarray) -> np.ndarray:
    p = special.expit(x) if options["input_type"] == "logits" else x
    weight = options["pos_weight"]
    p, t = np.broadcast_arrays(p, t)
    weight = (1 - t).sum() / t.sum() if weight == "auto" else np.asarray(weight)
    return -(weight * t * np.log(p) + (1 - t) * np.log1p(-p))


def _focal(draw: st.DrawFn) -> tuple[Model, Arrays]:
    block = FocalLoss(draw(st.sampled_from((0.0, 0.5, 2.0))), draw(st.sampled_from((None, 0.25))))
    shape = draw(shapes)
    return block, {"input": draw(arrays(shape)), "target": draw(arrays(shape, 0.0, 1.0))}


def _focal_expected(options: Any, x: np.ndarray, t: np.ndarray) -> np.ndarray:
    p = special.expit(x)
    entropy = -(t * np.log(p) + (1 - t) * np.log1p(-p))
    loss = entropy * (1 - p * t - (1 - p) * (1 - t)) ** options["gamma"]
    return loss if options["alpha"] is None else loss * (options["alpha"] * t + (1 - options["alpha"]) * (1 - t))


def _classes(draw: st.DrawFn) -> tuple[tuple[int, ...], int, int]:
    """Draw a shape of samples, the number of classes, and their axis."""
    rest = tuple(draw(st.lists(st.integers(0 if draw(st.booleans()) else 1, 3), min_size=1, max_size=3)))
    axis = draw(st.sampled_from((1, -1)))
    return rest, draw(st.integers(1, 4)), axis


def _scores(draw: st.DrawFn, rest: tuple[int, ...], count: int, axis: int, input_type: str) -> np.ndarray:
    scores = draw(arrays((*rest, count)))
    given = {"logits": lambda x, _: x, "probs": special.softmax, "log_probs": special.log_softmax}[input_type]
    return np.moveaxis(given(scores, -1), -1, axis)


def _weights(draw: st.DrawFn, count: int) -> Any:
    return draw(st.sampled_from(("", "auto", tuple(0.5 + i for i in range(count)))))


def _categorical(draw: st.DrawFn) -> tuple[Model, Arrays]:
    rest, count, axis = _classes(draw)
    input_type = draw(st.sampled_from(("logits", "probs", "log_probs")))
    block = CrossEntropy(
        input_type,
        _weights(draw, count),
        draw(st.booleans()),
        axis=axis,
        label_smoothing=draw(st.sampled_from((0.0, 0.1))),
    )
    target = np.random.default_rng(draw(st.integers(0, 99))).integers(0, count, rest)
    return block, {"input": _scores(draw, rest, count, axis, input_type), "target": target}


def _soft(draw: st.DrawFn, kind: type[Model] = SoftCrossEntropy) -> tuple[Model, Arrays]:
    rest, count, axis = _classes(draw)
    input_type = draw(st.sampled_from(("logits", "probs", "log_probs")))
    more = {"categorical": False} if kind is CrossEntropy else {}
    block = kind(input_type, _weights(draw, count), draw(st.booleans()), axis=axis, **more)
    return block, {
        "input": _scores(draw, rest, count, axis, input_type),
        "target": _scores(draw, rest, count, axis, "probs"),
    }


def _cross_entropy(options: Any, x: np.ndarray, t: np.ndarray) -> np.ndarray:
    x = np.moveaxis(x, options["axis"], -1)
    count = x.shape[-1]
    logarithm = {"logits": lambda: special.log_softmax(x, -1), "probs": lambda: np.log(x), "log_probs": lambda: x}[
        options["input_type"]
    ]()
    t = np.eye(count)[t] if options.get("categorical") else np.moveaxis(t, options["axis"], -1)
    weights = options["weights"]
    if isinstance(weights, str):
        counts = t.reshape(-1, count).sum(0)
        balanced = np.divide(counts.sum() / count, counts, out=np.zeros(count), where=counts > 0)
        weights = balanced if weights else np.ones(count)
    smooth = (1 - options["label_smoothing"]) * t + options["label_smoothing"] / count
    if options.get("categorical") and not options["label_smoothing"]:
        return -(np.asarray(weights) * t * logarithm).sum(-1)
    return -(np.asarray(weights) * smooth * logarithm).sum(-1)


def _cosine(draw: st.DrawFn) -> tuple[Model, Arrays]:
    shape = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple))
    block = CosineSimilarity(draw(st.integers(-len(shape), len(shape) - 1)))
    return block, {"left": draw(arrays(shape)), "right": draw(arrays(shape))}


def _cosine_expected(model: Model, params: Arrays, given: Arrays) -> Arrays:
    axis = model.options["axis"]
    left, right = (given[port] / np.linalg.norm(given[port], axis=axis, keepdims=True) for port in ("left", "right"))
    return {"output": (left * right).sum(axis)}


def _info(draw: st.DrawFn) -> tuple[Model, Arrays]:
    shape = (draw(st.integers(1, 4)), draw(st.integers(1, 4)))
    return InfoNCE(draw(st.sampled_from((0.1, 1.0)))), {"input": draw(arrays(shape)), "target": draw(arrays(shape))}


def _info_expected(options: Any, x: np.ndarray, t: np.ndarray) -> np.ndarray:
    x, t = (one / np.linalg.norm(one, axis=1, keepdims=True) for one in (x, t))
    return -np.diagonal(special.log_softmax(x @ t.T / options["temperature"], -1))


def _quadratic(draw: st.DrawFn) -> tuple[Model, Arrays]:
    count = draw(st.integers(1, 4))
    shape = draw(st.sampled_from(((count,), (count, 1), (count, 2))))
    return QuadraticFormRegularizer(), {"input": draw(arrays(shape)), "kernel": draw(arrays((count, count)))}


def _form(model: Model, params: Arrays, given: Arrays) -> Arrays:
    x = given["input"].reshape(len(given["input"]), -1)
    return {"output": np.trace(x.T @ given["kernel"] @ x) / 2}


def _alone(kind: str):
    return lambda draw: (KINDS[kind](), {"input": draw(arrays(draw(shapes)))})


CASES = [
    Case("SquaredError", _paired("SquaredError"), _expected(lambda _, x, t: (x - t) ** 2)),
    Case("AbsoluteError", _paired("AbsoluteError"), _expected(lambda _, x, t: np.abs(x - t))),
    Case("HuberLoss", _drawn(lambda draw: HuberLoss(draw(st.sampled_from((0.5, 1.0))))), _expected(_huber)),
    Case("LogCosh", _paired("LogCosh"), _expected(lambda _, x, t: np.log(np.cosh(x - t)))),
    Case("QuantileLoss", _drawn(lambda draw: QuantileLoss(draw(st.sampled_from((0.1, 0.5))))), _expected(_quantile)),
    Case("HingeLoss", _paired("HingeLoss"), _expected(lambda _, x, t: np.maximum(0, 1 - x * t))),
    Case("QuadHingeLoss", _paired("QuadHingeLoss"), _expected(lambda _, x, t: np.maximum(0, 1 - x * t) ** 2)),
    Case(
        "KLDivergence",
        _drawn(lambda draw: KLDivergence(), 0.05, 1.0),
        _expected(lambda _, x, t: special.rel_entr(t, x)),
    ),
    Case("BinaryCrossEntropy", _binary, _expected(_binary_expected)),
    Case("FocalLoss", _focal, _expected(_focal_expected)),
    Case("CrossEntropy", _categorical, _expected(_cross_entropy)),
    Case("CrossEntropy, probabilities", lambda draw: _soft(draw, CrossEntropy), _expected(_cross_entropy)),
    Case("SoftCrossEntropy", _soft, _expected(_cross_entropy)),
    Case("CosineSimilarity", _cosine, _cosine_expected),
    Case("InfoNCE", _info, _expected(_info_expected)),
    Case("L1", _alone("L1"), lambda _, __, given: {"output": np.linalg.norm(given["input"].ravel(), 1)}),
    Case("L2", _alone("L2"), lambda _, __, given: {"output": np.linalg.norm(given["input"].ravel()) ** 2 / 2}),
    Case("QuadraticFormRegularizer", _quadratic, _form),
]
