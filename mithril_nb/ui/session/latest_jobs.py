"""A thread that runs the latest job of each kind, oldest kind first."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from mithril_nb.ui.session.worker import Worker


class LatestJobs:
    """Runs jobs in one thread. A new job replaces a waiting job of its kind.

    Args:
        name: Name of the thread.
        failed: Receives the errors of jobs.
    """

    def __init__(self, name: str, failed: Callable[[BaseException], None]):
        self._worker = Worker(name)
        self._failed = failed
        self._lock = threading.Lock()
        self._waiting: dict[str, Callable[[Callable[[], bool]], None]] = {}
        self._latest: dict[str, int] = {}

    def submit(self, kind: str, work: Callable[[Callable[[], bool]], None]) -> None:
        """Run a job instead of the waiting one of its kind.

        Args:
            kind: Kind of the job.
            work: The job. Its argument is a function that returns whether the job is still wanted.
        """
        with self._lock:
            self._waiting.pop(kind, None)
            self._waiting[kind] = work
            self._latest[kind] = self._latest.get(kind, 0) + 1
        self._worker.submit(self._work)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until all jobs are done; return False on timeout."""
        return self._worker.wait_until_idle(timeout_s)

    def end(self) -> None:
        """Cancel all jobs."""
        with self._lock:
            self._waiting.clear()
            for kind in self._latest:
                self._latest[kind] += 1
        self._worker.end(0)

    def _work(self, wanted: Callable[[], bool]) -> None:
        while wanted():  # otherwise a newer call of `_work` takes the remaining jobs
            with self._lock:
                if not self._waiting:
                    return
                kind = next(iter(self._waiting))
                work, number = self._waiting.pop(kind), self._latest[kind]
            try:
                work(lambda kind=kind, number=number: self._latest[kind] == number)
            except Exception as error:  # the thread has no caller
                self._failed(error)


def rests(wanted: Callable[[], bool], rest_s: float) -> bool:
    """Wait before work that cannot be cancelled; return whether it is still wanted."""
    until = time.monotonic() + rest_s
    while time.monotonic() < until:
        if not wanted():
            return False
        time.sleep(0.01)
    return wanted()
