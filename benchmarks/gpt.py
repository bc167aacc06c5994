"""GPT-2 small for the benchmarks in plain JAX, in Equinox, and in Flax nnx."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

VOCABULARY, CONTEXT, LAYERS, HEADS, WIDTH = 50257, 1024, 12, 12, 768


def plain_shapes(layers: int = LAYERS, width: int = WIDTH, vocabulary: int = VOCABULARY) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the params of GPT-2 small, with the names of our model."""
    shapes = {"embedding": (vocabulary, width), "positions.weight": (CONTEXT, width)}
    for number in range(layers):
        block = f"block_{number}"
        for norm in ("norm_1", "norm_2"):
            shapes |= {f"{block}.{norm}.weight": (width,), f"{block}.{norm}.bias": (width,)}
        for name, rows, columns in (
            ("attention.qkv", width, 3 * width),
            ("attention.out", width, width),
            ("mlp.up", width, 4 * width),
            ("mlp.down", 4 * width, width),
        ):
            shapes |= {f"{block}.{name}.weight": (rows, columns), f"{block}.{name}.bias": (columns,)}
    return shapes | {"norm.weight": (width,), "norm.bias": (width,)}


def plain_forward(params: dict[str, Any], tokens: Any, layers: int = LAYERS, heads: int = HEADS) -> Any:
    """Return the logits."""
    width = params["embedding"].shape[1]

    def linear(name: str, x: Any) -> Any:
        return x @ params[f"{name}.weight"] + params[f"{name}.bias"]

    def norm(name: str, x: Any) -> Any:
        mean = x.mean(-1, keepdims=True)
        variance = ((x - mean) ** 2).mean(-1, keepdims=True)
        return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * params[f"{name}.weight"] + params[f"{name}.bias"]

    def attention(name: str, x: Any) -> Any:
        batch, time, _ = x.shape
        whole = linear(f"{name}.qkv", x).reshape(batch, time, 3, heads, width // heads)
        query, key, value = whole[:, :, 0], whole[:, :, 1], whole[:, :, 2]
        scores = jnp.einsum("bthd,bshd->bhts", query, key) / (width // heads) ** 0.5
        seen = jnp.tril(jnp.ones((time, time), bool))
        weights = jax.nn.softmax(jnp.where(seen, scores, jnp.finfo(scores.dtype).min))
        mixed = jnp.einsum("bhts,bshd->bthd", weights, value)
        return linear(f"{name}.out", mixed.reshape(batch, time, width))

    x = jnp.take(params["embedding"], tokens, axis=0) + params["positions.weight"][: tokens.shape[1]]
    for number in range(layers):
        block = f"block_{number}"
        x = x + attention(f"{block}.attention", norm(f"{block}.norm_1", x))
        hidden = jax.nn.gelu(linear(f"{block}.mlp.up", norm(f"{block}.norm_2", x)), approximate=True)
        x = x + linear(f"{block}.mlp.down", hidden)
    return norm("norm", x) @ params["embedding"].T


def equinox_model(key: Any) -> Any:
    """Return GPT-2 small as an Equinox module."""
    import equinox as eqx

    class Block(eqx.Module):
        norm_1: eqx.nn.LayerNorm
        norm_2: eqx.nn.LayerNorm
        attention: eqx.nn.MultiheadAttention
        up: eqx.nn.Linear
        down: eqx.nn.Linear

        def __init__(self, key: Any):
            first, second, third = jax.random.split(key, 3)
            self.norm_1, self.norm_2 = eqx.nn.LayerNorm(WIDTH), eqx.nn.LayerNorm(WIDTH)
            biases = {f"use_{part}_bias": True for part in ("query", "key", "value", "output")}
            self.attention = eqx.nn.MultiheadAttention(HEADS, WIDTH, key=first, **biases)
            self.up = eqx.nn.Linear(WIDTH, 4 * WIDTH, key=second)
            self.down = eqx.nn.Linear(4 * WIDTH, WIDTH, key=third)

        def __call__(self, x: Any) -> Any:
            seen = jnp.tril(jnp.ones((x.shape[0], x.shape[0]), bool))
            normal = jax.vmap(self.norm_1)(x)
            x = x + self.attention(normal, normal, normal, mask=seen)
            hidden = jax.nn.gelu(jax.vmap(self.up)(jax.vmap(self.norm_2)(x)))
            return x + jax.vmap(self.down)(hidden)

    class GPT(eqx.Module):
        tokens: eqx.nn.Embedding
        positions: Any
        blocks: list[Block]
        norm: eqx.nn.LayerNorm

        def __init__(self, key: Any):
            keys = jax.random.split(key, LAYERS + 2)
            self.tokens = eqx.nn.Embedding(VOCABULARY, WIDTH, key=keys[0])
            self.positions = jax.random.normal(keys[1], (CONTEXT, WIDTH))
            self.blocks = [Block(each) for each in keys[2:]]
            self.norm = eqx.nn.LayerNorm(WIDTH)

        def __call__(self, tokens: Any) -> Any:
            x = jax.vmap(self.tokens)(tokens) + self.positions[: tokens.shape[0]]
            for block in self.blocks:
                x = block(x)
            return jax.vmap(self.norm)(x) @ self.tokens.weight.T

    return GPT(key)


def nnx_model() -> Any:
    """Return GPT-2 small as a Flax nnx module."""
    from flax import nnx

    class Block(nnx.Module):
        def __init__(self, rngs: nnx.Rngs):
            self.norm_1, self.norm_2 = nnx.LayerNorm(WIDTH, rngs=rngs), nnx.LayerNorm(WIDTH, rngs=rngs)
            self.attention = nnx.MultiHeadAttention(HEADS, WIDTH, decode=False, rngs=rngs)
            self.up, self.down = nnx.Linear(WIDTH, 4 * WIDTH, rngs=rngs), nnx.Linear(4 * WIDTH, WIDTH, rngs=rngs)

        def __call__(self, x: Any, mask: Any) -> Any:
            x = x + self.attention(self.norm_1(x), mask=mask)
            return x + self.down(nnx.gelu(self.up(self.norm_2(x))))

    class GPT(nnx.Module):
        def __init__(self, rngs: nnx.Rngs):
            self.tokens = nnx.Embed(VOCABULARY, WIDTH, rngs=rngs)
            self.positions = nnx.Embed(CONTEXT, WIDTH, rngs=rngs)
            self.blocks = nnx.List([Block(rngs) for _ in range(LAYERS)])
            self.norm = nnx.LayerNorm(WIDTH, rngs=rngs)

        def __call__(self, tokens: Any) -> Any:
            x = self.tokens(tokens) + self.positions(jnp.arange(tokens.shape[1]))
            mask = nnx.make_causal_mask(tokens)
            for block in self.blocks:
                x = block(x, mask)
            return self.tokens.attend(self.norm(x))

    return GPT(nnx.Rngs(0))
