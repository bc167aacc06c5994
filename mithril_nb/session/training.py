"""The runs of a session: starting, steering, and telling of them as they go."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np

from mithril_nb.errors import DataError, UnknownOptionError
from mithril_nb.graph.records import LogicalGraph
from mithril_nb.session.analysis import Analysis
from mithril_nb.session.example import example_data
from mithril_nb.train import Run, TrainingEvent, fit
from mithril_nb.train.history import CURVES

_EVERY_S = 0.4
"""How often a page is told of steps: it looks live, and drawing takes little from a training on the same cores."""
_NO_RUN: dict[str, Any] = {
    "state": "none", "epoch": 0, "epochs": 0, "step": 0, "steps": 0, "loss": None, "accuracy": None,
    "validation_loss": None, "validation_accuracy": None, "steps_per_s": None, "left_s": None, "learning_rate": None,
    "learning_rate_is_relative": False, "message": "", "points": 0,
    "is_current_model": True,
}  # fmt: skip


@dataclass(frozen=True)
class Rows:
    """Rows of a run's curves, as a front end gets them.

    Attributes:
        start: Index of the first row; 0 replaces all.
        columns: Names of the columns.
        values: float64 array of shape (columns, rows); NaN where there is no value.
    """

    start: int
    columns: tuple[str, ...]
    values: np.ndarray


class Training:
    """Holds the options of `fit`, the run under way, and those before it.

    Args:
        options: What `fit` is given.
        tell: Is told `("curves", Rows)` and `("run", dict)`.
        lock: Held while telling.
        analysis_now: Gives what follows from the design now, whose model may be another than the one that trains.

    Attributes:
        options: What `fit` is given.
        run: The latest run, or `None`.
        runs: All runs, oldest first: a new one takes nothing away from those before.
        commands: What the training controls can ask for, by name.
    """

    def __init__(
        self,
        options: Mapping[str, Any],
        tell: Callable[[str, Any], None],
        lock: AbstractContextManager[Any],
        analysis_now: Callable[[], Analysis],
    ):
        self.options = dict(options)
        self._lock = lock
        self.run: Run | None = None
        self.runs: list[Run] = []
        self._tell, self._analysis_now = tell, analysis_now
        self._graph: LogicalGraph | None = None  # of the latest run
        self._unfollow: Callable[[], None] = lambda: None
        steering = (self.train, self.go_on, self.pause, self.stop, self.step_once, self.set_learning_rate)
        self.commands: dict[str, Callable[..., None]] = {
            command.__name__: command for command in (*steering, self.request_curves)
        }

    def view(self) -> dict[str, Any]:
        """Return the run as a front end shows it."""
        view = run_view(self.run)
        if self.run is None:
            has_data = "data" in self.options or self._analysis_now().design.uses_example_data
            view["message"] = "" if has_data else "give the workbench data=(x, y) to train"
        return self._with_model(view)

    def _with_model(self, view: dict[str, Any]) -> dict[str, Any]:
        return {**view, "is_current_model": self._graph is None or self._graph == self._analysis_now().design.graph}

    def _tell_of(self, kind: str, value: Any) -> None:
        self._tell(kind, self._with_model(value) if kind == "run" else value)

    def take_over(self, earlier: Training) -> None:
        """Continue to show and steer a run that the earlier run of the cell has started, if it still trains."""
        if earlier.run is not None and earlier.run.state in ("running", "paused"):
            earlier._unfollow()  # else the run holds the earlier session as long as it lives
            self.run, self.runs, self._graph = earlier.run, list(earlier.runs), earlier._graph
            self._unfollow = follow(self.run, self._tell_of, self._lock)

    def train(self) -> None:
        """Go on with the run; what is done, stopped or failed starts anew, at the rate that the person set last.

        Raises:
            DataError: There is no data to train on, or it does not fit.
        """
        if self.run is None or self.run.state in ("done", "failed", "stopped"):
            self._start().start()
        else:
            self.run.go_on()

    def step_once(self) -> None:
        """Do one step; without a run, the first of a new one.

        Raises:
            DataError: There is no data to train on, or it does not fit.
        """
        (self._start() if self.run is None else self.run).step_once()

    def go_on(self) -> None:
        """Go on with the run where it is, even if it was stopped.

        Raises:
            UnknownOptionError: There is no run.
        """
        self._run_to("go on").go_on()

    def pause(self) -> None:
        """Pause the run after its step.

        Raises:
            UnknownOptionError: There is no run.
        """
        self._run_to("pause").pause()

    def stop(self) -> None:
        """Stop the run after its step.

        Raises:
            UnknownOptionError: There is no run.
        """
        self._run_to("stop").stop()

    def set_learning_rate(self, value: float) -> None:
        """Set the rate of the next step.

        Raises:
            UnknownOptionError: There is no run, or the rate is not a number from 0 on.
        """
        self._run_to("set the learning rate of").set_learning_rate(value)

    def request_curves(self) -> None:
        """Tell of all rows of the curves again."""
        if self.run is not None:
            self._tell("curves", Rows(0, CURVES, self.run.history.rows(0, CURVES)))

    def _run_to(self, be_steered: str) -> Run:
        if self.run is None:
            raise UnknownOptionError(
                f"there is no run to {be_steered}.", (("runs", "none"),), "start one first: the command 'train'."
            )
        return self.run

    def _start(self) -> Run:
        analysis, options = self._analysis_now(), dict(self.options)
        if "data" not in options and analysis.design.uses_example_data:
            options["data"] = example_data()
        if "data" not in options:
            raise DataError(
                "this workbench has no data to train on.",
                (("needs", "arrays of samples, and of what is to be predicted"),),
                "data=(x, y)  # in ml.workbench(...)",
            )
        if not analysis.can_run:
            raise DataError(
                "this model cannot be trained yet.",
                (("because", "it has no block" if analysis.is_empty else str(analysis.problems[0])),),
                "mend what the Problems tab lists.",
            )
        if analysis.why_not_trained:
            raise DataError(
                f"{analysis.why_not_trained}.",
                (("outputs", ", ".join(map(repr, analysis.inference.outputs))),),
                f'output="{[*analysis.inference.outputs][-1]}"  # in ml.workbench(...)',
            )
        data, _ = options.pop("data"), options.pop("loss", None)
        analysis = analysis.with_sizes_of(data, options.get("batch_size", 32))
        run = fit(analysis.physical, data, loss=analysis.loss, **options)
        if self.run is not None:
            run.set_learning_rate(self.run.learning_rate)  # nothing but a person ever changes it
        self.run, self._graph = run, analysis.design.graph
        self.runs.append(run)
        self._unfollow()
        self._unfollow = follow(run, self._tell_of, self._lock)
        return run


def follow(run: Run, tell: Callable[[str, Any], None], lock: AbstractContextManager[Any]) -> Callable[[], None]:
    """Tell of a run now, and from now on whenever something new is to be shown: five times in two seconds at most.

    Args:
        run: The run.
        tell: Is told `("curves", Rows)` and `("run", dict)`, on the run's own listening thread.
        lock: Held from looking to having told; whoever else tells of the run holds it too, so that what was seen
            earlier is never told later.

    Returns:
        A function that ends it.
    """
    sent, version, told_at = 0, run.history.version, 0.0

    def look(event: TrainingEvent | None) -> None:
        is_turn = event is None or event.kind not in ("step", "epoch")
        if not is_turn and time.monotonic() - told_at < _EVERY_S:
            return  # an epoch may be as short as a step; a later step, or the turn at the end, brings the rows
        with lock:
            tell_all()

    def tell_all() -> None:
        nonlocal sent, version, told_at
        told_at = time.monotonic()
        if run.history.version != version:
            sent, version = 0, run.history.version
        rows = run.history.rows(sent, CURVES)
        if rows.shape[1] or sent == 0:
            tell("curves", Rows(sent, CURVES, rows))
            sent += rows.shape[1]
        tell("run", run_view(run))

    stop = run.observe(look, _EVERY_S)
    look(None)
    return stop


def run_view(run: Run | None) -> dict[str, Any]:
    """Return a run as a front end shows it."""
    return dict(_NO_RUN) if run is None else {**_NO_RUN, **run.snapshot()}
