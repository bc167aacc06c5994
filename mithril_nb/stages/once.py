"""Compute a value once for all threads, and pause the garbage collector while large values are computed."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Once(Generic[Value]):
    """A value computed on first use.

    If another thread is computing the value, `get` waits for it. An error is cached and raised again.

    Attributes:
        elapsed_s: Seconds that the computation took; 0 before it ends.
        is_made: True after the computation, even if it raised an error.

    Examples:
        >>> Once(lambda: 6 * 7).get()
        42
    """

    def __init__(self, make: Callable[[], Value]):
        self._make: Callable[[], Value] | None = make
        self._lock = threading.Lock()
        self._value: Value | None = None
        self._error: Exception | None = None
        self._traceback: TracebackType | None = None
        self.elapsed_s = 0.0
        self.is_made = False

    @property
    def is_ready(self) -> bool:
        """Return whether the value was computed without an error."""
        return self.is_made and self._error is None

    @property
    def has_failed(self) -> bool:
        """Return whether computing the value raised an error."""
        return self._error is not None

    def get(self) -> Value:
        """Return the value; it is computed on first use."""
        # Checked again under the lock through `_make`; most calls come later and need no lock.
        if not self.is_made:
            with self._lock:
                if self._make is not None:
                    make, start = self._make, time.perf_counter()
                    try:
                        self._value = make()
                    except Exception as error:
                        # A `KeyboardInterrupt` is not cached: the next call computes the value again.
                        self._error, self._traceback = error, error.__traceback__
                    self.elapsed_s = time.perf_counter() - start
                    self._make = None
                    self.is_made = True
        if self._error is not None:
            raise self._error.with_traceback(self._traceback)  # else the traceback grows with each raise
        return self._value  # type: ignore[return-value]


class _Pause:
    """A `with` block in which the collector is off."""


# Weak, so that a pause whose end was interrupted by Ctrl-C counts no more.
_pauses = weakref.WeakSet[_Pause]()
_is_turned_off = False  # whether a pause has turned the collector off: users may do so, too


@contextmanager
def paused_collector() -> Iterator[None]:
    """Pause Python's garbage collector inside a `with` block.

    Examples:
        >>> with paused_collector():
        ...     gc.isenabled()
        False
    """
    # Blocks may be nested, and in several threads at once.
    # A traced program may have a million objects. Each time their number grows by a quarter, the collector scans all
    # of them. This takes a third of the tracing time and frees nothing, because all objects are in use. At the end,
    # the collector scans the new objects once, so that garbage does not accumulate over many programs.
    # There is no lock: a collection runs finalizers, such as that of a widget, which waits for threads that need it.
    # In each order of the statements of two threads, the collector is on after the last pause.
    global _is_turned_off
    pause = _Pause()
    try:
        _pauses.add(pause)
        if gc.isenabled():
            _is_turned_off = True
            gc.disable()
        yield
    finally:
        _pauses.discard(pause)
        if _is_turned_off and not _pauses:
            try:
                _is_turned_off = False
            finally:
                gc.enable()


@contextmanager
def running_collector() -> Iterator[None]:
    """Let the collector run inside a pause: code of users may take long."""
    if _is_turned_off:
        gc.enable()
    try:
        yield
    finally:
        if _pauses and _is_turned_off:
            gc.disable()
