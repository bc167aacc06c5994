"""Pause Python's garbage collector while many long-lived values are created."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_state = {"depth": 0, "was_on": False}


@contextmanager
def paused_collector() -> Iterator[None]:
    """Create values without garbage collection; may be nested, and used by several threads at once.

    A traced program is a million objects. Each time their number grows by a quarter, the collector scans all of them,
    which takes a third of the tracing time and finds nothing, because they are all kept. Afterwards it scans the new
    objects once; objects it never scanned would accumulate where many programs are created in a row.

    Examples:
        >>> with paused_collector():
        ...     gc.isenabled()
        False
    """
    with _lock:
        if _state["depth"] == 0:
            _state["was_on"] = gc.isenabled()
            gc.disable()
        _state["depth"] += 1
    try:
        yield
    finally:
        with _lock:
            _state["depth"] -= 1
            if _state["depth"] == 0 and _state["was_on"]:
                gc.enable()
