"""Blocks of `models/library/layers/attention.py`, compared with NumPy and Equinox."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from mithril_nb.models import (
    LearnedPositions,
    MergeHeads,
    Model,
    MultiHeadAttention,
    PositionalEncoding,
    RotaryEmbedding,
    ScaledDotProduct,
    SplitHeads,
)
from tests.blocks.case import Arrays, Case, Draw, Drawn, arrays, few, leads


def attention(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    *,
    is_causal: bool = False,
    scale: float | None = None,
    attn_mask: np.ndarray | None = None,
    lengths: np.ndarray | None = None,
) -> np.ndarray:
    """Return attention, one query at a time over its visible keys; keys may have fewer heads."""
    lead, (times, steps) = query.shape[:-2], (query.shape[-2], key.shape[-2])
    served = (query.shape[-3] // key.shape[-3]) if key.ndim > 2 and query.ndim > 2 and key.shape[-3] > 1 else 1
    if served > 1:
        key, value = np.repeat(key, served, -3), np.repeat(value, served, -3)
    key, value = (np.broadcast_to(array, (*lead, *array.shape[-2:])) for array in (key, value))
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    whole = np.broadcast_to(0.0 if attn_mask is None else attn_mask, (*lead, times, steps))
    out = np.zeros((*lead, times, value.shape[-1]))
    for at in np.ndindex(*lead, times):
        seen = np.ones(steps, bool) if whole.dtype != bool else whole[at].copy()
        added = np.zeros(steps) if whole.dtype == bool else whole[at]
        seen &= added > -np.inf
        if is_causal:
            seen &= np.arange(steps) <= at[-1]
        if lengths is not None:
            seen &= np.arange(steps) < lengths[at[: lengths.ndim]]
        if seen.any():
            scores = key[at[:-1]][seen] @ query[at] * scale + added[seen]
            weights = np.exp(scores - scores.max())
            out[at] = weights / weights.sum() @ value[at[:-1]][seen]
    return out


def _scaled_dot_product(draw: Draw) -> Drawn:
    rank = draw(st.integers(2, 4))
    batch, heads, served, times, steps, size, out = (draw(few) for _ in range(7))
    lead = (batch, heads * served)[4 - rank :]
    key_lead = (batch, heads)[4 - rank :] if rank > 3 else draw(st.sampled_from((lead, ())))
    inputs = {
        "query": draw(arrays((*lead, times, size))),
        "key": draw(arrays((*key_lead, steps, size))),
        "value": draw(arrays((*key_lead, steps, out))),
    }
    masks = draw(st.sampled_from(("none", "truth", "numbers")))
    if masks != "none":
        seen = draw(arrays(draw(st.sampled_from(((times, steps), (*lead, times, steps), (1, steps)))))) > -1.5
        inputs["attn_mask"] = seen if masks == "truth" else np.where(seen, 0.25, -np.inf)
    if uses := draw(st.booleans()) and rank > 2:
        inputs["lengths"] = np.asarray(draw(st.lists(st.integers(0, steps), min_size=lead[0], max_size=lead[0])))
    block = ScaledDotProduct(
        draw(st.booleans()),
        draw(st.sampled_from((None, 0.5))),
        draw(st.sampled_from((0.0, 0.5))),
        masks != "none",
        uses,
    )
    return block, inputs


def _scaled_dot_product_reference(inputs: Arrays, is_causal: bool, scale: float | None) -> np.ndarray:
    return attention(**inputs, is_causal=is_causal, scale=scale)


def split(x: np.ndarray, heads: int) -> np.ndarray:
    """Return the array with heads before time."""
    return np.stack(np.split(x, heads, -1), -3)


def _split_heads(draw: Draw) -> Drawn:
    heads = tuple(draw(st.lists(few, min_size=1, max_size=3)))
    lead = draw(st.sampled_from(((), (2,), (2, 1))))
    return SplitHeads(heads), {"input": draw(arrays((*lead, draw(st.integers(0, 3)), sum(heads) * draw(few))))}


def _split_heads_reference(input: np.ndarray, heads: tuple[int, ...]) -> Arrays:
    names = {1: ["output"], 2: ["key", "value"], 3: ["query", "key", "value"]}[len(heads)]
    parts = np.split(split(input, sum(heads)), np.cumsum(heads)[:-1], -3)
    return dict(zip(names, parts, strict=True))


def _merge_heads(draw: Draw) -> Drawn:
    lead = draw(st.sampled_from(((), (2,), (2, 1))))
    return MergeHeads(), {"input": draw(arrays((*lead, draw(few), draw(few), draw(few))))}


def merged(heads: np.ndarray) -> np.ndarray:
    """Return the array with its heads side by side."""
    return np.concatenate([heads[..., head, :, :] for head in range(heads.shape[-3])], -1)


def _positional_encoding(draw: Draw) -> Drawn:
    width, lead = draw(st.integers(1, 7)), draw(leads)
    return PositionalEncoding(width, 9), {"input": draw(arrays((*lead, draw(st.integers(1, 9)), width)))}


def _positional_encoding_reference(input: np.ndarray) -> np.ndarray:
    out = input.copy()
    *_, times, width = out.shape
    for t in range(times):
        for i in range(width):
            wave = np.cos if i % 2 else np.sin
            out[..., t, i] += wave(t / 10000 ** ((i - i % 2) / width))
    return out


def _rotary_embedding(draw: Draw) -> Drawn:
    lead = draw(leads)
    block = RotaryEmbedding(draw(st.sampled_from((10000.0, 500.0))), draw(st.booleans()), draw(st.integers(0, 9)))
    return block, {"input": draw(arrays((*lead, draw(st.integers(1, 9)), 2 * draw(few))))}


def rotated(x: np.ndarray, base: float = 10000.0, is_interleaved: bool = False, start: int = 0) -> np.ndarray:
    """Return pairs of features, rotated as complex numbers."""
    times, width = x.shape[-2:]
    pairs = x[..., ::2] + 1j * x[..., 1::2] if is_interleaved else x[..., : width // 2] + 1j * x[..., width // 2 :]
    angles = np.outer(np.arange(start, start + times), base ** (-np.arange(0, width, 2) / width))
    pairs = pairs * np.exp(1j * angles)
    if not is_interleaved:
        return np.concatenate((pairs.real, pairs.imag), -1)
    return np.stack((pairs.real, pairs.imag), -1).reshape(x.shape)


def _learned_positions(draw: Draw) -> Drawn:
    return LearnedPositions(5), {"input": draw(arrays((*draw(leads), draw(st.integers(0, 5)), draw(few))))}


def _multi_head_attention(draw: Draw) -> Drawn:
    batch, served, groups = draw(few), draw(st.integers(1, 2)), draw(st.integers(1, 2))
    width, times = 2 * served * groups * draw(st.integers(1, 2)), draw(few)
    cross = draw(st.booleans())
    block = MultiHeadAttention(
        width,
        served * groups,
        served,
        draw(st.booleans()),
        use_bias=draw(st.booleans()),
        use_rotary=draw(st.booleans()),
        is_cross=cross,
        use_lengths=True,
    )
    steps = draw(few) if cross else times
    inputs = {"input": draw(arrays((batch, times, width)))}
    if cross:
        inputs["memory"] = draw(arrays((batch, steps, width)))
    inputs["lengths"] = np.asarray(draw(st.lists(st.integers(1, steps), min_size=batch, max_size=batch)))
    return block, inputs


def multi_head_attention(model: Model, params: Arrays, inputs: Arrays) -> np.ndarray:
    """Return the result of a `MultiHeadAttention` block, from its params."""
    o = model.options
    heads, served = o["heads"], o["kv_heads"] or o["heads"]

    def linear(name: str, x: np.ndarray) -> np.ndarray:
        return x @ params[f"{name}.weight"] + params.get(f"{name}.bias", 0)

    if o["is_cross"]:
        query = split(linear("query", inputs["input"]), heads)
        key, value = np.split(split(linear("kv", inputs["memory"]), 2 * served), 2, -3)
    else:
        whole = split(linear("qkv", inputs["input"]), heads + 2 * served)
        query, key, value = np.split(whole, (heads, heads + served), -3)
    if o["use_rotary"]:
        query, key = rotated(query), rotated(key)
    masks = {port: inputs[port] for port in ("attn_mask", "lengths") if port in inputs}
    return linear("out", merged(attention(query, key, value, is_causal=o["is_causal"], **masks)))


CASES = [
    Case("ScaledDotProduct", _scaled_dot_product, _scaled_dot_product_reference),
    Case("SplitHeads", _split_heads, _split_heads_reference),
    Case("MergeHeads", _merge_heads, lambda input: merged(input)),
    Case("PositionalEncoding", _positional_encoding, _positional_encoding_reference),
    Case("RotaryEmbedding", _rotary_embedding, lambda model, input: rotated(input, **model.options)),
    Case("LearnedPositions", _learned_positions, lambda input, weight: input + weight[: input.shape[-2]]),
    Case("MultiHeadAttention", _multi_head_attention, multi_head_attention),
]
