"""Values that are computed in the background, and a lock that lets foreground work go first."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Generic, TypeVar

from mithril_nb.jobs import JobQueue
from mithril_nb.stages.once import Once

Value = TypeVar("Value")


def quiet_queue() -> JobQueue:
    """Return a queue for jobs that store their errors: a thread that printed them would print into any cell."""
    return JobQueue("mithril_nb what-if", failed=lambda error: None)


class Future(Generic[Value]):
    """A value that is computed in the background.

    An error is stored and raised by `result`; nothing is printed.

    Examples:
        >>> Future(lambda: 6 * 7, quiet_queue()).result()
        42
    """

    def __init__(self, make: Callable[[], Value], queue: JobQueue):
        self._once = Once(make)
        self._queue = queue
        self._has_ended = threading.Event()

    @classmethod
    def of(cls, value: Value) -> Future[Value]:
        """Return a finished `Future` with a value."""
        done = cls(lambda: value, quiet_queue())
        done._make()
        return done

    @property
    def is_done(self) -> bool:
        """True if `result` returns or raises immediately."""
        return self._once.is_made

    def start(self) -> Future[Value]:
        """Start the computation in the background, unless it is done; return `self`."""
        if not self.is_done:
            self._queue.submit(lambda wanted: self._make(), self)
        return self

    def result(self, timeout: float | None = None) -> Value:
        """Return the value, waiting for it if needed.

        Args:
            timeout: Seconds to wait; by default without limit.

        Raises:
            TimeoutError: The value is not ready in time; the computation continues.
            Exception: The computation raised it.
        """
        if timeout is None:
            return self._once.get()
        if not self.is_done:
            self.start()
            if not self._has_ended.wait(timeout) and not self.is_done:
                raise TimeoutError(f"not ready after {timeout:g} s; the computation continues in the background.")
        return self._once.get()

    def _make(self) -> None:
        try:
            with suppress(Exception):  # `Once` stores it for `result`
                self._once.get()
        finally:
            self._has_ended.set()

    def __repr__(self) -> str:
        if self._once.has_failed:
            return "Future(failed; .result() raises the error)"
        return "Future(done; .result() returns it)" if self.is_done else "Future(not done yet; .result() waits for it)"


class PriorityLock:
    """A lock with two priorities: foreground work goes before background work."""

    def __init__(self) -> None:
        self._wake = threading.Condition()
        self._busy = False
        self._waiting = 0

    @contextmanager
    def taken(self, background: bool = False) -> Iterator[None]:
        """Hold the lock.

        Args:
            background: Whether foreground work goes first.
        """
        with self._wake:
            self._waiting += not background
            try:
                self._wake.wait_for(lambda: not self._busy and not (background and self._waiting))
                self._busy = True
            finally:
                self._waiting -= not background
        try:
            yield
        finally:
            with self._wake:
                self._busy = False
                self._wake.notify_all()
