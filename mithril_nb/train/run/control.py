"""Control of a training loop from other threads: pause, resume, take one step, stop, wait for a reader, end at exit."""

from __future__ import annotations

import atexit
import signal
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Literal

Turn = Literal["go", "pause", "stop"]


class RunControl:
    """Commands from any thread, read by the loop between two steps.

    Attributes:
        pending: True if the loop must read the command before its next step. The loop checks this attribute at each
            step without a lock.
        interrupted: True if Ctrl-C requested the stop.
        requested: The latest request.
        stepping: Held by the loop while a step overwrites the params, and by readers of the params.
    """

    def __init__(self) -> None:
        self.pending = False
        self.interrupted = False
        self._condition = threading.Condition()
        self.requested: Turn = "go"
        self._allowance = 0
        self._readers = 0
        self.stepping = threading.RLock()

    def request(self, action: Turn, *, interrupted: bool = False, steps: int = 0) -> None:
        """Request the loop to continue (`"go"`), to pause after `steps` more steps, or to stop."""
        with self._condition:
            self.requested = action
            self._allowance = steps if action == "pause" else 0
            self.interrupted = interrupted
            self._settle()

    def turn(self) -> Turn:
        """Return the next action of the loop, which calls this between two steps. Waits while a thread reads params."""
        with self._condition:
            self._condition.wait_for(lambda: self._readers == 0)
            if self.requested == "pause" and self._allowance:
                self._allowance -= 1
                return "go"
            return self.requested

    @property
    def is_held(self) -> bool:
        """True if a pause is requested and no further step is allowed."""
        return self.requested == "pause" and self._allowance == 0

    def wait_while_held(self) -> None:
        """Sleep until the pause ends, but at most 0.1 s, so that the caller can handle Ctrl-C."""
        with self._condition:
            # On Windows, Ctrl-C does not interrupt a wait without a timeout (python/cpython#80116).
            self._condition.wait_for(lambda: not self.is_held, 0.1)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Hold the loop between two steps, where no step overwrites the params."""
        with self._condition:
            self._readers += 1
            self._settle()
        try:
            with self.stepping:
                yield
        finally:
            with self._condition:
                self._readers -= 1
                self._settle()

    def _settle(self) -> None:
        self.pending = self.requested != "go" or self._readers > 0
        self._condition.notify_all()


@contextmanager
def interrupts_to(control: RunControl, is_inside: Callable[[], bool] = lambda: True) -> Iterator[None]:
    """Turn Ctrl-C into a stop request while the main thread is inside a step. A second Ctrl-C acts as usual."""
    # Python can raise KeyboardInterrupt between any two bytecodes. After a step has donated the old params, and before
    # the new ones are assigned, both would be lost.
    # Only the main thread may call signal.signal. A handler that is not callable ignores Ctrl-C, as under nohup.
    if threading.current_thread() is not threading.main_thread() or not callable(signal.getsignal(signal.SIGINT)):
        yield
        return

    # For the whole loop, because two calls of signal.signal take longer than the rest of the work around a step.
    def note(number: int, frame: FrameType | None) -> None:
        if is_inside() and not control.interrupted:
            control.request("stop", interrupted=True)
        else:
            previous(number, frame)

    previous: Any = signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        is_main = threading.current_thread() is threading.main_thread()  # not if another thread collects the loop
        if is_main and signal.getsignal(signal.SIGINT) is note:  # a handler that was set inside the loop stays
            signal.signal(signal.SIGINT, previous)


LAST_STEP_S = 60.0
"""Seconds that the interpreter waits at exit for an unfinished step or compilation."""


# Weak, so that a run which nothing else holds is collected with its arrays.
RUNS: weakref.WeakSet[Any] = weakref.WeakSet()
"""All runs of the process, which have a method `_end(timeout_s)`."""


@atexit.register
def end_all() -> None:
    """End all runs at exit. A thread that returns from XLA after the interpreter has ended would abort the process."""
    for run in tuple(RUNS):
        run._end(LAST_STEP_S)
