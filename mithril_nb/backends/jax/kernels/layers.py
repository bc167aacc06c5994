"""Dropout, linear layers, embeddings, and norms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from mithril_nb.backends.jax.kernels.registry import DRAWS, Result, kernel, promoted_all, register, widened
from mithril_nb.graph.records import Value
from mithril_nb.program import Arrays, Call


@kernel("dropout")
def _dropout(call: Call, arrays: Arrays) -> Result:
    x, p = arrays["input"], call.options["p"]
    if not dropout_draws(call.options, call.training):
        return x
    assert isinstance(p, float)
    assert call.key is not None
    mask = jax.random.bernoulli(call.key, 1.0 - p, x.shape)
    # Do not multiply by the mask, because infinity times 0 is NaN.
    return jnp.where(mask, x / (1.0 - p), 0.0)


def dropout_draws(options: Mapping[str, Value], training: bool) -> bool:
    """Return whether a Dropout block drops elements. If its option `training` is `None`, the program decides."""
    own = options["training"]
    return (training if own is None else bool(own)) and options["p"] != 0.0


DRAWS["dropout"] = dropout_draws


@kernel("linear")
def _linear(call: Call, arrays: Arrays) -> Result:
    out = jnp.matmul(arrays["input"], arrays["weight"])
    return out + arrays["bias"] if "bias" in arrays else out


@kernel("unembedding")
def _unembedding(call: Call, arrays: Arrays) -> Result:
    # The weight is that of an embedding, (vocabulary, width): contract its last axis, without a transposed copy.
    x, weight = promoted_all(arrays["input"], arrays["weight"])
    return lax.dot_general(x, weight, (((x.ndim - 1,), (1,)), ((), ())))


@kernel("rms_norm")
def _rms_norm(call: Call, arrays: Arrays) -> Result:
    # In float16, squares overflow from 256 on.
    x = widened(arrays["input"])
    out = x * lax.rsqrt((x * x).mean(-1, keepdims=True) + call.options["eps"])
    return _affine(out.astype(arrays["input"].dtype), arrays)


@kernel("group_norm")
def _group_norm(call: Call, arrays: Arrays) -> Result:
    x, groups = arrays["input"], call.options["num_groups"]
    grouped = x.reshape(x.shape[0], groups, x.shape[1] // groups, *x.shape[2:])
    out = _normal(grouped, tuple(range(2, grouped.ndim)), call.options["eps"])
    return _affine(out.reshape(x.shape), arrays, channels=True)


@kernel("instance_norm")
def _instance_norm(call: Call, arrays: Arrays) -> Result:
    x = arrays["input"]
    return _affine(_normal(x, tuple(range(2, x.ndim)), call.options["eps"]), arrays, channels=True)


@kernel("batch_norm")
@kernel("batch_norm1d")
@kernel("batch_norm2d")
@kernel("table_batch_norm2d")
def _batch_norm(call: Call, arrays: Arrays) -> Result:
    x, is_inference = arrays["input"], call.options["inference"]
    wide, axes = widened(x), (0, *range(2, x.ndim))
    count = x.size // x.shape[1] if x.shape[1] else 0
    if (not call.training if is_inference is None else is_inference) or not count:
        mean, variance = (_per_channel(widened(arrays[port]), x.ndim) for port in ("running_mean", "running_var"))
        return _batch_normal(call, arrays, wide, mean, variance)
    mean = wide.mean(axes, keepdims=True)
    # Do not use E[x^2] - E[x]^2, which loses its digits if the mean is large.
    centered = wide - mean
    variance = (centered * centered).mean(axes, keepdims=True)
    # The running variance is unbiased, as in PyTorch; the batch is normalized by the biased one.
    # A single value has no variance, so keep the running variance.
    spread = variance.ravel() * (count / (count - 1)) if count not in (0, 1) else arrays["running_var"]
    return {
        "output": _batch_normal(call, arrays, wide, mean, variance),
        "running_mean": _moved(arrays["running_mean"], mean.ravel(), call.options["momentum"]),
        "running_var": _moved(arrays["running_var"], spread, call.options["momentum"]),
    }


def _batch_normal(call: Call, arrays: Arrays, wide: Any, mean: Any, variance: Any) -> jax.Array:
    out = (wide - mean) * lax.rsqrt(variance + call.options["eps"])
    return _affine(out.astype(arrays["input"].dtype), arrays, channels=True)


def _moved(old: jax.Array, new: jax.Array, momentum: float) -> jax.Array:
    # PyTorch's momentum, the share of the new batch; Flax and TensorFlow call the share of the old state momentum.
    return ((1 - momentum) * widened(old) + momentum * widened(new)).astype(old.dtype)


def _normal(x: jax.Array, axes: int | tuple[int, ...], eps: float) -> jax.Array:
    wide = widened(x)
    mean = wide.mean(axes, keepdims=True)
    centered = wide - mean
    variance = (centered * centered).mean(axes, keepdims=True)
    return (centered * lax.rsqrt(variance + eps)).astype(x.dtype)


def _affine(x: jax.Array, arrays: Arrays, *, channels: bool = False) -> jax.Array:
    shaped = {
        port: _per_channel(arrays[port], x.ndim) if channels else arrays[port]
        for port in ("weight", "bias")
        if port in arrays
    }
    out = x * shaped["weight"] if "weight" in shaped else x
    return out + shaped["bias"] if "bias" in shaped else out


def _per_channel(array: jax.Array, rank: int) -> jax.Array:
    return array.reshape(1, -1, *(1,) * (rank - 2))


register(
    {
        "elu": lambda call, arrays: jax.nn.elu(arrays["input"], call.options["alpha"]),
        "celu": lambda call, arrays: jax.nn.celu(arrays["input"], call.options["alpha"]),
        # An index out of range gives a row of NaN, the default of jnp.take, so that the user notices it.
        "embedding": lambda call, arrays: jnp.take(arrays["weight"], arrays["input"], axis=0),
        "layer_norm": lambda call, arrays: _affine(_normal(arrays["input"], -1, call.options["eps"]), arrays),
        "element_wise_affine": lambda call, arrays: _affine(arrays["input"], arrays),
    }
)
