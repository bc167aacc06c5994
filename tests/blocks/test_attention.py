"""Attention: ports, connected attributes, fully masked rows, half precision, dropout; compared with JAX and Equinox."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mithril_nb as ml
from mithril_nb.models import (
    Model,
    MultiHeadAttention,
    PositionalEncoding,
    RotaryEmbedding,
    ScaledDotProduct,
)
from tests.blocks.cases.attention import rotated

random = np.random.default_rng(0)


def drawn(*shape: int, dtype: str = "float32") -> jax.Array:
    return jnp.asarray(random.normal(size=shape), dtype)


def run(model: Model, dtype: str = "float32", **inputs: jax.Array) -> jax.Array:
    pm = ml.compile(model, ml.JaxBackend(dtype=dtype), shapes={k: list(v.shape) for k, v in inputs.items()})
    return pm.evaluate(pm.randomize_params(0), inputs)["output"]


@pytest.mark.parametrize("heads", [4, 2, 1])
@pytest.mark.parametrize("is_causal", [True, False])
def test_attention_and_its_gradients_agree_with_jax(heads: int, is_causal: bool):
    query, key, value = drawn(2, 4, 5, 8), drawn(2, heads, 5, 8), drawn(2, heads, 5, 8)
    lengths = jnp.asarray([5, 3])
    pm = ml.compile(
        ScaledDotProduct(is_causal, use_lengths=True),
        shapes={"query": [2, 4, 5, 8], "key": [2, heads, 5, 8], "value": [2, heads, 5, 8], "lengths": [2]},
    )

    @jax.jit
    def ours(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        return pm.forward({}, {"query": q, "key": k, "value": v, "lengths": lengths})["output"]

    @jax.jit
    def theirs(*arrays: jax.Array) -> jax.Array:
        swapped = (array.swapaxes(1, 2) for array in arrays)
        out = jax.nn.dot_product_attention(*swapped, is_causal=is_causal, key_value_seq_lengths=lengths)
        return out.swapaxes(1, 2)

    np.testing.assert_allclose(ours(query, key, value), theirs(query, key, value), 1e-5, 1e-6)
    losses = (lambda *arrays, f=f: jnp.sin(f(*arrays)).sum() for f in (ours, theirs))
    grads = (jax.jit(jax.grad(loss, (0, 1, 2)))(query, key, value) for loss in losses)
    for one, other in zip(*grads, strict=True):
        np.testing.assert_allclose(one, other, 1e-4, 1e-5)


@pytest.mark.parametrize("mask", [jnp.zeros((3, 4), bool), jnp.full((3, 4), -jnp.inf)], ids=["truth", "numbers"])
def test_a_fully_masked_query_returns_zeros_and_zero_gradients(mask: jax.Array):
    mask = mask.at[1].set(mask.dtype == bool or 0.0)
    query, key, value = drawn(3, 2), drawn(4, 2), drawn(4, 2)
    pm = ml.compile(
        ScaledDotProduct(False, use_attn_mask=True),
        shapes={"query": [3, 2], "key": [4, 2], "value": [4, 2], "attn_mask": [3, 4]},
    )

    @jax.jit
    def out(query: jax.Array) -> jax.Array:
        return pm.forward({}, {"query": query, "key": key, "value": value, "attn_mask": mask})["output"]

    assert not out(query)[jnp.asarray([0, 2])].any()
    assert out(query)[1].any()
    grad = jax.jit(jax.grad(lambda query: out(query).sum()))(query)
    assert jnp.isfinite(grad).all()
    assert not grad[0].any()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_scores_beyond_half_precision_do_not_overflow(dtype: str):
    query = jnp.full((2, 64), 60.0, dtype)
    value = jnp.asarray([[1.0], [3.0]], dtype)
    out = run(ScaledDotProduct(False, scale=1.0), dtype, query=query, key=query, value=value)
    assert out.dtype == dtype
    np.testing.assert_array_equal(out, [[2.0], [2.0]])


def test_attributes_may_be_connected():
    model = Model()
    model |= ScaledDotProduct()(query="q", key="k", value="v", is_causal="causal", scale="scale", output="output")
    arrays = {"q": drawn(3, 2), "k": drawn(3, 2), "v": drawn(3, 2)}
    pm = ml.compile(model, shapes={**{name: [3, 2] for name in arrays}, "causal": [], "scale": []})
    for causal, scale in ((True, 0.5), (False, 2.0)):
        found = pm.evaluate({}, {**arrays, "causal": jnp.asarray(causal), "scale": jnp.asarray(scale)})["output"]
        plain = run(ScaledDotProduct(causal, scale), query=arrays["q"], key=arrays["k"], value=arrays["v"])
        np.testing.assert_allclose(found, plain, 1e-5, 1e-6)


def test_dropped_weights_keep_the_mean():
    pm = ml.compile(
        ScaledDotProduct(False, dropout_p=0.25), shapes={"query": [1, 2], "key": [4000, 2], "value": [4000, 1]}
    )
    inputs = {"query": jnp.zeros((1, 2)), "key": jnp.zeros((4000, 2)), "value": jnp.ones((4000, 1))}
    assert float(pm.forward({}, inputs)["output"][0, 0]) == pytest.approx(1.0, abs=1e-5)
    outs = [float(pm.forward({}, inputs, key=jax.random.key(n), training=True)["output"][0, 0]) for n in range(3)]
    assert len(set(outs)) == 3
    assert outs == pytest.approx([1.0] * 3, abs=0.05)


def test_rotary_agrees_with_equinox_and_depends_on_distances():
    x = drawn(6, 8)
    np.testing.assert_allclose(run(RotaryEmbedding(), input=x), eqx.nn.RotaryPositionalEmbedding(8)(x), 1e-5, 1e-5)
    pairs = run(RotaryEmbedding(is_interleaved=True), input=x)
    np.testing.assert_allclose(pairs, rotated(np.asarray(x), is_interleaved=True), 1e-5, 1e-5)
    query, key = (jnp.broadcast_to(drawn(8), (6, 8)) for _ in range(2))
    scores = run(RotaryEmbedding(), input=query) @ run(RotaryEmbedding(start=3), input=key).T
    np.testing.assert_allclose(np.diagonal(scores), scores[0, 0], 1e-4)


@pytest.mark.parametrize("block", [PositionalEncoding(4, 12000), RotaryEmbedding()], ids=lambda block: block.kind)
def test_large_positions_are_exact_in_float32(block: Model):
    x = jnp.ones((12000, 4))
    found = run(block, input=x)
    with jax.enable_x64(True):
        exact = run(block, "float64", input=x.astype("float64"))
    np.testing.assert_allclose(found, exact, 0, 4e-6)


def test_empty_batches_work():
    assert run(MultiHeadAttention(8, 2), input=jnp.ones((0, 3, 8))).shape == (0, 3, 8)
    assert run(MultiHeadAttention(8, 2, is_causal=True), input=jnp.ones((2, 1, 8))).shape == (2, 1, 8)
