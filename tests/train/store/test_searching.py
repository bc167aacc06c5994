"""`ml.search`: each trial is a stored run, and a search that was stopped continues as if it had not been."""

from __future__ import annotations

import contextlib
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import mithril_nb as ml
from mithril_nb.errors import RunStoreError, UnavailableBackendError, UnknownOptionError
from mithril_nb.train.store import tracking

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
    def make(rate: float) -> Any:
        run = fitted(learning_rate=rate, validation=0.25)
        return run.wait() if waits else run

    study = searched(tmp_path, make, 3, space={"rate": (1e-2, 0.5)}, metric="validation_loss")
    for trial, run in zip(study.trials, ml.runs(tmp_path / "runs"), strict=True):
        assert run.history["validation_loss"][-1] == trial.value
        assert (run.step, run.state, run.config) == (4, "done", trial.params)


def fitted(**options: Any) -> Any:
    x = np.linspace(-1, 1, 64, dtype=np.float32)[:, None]
    options = {"epochs": 2, "learning_rate": 0.1, **options}

    def model(params: Any, x: Any) -> Any:
        return jnp.where(x > 1, jnp.nan, x) * params["w"]

    params = {"w": np.float32(0)}
    return ml.fit(model, (x, 3 * x), params=params, loss="mean_squared_error", optimizer="sgd", **options)


@pytest.mark.parametrize(
    ("error", "match"),
    [(FloatingPointError("overflow"), "FloatingPointError: overflow"), (None, "its last error is NaN")],
)
def test_trials_that_fail(tmp_path: Path, error: Any, match: str) -> None:
    outcomes = iter([1.0, error or float("nan"), 2.0, ZeroDivisionError("no data"), 3.0, 4.0])

    def make(**_: Any) -> float:
        if isinstance(outcome := next(outcomes), Exception):
            raise outcome
        return outcome

    for rest in (True, False):
        context = pytest.raises(ZeroDivisionError, match="no data") if rest else contextlib.nullcontext()
        with warnings.catch_warnings(record=True, action="always") as caught, context:
            study = searched(tmp_path, make)
        assert [match in str(warning.message) for warning in caught] == [True] * rest
    states = "COMPLETE FAIL COMPLETE FAIL COMPLETE COMPLETE"
    assert " ".join(trial.state.name for trial in study.trials) == states
    failed = "failed" if error else "done"
    assert [run.state for run in ml.runs(tmp_path / "runs")] == ["done", failed, "done", "failed", "done", "done"]


def test_training_that_diverges_fails(tmp_path: Path) -> None:
    def make(rate: float) -> Any:
        return fitted(learning_rate=rate, epochs=100, validation=0.25)

    with pytest.warns(RuntimeWarning, match=r"trial 0 of the search failed\. TrainingError"):
        study = searched(tmp_path, make, 1, space={"rate": (1e8, 1e9)}, metric="validation_loss")
    assert [trial.state.name for trial in study.trials] == ["FAIL"]


def test_the_last_validation_counts_if_it_is_nan(tmp_path: Path) -> None:
    def make(size: int) -> Any:
        x = np.full((size, 1), 2, np.float32)  # for which the model gives NaN
        return fitted(validation=(x, x), validate_every=3)

    with pytest.warns(RuntimeWarning, match="its last validation_loss is NaN"):
        study = searched(tmp_path, make, 1, space={"size": (4, 8)}, metric="validation_loss")
    assert study.trials[0].state.name == "FAIL"
    history = ml.runs(tmp_path / "runs")["s-0"].history
    assert "validation_accuracy" not in history
    assert np.isfinite(history["loss"]).all()


def test_a_column_without_values_is_not_logged(tmp_path: Path) -> None:
    def make(rate: float) -> Any:
        return fitted(learning_rate=rate)

    with pytest.raises(UnknownOptionError, match=r"no 'validation_loss'.*\n +logged +(?!.*validation).*loss"):
        searched(tmp_path, make, 1, space={"rate": (0.1, 0.2)}, metric="validation_loss")


def test_a_later_validation_counts_between_rows_without_one(tmp_path: Path) -> None:
    def make(rate: float) -> Any:
        return fitted(learning_rate=rate, validation=0.25, validate_every=3, epochs=5)

    study = searched(tmp_path, make, 1, space={"rate": (0.1, 0.2)}, metric="validation_loss")
    values = ml.runs(tmp_path / "runs")["s-0"].history["validation_loss"]
    assert study.trials[0].value == values[~np.isnan(values)][-1]


def test_one_search_of_a_name_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracking, "ENDING_S", 0.1)

    def nested(**settings: Any) -> float:
        with pytest.raises(RunStoreError, match=r"another process is running this search\.\n +search +s"):
            searched(tmp_path)
        ml.search(error, SPACE, trials=1, metric=METRIC, track=tmp_path / "runs" / "other")
        return error(**settings)

    assert len(searched(tmp_path, nested, 1).trials) == 1
    assert [run.name for run in ml.runs(tmp_path / "runs")] == ["s-0", "other-0"]


@pytest.mark.parametrize("ends", [True, False])
def test_no_other_run_is_continued(tmp_path: Path, ends: bool) -> None:
    """Neither by a new trial, nor by a trial without a run that an earlier call left."""

    def interrupted(**_: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        searched(tmp_path, interrupted)
    ml.runs(tmp_path / "runs").delete("s-0")
    for name in ("s-0", "s-1"):
        with ml.track(tmp_path / "runs" / name) as run:
            run.log({"error": 0.5})
            if not ends:
                run.stop()
    for name in ("s-0", "s-1"):
        with pytest.raises(RunStoreError, match=rf"the run '{name}' is not of this search(.*\n)*.*Try: track=.*s-2"):
            searched(tmp_path)
        assert ml.runs(tmp_path / "runs")[name].step == 1
        ml.runs(tmp_path / "runs").delete(name)
    assert [trial.state.name for trial in searched(tmp_path, trials=2).trials] == ["COMPLETE"] * 2


def test_a_run_that_had_ended_is_not_trained_again(
    tmp_path: Path, optuna: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(optuna.Study, "tell", killed)
        with pytest.raises(KeyboardInterrupt):
            searched(tmp_path)
    value = ml.runs(tmp_path / "runs")["s-0"].history["error"][-1]
    study = searched(tmp_path, killed, 1)
    assert [(trial.state.name, trial.value) for trial in study.trials] == [("COMPLETE", value)]


@pytest.mark.parametrize("stops", ["loop", "fit", "store"])
def test_a_run_stopped_by_hand_ends_the_search(tmp_path: Path, stops: str) -> None:
    by_hand = [True]

    def make(run: Any, rate: float) -> Any:
        if stops == "fit":
            fit = fitted(learning_rate=rate, validation=0.25)
            for event in fit if by_hand else ():
                if event.step == 2:
                    fit.stop()
            return fit
        for _ in run.steps([0], total=3):
            run.log({"validation_loss": rate})
            if by_hand and stops == "loop":
                run.stop()
            elif by_hand:
                ml.runs(run.folder.parent)[run.name].stop()
                while run._control.requested != "stop":
                    time.sleep(0.01)
        return None

    options: Any = {"space": {"rate": (0.1, 0.2)}, "metric": "validation_loss"}
    with pytest.warns(RuntimeWarning, match="'s-0' was stopped. The same call continues both"):
        study = searched(tmp_path, make, 2, **options)
    assert [trial.state.name for trial in study.trials] == ["RUNNING"]
    by_hand.clear()
    study = searched(tmp_path, make, 2, **options)
    assert [trial.state.name for trial in study.trials] == ["COMPLETE"] * 2
    assert [run.name for run in ml.runs(tmp_path / "runs")] == ["s-0", "s-1"]


def test_a_continued_run_without_steps_left_counts(tmp_path: Path) -> None:
    def interrupted(run: Any, **settings: Any) -> None:
        own_loop(run, **settings)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        searched(tmp_path, interrupted, 1)
    (trial,) = searched(tmp_path, own_loop, 1).trials
    assert trial.value == pytest.approx(error(**trial.params))


def test_neighbouring_seeds_share_no_trial(tmp_path: Path) -> None:
    rates = [
        trial.params["rate"]
        for seed in (-1, 0, 1)
        for trial in searched(tmp_path / str(seed), lambda rate: rate, 2, space={"rate": (0.1, 1.0)}, seed=seed).trials
    ]
    assert len({*rates}) == 6


@pytest.mark.parametrize("name", ["a?b", "a#b", "a%41 {b}"])
def test_folders_with_signs_of_an_url(tmp_path: Path, name: str) -> None:
    for _ in range(2):
        assert len(searched(tmp_path / name, trials=2).trials) == 2
    assert (tmp_path / name / "runs" / "search.sqlite").exists()
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_the_pruner_receives_the_newest_value(tmp_path: Path, optuna: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    reports: list[int] = []
    monkeypatch.setattr(optuna.Trial, "report", lambda self, value, step: reports.append(step))

    def make(run: Any, **_: Any) -> None:
        for _ in run.steps([0], total=5000):
            run.log({"error": 1.0})

    searched(tmp_path, make, 1, pruner=optuna.pruners.MedianPruner())
    assert reports[-1] == 5000
    assert reports == sorted({*reports})
    assert len(reports) < 500


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
    with pytest.raises(RunStoreError, match=r"direction +minimize → maximize"):
        searched(tmp_path, metric=("error", "max"))


BAD = [(0.0, 1.0, "log"), (-1, 3, "log"), (0, float("inf")), (float("nan"), 1), [(1, 2)], [np.float32(1)]]


@pytest.mark.parametrize("values", [(1, 0), (1,), [], (1, 2, "exp"), 3, ("a", 1), *BAD])
def test_what_is_no_space_is_refused(tmp_path: Path, values: Any) -> None:
    with pytest.raises(UnknownOptionError, match=r"'rate'(.*\n)+.*None, bool, int, float or str"):
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
