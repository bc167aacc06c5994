"""The search in a real browser: matches in graph and stages, stepping, and paths; in a page and an explorer."""

from __future__ import annotations

from lab import press
from layered import EXPLORED
from playwright.sync_api import Page


def test_a_saved_page_is_searched_by_keys_alone(page: Page) -> None:
    field = page.locator('[data-mnb-action="search"]')
    field.focus()
    page.keyboard.type("kind:dot flops>1 role:backward")
    status = page.locator(".mnb-search [role=status]")
    total = len(page.query_selector_all("[role=option]"))
    assert total >= 2
    assert status.inner_text() == f"{total} matches"
    assert page.locator('[data-stage="jaxpr"] .l.found').count() > 0
    press(page, "Enter")
    assert status.inner_text() == f"1 of {total}"
    press(page, "Shift+Enter")
    assert status.inner_text() == f"{total} of {total}"
    assert page.locator('[data-stage="jaxpr"] .l.pin').count() == 1
    press(page, "Escape")
    assert field.input_value() == ""
    assert page.locator(".l.found").count() == 0
    page.keyboard.type("flops>many")
    assert "Try: flops>1e6" in status.inner_text()


def test_an_explorer_shows_matches_and_paths(run_cells) -> None:
    notebook = run_cells([EXPLORED], width=1600, height=1150)
    page = notebook.page
    page.wait_for_selector('[data-mnb-graph="jaxpr"]')
    page.wait_for_selector('[data-mnb-pane="jaxpr"][data-mnb-version="1"]')
    page.locator(".mnb-explorer").scroll_into_view_if_needed()
    layer = page.locator('.mnb-stage-graph [data-mnb-node="layer_0"]')
    layer.click()
    press(page, "/")
    page.keyboard.type("block:layer_1 kind:tanh")
    page.wait_for_selector('[data-mnb-pane="jaxpr"] .mnb-found')
    press(page, "Enter")
    assert "1 of" in page.locator(".mnb-search [role=status]").inner_text()
    assert page.locator('[data-mnb-pane="jaxpr"] .mnb-pinned').count() >= 1
    press(page, "Escape")
    layer.click()
    press(page, "d")
    answer = page.locator(".mnb-question [role=status]")
    assert "of layer_0" in answer.inner_text()
    press(page, "Escape")
    assert answer.inner_text() == ""
