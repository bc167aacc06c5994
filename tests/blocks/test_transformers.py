"""Transformers: sizes, weight sharing, initializers and causality of GPT-2."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mithril_nb as ml
from mithril_nb.models import GPT, TransformerBlock, TransformerEncoder


def test_gpt_has_the_parameters_of_gpt2_small():
    pm = ml.compile(GPT(), shapes={"input": [1, 8]})
    sizes = {one.name: one.spec.size or 0 for one in pm.parameters}
    assert sum(sizes.values()) == 124_439_808
    assert sizes["embedding"] == 50257 * 768
    assert sizes["block_11.attention.qkv.weight"] == 768 * 2304
    untied = ml.compile(GPT(is_tied=False), shapes={"input": [1, 8]})
    assert sum(one.spec.size or 0 for one in untied.parameters) == 124_439_808 + 50257 * 768


def test_gpt_has_the_initializers_of_gpt2():
    pm = ml.compile(GPT(500, 64, 3, 4, 64), shapes={"input": [1, 8]})
    for name, value in pm.randomize_params(0).items():
        if name.endswith("bias"):
            assert not value.any(), name
        elif "norm" in name:
            assert (value == 1).all(), name
        else:
            wanted = 0.02 / 6**0.5 if name.endswith(("out.weight", "down.weight")) else 0.02
            assert float(value.std()) == pytest.approx(wanted, rel=0.05), name


def test_gpt_starts_at_a_uniform_loss_and_is_causal():
    pm = ml.compile(GPT(100, 16, 2, 4, 32, dropout=0.1), shapes={"input": [2, 16]})
    params = pm.randomize_params(0)
    tokens = jax.random.randint(jax.random.key(0), (2, 16), 0, 100)
    scores = pm.evaluate(params, {"input": tokens})["output"]
    loss = -jax.nn.log_softmax(scores)[:, :-1, :].at[..., 0].get().mean()
    assert float(loss) == pytest.approx(np.log(100), rel=0.05)
    changed = pm.evaluate(params, {"input": tokens.at[:, 9:].set(0)})["output"]
    np.testing.assert_allclose(scores[:, :9], changed[:, :9], 1e-5, 1e-6)
    assert not np.allclose(scores[:, 9:], changed[:, 9:])


def test_the_tied_embedding_has_gradients_from_both_uses():
    pm = ml.compile(GPT(10, 4, 1, 1, 8), shapes={"input": [1, 2]})
    params = pm.randomize_params(0)
    total = lambda p: (pm.forward(p, {"input": jnp.asarray([[1, 2]])})["output"] ** 2).sum()  # noqa: E731
    grad = jax.jit(jax.grad(total))(params)
    # Every row is scored, also those of unused tokens.
    assert bool((jnp.abs(grad["embedding"]).sum(1) > 0).all())


@pytest.mark.parametrize("norm_first", [True, False])
def test_ten_blocks_keep_the_scale(norm_first: bool):
    pm = ml.compile(TransformerEncoder(10, 64, 4, norm_first=norm_first), shapes={"input": [2, 16, 64]})
    x = jax.random.normal(jax.random.key(0), (2, 16, 64))
    assert 0.1 < float(pm.evaluate(pm.randomize_params(0), {"input": x})["output"].std()) < 10


def test_dropout_acts_only_in_training():
    pm = ml.compile(TransformerBlock(8, 2, dropout=0.5), shapes={"input": [2, 3, 8]})
    params, x = pm.randomize_params(0), jax.random.normal(jax.random.key(9), (2, 3, 8))
    still = pm.evaluate(params, {"input": x})["output"]
    dropped = jax.jit(lambda key: pm.forward(params, {"input": x}, key=key, training=True)["output"])
    first, again, other = (dropped(jax.random.key(seed)) for seed in (0, 0, 1))
    assert (first == again).all()
    assert not np.allclose(first, other)
    assert not np.allclose(first, still)


def test_a_block_stays_in_half_precision():
    pm = ml.compile(TransformerBlock(8, 2), ml.JaxBackend(dtype="bfloat16"), shapes={"input": [2, 3, 8]})
    assert str(pm.output_specs["output"]) == "(2, 3, 8) bfloat16"
    assert pm.evaluate(pm.randomize_params(0), {"input": jnp.ones((2, 3, 8), "bfloat16")})["output"].dtype == "bfloat16"
