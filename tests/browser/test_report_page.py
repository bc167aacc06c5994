"""A report in a real browser: linked both ways with scripts, readable without, no request to anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from lab import Browser, focus, press, watched_page
from playwright.sync_api import Page

from mithril_nb import cli
from mithril_nb.models import MLP, LayerNorm, Linear, Model, save


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a report of a small model."""
    folder = tmp_path_factory.mktemp("report")
    save(Model() + Linear(48) + LayerNorm() + MLP(48, [40], 24) + Linear(10), folder / "model.json")
    page = folder / "report.html"
    assert cli.main(["report", str(folder / "model.json"), "-o", str(page), "--shape", "input=16,56"]) == 0
    return page.as_uri()


@pytest.fixture
def page(chromium: Browser, report: str) -> Iterator[Page]:
    """The opened report; it must send no request and log nothing."""
    with watched_page(chromium.context, report, 800) as page:
        yield page


def pinned(page: Page, stage: str) -> list[str]:
    return page.eval_on_selector_all(
        f'[data-stage="{stage}"] .l.pin', "lines => lines.map(line => line.getAttribute('data-of'))"
    )


def test_clicking_a_block_pins_exactly_its_lines(page: Page):
    page.locator('.node[data-block="linear_1"]').click()
    for stage in ("jaxpr", "stablehlo", "hlo"):
        found = pinned(page, stage)
        assert found, stage
        assert all("linear_1" in of.split() for of in found), stage
        pane = page.locator(f'[data-stage="{stage}"] .code')
        line = page.locator(f'[data-stage="{stage}"] .l.pin').first
        box, frame = line.bounding_box(), pane.bounding_box()
        assert box
        assert frame
        assert frame["y"] <= box["y"] <= frame["y"] + frame["height"], f"{stage} did not scroll"
    assert page.locator('tr[data-block="linear_1"].pin').count() == 1
    page.locator('.node[data-block="linear_1"]').click()
    assert pinned(page, "jaxpr") == []


def test_hovering_a_line_highlights_block_and_counterparts(page: Page):
    line = page.locator('[data-stage="jaxpr"] .l[data-of="layer_norm_0"]:not([data-e^="arg"])').first
    equation = line.get_attribute("data-e")
    line.locator(".x").hover()
    page.locator('.node[data-block="layer_norm_0"].on').wait_for()  # after a scroll, once it ends
    lit = page.eval_on_selector_all(
        '[data-stage="stablehlo"] .l.on', "lines => lines.map(line => line.getAttribute('data-e').split(' '))"
    )
    assert lit
    assert all(equation in ids for ids in lit)


def test_a_group_is_its_blocks(page: Page):
    page.locator('.node[data-block="mlp_0"]').first.click(position={"x": 20, "y": 10})
    assert {of for of in pinned(page, "jaxpr")} == {"mlp_0/linear_0", "mlp_0/relu_0", "mlp_0/linear_1"}


def test_the_keyboard_alone_is_enough(page: Page):
    focus(page.locator('.node[data-block="linear_1"]'))
    press(page, "Enter")
    assert pinned(page, "hlo")
    focus(page.locator('[data-stage="jaxpr"] .code'))
    press(page, "]", "Enter")
    assert page.locator('[data-stage="jaxpr"] .l.here.pin').count() == 1
    press(page, "Escape")
    assert pinned(page, "hlo") == []


def test_it_reads_without_scripts_and_its_links_work(chromium: Browser, report: str):
    assert chromium.context.browser
    context = chromium.context.browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(report)
    assert page.locator("svg .node").count() >= 6
    assert page.locator("table.cost").count() >= 2
    link = page.locator('[data-stage="jaxpr"] a.n').nth(10)
    target = (link.get_attribute("href") or "").removeprefix("#")
    link.click()
    assert page.url.endswith(f"#{target}")
    assert page.locator(f'[id="{target}"]').is_visible()
    context.close()


def test_themes_differ_and_the_graph_has_its_height(page: Page):
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.emulate_media(color_scheme="dark")
    assert page.evaluate(ground) != light
    box = page.locator("svg.mnb-diagram").bounding_box()
    assert box
    assert box["width"] < 500, "the graph was blown up"


def test_panes_have_the_height_that_they_should(page: Page, chromium: Browser):
    for stage in ("jaxpr", "stablehlo", "hlo"):
        box = page.locator(f'[data-stage="{stage}"] .code').bounding_box()
        assert box
        assert 200 < box["height"] <= 0.52 * 800 + 1


def test_a_report_has_the_readable_stages(page: Page):
    shown = page.eval_on_selector_all("[data-stage]", "panes => panes.map(pane => pane.getAttribute('data-stage'))")
    assert shown == ["jaxpr", "stablehlo", "hlo"]


def test_reports_are_self_contained(report: str):
    assert Path(report.removeprefix("file://")).stat().st_size < 1_000_000


def test_names_of_any_length_are_elided(chromium: Browser, tmp_path: Path):
    name = "long_" * 190  # a file may have names of 1,000 characters
    model = Model(name=name) + Linear(8, name=f"{name}first") + Linear(4, name=f"{name}second")
    model.rename_keys(input=f"{name}input")
    save(model, tmp_path / "model.json")
    page_file = tmp_path / "report.html"
    shape = f"{name}input=16,56"
    assert cli.main(["report", str(tmp_path / "model.json"), "-o", str(page_file), "--shape", shape]) == 0
    with watched_page(chromium.context, page_file.as_uri(), 800) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= 1280
        assert (page.locator("h1 .name").get_attribute("title") or "").startswith(name)
        assert page.locator("h1 .quiet").is_visible()
