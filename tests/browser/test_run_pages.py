"""The page of stored runs in a browser, from a file and without scripts of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from axe import violations
from lab import Browser

import mithril_nb as ml


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_curves_are_chosen_and_hidden_by_keyboard(chromium: Browser, tmp_path: Path, theme: Any) -> None:
    for rate in (1, 2):
        with ml.track(tmp_path / f"run {rate}") as run:
            for run.step in range(50):
                run.log({"loss": rate / (run.step + 1)})
    ml.runs(tmp_path).to_html(tmp_path / "runs.html")
    page = chromium.context.new_page()
    page.emulate_media(color_scheme=theme)
    try:
        requests: list[str] = []
        page.on("request", lambda request: requests.append(request.url))
        page.goto((tmp_path / "runs.html").as_uri())
        assert violations(page, "html") == []
        page.focus("[name=view]")
        page.keyboard.press("ArrowRight")
        assert [view.is_visible() for view in page.query_selector_all(".view")] == [False, True, False, False]
        assert page.is_visible(".v1 .r1")
        page.focus(".c1 input")
        page.keyboard.press("Space")
        assert not page.is_visible(".v1 .r1")
        assert page.is_visible(".v1 .r0")
        page.focus("[name=zoom]")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        page.focus(".v1")
        page.keyboard.press("ArrowRight")
        page.wait_for_timeout(500)
        assert page.locator(".v1").first.evaluate("view => view.scrollLeft") > 0
        assert violations(page, "html") == []
        assert len(requests) == 1
    finally:
        page.close()
