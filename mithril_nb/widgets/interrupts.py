"""Interrupts of the kernel while a run trains in its own thread: the run continues, and its widgets say so."""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import suppress
from functools import cache
from typing import Any

from IPython import get_ipython

from mithril_nb.train.run import note_interrupt

_LOOK_S = 0.2


@cache
def report_interrupts() -> None:
    """From now on, report interrupts to runs that train in threads. To be called while a cell runs; works once."""
    shell = get_ipython()
    if shell is None or not hasattr(shell, "kernel"):
        return
    shell.events.register("post_run_cell", _after_cell)
    with suppress(RuntimeError):  # no loop: nothing runs between the cells, so nothing is interrupted there
        asyncio.get_running_loop().call_later(_LOOK_S, _listen_between_cells)


def _after_cell(result: Any) -> None:
    if isinstance(result.error_in_exec, KeyboardInterrupt) and note_interrupt():
        print("Training continues in its own thread. Press Stop in its widget, or call run.stop().", file=sys.stderr)


def _listen_between_cells() -> None:
    # ipykernel ignores SIGINT between cells: it sets the handler back after each cell to what it was before.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, lambda *_: note_interrupt())
    else:  # a cell runs
        asyncio.get_running_loop().call_later(_LOOK_S, _listen_between_cells)
