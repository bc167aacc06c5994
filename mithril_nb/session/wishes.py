"""Threads that do what was wished for last of each kind, the oldest kind first."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from mithril_nb.session.worker import Worker


class Wishes:
    """Does what is asked for in one thread; of each kind only the latest wish that has not been begun.

    Args:
        name: Name of the thread.
        failed: Told what a wish raised.
    """

    def __init__(self, name: str, failed: Callable[[BaseException], None]):
        self._worker = Worker(name)
        self._failed = failed
        self._lock = threading.Lock()
        self._waiting: dict[str, Callable[[Callable[[], bool]], None]] = {}
        self._latest: dict[str, int] = {}

    def ask(self, kind: str, work: Callable[[Callable[[], bool]], None]) -> None:
        """Do something, in the place of what was asked for before of its kind.

        Args:
            kind: Its kind.
            work: Takes a function that says whether it is still wanted.
        """
        with self._lock:
            self._waiting.pop(kind, None)
            self._waiting[kind] = work
            self._latest[kind] = self._latest.get(kind, 0) + 1
        self._worker.submit(self._work)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until everything is done; return whether it was in time."""
        return self._worker.wait_until_idle(timeout_s)

    def end(self) -> None:
        """Give everything up."""
        with self._lock:
            self._waiting.clear()
            for kind in self._latest:
                self._latest[kind] += 1
        self._worker.end(0)

    def _work(self, wanted: Callable[[], bool]) -> None:
        while wanted():  # if not, a newer job goes on with what is left
            with self._lock:
                if not self._waiting:
                    return
                kind = next(iter(self._waiting))
                work, number = self._waiting.pop(kind), self._latest[kind]
            try:
                work(lambda kind=kind, number=number: self._latest[kind] == number)
            except Exception as error:  # nobody else hears of it
                self._failed(error)


def rests(wanted: Callable[[], bool], rest_s: float) -> bool:
    """Wait a moment before something that cannot be given up half way; return whether nothing newer came."""
    until = time.monotonic() + rest_s
    while time.monotonic() < until:
        if not wanted():
            return False
        time.sleep(0.01)
    return wanted()
