"""Handle of one training run: start, pause, resume and stop it, change its rate, read its params and metrics."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from typing import Any

from mithril_nb.backends.backend import check_count
from mithril_nb.display import Shown
from mithril_nb.errors import DataError, Diagnostic
from mithril_nb.train.data import DataSet
from mithril_nb.train.library_models import LibraryModel
from mithril_nb.train.norms import Norms
from mithril_nb.train.optimizers import average_in, check_rate, with_average
from mithril_nb.train.predictions import Predictions, predict
from mithril_nb.train.prepare import check_last_batch, checked_data
from mithril_nb.train.run.control import RUNS, RunControl, interrupts_to
from mithril_nb.train.run.events import History, TrainingEvent
from mithril_nb.train.run.loop import TrainingLoop
from mithril_nb.train.run.observers import Callback, Observers
from mithril_nb.train.run.state import RunState, State
from mithril_nb.train.step import OptimizerAndModelState
from mithril_nb.train.training_plan import TrainingPlan

POLL_S = 0.1
"""Polling interval of `wait`, which lets it notice Ctrl-C and a stop of the kernel."""
FLUSH_S = 2.0
"""Seconds that `wait` gives listeners to process the last events of a run."""
_CONTINUES = "The kernel was interrupted. This run continues in its own thread: press Stop, or call run.stop()."


def note_interrupt() -> list[Run]:
    """Set a note on each run that the kernel's interrupt did not stop, and return these runs. It takes no lock."""
    running = [
        run for run in tuple(RUNS) if isinstance(run, Run) and run._thread is not None and run.state == "running"
    ]
    for run in running:
        run._note = _CONTINUES
    return running


class Run(Shown):
    """A training run, driven step by step or in a thread, that can be paused, stopped and resumed.

    `for event in run` trains in the caller's thread and yields each step's event before the next step starts.
    `run.start()` trains in a separate thread at full speed; `run.wait()` waits for its end. The params are kept after
    a `break`, Ctrl-C, `stop` or a failure; `resume()`, `start()` or another loop continue from there.

    Attributes:
        history: Metrics of every step: `run.history["loss"]`. The validation metrics are in the row of each epoch's
            last step, and NaN in the others.
    """

    def __init__(self, plan: TrainingPlan, state: State):
        self.history = History(plan.columns, plan.steps_per_epoch)
        self._plan, self._state = plan, state
        self._control, self._observers = RunControl(), Observers()
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None
        # Not Thread.join: if Ctrl-C interrupts it, Python 3.11 treats the running thread as ended.
        self._has_ended = threading.Event()
        self._driver: TrainingLoop | None = None
        # For a loop in the caller's thread: the thread, whether it is inside a step, whether a pause ends it.
        self._ident: int | None = None
        self._is_inside = False
        self._ends_on_pause = False
        self._note = ""
        self._exception: BaseException | None = None
        RUNS.add(self)

    def _end(self, timeout_s: float) -> None:
        if (thread := self._thread) is not None and thread.is_alive():
            self._control.request("stop")
            thread.join(timeout_s)
        elif self._driver is not None and not self._is_at_work:
            self._leave(self._driver)

    def _leave(self, loop: TrainingLoop, why: str = "the loop over the run was left") -> None:
        try:
            if self.state == "running":
                self._observers.notify(loop.leave(why))
        finally:
            self._driver = None
            if (saver := self._state.saver) is not None:
                saver.finish()
                saver.release()

    # Driving

    def __iter__(self) -> Iterator[TrainingEvent]:
        """Train in this thread and yield each event. If the run already trains elsewhere, only yield its events."""
        with self._lock:
            is_elsewhere = self._is_at_work
            if not is_elsewhere:
                self._control.request("go")
                self._ident, self._ends_on_pause = threading.get_ident(), False
        if is_elsewhere:
            yield from self.events()
            return
        # Without `closing`, a loop that is left by `break` would end when its generator is collected: a traceback, or a
        # notebook's history of outputs, may hold it.
        with closing(self._drive(is_exact=True)) as events, interrupts_to(self._control, lambda: self._is_inside):
            while True:
                try:
                    with self._lock:  # wait if `stop` is ending the loop
                        self._is_inside = True
                    event = next(events, None)
                finally:
                    self._is_inside = False
                if event is None:
                    return
                yield event
                if event.kind == "stopped" and self._control.interrupted:
                    raise KeyboardInterrupt(event.message)

    def start(self) -> Run:
        """Train in a separate thread from the current step, and return at once. A running run simply continues."""
        with self._lock:
            self._control.request("go")
            if not self._is_at_work:
                self._begin_thread()
        return self

    def wait(self, timeout: float | None = None) -> Run:
        """Wait for the end of the training.

        Starts a run that is idle, or whose `for event in run` loop waits between two steps, but not one that has ended.
        Ctrl-C stops the run, keeps its params, and raises KeyboardInterrupt.

        Args:
            timeout: Maximum seconds to wait; the run continues after them. Default: wait until the end.

        Returns:
            The run.

        Raises:
            TrainingError: The run failed because its loss is NaN or infinite.
            BaseException: Another error that ended the run, including `SystemExit`.
        """
        if self.state == "idle" or (self._is_driven and not self._is_at_work):
            self.start()
        until = math.inf if timeout is None else time.monotonic() + timeout
        try:
            while self._is_driven and (left := until - time.monotonic()) > 0:
                if self._thread is None:  # a loop in another thread
                    time.sleep(min(POLL_S, left))
                else:
                    self._has_ended.wait(min(POLL_S, left))
        except KeyboardInterrupt:
            self._control.request("stop", interrupted=True)
            self._has_ended.wait(FLUSH_S)
            raise KeyboardInterrupt(self.message) from None
        if not self._is_driven:
            self._observers.flush(FLUSH_S)
            if self.state == "failed" and self._exception is not None:
                raise self._exception
        return self

    def pause(self) -> None:
        """Pause before the next step. Inside `for event in run`, this ends the loop, so that later code can resume."""
        self._ends_on_pause = self._thread is None and self._ident == threading.get_ident()
        self._control.request("pause")

    def resume(self, epochs: int | None = None) -> Run:
        """Continue after a pause, a stop or a failure. Start a thread if no thread or loop drives the run.

        Args:
            epochs: Additional epochs to train. Without them, a completed run stays completed.
        """
        with self._lock:
            if epochs is not None:
                self._state.epochs += check_count("epochs", epochs)
                if self._state.limit is not None:
                    self._state.limit += epochs * self._plan.steps_per_epoch
            self._control.request("go")
            if not self._is_driven and self._state.step < self.steps:
                self._begin_thread()
        return self

    def step_once(self, steps: int = 1) -> Run:
        """Take one step, or several, and pause. If the run is training, only pause after the current step."""
        check_count("steps", steps)
        with self._lock:
            is_resting = not self._is_driven or self.state == "paused"
            self._control.request("pause", steps=steps if is_resting else 0)
            if not self._is_driven and self._state.step < self.steps:
                self._begin_thread()
        return self

    def stop(self) -> None:
        """Stop and keep the params: after the current step, or at once if `for event in run` is between two steps."""
        self._control.request("stop")
        with self._lock:
            if self._driver is not None and not self._is_at_work and self.state in ("running", "paused"):
                self._state.name = "running"
                self._leave(self._driver, "stopped")

    # Reading

    @property
    def state(self) -> RunState:
        """State of the run: `idle`, `running`, `paused`, `stopped`, `done` or `failed`."""
        return self._state.name

    @property
    def params(self) -> dict[str, Any]:
        """The current params. Further training does not change the returned arrays."""
        return self._lent()[0]

    @property
    def opt_state(self) -> Any:
        """The optimizer's state that belongs to the current params."""
        held = self._lent()[1]
        return held.opt_state if isinstance(held, OptimizerAndModelState) else held

    @property
    def model_state(self) -> dict[str, Any]:
        """The model's state that belongs to the current params, such as running statistics; empty if it has none."""
        held = self._lent()[1]
        return held.model_state if isinstance(held, OptimizerAndModelState) else {}

    @property
    def ema_params(self) -> Any:
        """The moving average of the params; `None` without `ema`."""
        params, held = self._lent()
        average = average_in(held)
        return None if average is None else with_average(params, average)

    @property
    def norms(self) -> Norms | None:
        """Norms of gradients, parameters and updates in the latest step that computed them; `None` without `norms`."""
        return next(iter(self._state.norms.steps(1)), None)

    @property
    def norms_history(self) -> list[Norms]:
        """The norms of all steps that computed them, and of every second, fourth, ... earlier one in a long run."""
        return self._state.norms.steps()

    @property
    def computes_norms(self) -> bool:
        """Whether the run was started with `norms`."""
        return self._plan.norms is not None

    @property
    def validation(self) -> dict[str, Any]:
        """The metrics of the last validation by name, also those without a column in the history; empty before it."""
        return dict(self._state.validation)

    @property
    def best_step(self) -> int | None:
        """The step of the best params; `None` before the first, or without `keep_best`."""
        return None if (best := self._state.best) is None else best.step

    @property
    def best_params(self) -> Any:
        """The params with the best value of the metric of `keep_best`; `None` before the first."""
        return None if (best := self._state.best) is None else best.restored()[0]

    @property
    def module(self) -> Any:
        """The model with the current params, in the type of its library; for a model of mithril_nb, the compiled model.

        A new nnx module or Equinox module, the variables of a linen module, or the params of a Haiku function or of a
        function. With a state, Equinox and Haiku have a pair with it.
        """
        model = self._plan.model
        return model.module(self.params, self.model_state) if isinstance(model, LibraryModel) else model

    @property
    def step(self) -> int:
        """Steps taken. If the run trains in a thread, the metrics of the latest steps may not be fetched yet."""
        return self._state.step

    @property
    def steps(self) -> int:
        """Total steps of the run."""
        return self._state.steps(self._plan.steps_per_epoch)

    @property
    def learning_rate(self) -> float:
        """The rate of the next step. You can set it at any time without recompilation."""
        return self._state.learning_rate

    @learning_rate.setter
    def learning_rate(self, rate: float) -> None:
        state, before = self._state, self._state.learning_rate
        state.learning_rate = after = check_rate(rate)
        if state.step and after != before:
            state.marks.append((state.step, f"learning_rate: {before:g} → {after:g}"))

    def set_learning_rate(self, rate: float) -> Run:
        """Set the rate of the next step; return the run."""
        self.learning_rate = rate
        return self

    @property
    def learning_rate_is_relative(self) -> bool:
        """True if the rate is a factor on the optimizer's own rate."""
        return self._plan.optimizer.is_relative

    @property
    def error(self) -> Diagnostic | None:
        """The reason why the run failed; `None` if it did not."""
        return self._state.problem

    @property
    def errors(self) -> list[Diagnostic]:
        """All errors of the run: its failure, the failed write of the latest checkpoint, and errors of listeners."""
        saver = self._state.saver
        lost = [saver.problem] if saver and saver.problem else []
        return [*([self.error] if self.error else []), *lost, *self._observers.errors]

    @property
    def message(self) -> str:
        """Message of the latest event; `""` before the first event. After Ctrl-C, a note if the run still trains."""
        if self._note and self.state == "running":
            return self._note
        return self._state.latest.message if self._state.latest else ""

    def to_host(self) -> None:
        """Free the device's memory of a run that does not train. The next use of its params or `resume` takes it."""
        with self._lock, self._control.reading():
            if not self._is_driven:
                self._state.to_host()

    def evaluate(self, data: Any) -> dict[str, Any]:
        """Return the loss and the metrics of the current params on a data set; with `ema`, of the averaged params.

        Args:
            data: Data in the form that `fit` accepts. Each sample counts once.

        Raises:
            DataError: The data is invalid.
        """
        *_, scores = self._plan.evaluating(*self._evaluated(data))
        return scores

    def predictions(self, data: Any = None) -> Predictions:
        """Return the predictions of the current params on a data set; with `ema`, of the averaged params.

        Args:
            data: Data in the form that `fit` accepts; default: the validation data of the run.

        Raises:
            DataError: The data is invalid, or there is none.
        """
        if data is None and (data := self._plan.validation) is None:
            raise DataError("this run has no validation data.", (), "run.predictions((x_test, y_test))")
        params, checked, state = self._evaluated(data)
        return predict(self._plan, params, state, checked)

    def observe(self, callback: Callback, every_s: float = 0.1) -> Callable[[], None]:
        """Call a function on each event, from a separate thread, so that it never delays training.

        Args:
            callback: Function of a `TrainingEvent`. Its errors are added to `run.errors`.
            every_s: Minimum seconds between two step events; only the latest step is delivered. Other events are
                delivered at once.

        Returns:
            A function that removes the callback.
        """
        return self._observers.add(callback, every_s)

    def events(self) -> Iterator[TrainingEvent]:
        """Yield the events of a run that another thread drives, until its end. Steps may be skipped."""
        return self._observers.stream(lambda: self._is_driven, FLUSH_S)

    def snapshot(self) -> dict[str, Any]:
        """Return the run's current numbers as JSON-serializable data. Never waits for a step.

        Loss and accuracy are means over the current epoch, because values of single batches vary too much to read.
        """
        state, latest = self._state, self._state.latest
        loss, accuracy = self.history.latest_means(self._plan.steps_per_epoch)
        return {
            "state": state.name,
            "epoch": latest.epoch if latest else 0,
            "epochs": state.epochs,
            "step": latest.step if latest else 0,
            "steps": self.steps,
            "loss": loss,
            "accuracy": accuracy,
            "validation_loss": state.validation.get("loss"),
            "validation_accuracy": state.validation.get("accuracy"),
            "steps_per_s": latest.steps_per_s if latest else None,
            "left_s": latest.left_s if latest else None,
            "learning_rate": state.learning_rate,
            "learning_rate_is_relative": self.learning_rate_is_relative,
            "message": self.message,
            "points": len(self.history),
            "marks": [*state.marks],
        }

    def __repr__(self) -> str:
        return f"Run({self.state}, step {self.step} of {self.steps}, {self._state.epochs} epochs)"

    # Internals

    @property
    def _is_driven(self) -> bool:
        return self._thread is not None or self._driver is not None

    @property
    def _is_at_work(self) -> bool:
        return self._thread is not None or self._is_inside

    def _evaluated(self, data: Any) -> tuple[Any, DataSet, dict[str, Any]]:
        """Return the params that are evaluated, the checked data, and the state of the model."""
        plan, (params, held) = self._plan, self._lent()
        if (average := average_in(held)) is not None:
            params = with_average(params, average)
        state = held.model_state if isinstance(held, OptimizerAndModelState) else {}
        runtime = self._state.runtime
        with runtime.precision():
            host_params = runtime.host(params)
            checked = checked_data(data, plan.model, plan.loss, host_params, plan.batch_size)
            check_last_batch(plan.model, host_params, checked, plan.batch_size, plan.evaluation_tail)
        return params, checked, state

    def _lent(self) -> tuple[Any, Any]:
        with self._control.reading():
            self._state.to_device()
            self._state.is_lent = True
            return self._state.runtime.lent((self._state.params, self._state.opt_state))

    def _begin_thread(self) -> None:
        self._driver, self._state.name, self._note = None, "running", ""
        self._has_ended.clear()
        self._thread = threading.Thread(target=self._work, name="mithril_nb training", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        must_continue, last = True, None
        while must_continue:
            try:
                for event in self._drive(is_exact=False):
                    last = event
            except BaseException:
                # A thread has no caller to raise to. `_drive` stores the error; `wait` raises it, `error` reports it.
                assert self._exception is not None
            finally:
                with self._lock:
                    # A request to continue, or for more epochs, may arrive while the run stops or computes its last
                    # scores. A run that raised is not retried, nor one that its rule has ended.
                    is_complete = last is not None and last.kind == "done" and not last.message
                    is_extended = is_complete and self._state.step < self.steps
                    must_continue = (
                        self._exception is None
                        and (self.state == "stopped" or is_extended)
                        and self._control.requested == "go"
                    )
                    if not must_continue:
                        self._thread = None
                        self._has_ended.set()

    def _drive(self, *, is_exact: bool) -> Generator[TrainingEvent]:
        loop = TrainingLoop(self._plan, self._state, self._control, self.history, is_exact=is_exact)
        with self._lock:
            self._driver, self._exception = loop, None
        try:
            for event in loop.events():
                self._observers.notify(event)
                yield event
                if self._driver is not loop:  # the consumer stopped the run, or another thread took over
                    if loop.last is not None:
                        yield loop.last
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
                if self._driver is loop:
                    self._leave(loop)
