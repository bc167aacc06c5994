"""The output of a cell that shows and updates the report of a watched function or of a `with ml.watch()` block."""

from __future__ import annotations

import threading
import uuid
from typing import Any

from IPython import get_ipython
from IPython.display import display, update_display

from mithril_nb.analysis.retraces.watching import Following
from mithril_nb.display import render, renderer

_WAIT_S = 0.3
"""Delay of an update, in seconds: a retrace takes milliseconds, and often others follow."""


class LiveReport:
    """Shows a value, and updates it some tenths of a second after each change. Without a kernel, it shows it once.

    Args:
        value: The watched function or block.
    """

    def __init__(self, value: Following):
        self._value, self._id = value, f"mithril-nb-{uuid.uuid4().hex}"
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._shown: Any = None

    def show(self) -> None:
        """Show the current value."""
        self._shown = render(self._value)
        display(self._shown, raw=True, display_id=self._id)
        if getattr(get_ipython(), "kernel", None) is not None:  # a terminal would print each update
            self._value.follow(self._schedule)

    def _schedule(self) -> None:
        with self._lock:
            if self._timer is None:
                self._timer = threading.Timer(_WAIT_S, self._update)
                self._timer.daemon = True
                self._timer.start()

    def _update(self) -> None:
        with self._lock:
            self._timer = None
        fresh = render(self._value)
        if fresh != self._shown:
            self._shown = fresh
            update_display(fresh, raw=True, display_id=self._id)


@renderer(Following, kind="live")
def show_live(value: Following) -> None:
    """Show the report of a watched function or block, and update it after each change."""
    LiveReport(value).show()
