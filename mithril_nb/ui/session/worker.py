"""A thread for expensive work. A new job cancels the running one at its next step."""

from __future__ import annotations

import atexit
import threading
import weakref
from collections.abc import Callable

Job = Callable[[Callable[[], bool]], None]
"""Works in steps, and calls its argument between them to check whether it is still wanted."""


_WORKERS: weakref.WeakSet[Worker] = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    # A thread that returns from XLA after the interpreter has ended aborts the process.
    for worker in tuple(_WORKERS):
        worker.end()


class Worker:
    """Runs one job at a time. A new job replaces the waiting one and cancels the running one."""

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
        """Run a job as soon as the current one ends or notices that it is cancelled."""
        with self._wake:
            self._next, self._number, self._is_ending = job, self._number + 1, False
            if self._thread is None or not self._thread.is_alive():
                self._start()
            self._wake.notify_all()

    def end(self, timeout_s: float = 30.0) -> None:
        """Cancel all jobs, wait for the current step, and end the thread. `submit` starts a new thread."""
        with self._wake:
            self._next, self._number, self._is_ending = None, self._number + 1, True
            self._wake.notify_all()
        self.wait_until_idle(timeout_s)

    def wait_until_idle(self, timeout_s: float | None = None) -> bool:
        """Wait for the last job; return False on timeout."""
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
                    # End an idle thread, so that a forgotten workbench uses none. `submit` starts a new one.
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
                        # This thread lives until its error is printed, but takes no further job.
                        self._thread = None
                        if self._next is not None:
                            self._start()
                    self._wake.notify_all()
