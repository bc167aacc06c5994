"""What other threads may ask of a loop that trains: wait, go on, take one step, stop, or hold still to be read."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Literal

Turn = Literal["go", "pause", "stop"]


class Control:
    """Wishes from any thread, read by the loop between two steps.

    Attributes:
        pending: Whether the loop must look at the wishes before its next step. It reads this one attribute per step,
            no lock.
        interrupted: Whether the wish to stop came from Ctrl-C.
    """

    def __init__(self) -> None:
        self.pending = False
        self.interrupted = False
        self._condition = threading.Condition()
        self._wish: Turn = "go"
        self._allowance = 0
        self._readers = 0
        self._reading = threading.RLock()

    def ask(self, wish: Turn, *, interrupted: bool = False, steps: int = 0) -> None:
        """Ask the loop to go on, to wait (after some further steps), or to stop."""
        with self._condition:
            self._wish = wish
            self._allowance = steps if wish == "pause" else 0
            self.interrupted = interrupted
            self._settle()

    @property
    def wish(self) -> Turn:
        """What was asked for last."""
        return self._wish

    def turn(self) -> Turn:
        """Return what the loop should do now; waits while another thread reads the params. Called between two steps."""
        with self._condition:
            self._condition.wait_for(lambda: self._readers == 0)
            if self._wish == "pause" and self._allowance:
                self._allowance -= 1
                return "go"
            return self._wish

    @property
    def is_held(self) -> bool:
        """Whether the loop is asked to wait, and no further step is allowed."""
        return self._wish == "pause" and self._allowance == 0

    def wait_while_held(self, timeout_s: float = 0.1) -> None:
        """Sleep until something else than waiting is asked for, at most for a time; Ctrl-C is seen in between."""
        with self._condition:
            self._condition.wait_for(lambda: not self.is_held, timeout_s)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Keep the loop between two steps, where the params are not being overwritten."""
        with self._condition:
            self._readers += 1
            self._settle()
        try:
            with self._reading:
                yield
        finally:
            with self._condition:
                self._readers -= 1
                self._settle()

    @contextmanager
    def stepping(self) -> Iterator[None]:
        """Keep readers away while a step overwrites the params."""
        with self._reading:
            yield

    def _settle(self) -> None:
        self.pending = self._wish != "go" or self._readers > 0
        self._condition.notify_all()


@contextmanager
def interrupts_to(control: Control) -> Iterator[None]:
    """Turn Ctrl-C into a wish to stop while the main thread is inside a step; the second one acts as ever.

    Python raises KeyboardInterrupt between any two bytecodes: after the step has used up the old params, and before
    the new ones have a name. Both would be lost.
    """
    if threading.current_thread() is not threading.main_thread() or not callable(signal.getsignal(signal.SIGINT)):
        yield
        return

    def note(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, previous)
        control.ask("stop", interrupted=True)

    previous = signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
