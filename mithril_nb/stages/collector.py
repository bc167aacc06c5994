"""Python's garbage collector, paused while many small values are made that all stay."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_state = {"depth": 0, "was_on": False}


@contextmanager
def paused_collector() -> Iterator[None]:
    """Make values without looking for garbage meanwhile; may be nested, and used by several threads at once.

    A traced program is a million objects. Every time as many again have been made as a quarter of them, the collector
    looks at all of them, which takes a third of the time of tracing and finds nothing: what is made here is kept.
    Afterwards it looks at what is new once: what counted as old unseen would pile up where programs are made in a row.

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
