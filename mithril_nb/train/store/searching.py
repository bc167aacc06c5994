"""`ml.search`: a search of settings with Optuna, in which each trial is a stored run."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from os import PathLike
from typing import Any

import numpy as np

from mithril_nb.backends.backend import check_count, check_seed
from mithril_nb.errors import RunStoreError, UnknownOptionError, installed, listed, short_repr
from mithril_nb.train.checkpoints.folder_lock import in_use
from mithril_nb.train.losses import parameters_of
from mithril_nb.train.metrics import is_lower_better
from mithril_nb.train.run.handle import Run
from mithril_nb.train.store.following import follow
from mithril_nb.train.store.origin import code_of, plain
from mithril_nb.train.store.tracking import TrackedRun, claimed, opened

FILE = "search.sqlite"


def search(
    make: Callable[..., Any],
    space: Mapping[str, Any],
    *,
    trials: int = 20,
    metric: str | tuple[str, str] = "validation_loss",
    track: str | PathLike[str] = "runs/search",
    seed: int = 0,
    pruner: Any = None,
) -> Any:
    """Search the settings with the best value of a metric, with Optuna, and store each trial as a run.

    If the search was stopped or killed, the same call continues it: a trial that had not ended starts again with its
    settings, and its loop continues from its checkpoint if it restores one. The next trials are those of a search
    without a stop. More `trials` continue a search that has ended.

    Args:
        make: Function of the settings, by name. It returns a run of `ml.fit`, which is then trained; or trains itself
            and returns the value of the metric. If it has a parameter `run`, it receives the stored run of the trial,
            as from `ml.track`, and may return nothing after it has logged the metric.
        space: For each setting: `(low, high)` of int or float, `(low, high, "log")` for a logarithmic scale, a list of
            values, or a function of Optuna's trial, such as `lambda trial: trial.suggest_int("width", 8, 64, step=8)`.
        trials: Number of trials, those of earlier calls included. A trial fails if its metric is NaN or its training
            diverges; another error also ends the search.
        metric: Metric whose last value counts, such as `"validation_loss"`; `("error", "min")` for an own metric.
        track: `"FOLDER/NAME"`: the folder of the runs, and the name of the search. Its runs are `NAME-0`, `NAME-1`, ...
        seed: Seed of Optuna's `TPESampler`. The same seed gives the same trials, if `make` is reproducible.
        pruner: A pruner of Optuna, such as its `MedianPruner`: it sees the metric as it is logged, and
            stops runs of `ml.fit` and loops over `run.steps` early. How early depends on the time.

    Returns:
        The `Study` of Optuna, with `best_params`, `best_value` and `trials_dataframe`. `ml.runs` has the runs.

    Raises:
        RunStoreError: A search of this name has another space or metric, or the folder cannot be used.
        UnavailableBackendError: Optuna is not installed.
        UnknownOptionError: An option has an invalid value, or a trial has logged no such metric.

    Examples:
        Learning rate and layers of a model:

            def make(rate, layers):
                return ml.fit(model(layers), (x, y), learning_rate=rate, validation=0.2, epochs=5)

            space = {"rate": (1e-4, 1e-1, "log"), "layers": [2, 4, 8]}
            study = ml.search(make, space, trials=30, track="runs/digits")
            study.best_params  # such as {"rate": 0.0031, "layers": 4}
    """
    optuna = installed("optuna", "search")
    name, mode = metric if isinstance(metric, tuple) else (metric, None)
    direction = "minimize" if is_lower_better(name, mode) else "maximize"
    check_count("trials", trials)
    seed = check_seed(seed)
    about = {"metric": name, **{f"space[{key!r}]": _described(key, values) for key, values in space.items()}}
    sources, _ = code_of(sys._getframe(1))
    database, title = opened(track)
    database.close()
    study = optuna.create_study(
        storage=f"sqlite:///{database.folder / FILE}",
        study_name=title,
        direction=direction,
        pruner=pruner or optuna.pruners.NopPruner(),
        load_if_exists=True,
    )
    before = study.user_attrs.get("about", about)
    if before != about:
        keys = [key for key in {**before, **about} if before.get(key) != about.get(key)]
        facts = tuple((key, f"{before.get(key, 'missing')} → {about.get(key, 'missing')}") for key in keys)
        raise RunStoreError(f"the search {title!r} has another space.", facts, f'track="{track}-2"')
    study.set_user_attr("about", about)
    states = optuna.trial.TrialState
    left = [
        trial
        for trial in study.get_trials(states=[states.RUNNING])
        if not in_use(database.folder / f"{title}-{trial.number}")
    ]
    while left or len(study.trials) < trials:
        trial = optuna.Trial(study, left.pop(0)._trial_id) if left else study.ask()
        # With its own seed, a trial does not depend on whether the search was stopped before it.
        study.sampler = optuna.samplers.TPESampler(seed=(seed + trial.number) % 2**32)
        settings = {key: _suggested(trial, key, values) for key, values in space.items()}
        origin = {"config": plain(settings), "code": sources, "values": {}, "graph": None}
        watch = _Watch(trial, name, prunes=pruner is not None)
        watch.run = run = TrackedRun(
            *claimed(database.folder / f"{title}-{trial.number}", origin, "anyway"), sinks=[watch]
        )
        try:
            with run:
                value = _trained(make, settings, run, name)
            value = watch.value if value is None else value
            if value is None:
                facts = (("logged", listed(sorted(watch.names)) or "nothing"),)
                raise UnknownOptionError(f"a trial of the search has no {name!r}.", facts)
        except ArithmeticError:  # the training has diverged
            value = math.nan
        except Exception:
            study.tell(trial, state=states.FAIL)
            raise
        if watch.is_pruned or math.isnan(value):
            study.tell(trial, state=states.PRUNED if watch.is_pruned else states.FAIL)
        else:
            study.tell(trial, value)
    return study


class _Watch:
    """A sink that sees the metric of a trial."""

    def __init__(self, trial: Any, metric: str, *, prunes: bool):
        self.run: Any = None
        self.value: float | None = None
        self.names: set[str] = set()
        self.is_pruned = False
        self._trial, self._metric, self._prunes = trial, metric, prunes

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Keep the metric, and stop the run if the pruner asks for it."""
        self.names.update(metrics)
        if self._metric not in metrics:
            return
        self.value = metrics[self._metric]
        if self._prunes and not self.is_pruned:
            self._trial.report(self.value, step)
            self.is_pruned = self._trial.should_prune()
            if self.is_pruned:
                self.run.note("pruned")
                self.run.steered.stop()

    def close(self) -> None:
        """Do nothing."""


def _trained(make: Callable[..., Any], settings: Mapping[str, Any], run: TrackedRun, metric: str) -> float | None:
    """Train a trial, and return its metric if it is known."""
    result = make(**settings, **({"run": run} if "run" in parameters_of(make) else {}))
    if isinstance(result, Run):
        follow(result, run.folder, run)
        result.wait()
        values = np.asarray(result.history[metric])
        return float(values[~np.isnan(values)][-1]) if not np.isnan(values).all() else math.nan
    if result is not None:
        run.log({metric: result})
        return float(result)
    return None


def _suggested(trial: Any, name: str, values: Any) -> Any:
    if callable(values):
        return values(trial)
    if isinstance(values, list):
        return trial.suggest_categorical(name, values)
    low, high, *scale = values
    suggest = trial.suggest_int if isinstance(low, int) and isinstance(high, int) else trial.suggest_float
    return suggest(name, low, high, log=bool(scale))


def _described(name: str, values: Any) -> str:
    """Return a text of the values of a setting, or raise the error of wrong ones."""
    if callable(values):
        return "a function"
    if isinstance(values, list) and values:
        return repr(values)
    if isinstance(values, tuple) and [type(value) in (int, float) for value in values[:2]] == [True, True]:
        if values[0] < values[1] and values[2:] in ((), ("log",)):
            return repr(values)
    raise UnknownOptionError(
        f"the values of {name!r} are no space.",
        (("got", short_repr(values)),),
        f'space={{"{name}": (1e-4, 1e-1, "log")}}',
    )
