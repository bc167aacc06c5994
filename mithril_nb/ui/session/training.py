"""The runs of a session, sent to a front end while they train, and the example with generated data."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Literal, TypedDict, cast

import numpy as np

from mithril_nb.backends.backend import check_count, check_seed
from mithril_nb.errors import DataError, Diagnostic, UnknownOptionError
from mithril_nb.graph.records import LogicalGraph
from mithril_nb.models.library import Flatten, Linear, Relu
from mithril_nb.models.model import Model
from mithril_nb.models.shape_inference.flat import flat
from mithril_nb.train import Optimizer, Run, TrainingEvent, fit, resolve_optimizer
from mithril_nb.train.data import read_data
from mithril_nb.train.losses import Loss, resolve_loss
from mithril_nb.train.metrics import resolve_metrics
from mithril_nb.train.norms import TITLES
from mithril_nb.train.optimizers import check_rate
from mithril_nb.train.run.events import CURVES
from mithril_nb.train.run.state import RunState
from mithril_nb.train.store.stored import StoredRun
from mithril_nb.ui.session.analysis import Analysis
from mithril_nb.ui.session.commands import command, problem_of
from mithril_nb.ui.session.design import Design, design_of
from mithril_nb.ui.session.templates import BATCH, FIRST, TEMPLATES
from mithril_nb.ui.session.train_settings import Settings, TrainSettings

# Seconds between two updates: short enough to look live, long enough to leave the cores to training.
_EVERY_S = 0.4


class KnobData(TypedDict):
    """A setting that can change while a run trains."""

    name: str
    value: float
    log: bool  # whether it is positive, and has a logarithmic slider
    start: float


class RunData(TypedDict):
    """The state of a run."""

    # The page sets the last three when the connection ends while the run is running or paused.
    state: Literal["none", "idle", "running", "paused", "stopped", "done", "failed", "lost", "closed", "replaced"]
    epoch: int
    epochs: int
    step: int
    steps: int
    loss: float | None
    accuracy: float | None
    validation_loss: float | None
    validation_accuracy: float | None
    steps_per_s: float | None
    left_s: float | None
    learning_rate: float | None
    learning_rate_is_relative: bool
    message: str
    points: int
    is_current_model: bool  # whether the model has not changed since the run started
    knobs: list[KnobData]
    marks: list[tuple[int, str]]  # step and text of changed knobs, and of losses that are not finite
    latest: dict[str, float | None] | None  # latest metrics of a loop of `ml.track`; `None` for `ml.fit`


_NO_RUN: RunData = {
    "state": "none", "epoch": 0, "epochs": 0, "step": 0, "steps": 0, "loss": None, "accuracy": None,
    "validation_loss": None, "validation_accuracy": None, "steps_per_s": None, "left_s": None, "learning_rate": None,
    "learning_rate_is_relative": False, "message": "", "points": 0, "is_current_model": True, "knobs": [], "marks": [],
    "latest": None,
}  # fmt: skip


class CurvesHead(TypedDict("_From", {"from": int})):
    """Rows of the training history; the data are columns of float64."""

    columns: list[str]


@dataclass(frozen=True)
class RunRows:
    """Rows of a run's training history, from which a front end draws curves."""

    start: int  # index of the first row in the history. If it is 0, the front end replaces all rows that it has
    columns: tuple[str, ...]  # names of the columns, such as `"loss"`
    values: np.ndarray  # float64 array of shape (columns, rows); NaN for a missing value


class Training:
    """The options of `fit`, the current run, and earlier runs."""

    def __init__(
        self,
        options: Mapping[str, Any],
        tell: Callable[[str, Any], None],
        lock: AbstractContextManager[Any],
        analysis_now: Callable[[], Analysis],
        failed: Callable[[Diagnostic], None],
    ):
        self.options = dict(options)
        self._lock = lock
        self.run: Run | None = None
        self.runs: list[Run] = []
        self._send, self._analysis_now, self._failed = tell, analysis_now, failed
        self._trained: tuple[LogicalGraph, Loss, Settings] | None = None  # by the latest run
        self._first_rate: float | None = None  # set before the first run
        self._rates: tuple[Any, bool] | None = None  # optimizer of the latest run, and whether its rate is constant
        self._unfollow: Callable[[], None] = lambda: None

    def view(self) -> RunData:
        """Return the state of the run for a front end."""
        view = run_view(self.run)
        if self.run is None:
            view["message"] = "" if self._analysis_now().has_data else "no data to train on"
            view["learning_rate"], view["learning_rate_is_relative"] = self._rate, self._optimizer.is_relative
        return self._with_model(view)

    @property
    def _rate(self) -> float:
        return self._optimizer.learning_rate if self._first_rate is None else self._first_rate

    @property
    def _optimizer(self) -> Optimizer:
        return self._settings.optimizer

    @property
    def _settings(self) -> TrainSettings:
        return TrainSettings(self.options, self._analysis_now().settings.chosen)  # code may have changed the options

    def _with_model(self, view: RunData) -> RunData:
        return {**view, "is_current_model": self._is_current}

    @property
    def _is_current(self) -> bool:
        analysis = self._analysis_now()
        return self._trained in (None, _identity(analysis))

    def _send_of(self, kind: str, value: Any) -> None:
        self._send(kind, self._with_model(value) if kind == "run" else value)
        if kind == "run" and value["state"] == "failed" and self.run is not None and self.run.error is not None:
            self._failed(self.run.error)

    @property
    def current_run(self) -> Run | None:
        """The run of the model as it is now; `None` if the model has changed since, or was not trained."""
        return self.run if self._is_current else None

    def norms(self) -> dict[str, dict[str, float | None]]:
        """Return norms and activations of the run on the current blocks, by title; empty without `norms`."""
        if self.run is None or not self.run.computes_norms:
            return {}
        latest = None if self.current_run is None else self.current_run.norms
        if latest is None:
            return {title: {} for title in TITLES}
        analysis, names = self._analysis_now(), dict[str, set[str]]()
        for array in analysis.inference.parameters:
            names.setdefault(array.path, set()).add(array.name)
        parameters = {array.name for array in analysis.inference.parameters}
        for op in flat(analysis.design.graph).ops:  # a shared parameter has the path of one of its blocks
            names.setdefault(op.path, set()).update(parameters & set(op.arrays.values()))
        return latest.by_block(names)

    def data_for(self, analysis: Analysis) -> Any:
        """Return the user's data, else the generated data of the template; `None` without data."""
        if "data" in self.options or analysis.design.template not in TEMPLATES:
            return self.options.get("data")
        return TEMPLATES[analysis.design.template].data()

    def take_over(self, earlier: Training) -> None:
        """Show and control the run of an earlier execution of the cell, if it is running or paused."""
        if earlier.run is not None and earlier.run.state in ("running", "paused"):
            earlier._unfollow()  # otherwise the run keeps the earlier session alive
            self.run, self.runs, self._trained = earlier.run, list(earlier.runs), earlier._trained
            self._rates = earlier._rates
            self._unfollow = follow(self.run, self._send_of, self._lock)

    @command
    def train(self) -> None:
        """Continue the run."""
        self._run_of_model("done", "failed", "stopped").resume()

    @command
    def step_once(self) -> None:
        """Take one step."""
        self._run_of_model().step_once()

    @command
    def resume(self, epochs: int | None = None, learning_rate: float | None = None) -> None:
        """Continue the run from its current step, even if it has ended; with `epochs`, for so many more epochs."""
        run = self._run_to("continue")
        if learning_rate is not None:
            run.set_learning_rate(learning_rate)
        run.resume(epochs)

    @command
    def pause(self) -> None:
        """Pause the run after the current step."""
        self._run_to("pause").pause()

    @command
    def stop(self) -> None:
        """Stop the run after the current step."""
        self._run_to("stop").stop()

    @command
    def set_learning_rate(self, value: float) -> None:
        """Set the learning rate of the run, from its next step on."""
        if self.run is None:
            self._first_rate = check_rate(value)
        else:
            self.run.set_learning_rate(value)

    @command
    def request_curves(self) -> None:
        """Send all rows of the curves again."""
        if self.run is not None:
            self._send("curves", RunRows(0, CURVES, self.run.history.rows(0, CURVES)))

    def _run_to(self, action: str) -> Run:
        if self.run is None:
            raise UnknownOptionError(f"there is no run to {action}.", (("runs", "none"),), 'wb.do("train")')
        return self.run

    def _run_of_model(self, *over: RunState) -> Run:
        run = self.run
        if run is not None and run.state not in over and (self._is_current or run.state == "running"):
            return run
        fresh = self._start()
        if run is not None and run.state == "paused":
            run.stop()
        return fresh

    def _start(self) -> Run:
        analysis = self._analysis_now()
        settings = self._settings
        options = dict(settings.fit_options)
        options["data"] = self.data_for(analysis)
        if options["data"] is None:
            facts = (("needs", "arrays of samples and targets"),)
            advice = f'wb.do("use_data_of", template="{_like(analysis)}")  # or ml.workbench(model, data=(x, y))'
            raise DataError("this workbench has no data to train on.", facts, advice)
        if analysis.is_empty:
            advice = 'wb.do("add_block", kind="Linear")'
            raise DataError("this model cannot be trained yet.", (("because", "it has no block"),), advice)
        for problem in analysis.problems:
            raise DataError(replace(problem, summary=f"this model cannot be trained yet: {problem.summary}"))
        if analysis.why_not_trained:
            raise DataError(
                f"{analysis.why_not_trained}.",
                (("outputs", ", ".join(map(repr, analysis.inference.outputs))),),
                f'output="{[*analysis.inference.outputs][-1]}"  # in ml.workbench(...)',
            )
        data, _ = options.pop("data"), options.pop("loss", None)
        analysis = analysis.with_sizes_of(data, options.get("batch_size", 32))
        if (schedule := settings.schedule(_steps(data, options))) is not None:
            options["learning_rate"] = schedule
        run = fit(analysis.physical, data, loss=analysis.loss, **options)
        # A new run keeps the rate that the user set last, if it is a rate of the same optimizer and kind.
        rates = (settings.values["optimizer"], schedule is None)
        if self.run is None or self._rates == rates:
            run.set_learning_rate(self._rate if self.run is None else self.run.learning_rate)
        for earlier in self.runs:
            earlier.to_host()
        self.run, self._trained, self._rates = run, _identity(analysis), rates
        self.runs.append(run)
        self._unfollow()
        self._unfollow = follow(run, self._send_of, self._lock)
        return run


def _like(analysis: Analysis) -> str:
    """Return the first template whose generated data has the rank and the kind of dtype of the model's inputs."""
    kinds = {(len(spec.shape), str(spec.dtype)[:3]) for spec in analysis.inference.inputs.values()}
    inputs = {name: template.data()[0] for name, template in TEMPLATES.items()}
    return next((name for name, array in inputs.items() if kinds == {(array.ndim, str(array.dtype)[:3])}), FIRST)


def _identity(analysis: Analysis) -> tuple[LogicalGraph, Loss, Settings]:
    # More epochs are no other training.
    settings = tuple((name, value) for name, value in analysis.settings.chosen if name not in ("epochs", "norms"))
    return analysis.design.graph, analysis.loss, settings


def _steps(data: Any, options: Mapping[str, Any]) -> int:
    samples, validation = len(read_data(data, None)), options.get("validation")
    if isinstance(validation, float | np.floating):
        samples -= round(validation * samples)
    return options.get("epochs", 10) * -(-samples // options.get("batch_size", 32))


def follow(run: Run, tell: Callable[[str, Any], None], lock: AbstractContextManager[Any]) -> Callable[[], None]:
    """Send the state of a run now, at most every 0.4 seconds while it trains, and when it pauses, resumes or ends."""
    sent, version, sent_at = 0, run.history.version, 0.0

    def update(event: TrainingEvent | None) -> None:
        is_turn = event is None or event.kind not in ("step", "epoch")
        if not is_turn and time.monotonic() - sent_at < _EVERY_S:
            return  # an epoch may be as short as a step; a later step or the end of the run sends the rows
        with lock:
            send_all()

    def send_all() -> None:
        nonlocal sent, version, sent_at
        sent_at = time.monotonic()
        if run.history.version != version:
            sent, version = 0, run.history.version
        rows = run.history.rows(sent, CURVES)
        if rows.shape[1] or sent == 0:
            tell("curves", RunRows(sent, CURVES, rows))
            sent += rows.shape[1]
        tell("run", run_view(run))

    stop = run.observe(update, _EVERY_S)
    update(None)
    return stop


def stored_view(run: StoredRun) -> RunData:
    """Return the state of a stored run, which any process may train, for a front end."""
    summary, state = run.summary, run.state
    latest = {name: value if math.isfinite(value) else None for name, value in summary["latest"].items()}
    marks = [(event["step"], event["text"]) for event in summary["events"] if {"knob", "metric"} & event.keys()]
    knobs = [cast(KnobData, {"name": name, **knob}) for name, knob in summary["knobs"].items()]
    view = {**_NO_RUN, "state": state, "step": summary["step"], "steps": summary.get("steps") or 0}
    view |= {"message": summary.get("reason") or "", "points": summary["step"]}
    if state == "killed":
        view |= {"state": "failed", "message": "its process has ended without ending the run"}
    return cast(RunData, {**view, "knobs": knobs, "marks": marks, "latest": latest})


def stored_rows(run: StoredRun) -> RunRows:
    """Return all rows of a stored run, with the steps as the first column."""
    history = run.history
    names = tuple(name for name in history if name != "elapsed_s")
    return RunRows(0, names, np.array([history[name] for name in names]))


def follow_stored(
    run: StoredRun, tell: Callable[[str, Any], None], lock: AbstractContextManager[Any]
) -> Callable[[], None]:
    """Send the state of a stored run every 0.4 seconds while it trains, in any process, and else every 2 seconds."""
    ended, sent, marks = threading.Event(), RunRows(0, (), np.empty((0, 0))), deque[tuple[float, int]]()
    latest: RunData | None = None

    def update() -> float:
        nonlocal sent, latest
        view = stored_view(run)
        if latest is None or view["step"] != latest["step"] or view["latest"] != latest["latest"]:
            rows = stored_rows(run)
            start, count = 0, rows.values.shape[1]
            if rows.columns == sent.columns:
                both = min(count, sent.values.shape[1])
                old, new = sent.values[:, :both], rows.values[:, :both]
                differs = np.flatnonzero(~((old == new) | (np.isnan(old) & np.isnan(new))).all(0))
                start = int(differs[0]) if len(differs) else both
            with lock:
                tell("curves", RunRows(start, rows.columns, rows.values[:, start:]))
            sent = rows
        marks.append((time.monotonic(), view["step"]))
        while len(marks) > 2 and marks[-1][0] - marks[1][0] > 2:
            marks.popleft()
        if view["state"] == "running" and (passed := view["step"] - marks[0][1]) > 0:
            view["steps_per_s"] = passed / (marks[-1][0] - marks[0][0])
            view["left_s"] = (view["steps"] - view["step"]) / view["steps_per_s"] if view["steps"] else None
        if view != latest:
            latest = view
            with lock:
                tell("run", view)
        return _EVERY_S if view["state"] in ("running", "paused") else 2.0

    def work() -> None:
        wait_s = 0.0
        while not ended.wait(wait_s):
            began = time.monotonic()
            try:
                wait_s = update()
            except Exception as error:  # such as a deleted folder: shown in the page
                wait_s = 2.0
                with lock:
                    tell("run", cast(RunData, {**(latest or _NO_RUN), "message": problem_of(error).summary}))
            wait_s = max(wait_s, 5 * (time.monotonic() - began))  # a long history takes long to read

    threading.Thread(target=work, name="mithril_nb curves", daemon=True).start()
    return ended.set


def check_options(options: Mapping[str, Any]) -> None:
    """Check the options of `fit` that do not depend on the model or the data."""
    resolve_optimizer(options.get("optimizer", "adam"), options.get("learning_rate"))
    loss = resolve_loss(options.get("loss", "cross_entropy"))
    resolve_metrics(options.get("metrics"), loss)
    check_seed(options.get("seed", 0))
    for name in ("epochs", "batch_size", *(["norms"] if options.get("norms") is not None else [])):
        check_count(name, options.get(name, 10))


def run_view(run: Run | None) -> RunData:
    """Return the state of a run for a front end."""
    view = {**_NO_RUN, **(run.snapshot() if run else {})}
    # The rest of the message is Python for the user of `run`; a page has buttons.
    return cast(RunData, {**view, "message": view["message"].partition("; run.")[0]})


_WIDTH = 32


def example_design(data: Any, loss: Any = "cross_entropy") -> Design:
    """Return a classifier or regression model with the sizes of the data."""
    dataset = read_data(data, None)
    x = next(iter(dataset.inputs.values()))
    y = np.asarray(dataset.targets)
    is_classes = resolve_loss(loss).targets == "labels"
    model = Model(name="example")
    if x.ndim > 2:
        model |= Flatten()
    model += Linear(_WIDTH)
    model += Relu()
    model += Linear(int(y.max()) + 1 if is_classes else int(np.prod(y.shape[1:])))
    return design_of(model, {"input": [BATCH, *x.shape[1:]]})
