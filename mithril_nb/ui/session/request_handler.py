"""Request handlers for a front end: costs, passes, what-if questions. Each has its own threads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mithril_nb.jobs import JobQueue


@dataclass(frozen=True)
class Client:
    """The client of a request handler. Its functions may be called in any thread.

    Attributes:
        send: Receives the kind of an answer, and the answer.
        changed: Called when the `view` of the handler changes.
        failed: Receives unexpected errors.
    """

    send: Callable[[str, Any], None]
    changed: Callable[[], None]
    failed: Callable[[BaseException], None]


class RequestHandler:
    """Runs requests: those without the compiler in one thread, those with it in another.

    Args:
        client: Receives the replies.
        name: Name of the first thread, after `mithril_nb-`.
        slow: Name of the second thread, after `mithril_nb-`.
    """

    def __init__(self, client: Client, name: str, slow: str):
        self._client = client
        self._quick, self._slow = (JobQueue(f"mithril_nb-{one}", client.failed) for one in (name, slow))

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the answers; return False on timeout."""
        return self._slow.wait(timeout_s) and self._quick.wait(timeout_s)

    def end(self) -> None:
        """Cancel all requests."""
        self._quick.end()
        self._slow.end()
