"""End all training runs before the interpreter exits."""

from __future__ import annotations

import atexit
import weakref
from typing import Protocol

LAST_STEP_S = 60.0
"""Seconds that the interpreter waits at exit for an unfinished step or compilation."""


class Endable(Protocol):
    """A run that can be ended."""

    def _end(self, timeout_s: float) -> None:
        """Stop training, and wait at most `timeout_s` seconds for the end."""


RUNS: weakref.WeakSet[Endable] = weakref.WeakSet()
"""All runs of the process."""


@atexit.register
def end_all() -> None:
    """End all runs: a thread that returns from XLA after the interpreter has ended aborts the process."""
    for run in tuple(RUNS):
        run._end(LAST_STEP_S)
