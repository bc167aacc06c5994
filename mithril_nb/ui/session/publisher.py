"""What the sessions of all widgets share: listeners, snapshots, errors, and commands of a front end."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from mithril_nb.errors import Diagnostic
from mithril_nb.ui.session.design.analysis import problem_of

Listener = Callable[[str, Any], None]
"""Receives the kind of a message and the message, such as `("snapshot", dict)`, in any thread."""
_MOST_ERRORS = 100


class Publisher(ABC):
    """State that sends snapshots of itself to listeners.

    Attributes:
        errors: Errors of commands and of background threads, latest last, with tracebacks.
    """

    def __init__(self) -> None:
        self.errors: list[BaseException] = []
        self._lock = threading.RLock()
        self._listeners: list[Listener] = []
        self._notice: Diagnostic | None = None

    @abstractmethod
    def snapshot(self) -> dict[str, Any]:
        """Return all data that a front end shows."""

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Send all changes to a listener. Return a function that removes it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    def _send(self, kind: str, value: Any) -> None:
        for listener in tuple(self._listeners):
            listener(kind, value)

    def _publish(self) -> None:
        # Without the lock, a thread could send an old snapshot after the newer one of another thread.
        with self._lock:
            self._send("snapshot", self.snapshot())

    def _record(self, error: BaseException) -> None:
        """Store an error, and show it as the notice of the next snapshot."""
        self.errors.append(error)
        del self.errors[:-_MOST_ERRORS]
        self._notice = problem_of(error)

    def _fail(self, error: BaseException) -> None:
        """Store the error of a background thread and publish it."""
        with self._lock:
            self._record(error)
            self._publish()
