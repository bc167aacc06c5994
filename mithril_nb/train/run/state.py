"""State of a run: everything that changes while it trains, and a copy of the last params with a finite loss."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from mithril_nb.errors import Diagnostic
from mithril_nb.train.norms import NormsLog
from mithril_nb.train.optimizers import average_in, with_average
from mithril_nb.train.run.events import TrainingEvent
from mithril_nb.train.runtime import Runtime
from mithril_nb.train.step import OptimizerAndModelState
from mithril_nb.train.stream import Stream

RunState = Literal["idle", "running", "paused", "stopped", "done", "failed"]

KEEP_EVERY_S = 30.0
"""Seconds between two copies of the params in long epochs. Each epoch also starts with a copy."""


class Backup(NamedTuple):
    """Params and optimizer state to go back to after a failure.

    Attributes:
        step: Steps taken before the copy.
        restored: Function that returns params and optimizer state.
        position: Position of the iterable of the data; `None` if it has none.
    """

    step: int
    restored: Callable[[], tuple[Any, Any]]
    position: Any = None


@dataclass
class State:
    """Current state of a run.

    Attributes:
        params: The params after `step` steps.
        opt_state: The optimizer's state; an `OptimizerAndModelState` if the model has a state too.
        runtime: Owns the arrays.
        epochs: Total epochs of the run.
        learning_rate: Learning rate of the next step.
        step: Steps taken.
        name: `"idle"`, `"running"`, `"paused"`, `"stopped"`, `"done"` or `"failed"`.
        is_lent: True if other code may hold the arrays, so that the next step must not overwrite them.
        backup: Copy of params and optimizer state to go back to after a failure: the latest copy with a finite loss, or
            the initial copy. `None` before the first copy.
        candidate: A newer copy, whose loss is not known yet; `None` if there is none.
        backed_up_at: Time of the latest copy, in seconds.
        unrecorded: Event of an epoch's last step, until its validation is complete; else `None`.
        elapsed_s: Seconds of training.
        latest: The last event; `None` before the first.
        validation: Metrics of the last validation by name; empty before it.
        problem: The reason why the run failed; `None` if it did not.
        saver: Takes the run's checkpoints; `None` if it has none.
        packed: Function that returns params and optimizer state from the host; `None` while they are on the device.
        stream: The iterable of the data; `None` if it is in memory.
        limit: Total steps; `None` if the run ends after its epochs.
        norms: Norms of the steps that computed them.
        best: Copy of the params and the model's state with the best metric; `None` if none is kept.
        rates: Learning rates since the backup: the step before the first step with each, and the rate.
        marks: Changes of the rate after the first step: the step before it, and a text.
    """

    params: Any
    opt_state: Any
    runtime: Runtime
    epochs: int
    learning_rate: float
    step: int = 0
    name: RunState = "idle"
    is_lent: bool = True  # the user may hold the initial params
    backup: Backup | None = None
    candidate: Backup | None = None
    backed_up_at: float = 0.0
    unrecorded: TrainingEvent | None = None
    elapsed_s: float = 0.0
    latest: TrainingEvent | None = None
    validation: dict[str, Any] = field(default_factory=dict[str, Any])
    problem: Diagnostic | None = None
    saver: Any = None
    packed: Callable[[], tuple[Any, Any]] | None = None
    stream: Stream | None = None
    limit: int | None = None
    norms: NormsLog = field(default_factory=NormsLog)
    best: Backup | None = None
    rates: deque[tuple[int, float]] = field(default_factory=deque[tuple[int, float]])
    marks: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])

    @property
    def model_state(self) -> dict[str, Any]:
        """The model's state; empty if it has none."""
        return self.opt_state.model_state if isinstance(self.opt_state, OptimizerAndModelState) else {}

    @property
    def evaluated(self) -> Any:
        """The params to evaluate: their moving average if the run has one, else the current ones."""
        average = average_in(self.opt_state)
        return self.params if average is None else with_average(self.params, average)

    def record_rate(self) -> None:
        """Record the rate of the next step, for a replay of the steps since the backup."""
        while self.rates and self.rates[-1][0] >= self.step:
            self.rates.pop()
        self.rates.append((self.step, self.learning_rate))
        while len(self.rates) > 1 and self.backup is not None and self.rates[1][0] <= self.backup.step:
            self.rates.popleft()

    def rate_at(self, step: int) -> float:
        """Return the rate of the step after `step`, recorded or else the current one."""
        rates = [rate for at, rate in self.rates if at <= step] if self.problem is not None else []
        return rates[-1] if rates else self.learning_rate

    def steps(self, per_epoch: int) -> int:
        """Return the total steps of the run."""
        return self.epochs * per_epoch if self.limit is None else self.limit

    def keep(self, *, is_epoch_start: bool) -> None:
        """Copy params and optimizer state at the start of an epoch, and every `KEEP_EVERY_S`."""
        now = time.perf_counter()
        if is_epoch_start or self.backup is None or now - self.backed_up_at > KEEP_EVERY_S:
            position = None if self.stream is None else self.stream.position
            self.candidate = Backup(self.step, self.runtime.restorer((self.params, self.opt_state)), position)
            self.backup = self.backup or self.candidate
            self.backed_up_at = now

    def to_host(self) -> None:
        """Move params and optimizer state to the host, and free the copies."""
        if self.packed is None:
            self.packed = self.runtime.restorer((self.params, self.opt_state))
            self.params = self.opt_state = self.backup = self.candidate = None

    def to_device(self) -> None:
        """Undo `to_host`."""
        if self.packed is not None:
            (self.params, self.opt_state), self.packed = self.packed(), None

    def go_back(self, *, is_diverged: bool) -> None:
        """Go back to the copy in `backup`, unless the current params still exist and are finite."""
        # A step that failed halfway has donated its arguments, or left NaN in its results.
        is_sound = not is_diverged and self.runtime.are_sound((self.params, self.opt_state))
        if not is_sound and self.backup is not None:
            self.step, (self.params, self.opt_state) = self.backup.step, self.backup.restored()
            self.is_lent, self.unrecorded = True, None
            if self.stream is not None:
                self.stream.restore(self.backup.position)
            if self.saver is not None:
                self.saver.went_back()
        self.candidate = None
