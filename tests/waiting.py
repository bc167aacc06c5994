"""Waiting for other threads."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_S = 60.0


def until(true: Callable[[], object], patience_s: float = PATIENCE_S) -> None:
    """Wait until a condition is true; fail on timeout."""
    deadline = time.monotonic() + patience_s
    while not true():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)
