"""Report kernel interrupts to runs that train in threads. The runs continue, and their widgets show a note."""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import suppress
from typing import Any

from IPython import get_ipython

from mithril_nb.train.run.handle import note_interrupt

_LOOK_S = 0.2


def report_interrupts() -> None:
    """Report interrupts to runs that train in threads, from the end of this cell on. Further calls do nothing."""
    shell = get_ipython()
    if shell is not None and hasattr(shell, "kernel"):
        shell.events.register("post_run_cell", _after_cell)  # ignores a function that is already registered


def _after_cell(result: Any) -> None:
    if isinstance(result.error_in_exec, KeyboardInterrupt) and note_interrupt():
        print("Training continues in its own thread. Press Stop in its widget, or call run.stop().", file=sys.stderr)
    # Check once after each cell: a repeating timer would run as long as a kernel with its own handler lives.
    with suppress(RuntimeError):  # without an event loop, nothing can be interrupted between cells
        asyncio.get_running_loop().call_later(_LOOK_S, _listen_between_cells)


def _listen_between_cells() -> None:
    # ipykernel ignores SIGINT between cells: after each cell, it restores the previous handler.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, lambda *_: note_interrupt())
