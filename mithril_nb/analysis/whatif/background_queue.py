"""Background work: values that are computed later, and the thread that computes them."""

from __future__ import annotations

import atexit
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Generic, TypeVar

from mithril_nb.stages.once import Once

Value = TypeVar("Value")


class Future(Generic[Value]):
    """A value that is computed in the background.

    An error is stored and raised by `result`; nothing is printed.

    Examples:
        >>> Future(lambda: 6 * 7, BackgroundQueue()).result()
        42
    """

    def __init__(self, make: Callable[[], Value], queue: BackgroundQueue):
        self._once = Once(make)
        self._queue = queue
        self._has_ended = threading.Event()

    @classmethod
    def of(cls, value: Value) -> Future[Value]:
        """Return a finished `Future` with a value."""
        done = cls(lambda: value, BackgroundQueue())
        done._make()
        return done

    @property
    def is_done(self) -> bool:
        """True if `result` returns or raises immediately."""
        return self._once.is_made

    def start(self) -> Future[Value]:
        """Start the computation in the background, unless it is done; return `self`."""
        if not self.is_done:
            self._queue.submit(self._make)
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


class BackgroundQueue:
    """A queue of jobs and a thread that runs them in order. The thread ends when the queue is empty.

    Jobs print nothing and raise nothing: they are `Future`s, or store their errors.

    Attributes:
        is_closed: True if the results are no longer needed.
    """

    def __init__(self) -> None:
        self._wake = threading.Condition()
        self._jobs: deque[Callable[[], Any]] = deque()
        self._thread: threading.Thread | None = None
        self.is_closed = False
        _ALL.add(self)

    def submit(self, job: Callable[[], Any]) -> None:
        """Add a job to the end of the queue."""
        with self._wake:
            self._jobs.append(job)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="mithril_nb what-if", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Drop the queued jobs; the running one finishes, or stops when it checks `is_closed`."""
        with self._wake:
            self.is_closed = True
            self._jobs.clear()

    def wait_until_idle(self, timeout: float | None = None) -> bool:
        """Wait until the queue is empty; return whether it is before the timeout."""
        with self._wake:
            return self._wake.wait_for(lambda: self._thread is None, timeout)

    def _work(self) -> None:
        while True:
            with self._wake:
                if not self._jobs:
                    self._thread = None
                    self._wake.notify_all()
                    return
                job = self._jobs.popleft()
            # The job stores its errors: a thread that printed would print into any cell. `sys.exit()` in a user's
            # function must not end the thread either, because callers of `result` would wait forever.
            with suppress(BaseException):
                job()
            del job  # release its data while waiting


_ALL: weakref.WeakSet[BackgroundQueue] = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    # A thread that returns from XLA after the interpreter has shut down aborts the process.
    for one in tuple(_ALL):
        one.close()
        one.wait_until_idle(30.0)
