"""The tools of the graph by keyboard alone: search, values, export and links, in a workbench and a saved page."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from axe import violations
from lab import DARK, LIGHT, Browser, focus, press, watched_page
from layered import inspected
from playwright.sync_api import Page
from small_workbench import OPEN, STAGES, node

import mithril_nb as ml
from mithril_nb.models import MLP, Linear, Model

EXPORT = '[data-mnb-action="graph.export"]'
VALUES = '[data-mnb-action="graph.overlay"]'
NET = Model(name='<img src=x onerror="alert(1)">') + Linear(5) + MLP(5, [4], 2)


def open_export(page: Page) -> None:
    """Open the menu by a key; the focus is on its first action."""
    focus(page.locator(EXPORT))
    press(page, "ArrowDown")
    page.locator(".mnb-actions:not([hidden])").wait_for()


def export(page: Page, action: str) -> str:
    """Choose an action by keys alone, and return the text of the downloaded file."""
    open_export(page)
    while page.evaluate("document.activeElement.textContent") != action:
        press(page, "ArrowDown")
    with page.expect_download(timeout=120_000) as download:
        press(page, "Enter")
    page.wait_for_function("of => document.querySelector(of).textContent === 'Export'", arg=EXPORT)
    return Path(download.value.path()).read_text(encoding="utf-8")


def check_tools(page: Page, of: str) -> dict[str, Any]:
    """Open each tool, and return the violations of each; those without any are left out."""
    found = {}
    focus(page.locator('[data-mnb-action="search"]'))
    page.keyboard.type("kind:dot")
    page.locator("[role=option]").first.wait_for()
    found["search"] = violations(page, of)
    press(page, "Escape")
    page.locator(f'{VALUES} option[value="flops"]').wait_for(state="attached")
    focus(page.locator(VALUES))
    page.keyboard.type("FLOPs")
    page.locator(".mnb-legend:not([hidden]) b").wait_for()
    found["values"] = violations(page, of)
    press(page, "Home")
    page.locator(".mnb-legend b").wait_for(state="hidden")
    open_export(page)
    found["export"] = violations(page, of)
    press(page, "Escape")
    assert page.evaluate("document.activeElement.dataset.mnbAction") == "graph.export"
    return {what: problems for what, problems in found.items() if problems}


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_no_violation_in_the_tools_of_a_page(page: Page, theme: Any) -> None:
    page.emulate_media(color_scheme=theme)
    assert check_tools(page, "body") == {}


def test_a_page_explains_the_roles_until_it_shows_values(page: Page) -> None:
    assert page.locator(".mnb-legend").inner_text().split("\n")[0].startswith("bars: instructions")
    assert "backward" in page.locator(".mnb-legend").inner_text()


def test_a_page_exports_itself(page: Page, page_file: Path, chromium: Browser, tmp_path: Path) -> None:
    copy = tmp_path / "copy.html"
    copy.write_text(export(page, "HTML: this page"), encoding="utf-8")
    data = json.loads(export(page, "JSON: all stages"))
    assert [one["name"] for one in data["stages"]] == ["jaxpr", "stablehlo"]
    assert export(page, "SVG").startswith("<svg")
    with watched_page(chromium.context, copy.as_uri(), 1000) as other:
        other.wait_for_selector("main[data-ready]")
        assert other.locator('[data-stage="jaxpr"] .l').count() > 3
        assert other.locator(".tools").count() == 1


def test_a_page_prints_the_whole_text(page: Page) -> None:
    text = inspected().stage("jaxpr").text.rstrip("\n").split("\n")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    rows = page.locator('[data-stage="jaxpr"] .printed .l')
    assert rows.count() == len(text)
    assert rows.last.is_visible()
    assert page.locator('[data-stage="jaxpr"] .code').is_hidden()
    page.emulate_media(media="screen")
    assert rows.last.is_hidden()


def test_a_page_shows_the_model_of_a_link(chromium: Browser, page_file: Path) -> None:
    with watched_page(chromium.context, NET.share_link(page_file.as_uri()), 1000) as page:
        page.wait_for_selector("main[data-ready]")
        assert page.locator("h1 .name").inner_text() == NET.name
        assert page.locator("img").count() == 0
        nodes = page.locator("[data-mnb-node]").evaluate_all("nodes => nodes.map(node => node.dataset.mnbNode)")
        assert {"linear_0", "mlp_0"} <= {*nodes}
        focus(page.locator('[data-mnb-node="mlp_0"]'))
        press(page, "ArrowRight")
        page.locator('[data-mnb-node="mlp_0/linear_0"]').wait_for()
        assert Model.from_dict(json.loads(export(page, "JSON: model"))).graph == NET.graph
        for theme in ("light", "dark"):
            page.emulate_media(color_scheme=theme)
            open_export(page)
            assert violations(page, "body") == []
            press(page, "Escape")


def test_a_page_reports_a_broken_link_and_shows_its_own_program(chromium: Browser, page_file: Path) -> None:
    with watched_page(chromium.context, NET.share_link(page_file.as_uri())[:-40], 1000) as page:
        page.wait_for_selector("main[data-ready]")
        assert "it is damaged, or a part is missing" in page.locator("[role=alert]").inner_text()
        assert page.locator('[data-stage="jaxpr"] .l').count() > 3


@pytest.fixture
def opened(show_workbench: Callable[..., Any]) -> Any:
    return show_workbench(OPEN, *STAGES, width=1400, height=1000)


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_axe_finds_no_violation_in_the_tools_of_a_workbench(opened: Any, theme: str) -> None:
    opened.set_theme(theme)
    found = check_tools(opened.page, ".mnb-workbench")
    opened.set_theme(LIGHT)
    assert found == {}


def test_a_workbench_exports_files_and_a_link_by_keys_alone(opened: Any) -> None:
    page = opened.page
    assert "</html>" in export(page, "HTML: page of all stages")
    assert json.loads(export(page, "JSON: all stages"))["format"] == "mithril_nb.inspection"
    model = Model.from_dict(json.loads(export(page, "JSON: model")))
    assert [one.name for one in model.graph.nodes] == ["linear_0", "relu_0", "linear_1", "relu_1", "linear_2"]
    page.evaluate("navigator.clipboard.writeText = (text) => { window.copied = text; return Promise.resolve(); }")
    open_export(page)
    while page.evaluate("document.activeElement.textContent") != "Copy link":
        press(page, "ArrowDown")
    press(page, "Enter")
    page.wait_for_function("window.copied")
    assert ml.load(page.evaluate("window.copied")).graph == model.graph
    node(opened, "linear_0").click()
    page.wait_for_selector('[data-mnb-status="selected"]')
    assert page.locator('[data-mnb-status="selected"]').inner_text().startswith("linear_0: FLOPs ")
