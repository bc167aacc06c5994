"""The workbench in JupyterLab with a chain of 1,000 blocks: first view, edits, messages while the user looks around.

It needs Chromium and the packages of the tests (`pip install '.[test]'`), and reports it if they are missing.
"""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks.explorer import Figures, opened_notebook

BLOCKS = 1_000
CLICK_BAR = 2_000
COUNT_MESSAGES = """
import json
from ipykernel.comm.comm import BaseComm as Comm  # the class of new comms
received, kept = [], Comm.handle_msg
Comm.handle_msg = lambda self, message: (received.append(message["content"]), kept(self, message))[1]
replies, publish = [], Comm.publish_msg
def publishing(self, kind, data=None, metadata=None, buffers=None, **keys):
    replies.append((data, buffers or []))
    return publish(self, kind, data, metadata, buffers, **keys)
Comm.publish_msg = publishing
def size():
    data = [json.dumps(one, default=str) for one in (*received, *(data for data, _ in replies))]
    count = len(received) + len(replies), sum(map(len, data)) + sum(len(one) for _, all in replies for one in all)
    received.clear(), replies.clear()
    return count
"""
"""Code for a kernel: `size()` returns the number and the bytes of the messages since its last call."""
_SETUP = f"""
import time
import mithril_nb as ml
from mithril_nb.models import Gelu, Linear, Model, Relu, Sigmoid, Tanh
ml.workbench(Linear(3), shapes={{"input": [2, 4]}}, autosave=False)
{COUNT_MESSAGES}chain = Model(name="chain")
for at in range({BLOCKS}):  # in an order without repeats, so that the chain does not fold into few blocks
    chain += (Relu, Tanh, Sigmoid, Gelu)[hash((at, at * at)) % 4]()
"""
_CALL = (
    "since = time.perf_counter()\n"
    'wb = ml.workbench(chain, shapes={"input": [4, 8]}, program="forward", autosave=False)\n'
    "made_s = time.perf_counter() - since\n"
    "wb"
)
_ROUNDS = 3
_FROM_CALL = """async () => {
    const start = performance.now();
    void window.jupyterapp.commands.execute('notebook:run-cell');
    await new Promise((done) => {  // polling in every frame would slow down what is measured
        const look = () => document.querySelector('.mnb-workbench [data-mnb-node]') && (watch.disconnect(), done());
        const watch = new MutationObserver(look);
        watch.observe(document.body, {subtree: true, childList: true});
    });
    await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
    return performance.now() - start;
}"""
_EDIT = """async (act) => {
    const root = document.querySelector('.mnb-workbench'), before = root.dataset.mnbVersion, start = performance.now();
    (0, eval)(act)(root);
    await new Promise((done) => {
        const watch = new MutationObserver(() => root.dataset.mnbVersion !== before && (watch.disconnect(), done()));
        watch.observe(root, {attributes: true});
    });
    await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
    return performance.now() - start;
}"""
_FIND = """() => {
    const input = document.querySelector('.mnb-workbench .mnb-palette-search');
    input.focus();
    input.value = 'Relu';
    input.dispatchEvent(new Event('input', {bubbles: true}));
}"""
_ADD = """(root) => root.querySelector('.mnb-palette-search').dispatchEvent(
    new KeyboardEvent('keydown', {key: 'Enter', bubbles: true, cancelable: true}))"""
_UNDO = """(root) => root.querySelector('[data-mnb-action="undo"]').click()"""
_PAN = """async () => {
    const board = document.querySelector('.mnb-board'), box = board.getBoundingClientRect(), frames = [];
    const at = (type, x, y) => board.dispatchEvent(new PointerEvent(type,
        {bubbles: true, clientX: box.x + x, clientY: box.y + y, pointerId: 1, button: 1, buttons: 4}));
    at('pointerdown', box.width - 4, 4);  // the middle button pans; the left one selects
    let before = performance.now();
    for (let step = 1; step <= 120; step++) {
        at('pointermove', box.width - 4 - 2 * step, 4 + step);
        await new Promise((done) => requestAnimationFrame(done));
        frames.push(performance.now() - before);
        before = performance.now();
    }
    at('pointerup', box.width - 244, 124);
    return frames.sort((a, b) => a - b);
}"""


def workbench_figures() -> Figures:
    """Yield name, figure and bar of each measurement."""
    yield from opened_notebook([_SETUP, _CALL], _measured, "workbench")


def _measured(notebook: Any) -> Figures:
    page = notebook.page
    page.set_default_timeout(120_000)
    for step in ("notebook:move-cursor-up", "notebook:run-cell-and-select-next"):
        notebook.command(step)
    notebook.wait_for("'chain' in globals()", 120)
    times, made = [], []
    for number in range(_ROUNDS):
        if number:
            notebook.execute("wb.close(); del wb")
            notebook.command("notebook:clear-cell-output")
            page.wait_for_timeout(500)
        times.append(page.evaluate(_FROM_CALL) / 1000)
        made.append(float(notebook.evaluate("made_s", 120)))
        notebook.wait_for("wb.session.wait(0.1)", 240)
    yield f"chain of {BLOCKS:,} blocks: call to first view", _spread(times, "s"), "1 s"
    yield "  of which ml.workbench runs", _spread(made, "s"), ""
    page.locator(".mnb-workbench").scroll_into_view_if_needed()
    page.wait_for_timeout(4000)  # the static fallback is rendered when the page is idle
    yield "  elements of the page", str(page.evaluate("document.querySelectorAll('.mnb-workbench *').length")), "3,000"
    adds, undos = [], []
    for _ in range(_ROUNDS):
        page.evaluate(_FIND)
        page.wait_for_timeout(500)
        adds.append(page.evaluate(_EDIT, _ADD))
        undos.append(page.evaluate(_EDIT, _UNDO))
        notebook.wait_for("wb.session.wait(0.1)", 240)
    yield "  add a block, from Enter to the new graph", _spread(adds, "ms"), "150 ms"
    yield "  undo", _spread(undos, "ms"), ""
    _silent(notebook)
    frames = page.evaluate(_PAN)
    yield "  pan", f"{1000 * len(frames) / sum(frames):.0f} fps, p95 {frames[113]:.0f} ms", "55 fps"
    board = page.locator(".mnb-board").bounding_box()
    for step in range(20):
        page.mouse.move(board["x"] + 60 + 20 * step, board["y"] + 120)
    page.mouse.wheel(0, 120)
    page.locator('[data-mnb-pane="jaxpr"] .cm-line').nth(4).hover()
    yield "messages while panning, hovering, zooming", str(_silent(notebook)[0]), "0"
    page.locator(".mnb-board [data-mnb-node]").nth(4).click()
    notebook.wait_for("len(wb.selection) == 1")
    count, size = _silent(notebook)
    yield "  a click on a block", f"{size / 1000:.1f} kB in {count}", f"{CLICK_BAR / 1000:.0f} kB"


def _silent(notebook: Any) -> tuple[int, int]:
    """Wait, then return the number of messages since the last call, and their bytes."""
    notebook.page.wait_for_timeout(1500)
    return tuple(notebook.evaluate("size()"))


def _spread(values: list[float], unit: str) -> str:
    digits = 2 if unit == "s" else 0
    middle = statistics.median(values)
    return f"{middle:.{digits}f} {unit} ({min(values):.{digits}f} to {max(values):.{digits}f})"
