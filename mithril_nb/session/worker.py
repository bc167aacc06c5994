"""A thread that makes the dear things, the latest wish first: an older one is given up at its next step."""

from __future__ import annotations

import atexit
import threading
import weakref
from collections.abc import Callable

Job = Callable[[Callable[[], bool]], None]
"""Does its work in steps; between them asks whether it is still wanted."""


_WORKERS: weakref.WeakSet[Worker] = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    # A thread that comes back from XLA into an interpreter that is gone takes the process down with an abort.
    for worker in tuple(_WORKERS):
        worker.end()


class Worker:
    """Runs one job at a time; a new one takes the place of those that wait, and of the one that runs."""

    def __init__(self, name: str):
        self._name = name
        self._wake = threading.Condition()
        self._next: Job | None = None
        self._number = 0
        self._busy = False
        self._is_ending = False
        self._thread: threading.Thread | None = None
        _WORKERS.add(self)

    def submit(self, job: Job) -> None:
        """Do a job as soon as the one under way notices that it is not wanted any more."""
        with self._wake:
            self._next, self._number, self._is_ending = job, self._number + 1, False
            if self._thread is None or not self._thread.is_alive():
                self._start()
            self._wake.notify_all()

    def end(self, timeout_s: float = 30.0) -> None:
        """Give everything up, wait for the step under way to end, and end the thread; `submit` starts another."""
        with self._wake:
            self._next, self._number, self._is_ending = None, self._number + 1, True
            self._wake.notify_all()
        self.wait_until_idle(timeout_s)

    def wait_until_idle(self, timeout_s: float | None = None) -> bool:
        """Wait for the last job to end; return whether it did in time."""
        with self._wake:
            return self._wake.wait_for(lambda: not self._busy and self._next is None, timeout_s)

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._next is not None or self._is_ending, timeout=30.0)
                job, number = self._next, self._number
                self._next, self._busy = None, job is not None
                if job is None:
                    # Nothing to do for long: a forgotten workbench keeps no thread. `submit` starts another.
                    self._thread = None
                    return
            is_done = False
            try:
                job(lambda number=number: number == self._number)
                is_done = True
            finally:
                with self._wake:
                    self._busy = False
                    if not is_done:
                        # This thread lives until what was raised is printed, but takes no job any more.
                        self._thread = None
                        if self._next is not None:
                            self._start()
                    self._wake.notify_all()
