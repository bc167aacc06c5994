"""The saved page of a flat program of 1,000 and 10,000 named scopes: time, memory, bytes, DOM nodes, frames.

Frames need Chromium and the packages of the tests (`pip install '.[test]'`); the rest is measured without them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
CHROMIUM = "MITHRIL_NB_CHROMIUM"
BYTES_BARS = {1_000: 1.5e6, 10_000: 12e6}
NODES_BAR, SECONDS_BAR, FRAMES_BAR = 6_000, 10, 55

_OPENED = "() => document.querySelector('.mnb-page[data-ready]') && performance.now()"
_NODES = "document.getElementsByTagName('*').length"
_SCROLL = """async (selector) => {
    const element = selector ? document.querySelector(selector) : document.scrollingElement, frames = [];
    let step = 90, before = performance.now();
    for (let at = 0; at < 120; at++) {
        const end = element.scrollHeight - element.clientHeight;
        if (element.scrollTop + step > end || element.scrollTop + step < 0) step = -step;
        element.scrollTop = at % 20 ? element.scrollTop + step : (end * ((at / 20) * 5 % 7)) / 7;
        await new Promise((done) => requestAnimationFrame(done));
        frames.push(performance.now() - before);
        before = performance.now();
    }
    return frames.sort((a, b) => a - b);
}"""
_PAN = """async () => {
    const board = document.querySelector('.mnb-page .mnb-board'), box = board.getBoundingClientRect(), frames = [];
    board.setPointerCapture = () => {};  // there is no such pointer
    const send = (type, at) => board.dispatchEvent(new PointerEvent(type, {
        pointerId: 1, button: 0, buttons: 1, bubbles: true,
        clientX: box.right - 20 - (at * 9) % (box.width - 40), clientY: box.bottom - 20 - (at * 5) % (box.height - 40),
    }));
    send('pointerdown', 0);
    let before = performance.now();
    for (let at = 1; at <= 120; at++) {
        send('pointermove', at);
        await new Promise((done) => requestAnimationFrame(done));
        frames.push(performance.now() - before);
        before = performance.now();
    }
    send('pointerup', 121);
    return frames.sort((a, b) => a - b);
}"""
_HOVER = """async (selector) => {
    const rows = [...document.querySelectorAll(`${selector} .l .x`)].slice(2, 12), times = [];
    for (const row of rows) {
        const since = performance.now();
        row.dispatchEvent(new MouseEvent('mouseover', {bubbles: true}));
        await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
        times.push(performance.now() - since);
    }
    return times.length ? Math.max(...times) : null;
}"""


def flat_scopes(count: int) -> Callable[[Any], Any]:
    """Return a program of `count` named scopes in a row, with four operations each."""
    import jax
    import jax.numpy as jnp

    def program(x: Any) -> Any:
        for number in range(count):
            with jax.named_scope(f"scope_{number}"):
                x = jnp.tanh(x * 2.0) + jnp.sin(x)
        return x

    return program


def mixed_scopes(count: int) -> Callable[[Any], Any]:
    """Return a program of `count` named scopes of different lengths; each reads the results of two scopes before."""
    import jax
    import jax.numpy as jnp

    def program(x: Any) -> Any:
        found = [x]
        for number in range(count):
            with jax.named_scope(f"scope_{number}"):
                x = found[-1] + found[number * 7919 % len(found)]
                for op in range(number * 31 % 5):
                    x = (jnp.tanh, jnp.sin, jnp.exp)[(number + op) % 3](x)
            found.append(x)
        return sum(found[:: max(1, count // 50)])

    return program


PROGRAMS = {"equal": flat_scopes, "mixed": mixed_scopes}


def saved_page_figures(full: bool) -> Iterator[tuple[str, str, str]]:
    """Yield name, figure and bar of each measurement; the program of 10,000 scopes only if `full`."""
    with tempfile.TemporaryDirectory() as folder:
        for count in BYTES_BARS if full else [1_000]:
            for kind in PROGRAMS:
                path = Path(folder) / f"{kind}-{count}.html"
                command = [sys.executable, "-m", "benchmarks.saved_page", kind, str(count), str(path)]
                made = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
                found = json.loads(made.stdout.splitlines()[-1])
                yield f"{count:,} {kind} scopes", "", ""
                yield "  JAX and XLA alone, before", f"{found['alone_s']:.1f} s", ""
                yield "  JAX and XLA in the same run", f"{found['theirs_s']:.1f} s", ""
                ours, ratio = found["all_s"] - found["theirs_s"], found["all_s"] / found["theirs_s"]
                bar = f"{SECONDS_BAR} s"
                yield "  made in, beyond that", _marked(f"{ours:.1f} s", ours > SECONDS_BAR) + f", {ratio:.2f} x", bar
                yield "  peak memory, above JAX and XLA alone", f"{found['ours_bytes'] / 1e6:.0f} MB", ""
                size, bar = found["page_bytes"], BYTES_BARS[count]
                yield "  page", _marked(f"{size / 1e6:.2f} MB", size > bar), f"{bar / 1e6:g} MB"
                size = found["output_bytes"]
                yield "  output in a notebook", _marked(f"{size / 1e6:.2f} MB", size > bar), f"{bar / 1e6:g} MB"
                yield "    made in", f"{found['output_s']:.2f} s", ""
                yield from _in_browser(path)


def _marked(figure: str, is_over: bool) -> str:
    return f"[red]{figure} over[/red]" if is_over else figure


def _in_browser(path: Path) -> Iterator[tuple[str, str, str]]:
    sys.path.insert(0, str(ROOT / "tests" / "browser"))
    try:
        from lab import CHROMIUM_FLAGS  # pyright: ignore[reportMissingImports]
        from playwright.sync_api import sync_playwright
    except ImportError as error:
        yield "  in a browser", f"not measured: {error}", ""
        return
    program = os.environ.get(CHROMIUM) or shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        yield "  in a browser", f"not measured: Chromium not found, and {CHROMIUM} is not set", ""
        return
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, headless=True, args=CHROMIUM_FLAGS)
        page = browser.new_page(viewport={"width": 1600, "height": 1000})
        page.set_default_timeout(300_000)
        page.goto(path.as_uri(), wait_until="commit")
        opened_ms = page.wait_for_function(_OPENED).json_value()
        yield "  opened in", f"{opened_ms / 1000:.2f} s", ""
        nodes = page.evaluate(_NODES)
        for stage in ("machine code", "LLVM"):
            button = page.get_by_role("button", name=stage)
            if button.count():
                button.first.click()
        nodes = max(nodes, page.evaluate(_NODES))
        for name, selector in (
            ("the page", ""),
            ("StableHLO", '[data-stage="stablehlo"] .code'),
            ("machine code", '[data-stage="asm"] .code'),
            ("the table of costs", ".scroll.long"),
        ):
            if selector and not page.locator(f".mnb-page {selector}").count():
                continue
            yield _frames(page, f"scrolling {name}", _SCROLL, selector)
            nodes = max(nodes, page.evaluate(_NODES))
        fold = page.locator('[data-stage="stablehlo"] .folds').get_by_role("button", name="fold", exact=True)
        if fold.count():
            fold.first.click()
            yield _frames(page, "scrolling folded StableHLO", _SCROLL, '[data-stage="stablehlo"] .code')
        yield _frames(page, "panning the graph", _PAN)
        page.get_by_role("button", name="Smaller").first.click()
        yield _frames(page, "panning the graph, smaller", _PAN)
        for name, stage in (("jaxpr", "jaxpr"), ("machine code", "asm")):
            took = page.evaluate(_HOVER, f'[data-stage="{stage}"]')
            if took is not None:
                yield f"  slowest hover over a line of {name}", f"{took:.0f} ms", ""
        yield "  DOM nodes, with five panes open", _marked(f"{nodes:,}", nodes > NODES_BAR), f"{NODES_BAR:,}"
        heap = page.evaluate("performance.memory.usedJSHeapSize")
        yield "  JavaScript heap", f"{heap / 1e6:.0f} MB", ""
        browser.close()


def _frames(page: Any, name: str, script: str, *options: str) -> tuple[str, str, str]:
    """Return the row of frames per second while a script moves a part of the page.

    It also has the processor time of the page's main thread, which other load of the machine changes less.
    """
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    before = _thread_s(session)
    frames = page.evaluate(script, *options)
    busy_ms = 1000 * (_thread_s(session) - before) / len(frames)
    session.detach()
    rate, late = 1000 * len(frames) / sum(frames), frames[int(0.95 * len(frames))]
    figure = _marked(f"{rate:.0f}", rate < FRAMES_BAR)
    return (
        f"  frames per second, {name}",
        f"{figure} (p95 {late:.0f} ms, main thread {busy_ms:.1f} ms)",
        str(FRAMES_BAR),
    )


def _thread_s(session: Any) -> float:
    """Return the processor time that the main thread of a page has used, in seconds."""
    found = session.send("Performance.getMetrics")["metrics"]
    return next(one["value"] for one in found if one["name"] == "ThreadTime")


def _measure(kind: str, count: int, path: Path) -> dict[str, float]:
    """Measure in this process, which should be a new one."""
    import jax

    import mithril_nb as ml
    from benchmarks.stages import own_peak_bytes
    from mithril_nb.viz.bundles import bundle

    make, spec = PROGRAMS[kind], jax.ShapeDtypeStruct((16,), "float32")
    since = time.perf_counter()
    jax.jit(make(count)).lower(spec).compile()
    alone_s = time.perf_counter() - since
    before = own_peak_bytes()
    jax.clear_caches()
    since = time.perf_counter()
    inspection = ml.inspect(make(count), spec)
    page = inspection.to_html(path)
    all_s = time.perf_counter() - since
    theirs_s = sum(inspection.elapsed.values())
    ours_bytes = own_peak_bytes() - before
    other = ml.inspect(make(count), spec)
    for stage in ("jaxpr", "stablehlo"):
        other.stage(stage)
    since = time.perf_counter()
    output = bundle(other)
    output_s = time.perf_counter() - since
    return {
        "alone_s": alone_s,
        "all_s": all_s,
        "theirs_s": theirs_s,
        "ours_bytes": ours_bytes,
        "page_bytes": len(page.encode()),
        "output_bytes": sum(len(part.encode()) for part in output.values()),
        "output_s": output_s,
    }


if __name__ == "__main__":
    kind, count, path = sys.argv[1:]
    print(json.dumps(_measure(kind, int(count), Path(path))))
