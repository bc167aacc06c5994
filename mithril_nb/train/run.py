"""The handle on one training: drive it, watch it, pause it, change its rate, read what it has learnt."""

from __future__ import annotations

import atexit
import math
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from typing import Any

import numpy as np

from mithril_nb.display import Shown
from mithril_nb.errors import Diagnostic
from mithril_nb.train.batches import evaluation_tail
from mithril_nb.train.control import Control, interrupts_to
from mithril_nb.train.course import Course
from mithril_nb.train.evaluation import evaluated
from mithril_nb.train.events import TrainingEvent
from mithril_nb.train.history import History
from mithril_nb.train.loop import Stretch
from mithril_nb.train.observers import Callback, Observers
from mithril_nb.train.optimizers import check_rate
from mithril_nb.train.prepare import check_count, check_last_batch, checked_data
from mithril_nb.train.processes import local
from mithril_nb.train.state import RunState, State
from mithril_nb.train.step import Carried

POLL_S = 0.1
"""How often a wait looks up, so that Ctrl-C and a stop of the kernel come through."""
FLUSH_S = 2.0
"""How long `wait` lets listeners catch up with the end of a run."""


LAST_STEP_S = 60.0
"""How long the interpreter's end waits for a step, or a compilation, that is under way."""

_RUNS: weakref.WeakSet[Run] = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    # A thread that comes back from XLA into an interpreter that is gone takes the process down with an abort.
    for run in tuple(_RUNS):
        run._end(LAST_STEP_S)


def note_interrupt() -> list[Run]:
    """Have each run that trains in its own thread report that an interrupt of the kernel did not stop it; return these.

    May be called in a signal handler: it takes no lock.
    """
    found = [run for run in tuple(_RUNS) if run._thread is not None and run.state == "running"]
    for run in found:
        run._note = _CONTINUES
    return found


_CONTINUES = "The kernel was interrupted. This run continues in its own thread: press Stop, or call run.stop()."


class Run(Shown):
    """A training that can be driven step by step, or left to a thread, stopped, and taken up again.

    `for event in run` trains in the caller's thread and yields what happens: each step's event comes before the next
    step begins. `run.start()` trains in a thread, as fast as it goes; `run.wait()` waits for its end. Leaving the
    loop, Ctrl-C, `stop` and failures all keep the params; `go_on()`, `start()` or another loop continue from there.

    Attributes:
        history: Numbers of every step: `run.history["loss"]`. Those of validation stand at the last step of each epoch,
            and are NaN at the others.
    """

    def __init__(self, course: Course, state: State):
        self.history = History()
        self._course, self._state = course, state
        self._control, self._observers = Control(), Observers()
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None
        # Not Thread.join: interrupted by Ctrl-C, it takes a thread that runs for one that has ended (Python 3.11).
        self._has_ended = threading.Event()
        self._driver: Stretch | None = None
        # Of a loop in a caller's thread: which thread, whether it is inside a step now, whether a pause ends it.
        self._ident: int | None = None
        self._is_inside = False
        self._ends_on_pause = False
        self._note = ""
        self._exception: BaseException | None = None
        _RUNS.add(self)

    def _end(self, timeout_s: float) -> None:
        """Stop a training thread and wait until it is gone; leave a loop that stands between two events."""
        if (thread := self._thread) is not None and thread.is_alive():
            self._control.ask("stop")
            thread.join(timeout_s)
        elif self._driver is not None and not self._is_at_work:
            self._leave(self._driver)

    def _leave(self, stretch: Stretch, why: str = "the loop over the run was left") -> None:
        """End a stretch that no loop drives, and unlock the folder for checkpoints."""
        try:
            if self.state == "running":
                self._observers.tell(stretch.leave(why))
        finally:
            self._driver = None
            if (saver := self._state.saver) is not None:
                saver.finish()
                saver.release()

    # Driving

    def __iter__(self) -> Iterator[TrainingEvent]:
        """Train in this thread and yield each event; follow the events of a run that trains elsewhere already."""
        with self._lock:
            is_elsewhere = self._is_at_work
            if not is_elsewhere:
                self._control.ask("go")
                self._ident, self._ends_on_pause = threading.get_ident(), False
        yield from self.events() if is_elsewhere else self._driven_here()

    def start(self) -> Run:
        """Train in a thread of its own, from where the run is; return at once. A run that trains already goes on."""
        with self._lock:
            self._control.ask("go")
            if not self._is_at_work:
                self._begin_thread()
        return self

    def wait(self, timeout: float | None = None) -> Run:
        """Wait for the end of the training; start it if nobody has.

        Ctrl-C stops the run, keeps its params, and raises KeyboardInterrupt.

        Args:
            timeout: Seconds to wait at most; the run trains on after them. Default: until the end.

        Returns:
            The run.

        Raises:
            TrainingError: The run failed because its loss is NaN or infinite.
            BaseException: Whatever else ended the run, `SystemExit` included.
        """
        if self.state == "idle" or (self._is_driven and not self._is_at_work):
            self.start()
        until = math.inf if timeout is None else time.monotonic() + timeout
        try:
            while self._is_driven and (left := until - time.monotonic()) > 0:
                if self._thread is None:  # somebody else's loop
                    time.sleep(min(POLL_S, left))
                else:
                    self._has_ended.wait(min(POLL_S, left))
        except KeyboardInterrupt:
            self._control.ask("stop", interrupted=True)
            self._has_ended.wait(FLUSH_S)
            raise KeyboardInterrupt(self.message) from None
        if not self._is_driven:
            self._observers.flush(FLUSH_S)
            if self.state == "failed" and self._exception is not None:
                raise self._exception
        return self

    def pause(self) -> None:
        """Wait before the next step. Called inside `for event in run`, it ends that loop: nobody else could go on."""
        self._ends_on_pause = self._thread is None and self._ident == threading.get_ident()
        self._control.ask("pause")

    def go_on(self, epochs: int | None = None) -> Run:
        """Continue after a pause, a stop or a failure, in a thread if nobody drives the run.

        Args:
            epochs: Further epochs to train, on top of those the run was made for. Without them, a run that is done
                stays so.
        """
        with self._lock:
            if epochs is not None:
                self._state.epochs += check_count("epochs", epochs)
            self._control.ask("go")
            if not self._is_driven and self._state.step < self.steps:
                self._begin_thread()
        return self

    def step_once(self) -> Run:
        """Take one step and pause; of a run that is training, pause after the step that is under way."""
        with self._lock:
            is_resting = not self._is_driven or self.state == "paused"
            self._control.ask("pause", steps=1 if is_resting else 0)
            if not self._is_driven and self._state.step < self.steps:
                self._begin_thread()
        return self

    def stop(self) -> None:
        """End the training after the step that is under way, or at once if a loop stands still; its params are kept."""
        self._control.ask("stop")
        with self._lock:
            if self._driver is not None and not self._is_at_work and self.state in ("running", "paused"):
                self._state.name = "running"
                self._leave(self._driver, "stopped")

    # Looking

    @property
    def state(self) -> RunState:
        """What the run is doing: `idle`, `running`, `paused`, `stopped`, `done` or `failed`."""
        return self._state.name

    @property
    def params(self) -> dict[str, Any]:
        """The present params; they stay as they are when the training goes on."""
        return self._lent()[0]

    @property
    def opt_state(self) -> Any:
        """The optimizer's state with the present params."""
        held = self._lent()[1]
        return held.opt_state if isinstance(held, Carried) else held

    @property
    def model_state(self) -> dict[str, Any]:
        """The model's own state with the present params, as running statistics; empty if it has none."""
        held = self._lent()[1]
        return held.model_state if isinstance(held, Carried) else {}

    @property
    def step(self) -> int:
        """Steps taken; in a thread, the numbers of the latest may still be under way."""
        return self._state.step

    @property
    def steps(self) -> int:
        """Steps that the whole run takes."""
        return self._state.epochs * self._course.steps_per_epoch

    @property
    def learning_rate(self) -> float:
        """The rate of the next step; it can be set at any time, and nothing is compiled again."""
        return self._state.learning_rate

    @learning_rate.setter
    def learning_rate(self, rate: float) -> None:
        self._state.learning_rate = check_rate(rate)

    def set_learning_rate(self, rate: float) -> Run:
        """Set the rate of the next step; return the run."""
        self.learning_rate = rate
        return self

    @property
    def learning_rate_is_relative(self) -> bool:
        """Whether the rate is a factor on the rate inside the optimizer that was given."""
        return self._course.optimizer.is_relative

    @property
    def error(self) -> Diagnostic | None:
        """Why the run failed."""
        return self._state.problem

    @property
    def errors(self) -> list[Diagnostic]:
        """Why the run failed, which checkpoint could not be written, and what the run's listeners raised."""
        saver = self._state.saver
        lost = [saver.problem] if saver and saver.problem else []
        return [*([self.error] if self.error else []), *lost, *self._observers.errors]

    @property
    def message(self) -> str:
        """The message of the last event, or a note on a run that an interrupt of the kernel did not stop."""
        if self._note and self.state == "running":
            return self._note
        return self._state.latest.message if self._state.latest else ""

    def evaluate(self, data: Any) -> dict[str, float]:
        """Return loss and accuracy of the present params on data, each sample counting once.

        Args:
            data: As in `fit`.

        Raises:
            DataError: The data cannot be used.
        """
        course, (params, held) = self._course, self._lent()
        state = held.model_state if isinstance(held, Carried) else {}
        checked = checked_data(data, course.model, course.loss, params, course.batch_size)
        check_last_batch(course.model, params, checked, course.batch_size, evaluation_tail(course.tail))
        return evaluated(course, params, checked, state)

    def observe(self, callback: Callback, every_s: float = 0.1) -> Callable[[], None]:
        """Have a function told what happens, from a thread of its own, so that it never holds the training up.

        Args:
            callback: Takes a `TrainingEvent`. What it raises goes into `run.errors`.
            every_s: Of the steps, it is told the latest one this often; of all other events, each at once.

        Returns:
            A function that ends it.
        """
        return self._observers.add(callback, every_s)

    def events(self) -> Iterator[TrainingEvent]:
        """Yield the events of a run that somebody else drives, until its end; of the steps, those there is time for."""
        waiting: deque[TrainingEvent] = deque()
        stop = self.observe(waiting.append, 0.0)
        try:
            while True:
                is_over = not self._is_driven
                if is_over:
                    self._observers.flush(FLUSH_S)
                while waiting:
                    yield waiting.popleft()
                if is_over:
                    return
                time.sleep(0.01)
        finally:
            stop()

    def snapshot(self) -> dict[str, Any]:
        """Return what there is to show of the run now, as JSON-able data; never waits for a step.

        Loss and accuracy are means over the epoch so far: those of one batch jump too much to be read.
        """
        state, latest = self._state, self._state.latest
        loss, accuracy = self._epoch_means()
        return {
            "state": state.name,
            "epoch": latest.epoch if latest else 0,
            "epochs": state.epochs,
            "step": latest.step if latest else 0,
            "steps": self.steps,
            "loss": loss,
            "accuracy": accuracy,
            "validation_loss": state.validation_loss,
            "validation_accuracy": state.validation_accuracy,
            "steps_per_s": latest.steps_per_s if latest else None,
            "left_s": latest.left_s if latest else None,
            "learning_rate": state.learning_rate,
            "learning_rate_is_relative": self.learning_rate_is_relative,
            "message": self.message,
            "points": len(self.history),
        }

    def _epoch_means(self) -> tuple[float | None, float | None]:
        per_epoch = -(-self.steps // max(1, self._state.epochs))
        epochs, *columns = self.history.rows(max(0, len(self.history) - per_epoch), ("epoch", "loss", "accuracy"))
        of_latest = [column[epochs == epochs[-1]] if epochs.size else column for column in columns]
        known = [column[~np.isnan(column)] for column in of_latest]
        loss, accuracy = (float(column.mean()) if column.size else None for column in known)
        return loss, accuracy

    def __repr__(self) -> str:
        return f"Run({self.state}, step {self.step} of {self.steps}, {self._state.epochs} epochs)"

    # Inside

    @property
    def _is_driven(self) -> bool:
        """Whether a thread, or somebody's loop, has the run in hand."""
        return self._thread is not None or self._driver is not None

    @property
    def _is_at_work(self) -> bool:
        """The same, without a loop that stands still between two events: who wants to drive may take over from that."""
        return self._thread is not None or self._is_inside

    def _lent(self) -> tuple[Any, Any]:
        with self._control.reading():
            self._state.is_lent = True
            return local((self._state.params, self._state.opt_state))

    def _begin_thread(self) -> None:
        self._driver, self._state.name, self._note = None, "running", ""
        self._has_ended.clear()
        self._thread = threading.Thread(target=self._work, name="mithril_nb training", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        is_wanted = True
        while is_wanted:
            try:
                for _ in self._drive(is_exact=False):
                    pass
            except BaseException:
                # _drive has kept it: `wait` raises it, `error` tells it. A thread has nobody to raise it to.
                assert self._exception is not None
            finally:
                with self._lock:
                    # Somebody may have asked to go on just when a stop was carried out; what raised is not tried again.
                    was_stopped = self.state == "stopped" and self._exception is None
                    is_wanted = was_stopped and self._control.wish == "go"
                    if not is_wanted:
                        self._thread = None
                        self._has_ended.set()

    def _drive(self, *, is_exact: bool) -> Generator[TrainingEvent]:
        stretch = Stretch(self._course, self._state, self._control, self.history, is_exact=is_exact)
        with self._lock:
            self._driver, self._exception = stretch, None
        try:
            for event in stretch.events():
                self._observers.tell(event)
                yield event
                if self._driver is not stretch:  # stopped here, or driven elsewhere
                    if stretch.last is not None:
                        yield stretch.last
                    return
                if event.kind == "paused" and self._ends_on_pause:
                    return
        except GeneratorExit:
            raise
        except BaseException as error:
            self._exception = error
            raise
        finally:
            with self._lock:
                if self._driver is stretch:
                    self._leave(stretch)

    def _driven_here(self) -> Iterator[TrainingEvent]:
        with closing(self._drive(is_exact=True)) as events:
            while True:
                try:
                    with self._lock:  # not while `stop` ends the loop
                        self._is_inside = True
                    with interrupts_to(self._control):
                        event = next(events, None)
                finally:
                    self._is_inside = False
                if event is None:
                    return
                yield event
                if event.kind == "stopped" and self._control.interrupted:
                    raise KeyboardInterrupt(event.message)
