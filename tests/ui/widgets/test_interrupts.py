"""A kernel interrupt does not stop a run in a thread, and the run reports this."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from IPython.core.events import EventManager, available_events
from jupyter_client.manager import KernelManager
from waiting import until

from mithril_nb.ui.widgets import cells

TRAINING = """
import numpy as np
import mithril_nb as ml
from mithril_nb.models import MLP
x = np.zeros((64, 4), "float32"); y = np.zeros(64, "int32")
run = ml.fit(MLP(4, [8], 3), (x, y), epochs=10**6, batch_size=8)
live = ml.watch(run)
_ = run.start()
"""
NOTE = "The kernel was interrupted. This run continues in its own thread: press Stop, or call run.stop()."


class Kernel:
    def __init__(self) -> None:
        self.manager = KernelManager()
        self.manager.start_kernel(env={**os.environ})
        self.client = self.manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)

    def run(self, code: str) -> str:
        """Run code; return what it printed."""
        printed: list[str] = []
        self.client.execute_interactive(
            code, timeout=90, output_hook=lambda message: printed.append(message["content"].get("text", ""))
        )
        return "".join(printed)

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


@pytest.fixture
def kernel(tmp_path, monkeypatch) -> Iterator[Kernel]:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    kernel = Kernel()
    yield kernel
    kernel.close()


@pytest.mark.filterwarnings("default::ResourceWarning", "default::DeprecationWarning")
def test_a_run_reports_an_interrupt_between_cells_and_in_a_cell(kernel):
    kernel.run(TRAINING)
    kernel.run("import os, signal, time")

    def is_noted() -> bool:
        # The kernel ignores an interrupt that comes before its event loop runs again after a cell.
        kernel.manager.interrupt_kernel()
        time.sleep(0.3)
        return kernel.run("print(run.state, run.message)") == f"running {NOTE}\n"

    until(is_noted)

    kernel.run("run.stop()\nwhile run.state == 'running': time.sleep(0.05)\n_ = run.resume()")
    assert kernel.run("print(repr(run.message))") == "''\n"
    printed = kernel.run("os.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)")
    assert printed == "Training continues in its own thread. Press Stop in its widget, or call run.stop().\n"
    assert kernel.run("print(run.state, run.message)") == f"running {NOTE}\n"
    kernel.run("run.stop()")


@pytest.fixture
def events(monkeypatch) -> Iterator[EventManager]:
    """Return the events of a shell in which a cell runs; SIGINT is handled as before the test afterwards."""
    shell = SimpleNamespace(kernel=None)
    shell.events = EventManager(shell, available_events)
    monkeypatch.setattr(cells, "get_ipython", lambda: shell)
    monkeypatch.setattr(cells, "_LOOK_S", 0.001)
    before = signal.getsignal(signal.SIGINT)
    yield shell.events
    signal.signal(signal.SIGINT, before)


def end_cell(events: EventManager) -> None:
    events.trigger("post_run_cell", SimpleNamespace(error_in_exec=None))


def test_check_between_cells_keeps_other_handlers(events, monkeypatch):
    looks: list[int] = []

    async def cell() -> None:
        monkeypatch.setattr(cells.signal, "getsignal", looks.append)
        cells.report_interrupts()
        end_cell(events)
        await asyncio.sleep(0.3)
        monkeypatch.undo()

    asyncio.run(cell())
    assert len(looks) == 1


def test_a_first_call_without_an_event_loop_is_not_final(events):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    cells.report_interrupts()
    end_cell(events)
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN

    async def cell() -> None:
        cells.report_interrupts()
        end_cell(events)
        while signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
            await asyncio.sleep(0.001)

    asyncio.run(asyncio.wait_for(cell(), 10))


def test_a_first_call_without_a_kernel_is_not_final(events, monkeypatch):
    shell = cells.get_ipython()
    monkeypatch.setattr(cells, "get_ipython", lambda: None)
    cells.report_interrupts()
    monkeypatch.setattr(cells, "get_ipython", lambda: shell)
    cells.report_interrupts()
    cells.report_interrupts()
    assert len(events.callbacks["post_run_cell"]) == 1
