"""Attention, heads and positions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from mithril_nb.backends.jax.kernels.registry import DRAWS, Result, kernel, promoted_all
from mithril_nb.program import Array, Arrays, Call


@kernel("scaled_dot_product")
def _scaled_dot_product(call: Call, arrays: Arrays) -> Result:
    query, key, value = promoted_all(*(arrays[port] for port in ("query", "key", "value")))
    # In half precision, compute in float32: products are exact there, and long sums do not overflow.
    dtype, wide = query.dtype, jnp.promote_types(query.dtype, jnp.float32)
    scale = call.options["scale"]
    # `or 1`: for a head of width 0, 1 / sqrt(0) would raise an error. Its scores are 0 anyway.
    scores = _by_head(query, key, 1, wide) * (1 / math.sqrt(query.shape[-1] or 1) if scale is None else scale)
    scores, seen = _masked(call, arrays, scores)
    weights = jax.nn.softmax(scores, -1)
    if seen is not None:
        # A query that sees no key has equal scores, hence equal weights: it must return zeros.
        weights = jnp.where(seen, weights, 0)
    if call.training and _drops(call.options):
        assert call.key is not None
        keep = 1 - call.options["dropout_p"]
        weights = jnp.where(jax.random.bernoulli(call.key, keep, weights.shape), weights / keep, 0)
    return _by_head(weights.astype(dtype), value, 2, dtype)


def _drops(options: Mapping[str, Any]) -> bool:
    p = options["dropout_p"]
    # The value of a connection is unknown here, so assume that the block drops.
    return not isinstance(p, float | int) or p != 0


DRAWS["scaled_dot_product"] = lambda options, training: training and _drops(options)


def _by_head(left: Array, right: Array, axis: int, dtype: Any) -> Array:
    lead, other = left.shape[:-2], right.shape[:-2]
    # Compare symbolic sizes last: `<` is only decidable if they differ.
    grouped = bool(lead and other) and other[-1] not in (1, lead[-1]) and 1 < other[-1] < lead[-1]
    if grouped:
        left = left.reshape(*lead[:-1], other[-1], -1, *left.shape[-2:])
        right = right[..., None, :, :]
    # dot_general requires equal batch axes.
    both = jnp.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    left, right = (
        array if array.shape[:-2] == both else jnp.broadcast_to(array, (*both, *array.shape[-2:]))
        for array in (left, right)
    )
    batch = tuple(range(len(both)))
    over = ((left.ndim - 1,), (right.ndim - axis,))
    out = lax.dot_general(left, right, (over, (batch, batch)), preferred_element_type=dtype)
    return out.reshape(*both[:-2], lead[-1], *out.shape[-2:]) if grouped else out


def _masked(call: Call, arrays: Arrays, scores: Array) -> tuple[Array, Array | None]:
    # The second result is a mask of the queries that see a key. It is `None` if all do.
    is_causal, mask, lengths = call.options["is_causal"], arrays.get("attn_mask"), arrays.get("lengths")
    masks: list[Array] = []
    if is_causal is not False:
        shape = scores.shape[-2:]
        before = lax.broadcasted_iota(jnp.int32, shape, 0) >= lax.broadcasted_iota(jnp.int32, shape, 1)
        masks.append(before if is_causal is True else before | jnp.logical_not(is_causal))
    if lengths is not None:
        first = jnp.arange(scores.shape[-1]) < lengths[..., None]
        masks.append(first.reshape(*lengths.shape, *(1,) * (scores.ndim - lengths.ndim - 1), scores.shape[-1]))
    if mask is not None and mask.dtype == bool:
        masks.append(mask)
    elif mask is not None:
        # An additive mask may contain -inf. The softmax of a row of only -inf is NaN, so hide these keys instead.
        masks.append(mask > -jnp.inf)
        scores = scores + jnp.where(masks[-1], mask, 0).astype(scores.dtype)
    if not masks:
        return scores, None
    seen = masks[0]
    for more in masks[1:]:
        seen = seen & more
    # Not -inf: for a query that sees no key, the softmax would be NaN.
    scores = jnp.where(seen, scores, jnp.finfo(scores.dtype).min)
    # With only a causal mask, each query sees at least the first key.
    return scores, seen.any(-1, keepdims=True) if len(masks) > 1 or is_causal is False else None


@kernel("split_heads")
def _split_heads(call: Call, arrays: Arrays) -> Arrays:
    x, heads = arrays["input"], call.options["heads"]
    size = x.shape[-1] // sum(heads)
    parts = jnp.split(x, np.cumsum(heads)[:-1] * size, -1) if len(heads) > 1 else [x]
    outputs = [
        part.reshape(*x.shape[:-1], count, size).swapaxes(-2, -3) for part, count in zip(parts, heads, strict=True)
    ]
    names = {1: ("output",), 2: ("key", "value"), 3: ("query", "key", "value")}[len(heads)]
    return dict(zip(names, outputs, strict=True))


@kernel("merge_heads")
def _merge_heads(call: Call, arrays: Arrays) -> Result:
    x = arrays["input"].swapaxes(-2, -3)
    return x.reshape(*x.shape[:-2], x.shape[-2] * x.shape[-1])


@kernel("positional_encoding")
def _positional_encoding(call: Call, arrays: Arrays) -> Result:
    x = arrays["input"]
    time, width = x.shape[-2:]
    angles = _angles(jnp.arange(time), -(-width // 2), width, 10000.0, x.dtype)
    # Sine and cosine alternate; an odd width ends with a sine.
    waves = jnp.stack((jnp.sin(angles), jnp.cos(angles)), -1).reshape(time, -1)[:, :width]
    return x + waves.astype(x.dtype)


@kernel("rotary_embedding")
def _rotary_embedding(call: Call, arrays: Arrays) -> Result:
    x, start, base = arrays["input"], call.options["start"], call.options["base"]
    time, width = x.shape[-2:]
    angles = _angles(jnp.arange(time) + start, width // 2, width, base, x.dtype)
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    wide = x.astype(cos.dtype)
    if call.options["is_interleaved"]:
        a, b = wide[..., ::2], wide[..., 1::2]
        out = jnp.stack((a * cos - b * sin, b * cos + a * sin), -1).reshape(x.shape)
    else:
        a, b = wide[..., : width // 2], wide[..., width // 2 :]
        out = jnp.concatenate((a * cos - b * sin, b * cos + a * sin), -1)
    return out.astype(x.dtype)


@kernel("learned_positions")
def _learned_positions(call: Call, arrays: Arrays) -> Result:
    x, weight = arrays["input"], arrays["weight"]
    count = x.shape[-2]
    return x + (weight if count == weight.shape[0] else lax.slice_in_dim(weight, 0, count))


def _angles(times: Array, count: int, width: int, base: float, dtype: Any) -> Array:
    rates = base ** (-2 * np.arange(count) / max(width, 1))
    if dtype == jnp.float64:
        return times[:, None] * jnp.asarray(rates)
    # A large angle in float32 has few bits for its position within a turn. Split the rate: a time multiplied by its
    # first 13 bits is exact up to time 12,865, so whole turns can be subtracted. The product with the rest is small.
    turns = rates / (2 * np.pi)
    coarse = np.floor(turns * 8192) / 8192
    t = times[:, None].astype(jnp.float32)
    coarse_turns = t * jnp.asarray(coarse, jnp.float32)
    return 2 * np.pi * (coarse_turns - jnp.floor(coarse_turns) + t * jnp.asarray(turns - coarse, jnp.float32))
