"""`ml.search` with `seeds`: each trial trains several seeds, in one program where JAX can batch their steps."""

from __future__ import annotations

import threading
import time
import warnings
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mithril_nb as ml
from mithril_nb.errors import RunStoreError, UnknownOptionError
from mithril_nb.models import BatchNorm, Dropout, Linear
from mithril_nb.train.store import seeds as module

SEEDS = 3
RNG = np.random.default_rng(0)
X = RNG.normal(size=(64, 4)).astype(np.float32)
Y = (X[:, 0] * X[:, 1] > 0).astype(int)


@pytest.fixture(autouse=True)
def optuna() -> Any:
    library = pytest.importorskip("optuna")
    library.logging.set_verbosity(library.logging.WARNING)
    return library


def searched(folder: Path, make: Any, **options: Any) -> Any:
    options = {"space": {"rate": (0.01, 0.1)}, "trials": 1, "seeds": SEEDS, **options}
    return ml.search(make, track=folder / "runs" / "s", **options)


def stored(folder: Path) -> Any:
    return ml.runs(folder / "runs")["s-0"]


def network(rate: float, seed: int, **options: Any) -> Any:
    """Random numbers in each step, a state, and data that depend on the seed."""
    model = ml.Model()
    model |= Linear(8)
    model += BatchNorm()
    model += Dropout(0.2)
    model += Linear(2)
    options = {"validation": 0.25, "epochs": 2, **options}
    return ml.fit(model, (X, Y), learning_rate=rate, optimizer="sgd", batch_size=16, seed=seed, **options)


def line(rate: float, seed: int, **options: Any) -> Any:
    params = {"w": np.float32(seed)}
    options = {"epochs": 2, "batch_size": 16, "params": params, "validation": (X, X[:, :1]), **options}
    options |= {"loss": options.get("loss", "mean_squared_error"), "seed": seed}
    return ml.fit(lambda params, x: x[:, :1] * params["w"], (X, X[:, :1]), **options)


def test_seeds_at_once_equal_separate_runs(tmp_path: Path) -> None:
    runs: list[Any] = []

    def make(rate: float, seed: int) -> Any:
        runs.append(network(rate, seed))
        return runs[-1]

    (trial,) = searched(tmp_path, make, seeds=2).trials  # a warning, that they train in turn, would be an error
    apart = [network(**trial.params, seed=seed).wait() for seed in range(2)]
    for run, other in zip(runs, apart, strict=True):
        for name in ("loss", "accuracy", "validation_loss", "validation_accuracy"):
            np.testing.assert_allclose(run.history[name], other.history[name], 1e-4, err_msg=name)
        for name, array in other.params.items():
            np.testing.assert_allclose(run.params[name], array, 1e-3, 1e-5, err_msg=name)
        for name, array in other.model_state.items():
            np.testing.assert_allclose(run.model_state[name], array, 1e-3, 1e-5, err_msg=name)
    values = [run.history["validation_loss"][-1] for run in apart]
    history = stored(tmp_path).history
    np.testing.assert_allclose(history["loss"], np.mean([run.history["loss"] for run in apart], 0), 1e-4)
    np.testing.assert_allclose(trial.value, np.mean(values), 1e-4)
    assert trial.value == history["validation_loss"][-1]
    np.testing.assert_allclose(history["validation_loss_spread"][-1], np.std(values, ddof=1), 1e-3)
    assert trial.user_attrs["spread"] == history["validation_loss_spread"][-1]
    assert np.isnan(history["validation_loss_spread"][:-1]).all()
    np.testing.assert_allclose(stored(tmp_path).arrays("validation_loss_by_seed")[len(history["step"])], values, 1e-4)
    assert (stored(tmp_path).step, stored(tmp_path).state) == (len(history["step"]), "done")


def test_seeds_that_end_early_equal_separate_runs(tmp_path: Path) -> None:
    runs: list[Any] = []

    def make(rate: float, seed: int) -> Any:
        runs.append(line(rate, seed, learning_rate=0.5, epochs=12, stop=ml.patience("validation_loss", 1)))
        return runs[-1]

    (trial,) = searched(tmp_path, make).trials
    lengths = [run.step for run in runs]
    values = [run.history["validation_loss"][-1] for run in runs]
    assert len({*lengths}) > 1
    for seed in range(SEEDS):
        apart = make(0.1, seed).wait()
        assert apart.step == lengths[seed]
        np.testing.assert_allclose(values[seed], apart.history["validation_loss"][-1], 1e-4)
    assert trial.value == np.mean(values)
    assert len(stored(tmp_path).history["step"]) == min(lengths)


def by_constant(rate: float, seed: int) -> Any:
    params = {"w": np.float32(seed)}
    table = np.float32([1 + seed])
    return ml.fit(lambda params, x: x[:, :1] * params["w"] * table, (X, X[:, :1]), validation=0.3, epochs=1,
                  loss="mean_squared_error", params=params, seed=seed)  # fmt: skip


def by_callback(rate: float, seed: int) -> Any:
    factor = lambda x: np.asarray(x * (1 + seed), np.float32)  # noqa: E731

    def model(params: Any, x: Any) -> Any:
        inputs = jax.lax.stop_gradient(x[:, :1])
        return params["w"] * jax.pure_callback(factor, inputs, inputs, vmap_method="sequential")

    return ml.fit(model, (X, X[:, :1]), validation=0.3, epochs=1, loss="mean_squared_error",
                  params={"w": np.float32(seed)}, seed=seed)  # fmt: skip


def by_other_keys(rate: float, seed: int) -> Any:
    def model(params: Any, x: Any) -> Any:
        key = jax.random.key(jnp.abs(params["w"] * 1000).astype(int), impl="rbg")
        return x[:, :1] * params["w"] + jax.lax.stop_gradient(jax.random.normal(key, (1,)))

    return ml.fit(model, (X, X[:, :1]), validation=0.3, epochs=1, loss="mean_squared_error",
                  params={"w": np.float32(seed)}, seed=seed)  # fmt: skip


def begun(rate: float, seed: int) -> Any:
    return line(rate, seed).wait()


def number(rate: float, seed: int) -> float:
    return line(rate, seed).wait().history["validation_loss"][-1]


@pytest.mark.parametrize(
    ("make", "because"),
    [
        (by_constant, "their programs differ in more than the params and the data"),
        (by_callback, "they call Python in pure_callback"),
        (by_other_keys, "random numbers of random_seed are others in a batch"),
        (begun, "make returns a run that has begun"),
        (lambda rate, seed: line(rate, seed, norms=2), "norms= has steps of another program"),
        (number, "make returns a number"),
    ],
)
def test_other_seeds_train_in_turn(tmp_path: Path, make: Any, because: str) -> None:
    with pytest.warns(RuntimeWarning, match=f"train one after another: {because}"):
        (trial,) = searched(tmp_path, make).trials
    runs = [make(0.1, seed) for seed in range(SEEDS)]
    values = [run if make is number else run.wait().history["validation_loss"][-1] for run in runs]
    np.testing.assert_allclose(stored(tmp_path).arrays("validation_loss_by_seed").popitem()[1], values, 1e-6)
    assert trial.value == pytest.approx(np.mean(values))


class Draws:
    """Other batches in each iteration, as those of a `DataLoader` that shuffles."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)

    def __iter__(self) -> Any:
        for _ in range(4):
            chosen = self.rng.integers(0, 64, 16)
            yield X[chosen], X[chosen, :1]


@pytest.mark.parametrize(("batches", "in_turn"), [(Draws, True), (lambda: [*Draws()], False)])
def test_seeds_that_take_batches_of_one_iterable_train_in_turn(tmp_path: Path, batches: Any, in_turn: bool) -> None:
    """Else each seed would get what the threads of the others leave."""
    shared = batches()

    def make(rate: float, seed: int) -> Any:
        return ml.fit(lambda params, x: x[:, :1] * params["w"], shared, validation=(X, X[:, :1]), steps=4, seed=seed,
                      loss="mean_squared_error", params={"w": np.float32(seed)})  # fmt: skip

    with warnings.catch_warnings(record=True, action="always") as caught:
        searched(tmp_path, make)
    assert ["they take batches of one iterable" in str(warning.message) for warning in caught] == [True] * in_turn


def test_a_seed_that_diverges_fails_the_trial_and_stops_the_others(tmp_path: Path) -> None:
    runs: list[Any] = []

    def make(rate: float, seed: int) -> Any:
        def loss(prediction: Any, targets: Any) -> Any:  # infinite for the last seed after some steps
            return jnp.where(prediction > 15, jnp.inf, (prediction - targets) ** 2)

        targets = np.full((64, 1), 20 if seed == SEEDS - 1 else 10, np.float32)
        options = {"params": {"w": np.float32(0)}, "loss": loss, "optimizer": "sgd", "learning_rate": 0.01}
        model = lambda params, x: params["w"] * x[:, :1] ** 0  # noqa: E731
        runs.append(ml.fit(model, (X, targets), seed=seed, epochs=100_000, **options))
        return runs[-1]

    with pytest.warns(RuntimeWarning, match=r"trial 0 of the search failed\. TrainingError: the loss is infinite"):
        searched(tmp_path, make, metric="loss")
    assert [run.state for run in runs] == ["stopped"] * (SEEDS - 1) + ["failed"]
    assert stored(tmp_path).state == "failed"
    assert not [thread for thread in threading.enumerate() if thread.name == "mithril_nb training"]


@pytest.mark.parametrize("in_turn", [False, True])
def test_a_stored_trial_is_steered_as_one_run(tmp_path: Path, in_turn: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[Any] = []
    if in_turn:
        monkeypatch.setattr(module, "_obstacle", lambda runs: "of the test")

    def make(rate: float, seed: int) -> Any:
        runs.append(line(rate, seed, epochs=10**6))
        return runs[-1]

    def steer() -> None:
        def wait(condition: Any) -> None:
            until = time.monotonic() + 20
            while not condition() and time.monotonic() < until:
                time.sleep(0.02)
            seen.append(condition())

        wait(lambda: len(runs) == SEEDS and runs[0].step > 5 and "learning_rate" in stored(tmp_path).summary["knobs"])
        run = stored(tmp_path)
        run.set("learning_rate", 0.5)
        wait(lambda: {run.learning_rate for run in runs} == {0.5})
        run.pause()
        # In turn, the stored state is that of the steps that all took. At once, a seed that has begun its step when the
        # others pause waits for them, and is not paused itself.
        wait(lambda: (runs[0] if in_turn else run).state == "paused")
        run.resume()
        wait(lambda: (runs[0] if in_turn else run).state == "running")
        run.stop()

    seen: list[bool] = []
    thread = threading.Thread(target=steer)
    thread.start()
    with warnings.catch_warnings(record=True, action="always") as caught:
        study = searched(tmp_path, make)
    thread.join()
    assert all(seen)
    assert len(seen) == 4
    texts = [str(warning.message) for warning in caught]
    assert [("one after another" in text, "'s-0' was stopped" in text) for text in texts] == [
        *([(True, False)] * in_turn),
        (False, True),
    ]
    assert [trial.state.name for trial in study.trials] == ["RUNNING"]
    assert stored(tmp_path).state == "stopped"
    assert [run.state for run in runs] == (["stopped", "idle", "idle"] if in_turn else ["stopped"] * 3)


def test_a_pruner_sees_the_mean_and_stops_all_seeds(tmp_path: Path, optuna: Any) -> None:
    def make(rate: float, seed: int) -> Any:
        return line(rate, seed, epochs=10**6, validate_every=10**6, loss=lambda prediction, targets: prediction * 0 + 2)

    study = searched(tmp_path, make, metric="loss", pruner=optuna.pruners.ThresholdPruner(upper=1.5))
    assert [trial.state.name for trial in study.trials] == ["PRUNED"]
    assert "pruned" in [event["text"] for event in stored(tmp_path).events]


@pytest.mark.parametrize(
    ("make", "seeds", "message"),
    [
        (number, 1, "seeds must be a number from 2"),
        (number, "4", "seeds must be a number from 2"),
        (lambda rate: rate, 2, r"make must take seed(.*\n)*.*because +seed is missing"),
        (lambda run, rate, seed: rate, 2, r"make must take seed, and not run(.*\n)*.*rows of several seeds"),
        (lambda rate, seed: None, 2, r"or the value of the metric\.\n +got +NoneType, NoneType"),
    ],
)
def test_what_has_no_seeds_is_refused(tmp_path: Path, make: Any, seeds: Any, message: str) -> None:
    with pytest.raises(UnknownOptionError, match=message):
        searched(tmp_path, make, seeds=seeds)


def test_a_space_with_a_seed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownOptionError, match="the space cannot have a setting seed"):
        ml.search(number, {"seed": [0, 1]}, seeds=2, track=tmp_path / "a")


def test_a_search_with_other_seeds_is_refused(tmp_path: Path) -> None:
    with pytest.warns(RuntimeWarning, match="one after another"):
        searched(tmp_path, lambda rate, seed: rate)
    for seeds in (4, None):
        with pytest.raises(RunStoreError, match=f"seeds +3 → {seeds or 'missing'}"):
            searched(tmp_path, lambda rate, seed=0: rate, seeds=seeds)
