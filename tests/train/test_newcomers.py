"""What newcomers write first: errors that name the mistake, with advice that is true."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from flax import linen as nn
from flax import nnx

import mithril_nb as ml
from mithril_nb.errors import TrainingError
from mithril_nb.models import Linear, Model
from mithril_nb.train import History, fit

X, Y = np.ones((8, 4), np.float32), np.zeros(8, np.int32)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda model: fit(model, X, Y), "Try: ml.fit(model, (x, y))"),
        (lambda model: fit(model, (X, Y), steps=100), "Try: epochs=10  # an epoch takes len(x) / batch_size steps"),
        (lambda model: fit(model, (X, Y), validate_every=2), "Try: validation=0.2"),
        (lambda model: fit(model, iter([(X, Y)])), "Try: x, y = map(np.concatenate, zip(*data))"),
        (lambda model: fit(nnx.Linear(4, 3, rngs=nnx.Rngs(0)), (X, Y)), "Try: found = ml.from_flax(module); ml.fit("),
        (lambda model: ml.watch(History()), "Try: ml.watch(run)"),
        (lambda model: ml.inspect(jax.numpy.sin, X).memory(), "Try: p.memory"),
        (lambda model: fit(Model() + Linear(1), (X, X[:, :1]), batch_size=4), 'loss="mean_squared_error" for numbers'),
    ],
)
def test_advice_for_what_newcomers_write(small, call, text):
    with pytest.raises(ml.errors.MithrilError) as caught:
        call(small)
    assert text in str(caught.value)


def test_nan_at_the_first_step_is_not_blamed_on_the_rate(small, blobs):
    run = fit(small, blobs, loss=lambda p, t: p.mean() * np.nan, batch_size=16)
    with pytest.raises(TrainingError, match="the loss is NaN at the first step") as caught:
        run.wait()
    assert "rate" not in str(caught.value)
    with jax.debug_nans(True), pytest.raises(FloatingPointError):
        run.evaluate(blobs)


def test_linen_module_without_a_key_names_rngs():
    module = nn.Dropout(0.5, deterministic=False)
    text = str(ml.inspect(module, X).stage("jaxpr"))
    assert 'ml.inspect(module, x, rngs={"dropout": jax.random.key(0)})' in text


def test_params_of_a_checkpoint_load(small, two):
    loaded = ml.load_params(two / "step-0000000008.safetensors")
    assert set(loaded) == set(small.randomize_params(0))
    assert fit(small, (X, Y), params=loaded, batch_size=4).step == 0
    of_folder = ml.load_params(two)
    assert all(np.array_equal(of_folder[name], loaded[name]) for name in loaded)
    (two / "latest").symlink_to(two / "step-0000000008.safetensors")
    assert set(ml.load_params(two / "latest")) == set(loaded)
