"""`fit` on the backends that run emitted source: the step, optimizer included, agrees with JAX's."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
import pytest
from transcript import message_of

import mithril_nb as ml
from mithril_nb import models
from mithril_nb.errors import TrainingError, UnknownOptionError
from mithril_nb.train import Run, fit
from tests.backends.test_emitted_backends import KINDS, each_kind

STEPS = 20
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "sgd": {"optimizer": "sgd", "learning_rate": 0.1},
    "adam": {"optimizer": "adam", "learning_rate": 0.02},
    "adamw": {"optimizer": optax.adamw(0.02, weight_decay=0.1)},
    "a schedule and clipping": {
        "optimizer": optax.chain(
            optax.clip_by_global_norm(0.5), optax.sgd(optax.cosine_decay_schedule(0.3, STEPS), momentum=0.9)
        )
    },
}


def mlp() -> models.Model:
    return models.MLP(4, [8], 3)


def noisy() -> models.Model:
    """A model with a state and random numbers, whose last batch is short."""
    model = models.Model() + models.Linear(6) + models.BatchNorm() + models.Relu()
    return model + models.Dropout(0.3) + models.Linear(3)


@cache
def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 60)
    return (rng.normal(size=(60, 4)) + 3 * np.eye(3, 4)[y]).astype(np.float32), y


def options_of(name: str) -> dict[str, Any]:
    """Return options for 20 steps; one of the runs validates, which needs another program."""
    return {"epochs": 5, "batch_size": 15, "validation": data() if name == "sgd" else None, **OPTIMIZERS[name]}


@cache
def trained(name: str) -> Run:
    return fit(mlp(), data(), **options_of(name)).wait()


def assert_same_curves(run: Run, expected: Run, rtol: float = 1e-4) -> None:
    for column in ("loss", "accuracy", "validation_loss", "learning_rate"):
        np.testing.assert_allclose(run.history[column], expected.history[column], rtol=rtol, err_msg=column)


def assert_same_params(run: Run, expected: Run, backend: Any) -> None:
    assert run.params.keys() == expected.params.keys()
    for name, value in expected.params.items():
        np.testing.assert_allclose(backend.to_numpy(run.params[name]), value, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("kind", [*KINDS, *([ml.GGMLBackend] if ml.GGMLBackend.available() else [])])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_losses_agree_with_jax(kind: Any, name: str) -> None:
    backend, expected = kind(), trained(name)
    run = fit(mlp(), data(), backend=backend, **options_of(name)).wait()
    assert len(run.history) == STEPS
    assert_same_curves(run, expected)
    assert_same_params(run, expected, backend)
    assert all(backend.is_own(array) for array in jax.tree.leaves((run.params, run.opt_state)))


@each_kind
def test_dropout_and_state_agree_with_jax(kind: Any) -> None:
    # Adam would enlarge the rounding errors of the bias before the norm, whose gradient is 0.
    options: Any = {"epochs": 2, "batch_size": 32, "seed": 3, "optimizer": "sgd"}
    expected = fit(noisy(), data(), **options).wait()
    pm = ml.compile(noisy(), kind(), shapes={"input": ["batch", 4]})
    run = fit(pm, data(), **options).wait()
    assert_same_curves(run, expected)
    for name, value in expected.model_state.items():
        np.testing.assert_allclose(pm.backend.to_numpy(run.model_state[name]), value, rtol=1e-4, atol=1e-6)
    x = data()[0][:32]
    found = pm.evaluate(run.params, {"input": x}, state=run.model_state)["output"]
    assert pm.backend.shape(found) == (32, 3)


def test_float64_trains_in_float64() -> None:
    backend = ml.NumpyBackend(dtype="float64")
    run = fit(mlp(), data(), backend=backend, **options_of("sgd")).wait()
    assert {str(array.dtype) for array in run.params.values()} == {"float64"}
    assert_same_curves(run, trained("sgd"))
    assert run.evaluate(data()) == pytest.approx(trained("sgd").evaluate(data()), rel=1e-4)
    assert not jax.config.jax_enable_x64


def test_a_run_continues_on_another_backend(tmp_path: Path) -> None:
    options: Any = {"batch_size": 15, "checkpoint": tmp_path, **OPTIMIZERS["adam"]}
    fit(mlp(), data(), backend=ml.NumpyBackend(), epochs=1, **options).wait()
    run = fit(mlp(), data(), backend=ml.CBackend(), epochs=2, resume=True, **options)
    assert run.step == 4
    run.wait()
    np.testing.assert_allclose(run.history["loss"], trained("adam").history["loss"][:8], rtol=1e-4)


def test_returned_params_are_copies() -> None:
    run = fit(mlp(), data(), backend=ml.NumpyBackend(), epochs=1, batch_size=32)
    taken = run.params
    taken["linear_0.weight"][:] = 7
    assert (run.params["linear_0.weight"] != 7).all()
    run.wait()
    assert (taken["linear_0.weight"] == 7).all()


def test_a_diverged_run_goes_back_to_finite_params() -> None:
    x, y = data()
    run = fit(
        models.Linear(1), (x, 1e20 * x[:, :1]), loss="mean_squared_error", optimizer="sgd", learning_rate=1e12,
        backend=ml.NumpyBackend(), epochs=2, batch_size=30,
    )  # fmt: skip
    with pytest.raises(TrainingError):
        run.wait()
    assert all(np.isfinite(array).all() for array in run.params.values())
    assert len(y) == 60


def test_frozen_parameters_stay() -> None:
    pm = ml.compile(mlp(), ml.NumpyBackend(), shapes={"input": ["batch", 4]}, frozen=["linear_0"])
    run = fit(pm, data(), epochs=1, batch_size=32)
    before = run.params
    run.wait()
    np.testing.assert_array_equal(run.params["linear_0.weight"], before["linear_0.weight"])
    assert (run.params["linear_1.weight"] != before["linear_1.weight"]).any()


def test_another_backend_is_rejected() -> None:
    pm = ml.compile(mlp(), ml.NumpyBackend(), shapes={"input": ["batch", 4]})
    with pytest.raises(UnknownOptionError, match="backend= has no effect"):
        fit(pm, data(), backend=ml.CBackend())
    assert message_of(lambda: fit(pm, (data()[0], data()[1] / 2), batch_size=16)).startswith(
        "DataError: data: the labels are not integers"
    )
    assert math.isfinite(fit(pm, data(), epochs=1, batch_size=60).wait().history["loss"][0])
