"""The view of a graph with thousands of nodes in headless Chromium: first paint, panning, zooming, memory.

It needs Chromium, Node.js and the packages of the tests (`pip install '.[test]'`), and reports it if they are missing.
The figures are those of a browser without a GPU.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.explorer import CHROMIUM, ROOT
from tools import nodejs

_FRONTEND = ROOT / "mithril_nb" / "ui" / "frontend"
_ADDRESS = "http://graph.test"
_CASES = (
    ("1,000 nodes", 1_000, 0, "1 s"),
    ("10,000 nodes", 10_000, 0, "1 s"),
    ("100,000 nodes in groups of 50", 100_000, 50, "2 s"),
)
_MEASURE = "([count, inside]) => measure(syntheticScene(count, inside))"
_MEGABYTES = "() => { gc(); return performance.memory.usedJSHeapSize / 1e6; }"


def graph_view_figures() -> Iterator[tuple[str, str, str]]:
    """Yield name, figure and bar of each measurement."""
    sys.path.insert(0, str(ROOT / "tests" / "browser"))
    try:
        from lab import CHROMIUM_FLAGS  # pyright: ignore[reportMissingImports]
        from playwright.sync_api import sync_playwright
    except ImportError as error:
        yield "graph view", f"not measured: {error}", ""
        return
    program = os.environ.get(CHROMIUM) or shutil.which("chromium") or shutil.which("google-chrome")
    node = nodejs.find()
    if program is None or node is None or not (_FRONTEND / "node_modules").exists():
        missing = "Chromium" if program is None else "Node.js, or the front end's packages"
        yield "graph view", f"not measured: {missing} not found", ""
        return
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        subprocess.run(
            ["node", "scripts/dev-page.mjs", folder], cwd=_FRONTEND, env=node.environment(), check=True,
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        flags = [*CHROMIUM_FLAGS, "--enable-precise-memory-info", "--js-flags=--expose-gc"]
        browser = playwright.chromium.launch(executable_path=program, headless=True, args=flags)
        for name, count, inside, bar in _CASES:
            page = browser.new_page(viewport={"width": 1000, "height": 600})
            page.route(f"{_ADDRESS}/**", lambda route: route.fulfill(path=Path(folder) / Path(route.request.url).name))
            page.goto(f"{_ADDRESS}/graph.html")
            yield from _rows(name, page.evaluate(_MEASURE, [count, inside]), page.evaluate(_MEGABYTES), bar)
            page.close()
        browser.close()


def _rows(name: str, found: dict[str, Any], megabytes: float, bar: str) -> Iterator[tuple[str, str, str]]:
    yield f"{name}: first paint", f"{found['first_paint_ms'] / 1000:.2f} s", bar
    for move in ("pan at 1", "pan at 0.3", "pan at 0.08", "pan at fit", "zoom"):
        frames = found[move]
        yield f"  {move}", f"{frames['fps']:.0f} fps, p95 {frames['p95_ms']:.0f} ms", "55 fps"
    yield "  elements of the page", f"{max(found['dom_nodes'], found['dom_nodes_after'])}", "3,000"
    yield "  memory", f"{megabytes:.0f} MB", "300 MB"
