"""An interrupt of the kernel does not stop a run that trains in a thread, and the run says so."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from jupyter_client.manager import KernelManager

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
    kernel.run("import os, signal, time; time.sleep(1)")
    kernel.manager.interrupt_kernel()
    looks = "for _ in range(100):\n    time.sleep(0.05)\n    if run.message: break\nprint(run.state, run.message)"
    assert kernel.run(looks) == f"running {NOTE}\n"

    kernel.run("run.stop()\nwhile run.state == 'running': time.sleep(0.05)\n_ = run.go_on()")
    assert kernel.run("print(repr(run.message))") == "''\n"
    printed = kernel.run("os.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)")
    assert printed == "Training continues in its own thread. Press Stop in its widget, or call run.stop().\n"
    assert kernel.run("print(run.state, run.message)") == f"running {NOTE}\n"
    kernel.run("run.stop()")
