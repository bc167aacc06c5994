"""The page of a comparison in a real browser: both sides select together by mouse and keys, in both themes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from lab import Browser, focus, press, watched_page
from playwright.sync_api import Page

import mithril_nb as ml
from mithril_nb.models import Gelu, Linear, Model, Relu


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of the page of two small models."""
    path = tmp_path_factory.mktemp("comparison") / "page.html"
    before, after = Model(), Model()
    for block in (Linear(8), Relu(), Linear(3)):
        before += block
    for block in (Linear(8), Gelu(), Linear(4), Relu(), Linear(3)):
        after += block
    ml.compare(before, after, shapes={"input": [4, 5]}).to_html(path, stages=["jaxpr", "stablehlo"])
    return path.as_uri()


@pytest.fixture
def page(chromium: Browser, address: str) -> Iterator[Page]:
    """The opened page; it must send no request and log nothing."""
    with watched_page(chromium.context, address, 900) as page:
        yield page


def pinned_nodes(page: Page) -> list[list[str]]:
    """Return the labels of the pinned nodes of each side."""
    script = "sides => sides.map(side => [...side.querySelectorAll('.node.pin')].map(node => node.ariaLabel))"
    return page.eval_on_selector_all(".side", script)


def test_a_block_selects_its_partner_and_its_lines(page: Page):
    page.locator(".side").nth(1).locator('.node[data-block="linear_2"]').click()
    left, right = pinned_nodes(page)
    assert len(left) == len(right) == 1
    assert left[0].startswith("Linear linear_1")  # its name before
    assert right[0].startswith("Linear linear_2")
    lines = page.locator('[data-stage="jaxpr"] .l.pin')
    assert lines.count() > 0
    assert all("linear_2" in (of or "") for of in lines.evaluate_all("rows => rows.map(row => row.dataset.of)"))
    assert page.locator('tr.pin[data-block="linear_2"]').count() == 1
    press(page, "Escape")
    assert pinned_nodes(page) == [[], []]


def test_a_line_selects_its_blocks_and_other_stages(page: Page):
    page.locator('[data-stage="stablehlo"] > summary').click()
    row = page.locator('[data-stage="jaxpr"] .l.m-added[data-of="gelu_0"]').first
    row.locator(".x").nth(1).click()
    assert [len(side) for side in pinned_nodes(page)] == [0, 1]
    assert page.locator('[data-stage="stablehlo"] .l.pin').count() > 0


def test_the_keyboard_alone_is_enough(page: Page):
    focus(page.locator('.side .node[data-block="linear_0"]').first)
    press(page, "Enter")
    assert [len(side) for side in pinned_nodes(page)] == [1, 1]
    press(page, "Escape")
    focus(page.locator('.changes button[data-block="gelu_0"]'))
    press(page, "Enter")
    assert [len(side) for side in pinned_nodes(page)] == [0, 1]
    press(page, "Escape")
    focus(page.locator('[data-stage="jaxpr"] .code'))
    press(page, *["ArrowDown"] * 3, "Enter")
    assert page.locator('[data-stage="jaxpr"] .l.here.pin').count() == 1


def test_folds_open_by_keys_and_hide_lines_from_them(page: Page):
    fold = page.locator('[data-stage="jaxpr"] .fold').first
    assert fold.locator(".l").first.is_hidden()
    focus(page.locator('[data-stage="jaxpr"] .code'))
    press(page, *["ArrowDown"] * 200)
    assert page.locator(".l.here").is_visible()
    focus(fold.locator("summary"))
    press(page, "Enter")
    assert fold.locator(".l").first.is_visible()


def test_themes_differ_and_signs_remain(page: Page):
    ground = "getComputedStyle(document.body).backgroundColor"
    rim = "getComputedStyle(document.querySelector('.rim-added')).stroke"
    light = page.evaluate(ground), page.evaluate(rim)
    page.emulate_media(color_scheme="dark")
    dark = page.evaluate(ground), page.evaluate(rim)
    assert light[0] != dark[0]
    assert light[1] != dark[1]
    assert page.locator(".sign-added").count() >= 2


@pytest.mark.parametrize("width", [1280, 1000, 800])
def test_the_graphs_fit_their_panes(page: Page, width: int):
    page.set_viewport_size({"width": width, "height": 800})
    rooms = "sides => sides.map(side => [side.scrollWidth - side.clientWidth, side.scrollHeight - side.clientHeight])"
    assert page.eval_on_selector_all(".side", rooms) == [[0, 0], [0, 0]]


def test_it_fits_a_narrow_window(page: Page):
    page.set_viewport_size({"width": 640, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") <= 640
