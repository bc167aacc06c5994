"""`mithril-nb lab --app`: Voilà serves a page with nothing but the workbench."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from lab import KEEPER, Browser
from playwright.sync_api import Page

import mithril_nb as ml
from mithril_nb.models import MLP


@pytest.fixture
def app(tmp_path: Path, chromium: Browser) -> Iterator[tuple[Page, str]]:
    """A page, and the address that the command printed."""
    if find_spec("voila") is None:
        pytest.skip("Voilà is not installed")
    ml.save(MLP(29, [37], 2), tmp_path / "net.json")
    command = [
        sys.executable,
        "-m",
        "mithril_nb",
        "lab",
        "--app",
        "net.json",
        "--shape",
        "input=8,29",
        "--",
        "--no-browser",
    ]
    keeper = subprocess.Popen(
        [sys.executable, str(KEEPER), *command],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(ml.__file__).parents[1]), "NO_PROXY": "*"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        address = re.search(r"http://\S+", keeper.stdout.readline())[0]
        page = chromium.context.new_page()
        page.set_default_timeout(60_000)
        yield page, address
        page.close()
    finally:
        keeper.stdin.close()
        keeper.wait(15)
        keeper.stdout.close()


def test_voila_shows_only_the_workbench(app: tuple[Page, str], tmp_path: Path) -> None:
    page, address = app
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.set_viewport_size({"width": 1200, "height": 800})
    page.goto(address)
    workbench = page.locator(".mnb-workbench")
    workbench.locator('[data-mnb-pane="hlo"][data-mnb-state="ready"] .cm-line').first.wait_for()
    assert workbench.bounding_box() == {"x": 0, "y": 0, "width": 1200, "height": 800}
    assert page.evaluate("document.scrollingElement.scrollHeight") <= 800
    assert page.title() == "net"
    start = address.partition("?")[0]
    assert [url for url in asked if not url.startswith((start, "data:", "blob:"))] == []
    # Commands reach Python: the edit is saved beside the model.
    workbench.locator('[data-mnb-node="linear_1"]').click()
    workbench.locator('[data-mnb-action="inspector.remove"]').click()
    workbench.locator('[data-mnb-node="linear_1"]').wait_for(state="detached")
    workbench.locator(".mnb-status", has_text="Removed linear_1.").wait_for()
    saved = tmp_path / ".mithril_nb" / "net-app.json"
    while not saved.exists():  # within a second, but later on a busy machine
        page.wait_for_timeout(100)
    page.goto(address)  # a new kernel
    workbench.locator('[data-mnb-action="restore.edits"]').click(timeout=120_000)
    workbench.locator('[data-mnb-node="relu_0"]').wait_for()
    workbench.locator('[data-mnb-node="linear_1"]').wait_for(state="detached")
    # Without the token, there is only the way to log in.
    page.context.clear_cookies()
    page.goto(start)
    assert page.locator(".mnb-workbench, script[type='application/vnd.voila.cell-output+json']").count() == 0
