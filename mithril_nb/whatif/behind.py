"""Work that is done behind: values that come later, and the one thread that makes them."""

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


class Later(Generic[Value]):
    """A value that is being made behind.

    What goes wrong is kept, and raised by `result`; nothing is printed.

    Examples:
        >>> Later(lambda: 6 * 7, Behind()).result()
        42
    """

    def __init__(self, make: Callable[[], Value], behind: Behind):
        self._once = Once(make)
        self._behind = behind
        self._has_ended = threading.Event()

    @classmethod
    def of(cls, value: Value) -> Later[Value]:
        """Return a value that is there already."""
        made = cls(lambda: value, Behind())
        made._make()
        return made

    @property
    def is_done(self) -> bool:
        """Whether `result` returns, or raises, at once."""
        return self._once.is_made

    def start(self) -> Later[Value]:
        """Have it made behind, if nobody makes it yet; return it."""
        if not self.is_done:
            self._behind.submit(self._make)
        return self

    def result(self, timeout: float | None = None) -> Value:
        """Return the value, when it is made.

        Args:
            timeout: Seconds to wait; by default as long as it takes.

        Raises:
            TimeoutError: It is not made by then; it goes on being made.
            Exception: What went wrong when it was made.
        """
        if timeout is None:
            return self._once.get()
        if not self.is_done:
            self.start()
            if not self._has_ended.wait(timeout) and not self.is_done:
                raise TimeoutError(f"not made after {timeout:g} s; it goes on being made.")
        return self._once.get()

    def _make(self) -> None:
        try:
            with suppress(Exception):  # `Once` keeps it, for whoever asks
                self._once.get()
        finally:
            self._has_ended.set()

    def __repr__(self) -> str:
        if self._once.has_failed:
            return "Later(failed; .result() raises why)"
        return "Later(done; .result() gives it)" if self.is_done else "Later(not done yet; .result() waits for it)"


class Turns:
    """One at a time; whoever is waited for goes before what is done behind."""

    def __init__(self) -> None:
        self._wake = threading.Condition()
        self._busy = False
        self._waited_for = 0

    @contextmanager
    def taken(self, behind: bool = False) -> Iterator[None]:
        """Hold the turn.

        Args:
            behind: Whether nobody waits for it: all others go first.
        """
        with self._wake:
            self._waited_for += not behind
            try:
                self._wake.wait_for(lambda: not self._busy and not (behind and self._waited_for))
                self._busy = True
            finally:
                self._waited_for -= not behind
        try:
            yield
        finally:
            with self._wake:
                self._busy = False
                self._wake.notify_all()


class Behind:
    """One thread for jobs, one after the other; it ends when there are none, and starts again with the next.

    Jobs say nothing and raise nothing: they are `Later`s, or keep by themselves what went wrong.

    Attributes:
        is_closed: Whether nobody waits any more for what it prepares.
    """

    def __init__(self) -> None:
        self._wake = threading.Condition()
        self._jobs: deque[Callable[[], Any]] = deque()
        self._thread: threading.Thread | None = None
        self.is_closed = False
        _ALL.add(self)

    def submit(self, job: Callable[[], Any]) -> None:
        """Do a job after those that wait."""
        with self._wake:
            self._jobs.append(job)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="mithril_nb what-if", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Give up the jobs that wait; the one under way ends by itself, or looks at `is_closed`."""
        with self._wake:
            self.is_closed = True
            self._jobs.clear()

    def wait_until_idle(self, timeout: float | None = None) -> bool:
        """Wait until there is nothing to do; return whether it was so in time."""
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
            # Kept by the job; a thread that prints would do so into any cell. Nor does `sys.exit()` of a person's own
            # function end it: whoever waits for what comes after would wait forever.
            with suppress(BaseException):
                job()
            del job  # what it holds may be let go of


_ALL: weakref.WeakSet[Behind] = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    # A thread that comes back from XLA into an interpreter that is gone takes the process down with an abort.
    for one in tuple(_ALL):
        one.close()
        one.wait_until_idle(30.0)
