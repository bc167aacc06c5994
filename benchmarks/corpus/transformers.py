"""GPT-2 small, unrolled and with its layers in one scan."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.corpus.program import Make, adam_step, ints, spec
from benchmarks.gpt import HEADS, LAYERS, VOCABULARY, WIDTH, plain_forward, plain_shapes


def programs(full: bool) -> dict[str, Make]:
    """Return the programs of this family."""
    layers, width, heads, vocabulary = (LAYERS, WIDTH, HEADS, VOCABULARY) if full else (2, 12, 2, 19)
    tokens = ints(2, 128) if full else ints(2, 5)
    plain = {name: spec(*shape) for name, shape in plain_shapes(layers, width, vocabulary).items()}
    forward = partial(plain_forward, layers=layers, heads=heads)
    stacked = stacked_shapes(layers, width, vocabulary)
    scanned = partial(scanned_gpt, heads=heads)
    saved = partial(scanned_gpt, heads=heads, remat=True)
    return {
        "GPT-2 small, forward": lambda: (forward, (plain, tokens)),
        "GPT-2 small, train step": lambda: adam_step(forward, plain, tokens, tokens),
        "GPT-2 small by scan, forward": lambda: (scanned, (stacked, tokens)),
        "GPT-2 small by scan, train step": lambda: adam_step(scanned, stacked, tokens, tokens),
        "GPT-2 small by scan and remat, train step": lambda: adam_step(saved, stacked, tokens, tokens),
    }


def stacked_shapes(layers: int, width: int, vocabulary: int) -> dict[str, Any]:
    """Return the specs of the params, stacked over layers."""
    layer = {
        "norm_1": (width,), "qkv": (width, 3 * width), "out": (width, width),
        "norm_2": (width,), "up": (width, 4 * width), "down": (4 * width, width),
    }  # fmt: skip
    return {
        "embedding": spec(vocabulary, width),
        "layers": {name: spec(layers, *shape) for name, shape in layer.items()},
        "norm": spec(width),
    }


def rms_norm(weight: Any, x: Any) -> Any:
    """Return normalised tokens."""
    return x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * weight


def attention(layer: Any, x: Any, heads: int) -> Any:
    """Return causal self-attention."""
    batch, time, width = x.shape
    query, key, value = jnp.split((x @ layer["qkv"]).reshape(batch, time, heads, -1), 3, axis=-1)
    scores = jnp.einsum("bthd,bshd->bhts", query, key) / (width // heads) ** 0.5
    seen = jnp.tril(jnp.ones((time, time), bool))
    weights = jax.nn.softmax(jnp.where(seen, scores, -1e9))
    return jnp.einsum("bhts,bshd->bthd", weights, value).reshape(batch, time, width) @ layer["out"]


def feed_forward(layer: Any, x: Any) -> Any:
    """Return the two-layer MLP of each token."""
    return jax.nn.gelu(x @ layer["up"]) @ layer["down"]


def scanned_gpt(params: Any, tokens: Any, heads: int, remat: bool = False) -> Any:
    """Return the logits."""

    def block(x: Any, layer: Any) -> tuple[Any, None]:
        x = x + attention(layer, rms_norm(layer["norm_1"], x), heads)
        return x + feed_forward(layer, rms_norm(layer["norm_2"], x)), None

    with jax.named_scope("embed"):
        x = params["embedding"][tokens]
    x, _ = lax.scan(jax.checkpoint(block) if remat else block, x, params["layers"])
    with jax.named_scope("head"):
        return rms_norm(params["norm"], x) @ params["embedding"].T
