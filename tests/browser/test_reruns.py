"""A cell that runs repeatedly leaks nothing: no memory, thread, comm or element of the page."""

from __future__ import annotations

import json

from lab import NotebookPage
from small_workbench import MODEL, STAGES, settled, shown
from stress import is_long

PLAIN_MIB = 0.024
"""What JupyterLab keeps for each run of a cell with a plain `anywidget.AnyWidget`, measured in the same way."""

COUNTS = """
import ctypes, gc, json, threading
import ipywidgets
def counts():
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    with open("/proc/self/status") as file:
        kilobytes = next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))
    comms = len(get_ipython().kernel.comm_manager.comms)
    found = dict(mib=kilobytes / 1024, threads=threading.active_count(), comms=comms)
    return json.dumps({**found, "widgets": len(ipywidgets.widgets.widget._instances)})
"""


def counted(notebook: NotebookPage) -> dict[str, float]:
    """Return the sizes of the kernel and the page."""
    devtools = notebook.page.context.new_cdp_session(notebook.page)
    for _ in range(3):  # finalizers of the first collection release more
        devtools.send("HeapProfiler.collectGarbage")
    nodes = devtools.send("Memory.getDOMCounters")["nodes"]
    page_mib = devtools.send("Runtime.getHeapUsage")["usedSize"] / 2**20
    devtools.detach()
    return {**json.loads(notebook.evaluate("counts()")), "nodes": nodes, "page_mib": page_mib}


def run_again(notebook: NotebookPage) -> None:
    notebook.page.evaluate(
        """async () => {
            window.jupyterapp.shell.currentWidget.content.activeCellIndex = 1;
            await window.jupyterapp.commands.execute('notebook:run-cell');
        }"""
    )
    notebook.wait_for_cells()
    shown(notebook)
    settled(notebook, *(STAGES if is_long() else STAGES[:1]))


def test_rerun_cells_leak_nothing(open_workbench, stress):
    runs, warm = stress.size(short=1, long=200), stress.size(short=1, long=10)
    notebook = open_workbench(*STAGES, model=MODEL + COUNTS)
    for _ in range(warm):
        run_again(notebook)
    before = counted(notebook)
    for _ in range(runs):
        run_again(notebook)
    after = counted(notebook)
    growth = {name: round((after[name] - before[name]) / runs, 4) for name in before}
    stress.report(runs=runs, **{f"{name}_per_run": value for name, value in growth.items()}, after=after)
    assert after["comms"] == before["comms"]
    assert after["widgets"] == before["widgets"]
    assert after["threads"] <= before["threads"] + 2, "a thread ends when its workbench is replaced"
    assert notebook.page.locator(".mnb-root").count() == 1
    if runs >= 50:  # in a few runs caches of JAX and of the browser are still growing
        assert growth["mib"] <= 1.0  # `Out` keeps each workbench
        assert growth["nodes"] <= 20  # an `IntSlider` of ipywidgets leaves 13, and 0.029 MiB
        assert growth["page_mib"] <= PLAIN_MIB + 0.02
