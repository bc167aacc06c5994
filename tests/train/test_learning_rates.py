"""`find_lr` against a loop in NumPy; a rate is suggested only if the loss falls."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import numpy as np
import optax
import pytest

import mithril_nb as ml
from mithril_nb.display import render
from mithril_nb.errors import TrainingError, UnknownOptionError
from mithril_nb.train.learning_rates import _steepest

RNG = np.random.default_rng(0)
X = RNG.normal(size=(48, 3)).astype(np.float32)
Y = X @ np.float32([[1], [-2], [3]]) + RNG.normal(size=(48, 1)).astype(np.float32) / 10


def line(params: Any, x: Any) -> Any:
    return x @ params


def ranged(low: float = 1e-4, high: float = 0.5, steps: int = 60, **options: Any) -> Any:
    options = {"loss": "mean_squared_error", "optimizer": optax.sgd, "params": np.zeros((3, 1), np.float32)} | options
    return ml.find_lr(line, (X, Y), low=low, high=high, steps=steps, batch_size=16, shuffle=False, **options)


def test_rates_and_losses_are_those_of_a_loop() -> None:
    params = np.zeros((3, 1))
    rates = np.geomspace(1e-4, 0.5, 60)
    losses = []
    for index, rate in enumerate(rates):
        x, y = (array[16 * (index % 3) :][:16].astype(float) for array in (X, Y))
        error = x @ params - y
        losses.append((error**2).mean())
        params = params - rate * 2 * x.T @ error / error.size
    start = np.zeros((3, 1), np.float32)
    result = ranged(params=start)
    np.testing.assert_allclose(result.history["learning_rate"], rates, rtol=1e-5)
    np.testing.assert_allclose(result.history["loss"], losses, rtol=1e-3)
    assert not start.any()
    assert 1e-3 < result.suggestion < 0.5
    shown = render(result)
    assert f"{result.suggestion:.3g}" in shown["text/plain"]
    assert shown["image/svg+xml"].count(f"suggested learning rate: {result.suggestion:.3g}") == 3
    ElementTree.fromstring(shown["image/svg+xml"])


def test_nothing_is_suggested_if_the_loss_never_falls() -> None:
    assert ranged(loss=lambda prediction, targets: prediction.mean(1) * 0 + targets[:, 0] ** 2).suggestion is None
    best = np.linalg.lstsq(X, Y, rcond=None)[0]
    result = ranged(params=best)
    assert result.suggestion is None
    assert "unknown" in str(result)


def test_the_test_ends_at_a_loss_that_is_not_finite() -> None:
    result = ranged(high=1e6)
    assert len(result.history["loss"]) < 60
    assert np.isfinite(result.history["loss"]).all()
    assert result.suggestion < 1
    with pytest.raises(TrainingError):
        ranged(params=np.full((3, 1), np.inf, np.float32), loss=lambda p, t: (p - t)[:, 0] * 0 + p[:, 0])


@pytest.mark.parametrize(
    "options",
    [
        {"low": 0},
        {"low": 1, "high": 0.1},
        {"high": float("inf")},
        {"steps": 5},
        {"learning_rate": 0.1},
        {"accumulate": 4},
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UnknownOptionError):
        ranged(**options)


@pytest.mark.parametrize("steps", [20, 50, 100, 300])
def test_noise_alone_has_hardly_ever_a_suggestion(steps: int) -> None:
    rng = np.random.default_rng(steps)
    rates = np.geomspace(1e-6, 1, steps)
    falls = 2.3 - 1.8 / (1 + (3e-3 / rates) ** 2)
    suggested = [_steepest(rates, rng.normal(2.3, 0.3, steps)) for _ in range(500)]
    assert sum(rate is not None for rate in suggested) <= 15
    falling = [_steepest(rates, falls + rng.normal(0, 0.1, steps)) for _ in range(100)]
    assert sum(rate is not None and 3e-4 < rate < 3e-2 for rate in falling) >= 90
