"""Widgets outside Jupyter: the code of a widget alone, and marimo if it is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from lab import KEEPER, Browser, free_port
from playwright.sync_api import Error as PlaywrightError
from playwright.sync_api import Page

import mithril_nb as ml
from mithril_nb.models import MLP

NOTEBOOK = """
import marimo

app = marimo.App()


@app.cell
def _():
    import mithril_nb as ml
    import numpy as np
    from mithril_nb.models import MLP

    x = np.random.default_rng(0).normal(size=(64, 29)).astype("float32")
    training = dict(data=(x, (x[:, 0] > 0).astype("int32")), batch_size=8, epochs=3)
    wb = ml.workbench(MLP(29, [37], 2), shapes={"input": [8, 29]}, **training)
    wb.observe(lambda change: print("blocks", *[node.name for node in change["new"].graph.nodes], flush=True), "model")
    wb
    return (ml, wb)


@app.cell
def _(ml):
    import jax

    other = ml.explore(lambda x: jax.numpy.sin(x).sum(), jax.numpy.ones(53))
    other
    return


if __name__ == "__main__":
    app.run()
"""
MOUNT = """async ([esm, snapshot]) => {
    const url = URL.createObjectURL(new Blob([esm], { type: "text/javascript" }));
    const { default: widget } = await import(url);
    const shadow = document.body.appendChild(document.createElement("div")).attachShadow({ mode: "open" });
    const el = shadow.appendChild(document.createElement("div"));
    const model = { get: (name) => ({ snapshot })[name], on() {}, off() {}, send() {} };
    widget.render({ model, el });
}"""
TEXT_STARTS = """(text) => {
    const place = document.createRange();
    place.selectNodeContents(text);
    return place.getBoundingClientRect().top - text.closest(".cm-editor").getBoundingClientRect().top;
}"""


def test_the_code_of_a_widget_needs_no_other_widget(chromium: Browser):
    wb = ml.workbench(MLP(29, [37], 2), shapes={"input": [8, 29]})
    with chromium.context.new_page() as page:
        page.evaluate(MOUNT, [wb._esm, wb.snapshot])
        page.locator('[data-mnb-node="linear_1"]').wait_for()
        page.get_by_role("tab", name="Source").click()
        line = page.locator(".mnb-source .cm-line").first
        assert "mithril_nb" in line.inner_text()
        # CodeMirror's style sheet is in the shadow root: the text is at the top of its box.
        assert line.evaluate(TEXT_STARTS) < 30
    wb.close()


@pytest.fixture
def marimo(tmp_path: Path, chromium: Browser) -> Iterator[Page]:
    """The notebook as marimo runs it."""
    if find_spec("marimo") is None:
        pytest.skip("marimo is not installed")
    (tmp_path / "notebook.py").write_text(NOTEBOOK)
    port = free_port()
    options = ["--headless", "--no-token", "--host=127.0.0.1", f"--port={port}"]
    with (tmp_path / "log").open("wb") as log:
        keeper = subprocess.Popen(
            [sys.executable, str(KEEPER), sys.executable, "-m", "marimo", "run", "notebook.py", *options],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(Path(ml.__file__).parents[1]), "NO_PROXY": "*"},
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        page = chromium.context.new_page()
        page.set_default_timeout(90_000)
        for _ in range(100):
            try:
                page.goto(f"http://127.0.0.1:{port}/")
                break
            except PlaywrightError:  # the server is not up yet
                page.wait_for_timeout(200)
        else:
            raise TimeoutError("marimo did not answer within 20 s")
        yield page
        page.close()
    finally:
        keeper.stdin.close()
        keeper.wait(15)


def test_marimo_shows_widgets_that_reach_python(marimo: Page, tmp_path: Path):
    workbench = marimo.locator(".mnb-workbench")
    workbench.locator('[data-mnb-pane="jaxpr"] .cm-line', has_text="lambda").first.wait_for()
    assert workbench.locator('[data-mnb-pane="jaxpr"] .cm-line').first.evaluate(TEXT_STARTS) < 30
    workbench.get_by_role("tab", name="Cost").click()
    workbench.locator('[data-mnb-node="linear_1"]').click()
    workbench.locator('tr[data-mnb-cost="linear_1"][aria-selected="true"]').wait_for()
    workbench.locator('[data-mnb-action="inspector.show"]').click()  # closed at first in a narrow widget
    workbench.locator('[data-mnb-action="inspector.remove"]').click()
    workbench.locator('[data-mnb-node="linear_1"]').wait_for(state="detached")
    workbench.get_by_role("tab", name="Train").click()
    workbench.get_by_role("button", name="Train", exact=True).click()
    workbench.locator('[data-mnb-run="done"]').wait_for()
    assert "of 24" in workbench.locator(".mnb-run-state").inner_text()
    marimo.locator(".mnb-explorer").locator(".cm-line", has_text="sin").first.wait_for()
    # Python prints in pieces, and the page may show the removal before the last one.
    assert "blocks linear_0 relu_0\n" in (tmp_path / "log").read_text()
