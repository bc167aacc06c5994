"""Listeners receive the snapshots of a session in the order of its states, whichever threads change it."""

from __future__ import annotations

import threading
from typing import Any

from mithril_nb.ui.session.commands import Publisher


class _Counter(Publisher):
    """Counts, and lets another thread count while the first snapshot is made."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.is_reading = threading.Event()
        self.has_counted = threading.Event()

    def snapshot(self) -> dict[str, Any]:
        count = self.count
        if not self.is_reading.is_set():
            self.is_reading.set()
            self.has_counted.wait(5)
        return {"count": count}

    def count_once(self) -> None:
        self.is_reading.wait(5)
        self.count += 1
        self.has_counted.set()
        self._publish()


def test_an_older_snapshot_is_never_sent_after_a_newer_one() -> None:
    for _ in range(20):
        counter, received = _Counter(), []
        counter.listen(lambda _, snapshot, received=received: received.append(snapshot["count"]))
        slow, fast = threading.Thread(target=counter._publish), threading.Thread(target=counter.count_once)
        for thread in (slow, fast):
            thread.start()
        for thread in (slow, fast):
            thread.join(10)
        assert received == [0, 1]
