"""Workbenches that are closed or replaced free what they computed."""

from __future__ import annotations

import ctypes
import gc
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator

import ipywidgets
import numpy as np
import pytest
from stress import is_long

from mithril_nb.models import MLP
from mithril_nb.ui.widgets import Workbench, cells, workbench


def resident_mib() -> float:
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmRSS"))


@pytest.fixture
def open_one(monkeypatch) -> Iterator[Callable[[], Workbench]]:
    """Return a function that runs the cell of a workbench again."""
    runs = iter(range(10**6))
    now = [cells.NotebookCell(None, "3f2a", "first")]
    for place in (cells, sys.modules["mithril_nb.ui.widgets.workbench"]):
        monkeypatch.setattr(place, "current_cell", lambda: now[0])

    def run() -> Workbench:
        now[0] = cells.NotebookCell(None, "3f2a", str(next(runs)))
        wb = workbench(MLP(29, [37, 53], 11), shapes={"input": [7, 29]}, autosave=False)
        for stage in ("jaxpr", "stablehlo", "hlo") if is_long() else ("jaxpr",):
            wb.session.do("request_stage", stage=stage)
        assert wb.session.wait(60)
        return wb

    yield run
    for _, widgets in cells._WIDGETS.values():
        for one in list(widgets):
            one.close()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(("way", "most_mib"), [("closed", 0.3), ("replaced", 0.3), ("replaced and kept", 1.0)])
def test_ended_workbench_uses_little_memory(open_one, stress, way, most_mib):
    runs, kept = stress.size(short=2, long=100), []
    threads, widgets, memory = [], [], []
    for _ in range(stress.size(short=1, long=20) + runs):
        wb = open_one()
        if way == "closed":
            wb.close()
        if way == "replaced and kept":
            kept.append(wb)
        del wb
        until = time.monotonic() + 10
        while threads and threading.active_count() > threads[0] and time.monotonic() < until:
            time.sleep(0.01)  # a thread that was ended is gone a moment later
        threads.append(threading.active_count())
        widgets.append(len(ipywidgets.widgets.widget._instances))
        memory.append(resident_mib())
    slope = float(np.polyfit(range(runs), memory[-runs:], 1)[0])
    stress.report(way=way, runs=runs, mib_per_run=round(slope, 3), threads=threads[-1] - threads[-runs])
    assert threads[-1] <= threads[0], "no thread outlives its workbench"
    assert widgets[-1] == widgets[0]
    if runs >= 50:  # in a few runs the caches of JAX still grow
        assert slope <= most_mib


def test_training_run_continues_in_the_next_workbench(open_one):
    wb = open_one()
    wb.session.training.options.update(data=(np.zeros((32, 29), "float32"), np.zeros(32, "int32")), epochs=10**6)
    wb.do("train")
    run, session = wb.run, weakref.ref(wb.session)
    del wb
    newer = open_one()
    assert newer.run is run
    assert newer.run.state == "running"
    newer.do("stop")
    newer.run.wait(60)
    assert newer.session.snapshot()["run"]["state"] == "stopped"
    gc.collect()
    assert session() is None, "the run does not hold the session that started it"
    newest = open_one()
    assert newest.run is None, "a run that ended belongs to the workbench that started it"


def test_a_closed_workbench_still_has_its_values(open_one):
    wb = open_one()
    source, model, flops = wb.source, wb.model, wb.cost.total.flops
    open_one()
    assert wb.comm is None
    assert (wb.source, wb.model, wb.cost.total.flops) == (source, model, flops)
