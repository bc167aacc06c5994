"""Background work: a queue whose thread runs jobs in order. A new job replaces a waiting job of the same kind."""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

Result = TypeVar("Result")
Wanted = Callable[[], bool]
"""Returns whether a job is still wanted; long jobs call it between their steps."""
Job = Callable[[Wanted], object]

LAST_STEP_S = 30.0
"""Seconds that the interpreter waits at exit for the current step of each queue."""
_here = threading.local()
_QUEUES: weakref.WeakSet[JobQueue] = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    # A thread that returns from XLA after the interpreter has ended aborts the process.
    for queue in tuple(_QUEUES):
        queue.end(LAST_STEP_S)


class Unwanted(BaseException):
    """The job of this thread is no longer wanted. `except Exception` lets it through, so that nothing stores it."""


def check_wanted() -> None:
    """Raise `Unwanted` if this thread runs a job that is no longer wanted, so that the job ends."""
    if not getattr(_here, "is_wanted", lambda: True)():
        raise Unwanted


@dataclass(eq=False)
class _Submitted:
    job: Job
    key: Hashable
    is_wanted: bool = True


class JobQueue:
    """Runs one job at a time in a thread, in the order of submission. The thread ends when no job is left.

    Attributes:
        is_ended: True after `end`, until the next job.

    Examples:
        >>> queue = JobQueue("example")
        >>> queue.submit(lambda is_wanted: print(is_wanted()))
        >>> _ = queue.wait()
        True
    """

    def __init__(self, name: str, failed: Callable[[BaseException], object] | None = None):
        self.is_ended = False
        self._name, self._failed = name, failed
        self._wake = threading.Condition()
        self._waiting: dict[Hashable, _Submitted] = {}
        self._running: _Submitted | None = None
        self._thread: threading.Thread | None = None
        self._abandoned: list[threading.Thread] = []
        _QUEUES.add(self)

    def submit(self, job: Job, key: Hashable = "") -> None:
        """Run a job after the waiting jobs."""
        with self._wake:
            self.is_ended = False
            self._waiting.pop(key, None)
            self._waiting[key] = _Submitted(job, key)
            if self._running is not None and self._running.key == key:
                self._running.is_wanted = False
            # After a KeyboardInterrupt inside `_start`, the thread may exist without running.
            if self._thread is None or not self._thread.is_alive():
                self._start()

    def abandon(self) -> None:
        """Cancel the running job, if any, and run the next jobs in another thread without waiting for it."""
        with self._wake:
            if self._running is not None and self._thread is not None:
                self._running.is_wanted = False
                self._abandoned = [thread for thread in (*self._abandoned, self._thread) if thread.is_alive()]
                self._leave()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until no job is left, except abandoned ones; return False on timeout."""
        with self._wake:
            return self._wake.wait_for(lambda: self._running is None and not self._waiting, timeout_s)

    def end(self, timeout_s: float = 0.0) -> None:
        """Drop the waiting jobs, cancel the running one, and wait at most `timeout_s` seconds for its current step."""
        with self._wake:
            self.is_ended = True
            self._waiting.clear()
            if self._running is not None:
                self._running.is_wanted = False
            self._wake.notify_all()
        self.wait(timeout_s)
        for thread in self._abandoned:
            thread.join(timeout_s)

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        while (submitted := self._next()) is not None:
            _here.is_wanted = lambda submitted=submitted: submitted.is_wanted
            try:
                with suppress(Unwanted):
                    submitted.job(_here.is_wanted)
            except BaseException as error:  # `sys.exit()` in a user's function, too: the thread has no caller
                try:
                    if self._failed is None:
                        raise
                    self._failed(error)
                except BaseException:
                    with self._wake:
                        if threading.current_thread() is self._thread:
                            self._leave()
                    raise
            del submitted, _here.is_wanted  # release the data of the job

    def _next(self) -> _Submitted | None:
        with self._wake:
            if threading.current_thread() is not self._thread:
                return None  # abandoned
            self._running = self._waiting.pop(next(iter(self._waiting))) if self._waiting else None
            if self._running is None:
                self._thread = None
            self._wake.notify_all()
            return self._running

    def _leave(self) -> None:
        # Start another thread for the remaining jobs, because the current one runs no further job.
        self._running = self._thread = None
        if self._waiting:
            self._start()
        self._wake.notify_all()


def rests(is_wanted: Wanted, rest_s: float) -> bool:
    """Wait `rest_s` seconds before work that cannot be cancelled. Return False at once if the work is not wanted."""
    until = time.monotonic() + rest_s
    while time.monotonic() < until:
        if not is_wanted():
            return False
        time.sleep(0.01)
    return is_wanted()


def in_thread(function: Callable[..., Result], *args: object) -> Result:
    """Call a function in another thread, and return its result or raise its error.

    JAX stores the Python frames around each equation. In the user's thread, these include the cell that requests a
    stage, and the cell would be reported as the source of equations. In another thread, the frames exclude the cell.

    Examples:
        >>> in_thread(len, "abc")
        3
    """
    with ThreadPoolExecutor(1, "mithril_nb-request") as pool:
        return pool.submit(function, *args).result()
