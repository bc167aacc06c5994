"""The search in a real browser: matches in graph and stages, stepping, and paths; in a page and an explorer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from lab import Browser, watched_page
from playwright.sync_api import Page

from mithril_nb.inspection import inspect_function as inspect

EXPLORED = """
import jax, jax.numpy as jnp
from mithril_nb.ui.widgets import explore
def net(params, x):
    for at, w in enumerate(params):
        with jax.named_scope(f"layer_{at}"):
            x = jnp.tanh(x @ w)
    return x.sum()
spec = lambda *shape: jax.ShapeDtypeStruct(shape, "float32")
e = explore(jax.grad(net), [spec(29, 37), spec(37, 53)], spec(7, 29))
e"""


def net(params: Any, x: Any) -> Any:
    for at, w in enumerate(params):
        with jax.named_scope(f"layer_{at}"):
            x = jnp.tanh(x @ w)
    return x.sum()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    path: Path = tmp_path_factory.mktemp("page") / "net.html"
    arrays = [jnp.zeros((29, 37)), jnp.zeros((37, 53))]
    inspect(jax.grad(net), arrays, jnp.zeros((7, 29)), name="net").to_html(path, stages=["jaxpr", "stablehlo"])
    return path.as_uri()


@pytest.fixture
def page(chromium: Browser, address: str) -> Iterator[Page]:
    with watched_page(chromium.context, address, 1000) as page:
        page.wait_for_selector("main[data-ready], [data-ready]")
        yield page


def test_a_saved_page_is_searched_by_keys_alone(page: Page) -> None:
    field = page.locator('[data-mnb-action="search"]')
    field.focus()
    page.keyboard.type("kind:dot flops>1 role:backward")
    status = page.locator(".mnb-search [role=status]")
    total = len(page.query_selector_all("[role=option]"))
    assert total >= 2
    assert status.inner_text() == f"{total} matches"
    assert page.locator('[data-stage="jaxpr"] .l.found').count() > 0
    page.keyboard.press("Enter")
    assert status.inner_text() == f"1 of {total}"
    page.keyboard.press("Shift+Enter")
    assert status.inner_text() == f"{total} of {total}"
    assert page.locator('[data-stage="jaxpr"] .l.pin').count() == 1
    page.keyboard.press("Escape")
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
    page.keyboard.press("/")
    page.keyboard.type("block:layer_1 kind:tanh")
    page.wait_for_selector('[data-mnb-pane="jaxpr"] .mnb-found')
    page.keyboard.press("Enter")
    assert "1 of" in page.locator(".mnb-search [role=status]").inner_text()
    assert page.locator('[data-mnb-pane="jaxpr"] .mnb-pinned').count() >= 1
    page.keyboard.press("Escape")
    layer.click()
    page.keyboard.press("d")
    answer = page.locator(".mnb-question [role=status]")
    assert "of layer_0" in answer.inner_text()
    page.keyboard.press("Escape")
    assert answer.inner_text() == ""
