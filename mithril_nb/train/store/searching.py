"""`ml.search`: a search of settings with Optuna, in which each trial is a stored run."""

from __future__ import annotations

import math
import sys
import threading
import uuid
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from os import PathLike
from typing import Any

import numpy as np

from mithril_nb.backends.backend import check_count, check_seed
from mithril_nb.errors import RunStoreError, TrainingError, UnknownOptionError, installed, listed, short_repr
from mithril_nb.train.losses import parameters_of
from mithril_nb.train.metrics import is_lower_better
from mithril_nb.train.run.handle import Run
from mithril_nb.train.store.database import Database
from mithril_nb.train.store.following import follow
from mithril_nb.train.store.origin import code_of, differences, plain
from mithril_nb.train.store.seeds import check_seeds, train_seeds
from mithril_nb.train.store.tracking import TrackedRun, begin, locked, opened

FILE = "search.sqlite"
_ITEMS = (bool, int, float, str, type(None))


def search(
    make: Callable[..., Any],
    space: Mapping[str, Any],
    *,
    trials: int = 20,
    metric: str | tuple[str, str] = "validation_loss",
    track: str | PathLike[str] = "runs/search",
    seed: int = 0,
    seeds: int | None = None,
    pruner: Any = None,
) -> Any:
    """Search the settings with the best value of a metric, with Optuna, and store each trial as a run.

    If the search was stopped or killed, the same call continues it: a trial that had not ended starts again with its
    settings, and its loop continues from its checkpoint if it restores one. The next trials are those of a search
    without a stop. More `trials` continue a search that has ended. If you stop the run of a trial, the search ends
    with a warning.

    Args:
        make: Function of the settings, by name. It returns a run of `ml.fit`, which is then trained; or trains itself
            and returns the value of the metric. If it has a parameter `run`, it receives the stored run of the trial,
            as from `ml.track`, and may return nothing after it has logged the metric.
        space: For each setting: `(low, high)` of int or float, `(low, high, "log")` for a logarithmic scale, a list of
            values, or a function of Optuna's trial, such as `lambda trial: trial.suggest_int("width", 8, 64, step=8)`.
        trials: Number of trials, those of earlier calls included. A trial fails, with a warning, if the last
            value of its metric is NaN or its training diverges; another error also ends the search.
        metric: Metric whose last value counts, such as `"validation_loss"`; `("error", "min")` for an own metric.
        track: `"FOLDER/NAME"`: the folder of the runs, and the name of the search. Its runs are `NAME-0`, `NAME-1`, ...
        seed: Seed of Optuna's `TPESampler`. The same seed gives the same trials, if `make` is reproducible.
        seeds: Number of seeds of each trial, whose value is then the mean over them. `make` takes `seed`, which is 0 to
            `seeds - 1`, and not `run`. If it returns runs of `ml.fit` that differ in nothing but params and data, all
            train at once, as one program of `jax.vmap`; else one after another, with a warning. The rows of the run are
            means over the seeds, and its last row has the standard deviation, as `METRIC_spread`, and the values, as
            `ml.runs(FOLDER)[NAME].arrays("METRIC_by_seed")`. The study has the attribute `spread` for each trial.
        pruner: A pruner of Optuna, such as its `MedianPruner`: it sees the metric as it is logged, and
            stops runs of `ml.fit` and loops over `run.steps` early. How early varies between searches.

    Returns:
        The `Study` of Optuna, with `best_params`, `best_value` and `trials_dataframe`. `ml.runs` has the runs.

    Raises:
        RunStoreError: A search of this name has another space or metric, or another process is running it; a run that
            is not of this search has the name of a trial; or the folder cannot be used.
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
    seed = check_seed(seed) % 2**64
    if seeds is not None:
        check_seeds(make, seeds, space)
    described = {f"space[{key!r}]": _described(key, values) for key, values in space.items()}
    about = {"values": {"metric": name, "direction": direction, **described}, "config": {}, "code": {}}
    if seeds is not None:
        about["values"]["seeds"] = seeds
    sources, _ = code_of(sys._getframe(1))
    states, url = optuna.trial.TrialState, installed("sqlalchemy", "search").URL
    with ExitStack() as closing:
        database, title = opened(track)
        closing.callback(database.close)
        closing.callback(locked(database, title, is_search=True).release)
        study = optuna.create_study(
            storage=url.create("sqlite", database=str(database.folder / FILE)).render_as_string(),
            study_name=title,
            direction=direction,
            pruner=pruner or optuna.pruners.NopPruner(),
            load_if_exists=True,
        )
        if "about" not in study.user_attrs:
            study.set_user_attr("id", uuid.uuid4().hex)
            study.set_user_attr("about", about)
        if changes := differences(study.user_attrs["about"], about):
            summary = f"the search {title!r} has another space or metric."
            raise RunStoreError(summary, tuple(changes), f'track="{track}-2"')
        left = study.get_trials(states=[states.RUNNING])
        while left or len(study.trials) < trials:
            number = left[0].number if left else len(study.trials)
            chosen, identity = f"{title}-{number}", [study.user_attrs["id"], number]
            own = Database(database.folder)  # the run closes it, and releases the lock
            closing.callback(own.close)
            lock = locked(own, chosen)
            closing.callback(lock.release)
            stored = own.summary(chosen) if chosen in own.names() else None
            if stored is not None and (not left or own.origin(chosen).get("search") != identity):
                facts = (("folder", str(own.folder)), ("state", f"{stored['state']}, step {stored['step']}"))
                raise RunStoreError(f"the run {chosen!r} is not of this search.", facts, f'track="{track}-2"')
            # With its own seed, a trial does not depend on whether the search was stopped before it.
            (own_seed,) = np.random.SeedSequence([seed, number]).generate_state(1).tolist()
            study.sampler = optuna.samplers.TPESampler(seed=own_seed)
            trial = optuna.Trial(study, left.pop(0)._trial_id) if left else study.ask()
            watch = _Watch(trial, name, study.trials[number].intermediate_values)
            problem, state = f"its last {name} is NaN", "done"
            try:
                settings = {key: _suggested(trial, key, values) for key, values in space.items()}
                if stored is None or stored["state"] != "done":
                    origin = {"config": plain(settings), "code": sources, "values": {}, "graph": None}
                    begin(own, chosen, stored, {**origin, "search": identity}, "anyway", ())
                    watch.run = run = TrackedRun(own, chosen, lock, sinks=[] if pruner is None else [watch])
                    with run:
                        if seeds is None:
                            _train(make, settings, run, name)
                        else:
                            train_seeds(make, settings, seeds, run, name)
                    state = run.state
                latest = database.summary(chosen)["latest"]
                value = latest.get(name)
                if seeds is not None:
                    trial.set_user_attr("spread", latest.get(f"{name}_spread"))
                if value is None and state == "done":
                    facts = (("logged", listed(sorted(latest)) if latest else "nothing"),)
                    raise UnknownOptionError(f"a trial of the search has no {name!r}.", facts)
            except (FloatingPointError, TrainingError) as error:
                value, problem = math.nan, f"{type(error).__name__}: {error}"
            except Exception:
                study.tell(trial, state=states.FAIL)
                raise
            if state == "stopped" and watch.is_pruned:
                study.tell(trial, state=states.PRUNED)
            elif state == "stopped":
                text = f"the search ends, because the run {chosen!r} was stopped. The same call continues both."
                warnings.warn(text, RuntimeWarning, stacklevel=2)
                break
            elif value is None or math.isnan(value):
                study.tell(trial, state=states.FAIL)
                warnings.warn(f"trial {number} of the search failed. {problem}", RuntimeWarning, stacklevel=2)
            else:
                study.tell(trial, value)
    return study


class _Watch:
    """A sink that reports the newest value of the metric to the pruner, which may stop the run."""

    def __init__(self, trial: Any, metric: str, reported: Iterable[int]):
        self.run: Any = None
        self.is_pruned = False
        self._trial, self._metric, self._step = trial, metric, max(reported, default=-1)
        self._newest: tuple[float, int] | None = None

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Take a row. A run that continues logs some steps again, and the pruner has their values."""
        if self._metric in metrics and step > self._step:
            self._newest = metrics[self._metric], step

    def flush(self) -> None:
        """Report, and stop the run if the pruner asks for it."""
        if self._newest is None:
            return
        self._trial.report(*self._newest)
        self._step, self._newest = self._newest[1], None
        if self.run.state == "running" and not self.is_pruned and self._trial.should_prune():
            self.is_pruned = True
            self.run.note("pruned")
            self.run.steered.stop()

    close = flush


def _train(make: Callable[..., Any], settings: Mapping[str, Any], run: TrackedRun, metric: str) -> None:
    result = make(**settings, **({"run": run} if "run" in parameters_of(make) else {}))
    if isinstance(result, Run):
        follow(result, run.folder, run)
        result.wait()
        result._observers.flush(threading.TIMEOUT_MAX)  # until the store has the last rows
    elif result is not None:
        run.log({metric: result})


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
    is_space = isinstance(values, list) and values and all(isinstance(item, _ITEMS) for item in values)
    if isinstance(values, tuple) and [type(value) in (int, float) for value in values[:2]] == [True, True]:
        low, high, *scale = values
        is_space = -math.inf < low < high < math.inf and (not scale or (scale == ["log"] and low > 0))
    if is_space:
        return repr(values)
    takes = "(low, high), finite; (low, high, 'log'), positive; a list of None, bool, int, float or str; a function"
    raise UnknownOptionError(
        f"the values of {name!r} are no space.",
        (("got", short_repr(values)), ("takes", takes)),
        f'space={{"{name}": (1e-4, 1e-1, "log")}}',
    )
