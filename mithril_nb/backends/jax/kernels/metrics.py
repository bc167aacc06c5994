"""Metrics."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from mithril_nb.backends.jax.kernels.registry import kernel
from mithril_nb.program import Array, Arrays, Call


@kernel("class_difference")
def _class_difference(call: Call, arrays: Arrays) -> Arrays:
    return {"output": (arrays["pred"] - arrays["label"]).astype(jnp.int32)}


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
def _classes_seen(call: Call, arrays: Arrays) -> Arrays:
    numbers = jnp.sort(jnp.concatenate([arrays["pred"].reshape(-1), arrays["label"].reshape(-1)]))
    return {"output": (jnp.diff(numbers) != 0).sum(dtype=jnp.int32) + int(numbers.shape != (0,))}


@kernel("confusion_counts")
def _confusion_counts(call: Call, arrays: Arrays) -> Arrays:
    pred, label, count = arrays["pred"], arrays["label"], call.options["n_classes"]
    exists = (pred >= 0) & (pred < count) & (label >= 0)
    found = _counted(label * count + jnp.where(exists, pred, 0), exists, count * count)
    return {"output": found.reshape(count, count)}


@kernel("top_k_hits")
def _top_k_hits(call: Call, arrays: Arrays) -> Arrays:
    scores, label = arrays["pred"], arrays["label"][..., None]
    count = scores.shape[-1]
    exists = (label >= 0) & (label < count)
    classes = jnp.arange(count)
    # Not jnp.take_along_axis, which fails without classes.
    own = jnp.where(classes == label, scores, 0).sum(-1, keepdims=True)
    before = ~(scores <= own) | ((scores == own) & (classes < label))
    return {"output": (exists & (before.sum(-1, keepdims=True) < call.options["k"]))[..., 0]}


@kernel("auc_core")
def _auc_core(call: Call, arrays: Arrays) -> Arrays:
    scores, label = arrays["input"], arrays["label"] == 1
    curve = _curve
    for _ in scores.shape[:-1]:
        curve = jax.vmap(curve, out_axes=1)
    return {"output": curve(scores, label)}


def _curve(scores: Array, label: Array) -> Array:
    """Return the ROC curve of one row of samples."""
    order = jnp.argsort(-scores)
    # Samples of equal score share the position of the last one.
    ends = jnp.searchsorted(-scores[order], -scores[order], side="right")
    rates = []
    for one in (~label, label):
        counts = jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.cumsum(one[order], dtype=jnp.int32)])
        rates.append(jnp.concatenate([counts[:1], counts[ends]]).astype(jnp.float32) / counts[-1].astype(jnp.float32))
    return jnp.where(jnp.isnan(scores).any(), jnp.nan, jnp.stack(rates))


def _counted(numbers: Array, counts: Array, length: int) -> Array:
    """Return how often each integer below `length` occurs, among those selected by `counts`."""
    # Drop negative indices, which would count from the end.
    place = jnp.where(counts & (numbers >= 0), numbers, length)
    return jnp.zeros(length, jnp.int32).at[place.reshape(-1)].add(1, mode="drop")
