"""Kernels with empty inputs, with NaN and infinity, and compared with finite differences."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from references import run_quickly

import mithril_nb as ml
from mithril_nb.models import (
    MLP,
    Conv2d,
    Dropout,
    Embedding,
    Flatten,
    Gelu,
    LayerNorm,
    Linear,
    MaxPool2d,
    Model,
    Relu,
    Sigmoid,
    Softmax,
    Tanh,
)

BLOCKS = {
    "linear": (Linear(3), (4, 5)),
    "mlp": (MLP(None, [4], 2), (4, 5)),
    "norm": (LayerNorm(), (4, 5)),
    "softmax": (Softmax(), (4, 5)),
    "relu": (Relu(), (4, 5)),
    "gelu": (Gelu(), (4, 5)),
    "sigmoid": (Sigmoid(), (4, 5)),
    "tanh": (Tanh(), (4, 5)),
    "flatten": (Flatten(), (4, 2, 3)),
    "dropout": (Dropout(), (4, 5)),
    "conv": (Conv2d(2), (4, 2, 5, 5)),
    "pool": (MaxPool2d(), (4, 2, 5, 5)),
}


def forward(model: ml.Model, x, **options):
    pm = ml.compile(model, shapes={"input": np.shape(x)}, jit=False)
    return np.asarray(pm.forward(pm.randomize_params(0), {"input": x}, **options)["output"])


def batches(shape: tuple[int, ...]) -> dict[str, np.ndarray]:
    """Return a batch of rows, its first row, no row, and a batch whose first row is NaN."""
    x = np.random.default_rng(0).normal(size=shape).astype("float32")
    found = {"whole": x, "one": x[:1], "none": x[:0]}
    for name, bad in (("nan", np.nan), ("inf", np.inf)):
        found[name] = x.copy()
        found[name][0] = bad
    return found


@cache
def outputs() -> dict[str, dict[str, np.ndarray]]:
    """Return the outputs of every block for each batch, from one program."""

    def run():
        return {
            name: {what: compiled(block, x)({"input": x})["output"] for what, x in batches(shape).items()}
            for name, (block, shape) in BLOCKS.items()
        }

    return jax.tree.map(np.asarray, run_quickly(run))


def compiled(block: ml.Model, x):
    pm = ml.compile(block, shapes={"input": x.shape})
    return partial(pm.forward, pm.randomize_params(0))


@pytest.mark.parametrize("name", BLOCKS)
def test_batches_of_size_zero_and_one(name):
    found = outputs()[name]
    assert found["none"].shape == (0, *found["whole"].shape[1:])
    np.testing.assert_allclose(found["one"], found["whole"][:1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("bad", ["nan", "inf"])
@pytest.mark.parametrize("name", BLOCKS)
def test_nan_and_infinity_pass_through(name, bad):
    out = outputs()[name][bad]
    if name in ("sigmoid", "tanh") and bad == "inf":
        np.testing.assert_array_equal(out[0], np.ones_like(out[0]))
    else:
        assert not np.isfinite(out[0]).all(), "invalid data is visible in the output"
    np.testing.assert_allclose(out[1:], outputs()[name]["whole"][1:], rtol=1e-5, err_msg="and stays in its row")


def test_embedding_index_out_of_range_is_nan():
    out = forward(Embedding(3, 2), np.array([0, 2, 3], "int32"))
    assert np.isfinite(out[:2]).all()
    assert np.isnan(out[2]).all()


def test_dropout_drops_its_share_and_keeps_the_mean():
    x = np.ones((400, 250), "float32")
    for p in (0.1, 0.5, 0.9):
        out = forward(Dropout(p), x, key=jax.random.key(1), training=True)
        assert set(np.unique(out).round(4)) == {np.float32(0), np.float32(1 / (1 - p)).round(4)}
        assert (out == 0).mean() == pytest.approx(p, abs=0.01)
        assert out.mean() == pytest.approx(1, abs=0.03)


@pytest.mark.parametrize(
    ("says", "training", "drops"),
    [(None, False, False), (None, True, True), (True, False, True), (True, True, True), (False, True, False)],
)
def test_dropout_option_overrides_the_program(says, training, drops):
    x = np.ones((8, 8), "float32")
    out = forward(Dropout(0.5, training=says), x, key=jax.random.key(0), training=training)
    assert bool((out == 0).any()) == drops


def test_dropout_depends_on_key_and_path():
    model = Model()
    model |= Dropout(0.5)(input="x", output="one")
    model |= Dropout(0.5)(input="x", output="two")
    pm = ml.compile(model, shapes={"x": [16, 16]}, jit=False)
    assert pm.needs_key

    def masks(seed: int):
        return pm.forward({}, {"x": jnp.ones((16, 16))}, key=jax.random.key(seed), training=True)

    first, again, other = masks(0), masks(0), masks(1)
    np.testing.assert_array_equal(first["one"], again["one"])
    np.testing.assert_array_equal(first["two"], again["two"])
    assert (np.asarray(first["one"]) != np.asarray(other["one"])).any()
    assert (np.asarray(first["one"]) != np.asarray(first["two"])).any(), "two blocks do not drop the same"


def test_the_gradient_of_dropout_is_its_mask():
    pm = ml.compile(Dropout(0.5), shapes={"input": [8, 8]}, jit=False)

    def total(x):
        return pm.forward({}, {"input": x}, key=jax.random.key(0), training=True)["output"].sum()

    x = jnp.ones((8, 8))
    out = pm.forward({}, {"input": x}, key=jax.random.key(0), training=True)["output"]
    np.testing.assert_array_equal(jax.grad(total)(x), out)
