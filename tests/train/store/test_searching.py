"""`ml.search`: each trial is a stored run, and a search that was stopped continues as if it had not been."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mithril_nb as ml
from mithril_nb.errors import RunStoreError, UnavailableBackendError, UnknownOptionError

SPACE = {"rate": (1e-3, 1.0, "log"), "layers": (1, 4), "kind": ["a", "b"]}
METRIC = ("error", "min")


def error(rate: float, layers: int, kind: str) -> float:
    return (np.log10(rate) + 1) ** 2 + layers + (kind == "b")


def searched(folder: Path, make: Any = error, trials: int = 6, **options: Any) -> Any:
    options = {"space": SPACE, "metric": METRIC, **options}
    return ml.search(make, trials=trials, track=folder / "runs" / "s", **options)


@pytest.fixture(autouse=True)
def optuna() -> Any:
    module = pytest.importorskip("optuna")
    module.logging.set_verbosity(module.logging.WARNING)
    return module


def test_each_trial_is_a_stored_run(tmp_path: Path) -> None:
    study = searched(tmp_path)
    runs = ml.runs(tmp_path / "runs")
    assert [run.name for run in runs] == [f"s-{number}" for number in range(6)]
    for trial, run in zip(study.trials, runs, strict=True):
        assert run.config == trial.params
        assert run.state == "done"
        assert run.history["error"].tolist() == [trial.value] == [error(**trial.params)]
        assert 1e-3 <= trial.params["rate"] <= 1
        assert trial.params["layers"] in range(1, 5)
    assert study.best_value == min(trial.value for trial in study.trials)
    assert len(searched(tmp_path, trials=8).trials) == 8


def test_a_stopped_search_continues_as_if_it_had_not_been(tmp_path: Path) -> None:
    whole = searched(tmp_path / "whole", own_loop, 10)
    calls: list[int] = []

    def interrupted(run: Any, **settings: Any) -> None:
        calls.append(run.step)
        own_loop(run, **settings, stops=[2] if len(calls) in (1, 5, 9) else ())
        if len(calls) in (1, 5, 9):
            raise KeyboardInterrupt

    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            searched(tmp_path / "parts", interrupted, 10)
    parts = searched(tmp_path / "parts", interrupted, 10)
    assert len(calls) == 13
    assert [(trial.params, trial.value) for trial in parts.trials] == [
        (trial.params, trial.value) for trial in whole.trials
    ]
    assert len(ml.runs(tmp_path / "parts" / "runs")) == 10


def own_loop(run: Any, rate: float, layers: int, kind: str, stops: Any = ()) -> None:
    state = run.restore(0.0)
    for _ in run.steps([0], total=5):
        state += error(rate, layers, kind)
        run.log({"error": state / run.step, "other": 1.0}, state=state)
        if run.step in stops:
            run.stop()


@pytest.mark.parametrize("waits", [False, True])
def test_runs_of_fit(tmp_path: Path, waits: bool) -> None:
    x = np.linspace(-1, 1, 64, dtype=np.float32)[:, None]

    def make(rate: float) -> Any:
        run = ml.fit(
            lambda params, x: x * params["w"],
            (x, 3 * x),
            params={"w": np.float32(0)},
            loss="mean_squared_error",
            optimizer="sgd",
            learning_rate=rate,
            epochs=2,
            validation=0.25,
        )
        return run.wait() if waits else run

    study = searched(tmp_path, make, 3, space={"rate": (1e-2, 0.5)}, metric="validation_loss")
    for trial, run in zip(study.trials, ml.runs(tmp_path / "runs"), strict=True):
        assert run.history["validation_loss"][-1] == trial.value
        assert (run.step, run.state, run.config) == (4, "done", trial.params)


def test_trials_that_fail(tmp_path: Path) -> None:
    outcomes = iter([1.0, float("nan"), FloatingPointError("overflow"), 2.0, OSError("no data"), 3.0])

    def make(**_: Any) -> float:
        if isinstance(outcome := next(outcomes), Exception):
            raise outcome
        return outcome

    with pytest.raises(OSError, match="no data"):
        searched(tmp_path, make)
    states = [trial.state.name for trial in searched(tmp_path, make).trials]
    assert states == ["COMPLETE", "FAIL", "FAIL", "COMPLETE", "FAIL", "COMPLETE"]
    assert [run.state for run in ml.runs(tmp_path / "runs")] == ["done", "done", "failed", "done", "failed", "done"]


def test_a_pruner_ends_trials_early(tmp_path: Path, optuna: Any) -> None:
    def make(run: Any, value: int) -> None:
        for _ in run.steps([0]):
            run.log({"error": value})
            if value < 2 and run.step == 3:
                break
            time.sleep(0.01)

    study = searched(
        tmp_path, make, 6, space={"value": (0, 9)}, pruner=optuna.pruners.ThresholdPruner(upper=1.5), seed=3
    )
    for trial, run in zip(study.trials, ml.runs(tmp_path / "runs"), strict=True):
        assert trial.state.name == ("PRUNED" if trial.params["value"] > 1 else "COMPLETE")
        assert ("pruned" in [event["text"] for event in run.events]) == (trial.params["value"] > 1)


def test_another_search_is_refused(tmp_path: Path) -> None:
    searched(tmp_path, trials=1)
    with pytest.raises(RunStoreError, match=r"space\['layers'\]  \(1, 4\) → \(1, 5\)"):
        searched(tmp_path, space=SPACE | {"layers": (1, 5)})
    with pytest.raises(RunStoreError, match=r"metric +error → loss"):
        searched(tmp_path, metric="loss")


@pytest.mark.parametrize("values", [(1, 0), (1,), [], (1, 2, "exp"), 3, ("a", 1)])
def test_what_is_no_space_is_refused(tmp_path: Path, values: Any) -> None:
    with pytest.raises(UnknownOptionError, match="'rate'"):
        searched(tmp_path, space={"rate": values})
    assert not [*tmp_path.iterdir()]


def test_a_metric_that_is_not_logged(tmp_path: Path) -> None:
    def make(run: Any, **_: Any) -> None:
        run.log({"loss": 1.0})

    with pytest.raises(UnknownOptionError, match=r"no 'error'.*\n +logged +loss"):
        searched(tmp_path, make)


def test_optuna_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(UnavailableBackendError, match="pip install optuna"):
        searched(tmp_path)
