"""Our own code runs under JAX's strict settings for operands of other shapes and dtypes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest

import mithril_nb as ml
from mithril_nb import models


@pytest.fixture(autouse=True)
def strict() -> Iterator[None]:
    settings = {"jax_numpy_rank_promotion": "raise", "jax_numpy_dtype_promotion": "strict"}
    before = {name: getattr(jax.config, name) for name in settings}
    for name, value in settings.items():
        jax.config.update(name, value)
    yield
    for name, value in before.items():
        jax.config.update(name, value)


MODELS: list[tuple[Any, tuple[int, ...]]] = [
    (models.MLP(4, [5], 3), (8, 4)),
    (models.CNN([4], 3), (8, 1, 8, 8)),
    (models.Model() + models.Linear(3) + models.Dropout(0.5) + models.BatchNorm1d(3), (8, 4)),
]


@pytest.mark.parametrize(("model", "shape"), MODELS, ids=["mlp", "cnn", "norm"])
@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_strict_settings(model: Any, shape: tuple[int, ...], optimizer: str) -> None:
    x, y = np.random.default_rng(0).normal(size=shape).astype("float32"), np.arange(8) % 3
    pm = ml.compile(model, shapes={"input": list(shape)})
    outputs = pm.evaluate(pm.randomize_params(seed=0), {"input": x}, state=pm.initial_state())
    assert outputs["output"].shape == (8, 3)
    assert ml.inspect(pm, program="train step", optimizer=optimizer).cost().rows
    *_, last = ml.fit(model, (x, y), epochs=2, batch_size=4, optimizer=optimizer)
    assert np.isfinite(last.loss)
    with pytest.raises(ValueError, match="rank_promotion"):  # the setting of the user holds for the user's code
        jax.numpy.ones((2, 3)) + jax.numpy.ones(3)


def test_strict_settings_in_bfloat16_with_norms() -> None:
    x, y = np.random.default_rng(0).normal(size=(8, 4)).astype("float32"), np.arange(8) % 3
    pm = ml.compile(models.MLP(4, [5], 3), ml.JaxBackend(dtype="bfloat16"), shapes={"input": [4, 4]})
    run = ml.fit(pm, (x, y), epochs=1, batch_size=4, norms=1).wait()
    assert run.norms is not None
    assert np.isfinite([*run.norms.gradient.values()]).all()
    assert all(statistics.std is not None for statistics in run.norms.activations.values())
