"""The loop that trains: a generator of events over explicit state. It starts no thread and draws nothing."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Generator, Iterator
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np

from mithril_nb.errors import TrainingError
from mithril_nb.train.control import Control
from mithril_nb.train.course import Course
from mithril_nb.train.data import DataSet
from mithril_nb.train.evaluation import evaluating
from mithril_nb.train.events import EventKind, TrainingEvent
from mithril_nb.train.failure import divergence, problem_of
from mithril_nb.train.history import History
from mithril_nb.train.meter import Meter
from mithril_nb.train.state import State

AHEAD_S = 0.05
"""How far the loop may run ahead of the device: far enough to keep it busy, near enough to stop at once."""
MOST_AHEAD = 64


class Stretch:
    """One stretch of training: from a start to a stop, an end, or a failure.

    Args:
        course: What to do.
        state: Where to go on from; changed in place.
        control: What other threads ask for.
        history: Where the numbers of each step go.
        is_exact: Whether each step's event comes before the next step is begun. If not, the loop runs ahead of the
            device by up to `AHEAD_S`, and the events follow.

    Attributes:
        last: The last event, if `leave` closed the stretch.
    """

    def __init__(self, course: Course, state: State, control: Control, history: History, *, is_exact: bool):
        self.course, self.state, self.control, self.history = course, state, control, history
        self.is_exact = is_exact
        self.meter = Meter(state.elapsed_s)
        self._under_way: deque[tuple[int, float, Any]] = deque()
        self._order: tuple[int, np.ndarray] = (0, np.arange(0))
        self._rate: tuple[float, Any] = (math.nan, None)
        self._validation_s = 0.0
        self._has_begun = False
        self.last: TrainingEvent | None = None
        self._steps_per_epoch = course.steps_per_epoch

    def events(self) -> Iterator[TrainingEvent]:
        """Train, and yield what happens.

        Raises:
            TrainingError: The loss is NaN or infinite; the state is back at the last good params.
            BaseException: Whatever the model or the optimizer raises; the same.
        """
        state, control = self.state, self.control
        try:
            state.name, state.problem = "running", None
            if state.saver is not None:
                state.saver.begin()
            self._has_begun = True
            self.meter.go()
            self.history.truncate(state.step)
            yield self.event("started" if state.step == 0 else "resumed")
            while state.step < self.steps:
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
                yield from self.settle(0 if self.is_exact else self.ahead)
                if state.step % self._steps_per_epoch == 0:
                    yield from self.end_epoch()
                if state.saver is not None and state.saver.is_due(state.step):
                    yield from self.settle(0)
                    self.checkpoint()
            yield self.end("done")
        except KeyboardInterrupt:  # a second Ctrl-C, which did not wait for the end of the step
            self._under_way.clear()
            try:
                state.go_back(is_diverged=False)
            finally:
                yield self.end("stopped", "interrupted")
            raise
        except GeneratorExit:  # whoever takes the events went away: nothing has failed, see `leave`
            raise
        except BaseException as error:  # SystemExit as well: a model may call sys.exit, and the run has failed then
            self._under_way.clear()
            try:
                state.go_back(is_diverged=isinstance(error, TrainingError))
            finally:  # Arrays that the step left in a bad way may make this fail too; the run has failed all the same.
                state.problem = problem_of(error, state.step)
                yield self.end("failed", state.problem.summary.rstrip("."))
            raise

    @property
    def steps(self) -> int:
        """Steps that the whole run takes."""
        return self.state.epochs * self._steps_per_epoch

    @property
    def ahead(self) -> int:
        """How many steps may be under way beside the one that is waited for; none if a step takes long."""
        return min(MOST_AHEAD, int((self.meter.steps_per_s or 0.0) * AHEAD_S))

    def take_step(self) -> None:
        """Begin one step; its numbers are fetched later."""
        state, course = self.state, self.course
        epoch, place = divmod(state.step, self._steps_per_epoch)
        if self._order[0] != epoch + 1:
            self._order = (epoch + 1, course.order(epoch + 1))
        state.keep(is_epoch_start=place == 0)
        rate = state.learning_rate
        if self._rate[0] != rate:
            # Weakly typed, as a Python number: it takes the dtype of whatever it is multiplied with.
            self._rate = (rate, jnp.asarray(rate))
        batch = course.batch(self._order[1], place)
        keys = () if course.key is None else (course.key, np.uint32(state.step))
        with self.control.stepping():
            state.own()
            state.params, state.opt_state, numbers = course.step(
                state.params, state.opt_state, self._rate[1], batch, *keys
            )
            state.step += 1
        self._under_way.append((state.step, rate, numbers))

    def settle(self, limit: int) -> Iterator[TrainingEvent]:
        """Yield the events of the steps that are done, until at most `limit` are under way."""
        state, under_way = self.state, self._under_way
        while under_way and (len(under_way) > limit or under_way[0][2].is_ready()):
            number, rate, numbers = under_way.popleft()
            loss, *rest = np.asarray(numbers).tolist()
            accuracy = rest[0] if rest else None
            self.meter.step(number)
            if not math.isfinite(loss):
                raise TrainingError(self.divergence(number, rate, loss))
            state.confirm(number)
            event = self.event("step", number, loss=loss, accuracy=accuracy, learning_rate=rate)
            if number % self._steps_per_epoch:
                self.record(event)
            else:
                state.unrecorded = event
            yield event

    def end_epoch(self) -> Iterator[TrainingEvent]:
        """Validate, and yield the epoch's event with the means over its steps."""
        state, history = self.state, self.history
        yield from self.settle(0)
        last = state.unrecorded
        assert last is not None
        checked: dict[str, Any] = {}
        if self.course.validation is not None:
            scores = yield from self.validate(self.course.validation)
            checked = {f"validation_{name}": score for name, score in scores.items()}
            state.validation_loss, state.validation_accuracy = scores.get("loss"), scores.get("accuracy")
        # The row of an epoch's last step waits for the validation, so that rows never change once they are there.
        self.record(last, **checked)
        state.unrecorded = None
        start = max(0, len(history) - self._steps_per_epoch)
        loss, accuracy, epochs = history.rows(start, ("loss", "accuracy", "epoch"))
        own = epochs == last.epoch
        share = None if last.accuracy is None else float(accuracy[own].mean())
        yield self.event("epoch", loss=float(loss[own].mean()), accuracy=share, **checked)

    def validate(self, data: DataSet) -> Generator[TrainingEvent, None, dict[str, float]]:
        """Return the metrics on the validation data; none if somebody wants to stop in the middle of it."""
        began_s = self.meter.elapsed_s
        work = evaluating(self.course, self.state.params, data, self.state.model_state)
        scores: dict[str, float] = {}
        for found in work:
            scores = found
            if self.control.wish == "stop":
                return {}
            if self.control.is_held:
                yield from self.pause()
        self._validation_s = self.meter.elapsed_s - began_s
        self.meter.skip(self._validation_s)
        return scores

    def pause(self) -> Iterator[TrainingEvent]:
        """Wait until somebody asks for something else, or allows a step."""
        self.meter.rest()
        self.state.name, self.state.elapsed_s = "paused", self.meter.elapsed_s
        yield self.event("paused")
        while self.control.is_held:
            self.control.wait_while_held()
        self.state.name = "running"
        self.meter.go()
        if self.control.wish == "go":
            yield self.event("resumed")

    def checkpoint(self) -> None:
        """Take a checkpoint, if the run keeps any."""
        if self.state.saver is not None:
            self.state.elapsed_s = self.meter.elapsed_s
            self.state.saver.take(self.state, self.history)

    def end(self, kind: Literal["stopped", "done", "failed"], why: str = "") -> TrainingEvent:
        """Close the stretch and return its last event.

        Args:
            kind: How it ends.
            why: What happened; what was kept is added.
        """
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
        kept = f"run.params holds the params of step {self.state.step}"
        kept += "; run.go_on() continues from there." if self._has_begun else "."
        return self.event(kind, message="" if kind == "done" else f"{why}; {kept}")

    def leave(self, why: str) -> TrainingEvent:
        """Close a stretch whose consumer stands still or went away in the middle; return its last event, and keep it.

        Args:
            why: As in `end`.
        """
        for _ in self.settle(0):
            pass
        if self.state.unrecorded is not None:
            self.record(self.state.unrecorded)
            self.state.unrecorded = None
        self.last = self.end("stopped", why)
        return self.last

    def divergence(self, step: int, rate: float, loss: float) -> Any:
        """Return the message for a loss that is no number any more."""
        steps, losses = self.history.rows(max(0, len(self.history) - 1), ("step", "loss"))
        last = (int(steps[-1]), float(losses[-1])) if len(steps) else None
        epoch = -(-step // self._steps_per_epoch)
        return divergence(step, epoch, self.state.epochs, loss, rate, self.course.optimizer.is_relative, last)

    def event(self, kind: EventKind, step: int | None = None, **values: Any) -> TrainingEvent:
        """Return an event at a step (default: the present one), and remember it as the latest."""
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
            **{"learning_rate": state.learning_rate, **values},
        )
        return state.latest

    def record(self, event: TrainingEvent, **values: float | None) -> None:
        """Write a step into the history."""
        self.history.append(
            step=event.step,
            loss=event.loss,
            accuracy=event.accuracy,
            epoch=event.epoch,
            learning_rate=event.learning_rate,
            elapsed_s=event.elapsed_s,
            **values,
        )
