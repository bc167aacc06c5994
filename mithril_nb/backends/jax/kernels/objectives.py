"""Losses and metrics."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from mithril_nb.backends.jax.kernels.arithmetic import absolute
from mithril_nb.backends.jax.kernels.registry import Result, kernel, register, widened
from mithril_nb.program import Array, Arrays, Call


@kernel("huber_loss")
def _huber_loss(call: Call, arrays: Arrays) -> Result:
    delta = call.options["delta"]
    distance = jnp.abs(arrays["input"] - arrays["target"])
    # One formula for both cases: `jnp.where` would square large distances, and an overflow makes the gradient NaN.
    near = jnp.minimum(distance, delta)
    return near * near / 2 + delta * (distance - near)


@kernel("log_cosh")
def _log_cosh(call: Call, arrays: Arrays) -> Result:
    distance = jnp.abs(arrays["input"] - arrays["target"])
    near = distance < 1
    # log cosh e = log(1 + 2 sinh² ½e) is exact near zero; the other form does not overflow.
    exact = jnp.log1p(2 * jnp.square(jnp.sinh(jnp.where(near, distance, 0) / 2)))
    return jnp.where(near, exact, distance + jnp.log1p(jnp.exp(-2 * distance)) - math.log(2))


@kernel("quantile_loss")
def _quantile_loss(call: Call, arrays: Arrays) -> Result:
    error, quantile = arrays["target"] - arrays["input"], call.options["quantile"]
    # At an error of 0, `maximum` halves its gradient between both lines.
    return jnp.maximum(quantile * error, (quantile - 1) * error).astype(error.dtype)


def _shortfall(arrays: Arrays) -> Array:
    x, t = arrays["input"], arrays["target"]
    is_above = t * x >= 1
    # Replace the factors too, because infinity times a gradient of 0 is NaN.
    return jnp.where(is_above, 0, 1 - jnp.where(is_above, 0, t) * jnp.where(is_above, 0, x))


@kernel("kl_divergence")
def _kl_divergence(call: Call, arrays: Arrays) -> Result:
    # p (log p - log q), not p log(p / q): the quotient overflows where q is tiny.
    target, prediction = jnp.broadcast_arrays(arrays["target"], arrays["input"])
    dtype = jnp.result_type(target, prediction)
    threshold = _threshold(call, dtype)
    wide_target, wide = widened(target), widened(prediction)
    output = wide_target * (_robust_log(wide_target, threshold) - _robust_log(wide, threshold))
    return output.astype(dtype)


@kernel("binary_cross_entropy")
def _binary_cross_entropy(call: Call, arrays: Arrays) -> Result:
    prediction, target = arrays["input"], arrays["target"]
    dtype = jnp.result_type(prediction, target)
    x, t = jnp.broadcast_arrays(widened(prediction), widened(target))
    weight = call.options["pos_weight"]
    if isinstance(weight, str):
        weight = _ratio((1 - t).sum(), t.sum())
    weight = jnp.asarray(weight, x.dtype) * t
    if call.options["input_type"] == "logits":
        # log sigmoid(x) as -softplus(-x): for large negative x the sigmoid is 0, and its logarithm -inf.
        yes, no = _kept_finite(call, -jax.nn.softplus(-x), dtype), _kept_finite(call, -jax.nn.softplus(x), dtype)
    else:
        yes, no = _log(call, x, dtype, weight), _log(call, 1 - x, dtype, 1 - t)
    return -(_times(weight, yes) + _times(1 - t, no)).astype(dtype)


@kernel("focal_loss")
def _focal_loss(call: Call, arrays: Arrays) -> Result:
    prediction, target = arrays["input"], arrays["target"]
    x, t = jnp.broadcast_arrays(widened(prediction), widened(target))
    yes, no = -jax.nn.softplus(-x), -jax.nn.softplus(x)
    alpha, gamma = call.options["alpha"], call.options["gamma"]
    # The probability of the wrong answer, from its logarithm: 1 - sigmoid(x) would lose its digits.
    missed = jnp.exp(no) * t + jnp.exp(yes) * (1 - t)
    # A power below 1 has an infinite derivative at zero.
    loss = -(_times(t, yes) + _times(1 - t, no)) * jnp.maximum(missed, jnp.finfo(x.dtype).tiny) ** gamma
    loss = loss if alpha is None else loss * (alpha * t + (1 - alpha) * (1 - t))
    return loss.astype(jnp.result_type(prediction, target))


@kernel("cross_entropy")
def _cross_entropy(call: Call, arrays: Arrays) -> Result:
    prediction, target = _classes_last(call, arrays["input"]), arrays["target"]
    count = prediction.shape[-1]
    # A class that does not exist gives NaN, so that the user notices it.
    exists = (target >= 0) & (target < count)
    number = jnp.where(exists, target, 0)
    weights = _class_weights(call, prediction.dtype, lambda: jnp.zeros(count, prediction.dtype).at[number].add(exists))
    if call.options["label_smoothing"]:
        loss = _soft_loss(
            call, prediction, jax.nn.one_hot(number, count, dtype=prediction.dtype), weights, arrays["input"].dtype
        )
    else:
        if call.options["input_type"] == "logits":
            prediction = jax.nn.log_softmax(prediction)
        picked = jnp.take_along_axis(prediction, number[..., None], -1)[..., 0]
        weight = jnp.ones((), prediction.dtype) if weights is None else weights[number]
        # Take the logarithm after the selection: the derivatives for the other classes may be infinite.
        if call.options["input_type"] == "probs":
            logarithm = _log(call, picked, arrays["input"].dtype, weight)
        else:
            logarithm = _kept_finite(call, picked, arrays["input"].dtype)
        loss = -logarithm if weights is None else -_times(weight, logarithm)
    return jnp.where(exists, loss, jnp.nan).astype(arrays["input"].dtype)


@kernel("soft_cross_entropy")
def _soft_cross_entropy(call: Call, arrays: Arrays) -> Result:
    prediction, target = _classes_last(call, arrays["input"]), _classes_last(call, arrays["target"])
    weights = _class_weights(call, prediction.dtype, lambda: target.reshape(-1, target.shape[-1]).sum(0))
    loss = _soft_loss(call, prediction, target, weights, arrays["input"].dtype)
    return loss.astype(jnp.result_type(arrays["input"], arrays["target"]))


@kernel("cosine_similarity")
def _cosine_similarity(call: Call, arrays: Arrays) -> Result:
    left, right = jnp.broadcast_arrays(arrays["left"], arrays["right"])
    axis, eps = call.options["axis"], call.options["eps"]
    unit_left, unit_right = _unit(widened(left), axis, eps), _unit(widened(right), axis, eps)
    return (unit_left * unit_right).sum(axis).astype(jnp.result_type(left, right))


@kernel("info_nce")
def _info_nce(call: Call, arrays: Arrays) -> Result:
    left, right = (_unit(widened(arrays[port]), -1, 1e-8) for port in ("input", "target"))
    scores = left @ right.T / jnp.asarray(call.options["temperature"], left.dtype)
    # The cross entropy with the label i in row i, without the other items of log_softmax.
    loss = jax.nn.logsumexp(scores, -1) - jnp.diagonal(scores)
    return loss.astype(jnp.result_type(arrays["input"], arrays["target"]))


def _threshold(call: Call, dtype: Any) -> Any:
    threshold, tiny = call.options["threshold"], float(jnp.finfo(dtype).tiny)
    return tiny if threshold is None else jnp.maximum(threshold, tiny)


def _robust_log(x: Array, threshold: Any) -> Array:
    t = jnp.asarray(threshold, x.dtype)
    # Below t, the logarithm is continued by point reflection, 2 log t - log(2 t - x): value and slope are continuous.
    near = x < t
    # Both cases receive valid inputs, so that the case that is not selected has a finite gradient.
    below = 2 * jnp.log(t) - jnp.log(2 * t - jnp.where(near, x, t))
    return jnp.where(near, below, jnp.log(jnp.where(near, t, x)))


def _log(call: Call, x: Array, dtype: Any, weight: Array) -> Array:
    # Where `x` and `weight` are both 0, the result is 0, because log 0 would make the gradient NaN.
    robust = call.options["robust"]
    if robust is not True:
        x = jnp.where((weight == 0) & (x == 0), 1, x)
    if isinstance(robust, bool):
        return _robust_log(x, _threshold(call, dtype)) if robust else jnp.log(x)
    return jnp.where(robust, _robust_log(x, _threshold(call, dtype)), jnp.log(jnp.where(robust, 1, x)))


def _kept_finite(call: Call, logarithm: Array, dtype: Any) -> Array:
    robust = call.options["robust"]
    if robust is False:
        return logarithm
    least = jnp.log(jnp.asarray(_threshold(call, dtype), logarithm.dtype))
    return jnp.where(jnp.isneginf(logarithm) & robust, least, logarithm)


def _times(weight: Array, logarithm: Array) -> Array:
    # 0 times -inf is 0, also in the gradient: a class with weight 0 does not count.
    safe = jnp.where((weight == 0) & jnp.isneginf(logarithm), 0, logarithm)
    return weight * safe


def _ratio(above: Array, below: Array) -> Array:
    # The inner `where`: a division by 0 in the case that is not selected would make the gradient NaN.
    return jnp.where(below > 0, above / jnp.where(below > 0, below, 1), 0)


def _classes_last(call: Call, x: Array) -> Array:
    return jnp.moveaxis(widened(x), call.options["axis"], -1)


def _class_weights(call: Call, dtype: Any, counts: Any) -> Array | None:
    weights = call.options["weights"]
    if isinstance(weights, str):
        if not weights:
            return None
        class_counts = counts()
        return _ratio(class_counts.sum() / (class_counts.size or 1), class_counts)
    return jnp.asarray(weights, dtype)


def _soft_loss(call: Call, prediction: Array, target: Array, weights: Array | None, dtype: Any) -> Array:
    smoothing = call.options["label_smoothing"]
    if smoothing:
        target = (1 - smoothing) * target + smoothing / target.shape[-1]
    if call.options["input_type"] == "probs":
        logarithm = _log(call, prediction, dtype, target)
    else:
        logs = jax.nn.log_softmax(prediction) if call.options["input_type"] == "logits" else prediction
        logarithm = _kept_finite(call, logs, dtype)
    each = _times(target, logarithm)
    return -(each if weights is None else each * weights).sum(-1)


def _unit(x: Array, axis: int, eps: float) -> Array:
    # The length is at least `eps`, so that the gradient at zero exists.
    squares = jnp.square(x).sum(axis, keepdims=True)
    return x / jnp.sqrt(jnp.maximum(squares, jnp.asarray(eps, x.dtype) ** 2))


@kernel("class_counts")
def _class_counts(call: Call, arrays: Arrays) -> Arrays:
    pred, label, count = arrays["pred"], arrays["label"], call.options["n_classes"]
    is_right = pred == label
    return {
        "true_positive": _counted(label, is_right, count),
        "false_positive": _counted(pred, ~is_right, count),
        "false_negative": _counted(label, ~is_right, count),
    }


@kernel("classes_seen")
def _classes_seen(call: Call, arrays: Arrays) -> Result:
    numbers = jnp.sort(jnp.concatenate([arrays["pred"].reshape(-1), arrays["label"].reshape(-1)]))
    # jnp.unique would need a fixed size. Equal integers are neighbours after sorting.
    return (jnp.diff(numbers) != 0).sum(dtype=jnp.int32) + int(numbers.shape != (0,))


@kernel("confusion_counts")
def _confusion_counts(call: Call, arrays: Arrays) -> Result:
    pred, label, count = arrays["pred"], arrays["label"], call.options["n_classes"]
    exists = (pred >= 0) & (pred < count) & (label >= 0)
    # One index of a pair, so that one scatter counts all; the largest has 32 bits for at most 46,340 classes.
    counts = _counted(label * count + jnp.where(exists, pred, 0), exists, count * count)
    return counts.reshape(count, count)


@kernel("top_k_hits")
def _top_k_hits(call: Call, arrays: Arrays) -> Result:
    scores, label = arrays["pred"], arrays["label"][..., None]
    count = scores.shape[-1]
    exists = (label >= 0) & (label < count)
    classes = jnp.arange(count)
    # Not jnp.take_along_axis, which fails without classes.
    own = jnp.where(classes == label, scores, 0).sum(-1, keepdims=True)
    # `~(<=)`, not `>`: a NaN counts as better, so that a model that outputs NaN has no hits.
    before = ~(scores <= own) | ((scores == own) & (classes < label))
    return (exists & (before.sum(-1, keepdims=True) < call.options["k"]))[..., 0]


@kernel("auc_core")
def _auc_core(call: Call, arrays: Arrays) -> Result:
    scores, label = arrays["input"], arrays["label"] == 1
    curve = _curve
    for _ in scores.shape[:-1]:
        # vmap, because searchsorted takes one row.
        # The first axis of the result contains the two rates.
        curve = jax.vmap(curve, out_axes=1)
    return curve(scores, label)


def _curve(scores: Array, label: Array) -> Array:
    order = jnp.argsort(-scores)
    # Samples of equal score share the position of the last one.
    ends = jnp.searchsorted(-scores[order], -scores[order], side="right")
    rates = []
    for mask in (~label, label):
        counts = jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.cumsum(mask[order], dtype=jnp.int32)])
        rates.append(jnp.concatenate([counts[:1], counts[ends]]).astype(jnp.float32) / counts[-1].astype(jnp.float32))
    return jnp.where(jnp.isnan(scores).any(), jnp.nan, jnp.stack(rates))


def _counted(numbers: Array, counts: Array, length: int) -> Array:
    # Drop negative indices, which would count from the end.
    index = jnp.where(counts & (numbers >= 0), numbers, length)
    return jnp.zeros(length, jnp.int32).at[index.reshape(-1)].add(1, mode="drop")


register(
    {
        "absolute_error": lambda call, arrays: absolute(arrays["input"] - arrays["target"]),
        "hinge_loss": lambda call, arrays: _shortfall(arrays),
        "quad_hinge_loss": lambda call, arrays: jnp.square(_shortfall(arrays)),
        "class_difference": lambda call, arrays: (arrays["pred"] - arrays["label"]).astype(jnp.int32),
    }
)
