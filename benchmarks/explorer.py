"""The explorer in JupyterLab with GPT-2 small's train step: time to the first view, clicks, scrolling.

It needs Chromium and the packages of the tests (`pip install '.[test]'`), and reports it if they are missing.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
CHROMIUM = "MITHRIL_NB_CHROMIUM"

_SETUP = """
import time
import jax
from mithril_nb.ui.widgets import explore
from benchmarks.corpus import corpus
warm = explore(lambda x: x + 1, 1.0)
fn, args = corpus(True)["GPT-2 small, train step"]()

def jax_alone():
    jax.clear_caches()
    since = time.perf_counter()
    jax.jit(fn).lower(*args)
    return time.perf_counter() - since
"""
_CALL = "jax.clear_caches()\ne = explore(fn, *args)\ne"
_ROUNDS = 5
_DRAWN = """() => document.querySelector('[data-mnb-graph="jaxpr"]') && ['jaxpr', 'stablehlo'].every(
    (stage) => document.querySelector(`[data-mnb-pane="${stage}"]`)?.dataset.mnbVersion === '1')"""
_FROM_CALL = """async () => {
    const start = performance.now();
    void window.jupyterapp.commands.execute('notebook:run-cell');
    await new Promise((done) => {  // polling in every frame would slow down what is measured
        const look = () => (%s)() && (watch.disconnect(), done());
        const watch = new MutationObserver(look);
        const attributeFilter = ['data-mnb-version', 'data-mnb-graph'];
        watch.observe(document.body, {subtree: true, childList: true, attributeFilter});
    });
    await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
    return performance.now() - start;
}""" % _DRAWN.replace("%", "%%")  # noqa: UP031  The code is full of braces.
_CLICK = """async (pane) => {
    performance.clearMeasures('mnb:link');
    const lines = [...document.querySelectorAll(`[data-mnb-pane="${pane}"] .cm-line`)];
    const line = lines[Math.floor(lines.length / 2)], box = line.getBoundingClientRect();
    const where = {bubbles: true, clientX: box.x + 60, clientY: box.y + 5};
    line.dispatchEvent(new MouseEvent('mousedown', where));
    line.dispatchEvent(new MouseEvent('click', where));
    while (!performance.getEntriesByName('mnb:link').length) await new Promise((done) => requestAnimationFrame(done));
    return performance.getEntriesByName('mnb:link')[0].duration;
}"""
_SCROLL = """async (pane) => {
    const scroller = document.querySelector(`[data-mnb-pane="${pane}"] .cm-scroller`), frames = [];
    let before = performance.now();
    for (let at = 0; at < 120; at++) {
        scroller.scrollTop += at % 20 ? 90 : scroller.scrollHeight / 7;
        await new Promise((done) => requestAnimationFrame(done));
        frames.push(performance.now() - before);
        before = performance.now();
    }
    return frames.sort((a, b) => a - b);
}"""


Figures = Iterator[tuple[str, str, str]]
"""Name, figure and bar of each measurement."""


def explorer_figures() -> Figures:
    """Yield name, figure and bar of each measurement."""
    yield from opened_notebook([_SETUP, _CALL], _measured, "explorer")


def opened_notebook(cells: list[str], measure: Callable[[Any], Figures], what: str) -> Figures:
    """Yield the figures that a function measures in a notebook in JupyterLab, or why nothing is measured."""
    sys.path.insert(0, str(ROOT / "tests" / "browser"))
    try:
        from lab import CHROMIUM_FLAGS, Browser, NotebookPage, Server  # pyright: ignore[reportMissingImports]
        from playwright.sync_api import sync_playwright
    except ImportError as error:
        yield what, f"not measured: {error}", ""
        return
    program = os.environ.get(CHROMIUM) or shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        yield what, f"not measured: Chromium not found, and {CHROMIUM} is not set", ""
        return
    server = Server({"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)})
    try:
        with sync_playwright() as playwright, tempfile.TemporaryDirectory() as profile:
            context = playwright.chromium.launch_persistent_context(
                profile, executable_path=program, headless=True, args=CHROMIUM_FLAGS, timeout=60_000
            )
            name = server.write_notebook(f"{what}.ipynb", cells)
            yield from measure(NotebookPage(server, Browser(context), name, width=1600, height=1200))
            context.close()
    finally:
        server.close()


def _measured(notebook: Any) -> Figures:
    page = notebook.page
    page.set_default_timeout(120_000)
    for step in ("notebook:move-cursor-up", "notebook:run-cell-and-select-next"):
        notebook.command(step)
    notebook.wait_for("'fn' in globals()", 120)
    before = len(json.dumps(notebook.save()))
    times = []
    for number in range(_ROUNDS):
        if number:
            notebook.execute("e.close(); del e")
            notebook.command("notebook:clear-cell-output")
        times.append(page.evaluate(_FROM_CALL) / 1000)
        notebook.wait_for("e.session.wait(0.1)", 120)
    middle = f"{statistics.median(times):.2f} s ({min(times):.2f} to {max(times):.2f})"
    yield "call to first view", middle, "3 s"
    jax_alone = notebook.evaluate("min(jax_alone() for _ in range(3))")
    yield "  of which JAX traces and lowers", f"{float(jax_alone):.2f} s", ""
    page.locator(".mnb-explorer").scroll_into_view_if_needed()
    page.wait_for_timeout(4000)  # the static fallback is rendered when the page is idle
    yield "nodes", str(page.locator("[data-mnb-graph]").get_attribute("data-mnb-nodes")), "25"
    yield "added to the notebook", f"{(len(json.dumps(notebook.save())) - before) / 1000:.0f} kB", "300 kB"
    notebook.command("@jupyter-widgets/jupyterlab-manager:saveWidgetState")
    yield "with the state of its widgets", f"{(len(json.dumps(notebook.save())) - before) / 1000:.0f} kB", ""
    yield "click to all panes, 9k lines", f"{page.evaluate(_CLICK, 'stablehlo'):.0f} ms", "100 ms"
    page.locator('[data-mnb-tab="passes"]').click()
    page.locator('[data-mnb-action="passes.compile"]').click()
    page.locator('[data-mnb-action="pane.hlo"]').click()
    page.locator('[data-mnb-pane="hlo"][data-mnb-version="1"]').wait_for()
    notebook.wait_for("e.session.wait(0.1)", 120)
    page.wait_for_timeout(1000)
    yield "click to all panes, 50k lines", f"{page.evaluate(_CLICK, 'hlo'):.0f} ms", "250 ms"
    frames = page.evaluate(_SCROLL, "hlo")
    yield "frames per second while 50k lines scroll", f"{1000 * len(frames) / sum(frames):.0f}", "50"
    yield "  time of a frame, p50 / p95", f"{frames[60]:.0f} / {frames[113]:.0f} ms", ""
    page.locator("[data-mnb-shown]").wait_for()
    page.locator(".mnb-pass-list").focus()
    rows = page.locator("[data-mnb-pass]").count()
    for number in range(1, rows):
        page.keyboard.press("ArrowDown")
        page.locator(f'[data-mnb-shown="{number}"]').wait_for()
    page.wait_for_timeout(100)
    took = page.evaluate("performance.getEntriesByName('mnb:diff').map((one) => one.duration)")
    slowest = max(range(len(took)), key=took.__getitem__)
    name = notebook.evaluate(f"e.inspection.passes[{slowest + rows - len(took)}].name")
    middle = statistics.median(took)
    yield f"diff of a pass, median and slowest ({name})", f"{middle:.0f}, {took[slowest]:.0f} ms", "200 ms"
