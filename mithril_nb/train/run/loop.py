"""The training loop: a generator of events over explicit state. It starts no thread and renders nothing."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any, Literal

import jax
import numpy as np

from mithril_nb.errors import Diagnostic, MithrilError, TrainingError
from mithril_nb.train.data import DataSet
from mithril_nb.train.metrics import turns
from mithril_nb.train.norms import output_count
from mithril_nb.train.run.control import RunControl
from mithril_nb.train.run.events import EventKind, History, TrainingEvent
from mithril_nb.train.run.state import Backup, State
from mithril_nb.train.step import parted
from mithril_nb.train.trainable import frozen_names
from mithril_nb.train.training_plan import TrainingPlan, observed_graph

AHEAD_S = 0.05
"""Seconds of steps that the loop may dispatch ahead: enough to keep the device busy, few enough to stop at once."""
MOST_AHEAD = 64


class TrainingLoop:
    """One training loop, from its start until it stops, completes or fails.

    Attributes:
        last: The last event of a loop that ended because the caller stopped iterating over `events`; else `None`.
    """

    def __init__(self, plan: TrainingPlan, state: State, control: RunControl, history: History, *, is_exact: bool):
        self.plan, self.state, self.control, self.history = plan, state, control, history
        self.is_exact = is_exact
        self.meter = Meter(state.elapsed_s)
        self._under_way: deque[tuple[int, float, Any]] = deque()
        self._order: tuple[int, np.ndarray] = (0, np.arange(0))
        self._rate: tuple[float, Any] = (math.nan, None)
        self._true_rate: float | None = None
        self._validation_s = 0.0
        self._has_begun = self._is_over = False
        self.last: TrainingEvent | None = None
        self._steps_per_epoch = plan.steps_per_epoch

    def events(self) -> Iterator[TrainingEvent]:
        """Train, and yield the events."""
        state, control = self.state, self.control
        try:
            state.name, state.problem = "running", None  # a run that has failed may be resumed
            state.to_device()
            if state.saver is not None:
                state.saver.begin()
            self._has_begun = True
            self.meter.go()
            self.history.truncate(state.step)
            yield self.event("started" if state.step == 0 else "resumed")
            self._check_end()
            while state.step < self.steps and not self._is_over:
                if control.pending:
                    yield from self.settle(0)
                    turn = control.turn()
                    if turn == "stop":
                        yield self.end("stopped", "interrupted" if control.interrupted else "stopped")
                        return
                    if turn == "pause":
                        yield from self.pause()
                        continue
                self.take_step()
                # Dispatch ahead only if a step takes less than AHEAD_S: a stop then waits for AHEAD_S of steps at most.
                ahead = 0 if self.is_exact else min(MOST_AHEAD, int((self.meter.steps_per_s or 0.0) * AHEAD_S))
                yield from self.settle(ahead)
                if self.is_turn(state.step):
                    yield from self.take_turn()
                if state.saver is not None and state.saver.is_due(state.step):
                    yield from self.settle(0)
                    self.checkpoint()
            is_early = self._is_over and state.step < self.steps
            yield self.end("done", "the rule of stop= ended the run" if is_early else "")
        except KeyboardInterrupt:  # a second Ctrl-C, raised inside the step
            self._under_way.clear()
            try:
                state.go_back(is_diverged=False)
            finally:
                yield self.end("stopped", "interrupted")
            raise
        except GeneratorExit:  # the consumer closed the generator; this is not a failure, see `leave`
            raise
        except BaseException as error:  # includes SystemExit: a model that calls sys.exit fails the run
            if not isinstance(error, TrainingError):
                with suppress(Exception):  # the steps before the error count, unless they failed too
                    yield from self.settle(0)
            self._under_way.clear()
            try:
                state.go_back(is_diverged=isinstance(error, TrainingError))
            finally:  # go_back can fail on damaged arrays; report the failure of the run in any case
                state.problem = problem_of(error, state.step)
                yield self.end("failed", state.problem.summary.rstrip("."))
            raise

    @property
    def steps(self) -> int:
        """Total steps of the run."""
        return self.state.steps(self._steps_per_epoch)

    def is_turn(self, step: int) -> bool:
        """Return whether an epoch or the run ends with a step, or a validation comes after it."""
        every = self.plan.validate_every
        return step % self._steps_per_epoch == 0 or step == self.steps or (every is not None and step % every == 0)

    def take_step(self) -> None:
        """Dispatch one step. `settle` fetches its metrics later."""
        state, plan = self.state, self.plan
        epoch, index = divmod(state.step, self._steps_per_epoch)
        if self._order[0] != epoch + 1:
            self._order = (epoch + 1, plan.order(epoch + 1))
        state.keep(is_epoch_start=index == 0)
        rate = state.learning_rate
        if self._rate[0] != rate:  # NaN equals no rate, so the first step sets it; later steps transfer nothing
            self._rate = (rate, state.runtime.rate(rate))
            state.record_rate()
        batch = plan.batch(self._order[1], index)
        keys = plan.keys(state.step)
        with self.control.stepping:
            if state.is_lent:  # the step donates its arguments, and other code may hold these arrays
                state.params, state.opt_state = state.runtime.copied((state.params, state.opt_state))
                state.is_lent = False
            step = plan.program(state.step + 1)
            state.params, state.opt_state, numbers = step(state.params, state.opt_state, self._rate[1], batch, *keys)
            state.step += 1
        self._under_way.append((state.step, rate, numbers))

    def settle(self, limit: int) -> Iterator[TrainingEvent]:
        """Yield the events of finished steps, and wait until at most `limit` steps are unfinished."""
        state, under_way = self.state, self._under_way
        while under_way and (len(under_way) > limit or state.runtime.is_ready(under_way[0][2])):
            number, rate, numbers = under_way.popleft()
            loss, *rest = np.asarray(state.runtime.fetched(numbers)).tolist()
            if self.plan.has_norms(number):
                trained = parted(state.params, frozen_names(self.plan.model))[0]
                graph = observed_graph(self.plan.model)
                split = len(rest) - 3 * (len(jax.tree.leaves(trained)) + output_count(graph))
                state.norms.add(number, trained, rest[split:], graph)
                rest = rest[:split]
            self._true_rate = rate
            if self.plan.optimizer.is_relative:
                own = rest.pop()  # computed in float32, in whose shortest text 0.001 is 0.001
                self._true_rate = None if math.isnan(own) else float(str(np.float32(own)))
            traced = self.plan.traced
            metrics = dict(zip(traced, rest[len(rest) - len(traced) :], strict=True)) if traced else {}
            accuracy = rest[0] if len(rest) > len(traced) else None
            self.meter.step(number)
            if not math.isfinite(loss):
                raise TrainingError(self.divergence(number, rate, loss))
            # The loss of this step is finite, so the params copied before it are good to go back to.
            if state.candidate is not None and state.candidate.step < number:
                state.backup, state.candidate = state.candidate, None
            event = self.event("step", number, loss=loss, accuracy=accuracy, metrics=metrics)
            if self.is_turn(number):
                state.unrecorded = event
            else:
                self.record(event)
            yield event

    def take_turn(self) -> Iterator[TrainingEvent]:
        """Validate if it is time, keep the best params, and yield the event with the means over the epoch's steps."""
        state, plan = self.state, self.plan
        yield from self.settle(0)
        last = state.unrecorded
        assert last is not None
        checked: dict[str, Any] = {}
        every = plan.validate_every or self._steps_per_epoch
        if plan.validation is not None and (state.step % every == 0 or state.step == self.steps):
            scores = yield from self.validate(plan.validation)
            checked = {f"validation_{name}": score for name, score in scores.items()}
            state.validation = scores
        # Add the row of an epoch's last step after the validation, because rows must not change once added.
        self.record(last, **checked)
        state.unrecorded = None
        if plan.keep_best is not None:
            name, is_lower = plan.keep_best
            is_of_training = not name.startswith("validation_")
            values = turns(self.history, name) * (1 if is_lower else -1)
            # Only a value of the current params counts: an epoch may end between two validations, or inside one.
            has_value = state.step % self._steps_per_epoch == 0 if is_of_training else name in checked
            if has_value and math.isfinite(values[-1]) and not (values[:-1] <= values[-1]).any():
                kept = (state.evaluated, state.model_state)
                state.best = Backup(state.step, state.runtime.restorer(kept))
        self._check_end()
        loss, accuracy = self.history.latest_means(self._steps_per_epoch)
        is_end = state.step % self._steps_per_epoch == 0 or state.step == self.steps
        yield self.event("epoch" if is_end else "validation", loss=loss, accuracy=accuracy, **self.scores())

    def scores(self) -> dict[str, Any]:
        """Return the fields of an event with the metrics of the last validation."""
        own = {f"validation_{name}": value for name, value in self.state.validation.items()}
        columns = self.plan.columns
        return {
            "validation_loss": own.get("validation_loss"),
            "validation_accuracy": own.get("validation_accuracy"),
            "metrics": {name: value for name, value in own.items() if name in columns},
        }

    def _check_end(self) -> None:
        # Without rows, a rule that reads the latest value would fail.
        self._is_over = self.plan.stop is not None and len(self.history) > 0 and bool(self.plan.stop(self.history))

    def validate(self, data: DataSet) -> Generator[TrainingEvent, None, dict[str, float]]:
        """Yield the events of pauses; return the metrics on the validation data, or an empty dict after a stop."""
        began_s = self.meter.elapsed_s
        # `evaluating` yields after each batch, so that a pause or a stop need not wait for the whole data set.
        scores: dict[str, float] = {}
        for latest in self.plan.evaluating(self.state.evaluated, data, self.state.model_state):
            scores = latest
            if self.control.requested == "stop":
                return {}
            if self.control.is_held:
                yield from self.pause()
        self._validation_s = self.meter.elapsed_s - began_s
        self.meter.skip(self._validation_s)
        return scores

    def pause(self) -> Iterator[TrainingEvent]:
        """Wait until another thread resumes or stops the run, or allows a step."""
        self.meter.rest()
        self.state.name, self.state.elapsed_s = "paused", self.meter.elapsed_s
        yield self.event("paused")
        while self.control.is_held:
            self.control.wait_while_held()
        self.state.name = "running"
        self.meter.go()
        if self.control.requested == "go":
            yield self.event("resumed")

    def checkpoint(self) -> None:
        """Take a checkpoint, if the run has a saver."""
        if self.state.saver is not None:
            self.state.elapsed_s = self.meter.elapsed_s
            self.state.saver.take(self.state, self.history)

    def end(self, kind: Literal["stopped", "done", "failed"], why: str = "") -> TrainingEvent:
        """End the loop and return its last event."""
        self.meter.rest()
        self.state.elapsed_s = self.meter.elapsed_s
        self.state.name = kind
        if self.state.saver is not None:
            try:
                if kind != "failed":
                    self.checkpoint()
                self.state.saver.finish()
            finally:
                self.state.saver.release()
        advice = f"run.params holds the params of step {self.state.step}"
        advice += "; run.resume() continues from there." if self._has_begun else "."
        state = self.state
        scores: dict[str, Any] = {}
        if kind != "failed":
            scores = self.scores()
        if kind == "done":
            # A completed run needs no copies to go back to, unless its last step has made the params NaN.
            if state.runtime.are_sound((state.params, state.opt_state)):
                state.backup = state.candidate = None
            scores["loss"], scores["accuracy"] = self.history.latest_means(self._steps_per_epoch)
        return self.event(kind, message=why if kind == "done" else f"{why}; {advice}", **scores)

    def leave(self, why: str) -> TrainingEvent:
        """End a loop whose consumer has stopped iterating. Store and return the last event."""
        for _ in self.settle(0):  # the steps under way still count
            pass
        if self.state.unrecorded is not None:
            self.record(self.state.unrecorded)
            self.state.unrecorded = None
        self.last = self.end("stopped", why)
        return self.last

    def divergence(self, step: int, rate: float, loss: float) -> Diagnostic:
        """Return the message for a loss that is NaN or infinite."""
        steps, losses = self.history.rows(max(0, len(self.history) - 1), ("step", "loss"))
        epoch = -(-step // self._steps_per_epoch)
        of_own = " times the optimizer's own" if self.plan.optimizer.is_relative else ""
        kind = "NaN" if loss != loss else "infinite"
        if step == 1:  # no step has moved the params, so the learning rate is not the cause
            return Diagnostic(
                f"the loss is {kind} at the first step.",
                (("because", "the model or the loss computes it from the first batch and the initial params"),),
                "ml.find_nan(run)  # names the first operation",
                code="TrainingError",
            )
        return Diagnostic(
            f"the loss is {kind} at step {step}, epoch {epoch} of {self.state.epochs}.",
            (
                ("learning rate", f"{rate:g}{of_own}"),
                ("last finite loss", f"{losses[-1]:.4g} at step {int(steps[-1])}" if len(steps) else "none"),
            ),
            f"run.learning_rate = {rate / 10:g}; run.resume()  # ml.find_nan(run) names the cause",
            code="TrainingError",
        )

    def event(self, kind: EventKind, step: int | None = None, **values: Any) -> TrainingEvent:
        """Return an event at a step (default: the current one), and store it as the latest."""
        state, steps, speed = self.state, self.steps, self.meter.steps_per_s
        at = state.step if step is None else step
        epoch = -(-at // self._steps_per_epoch)
        state.latest = TrainingEvent(
            kind,
            at,
            epoch,
            steps,
            state.epochs,
            elapsed_s=self.meter.elapsed_s,
            steps_per_s=speed,
            left_s=(steps - at) / speed + (state.epochs - epoch) * self._validation_s if speed else None,
            learning_rate=self._true_rate if kind == "step" or self.plan.optimizer.is_relative else state.learning_rate,
            **values,
        )
        return state.latest

    def record(self, event: TrainingEvent, **values: float | None) -> None:
        """Append a step to the history."""
        self.history.append(
            step=event.step,
            loss=event.loss,
            accuracy=event.accuracy,
            epoch=event.epoch,
            learning_rate=event.learning_rate,
            elapsed_s=event.elapsed_s,
            **event.metrics,
            **values,
        )


WINDOW_S = 2.0


class Meter:
    """Clock of one training loop.

    Attributes:
        steps_per_s: Steps per second over the last two seconds; `None` before the second step.
    """

    def __init__(self, elapsed_s: float = 0.0) -> None:
        self.steps_per_s: float | None = None
        self._before_s = elapsed_s
        self._since: float | None = None
        self._marks: deque[tuple[float, int]] = deque()

    @property
    def elapsed_s(self) -> float:
        """Seconds of training between `go` and `rest`, in this loop and in earlier ones."""
        return self._before_s + (time.perf_counter() - self._since if self._since is not None else 0.0)

    def go(self) -> None:
        """Start the clock."""
        self._since = time.perf_counter()
        self._marks.clear()

    def rest(self) -> None:
        """Stop the clock."""
        self._before_s = self.elapsed_s
        self._since = None

    def skip(self, seconds: float) -> None:
        """Exclude time without steps (a validation) from the speed. `elapsed_s` still includes it."""
        self._marks = deque((at + seconds, number) for at, number in self._marks)

    def step(self, number: int) -> None:
        """Record a finished step. The first step of a loop, which may include compilation, only starts the clock."""
        now = time.perf_counter()
        marks = self._marks
        # Store at most twenty marks per second.
        if len(marks) < 2 or now - marks[-1][0] > WINDOW_S / 40:
            marks.append((now, number))
            while len(marks) > 2 and now - marks[0][0] > WINDOW_S:
                marks.popleft()
        since, first = marks[0]
        if number > first and now > since:
            self.steps_per_s = (number - first) / (now - since)


def problem_of(error: BaseException, step: int) -> Diagnostic:
    """Return the message for an error that ended a run. Further diagnostics of the error become facts of the first."""
    if isinstance(error, MithrilError):
        first, *others = error.diagnostics
        return replace(first, facts=(*first.facts, *(("also", str(other)) for other in others)))
    text = str(error).strip().splitlines()
    return Diagnostic(
        f"training failed after step {step}: {type(error).__name__}" + (f": {text[0]}" if text else "."),
        (),
        "run.wait()  # raises the error itself, with its traceback",
        code=type(error).__name__,
    )
