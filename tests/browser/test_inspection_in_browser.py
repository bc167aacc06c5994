"""The page of a program in a real browser: linked in every stage, opened by clicks and keys, no request to anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import jax
import jax.numpy as jnp
import pytest
from axe import violations
from lab import Browser, focus, press, watched_page
from playwright.sync_api import Page

from mithril_nb.inspection import inspect_function as inspect


def program(x):
    with jax.named_scope("one"):
        y = jnp.tanh(x) @ x
    with jax.named_scope("two"):
        with jax.named_scope("inner"):
            return jnp.exp(y) * 2 + y


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a page of a small program."""
    path = tmp_path_factory.mktemp("page") / "page.html"
    inspect(program, jax.ShapeDtypeStruct((4, 4), "float32")).to_html(path)
    return path.as_uri()


@pytest.fixture
def page(chromium: Browser, address: str) -> Iterator[Page]:
    """The opened page; it must send no request and log nothing."""
    with watched_page(chromium.context, address, 900) as page:
        page.wait_for_selector(".mnb-page[data-ready]", timeout=20_000)
        yield page


def lines(page: Page, stage: str, look: str) -> list[str]:
    return page.eval_on_selector_all(
        f'[data-stage="{stage}"] .l.{look} .x', "rows => rows.map(row => row.textContent.trim())"
    )


def test_a_line_highlights_its_counterparts(page: Page):
    page.locator('[data-stage="jaxpr"] .l', has_text="tanh").locator(".x").hover()
    # Playwright scrolls the line into view first; it is linked once the scrolling ends.
    page.locator('[data-stage="stablehlo"] .l.on').first.wait_for()
    assert any("tanh" in text for text in lines(page, "stablehlo", "on"))
    assert any("tanh" in text for text in lines(page, "hlo", "on"))
    linked = page.locator('.picture [data-mnb-linked="hover"]')
    keys = linked.evaluate_all("nodes => nodes.map(node => node.dataset.mnbNode)")
    assert keys == ["one", "one/=0"], "the instruction, and the block around it"
    assert page.locator('tr.on[data-block="one"]').count() == 1


def test_stages_are_chosen_and_blocks_open_by_a_click(page: Page):
    page.get_by_role("button", name="machine code", exact=True).click()
    assert page.locator('[data-stage="asm"] .l').count() > 5
    page.get_by_role("button", name="Close all").click()
    assert page.locator('.picture [aria-expanded="true"]').count() == 0
    two = page.locator('.picture [data-mnb-node="two"]')
    two.click()
    assert any("exp" in text for text in lines(page, "jaxpr", "pin"))
    two.dblclick()
    assert two.get_attribute("aria-expanded") == "true"
    focus(two)
    press(page, "ArrowLeft")
    assert two.get_attribute("aria-expanded") == "false"
    press(page, "Escape")
    assert lines(page, "jaxpr", "pin") == []


def test_the_keyboard_alone_is_enough(page: Page):
    focus(page.locator('[data-stage="jaxpr"] .code'))
    press(page, "ArrowDown", "ArrowDown", "ArrowDown", "ArrowDown", "Enter")
    assert len(lines(page, "jaxpr", "pin")) == 1
    assert lines(page, "stablehlo", "pin")
    press(page, "Escape")
    assert lines(page, "stablehlo", "pin") == []
    rows = page.locator(".passes li")
    focus(rows.nth(0))
    press(page, "ArrowDown")
    assert page.locator(".difference header b").text_content() == rows.nth(1).locator("b").text_content()


def test_the_name_of_a_pass_is_never_cut(page: Page):
    name = page.locator(".passes li").first.locator("b")
    name.evaluate("name => name.textContent = '17. HLO_passes_through_layout_assignment'")
    assert name.evaluate("name => name.scrollWidth <= name.clientWidth")
    pipeline = page.locator(".passes .quiet").first
    assert pipeline.evaluate("it => it.scrollWidth <= it.clientWidth")


_CUT = """() => [...document.querySelectorAll('.live .pane > header')].flatMap((header) => {
    const parts = [...header.querySelectorAll('b, .quiet, select, button')], frame = header.getBoundingClientRect();
    return parts.flatMap((part, at) => {
        const box = part.getBoundingClientRect(), name = part.textContent, found = [];
        const isInside = box.left >= frame.left && box.right <= frame.right && box.bottom <= frame.bottom;
        if (!isInside) found.push(`${name} is outside`);
        for (const other of parts.slice(at + 1)) {
            const next = other.getBoundingClientRect();
            const isBeside = box.right <= next.left || next.right <= box.left;
            const isBelow = box.bottom <= next.top || next.bottom <= box.top;
            if (!isBeside && !isBelow) found.push(`${name} covers ${other.textContent}`);
        }
        const whole = part.cloneNode(true);
        whole.style = 'position:absolute;flex:none;width:max-content;min-width:0;max-width:none';
        part.after(whole);
        if (whole.getBoundingClientRect().width > box.width + 0.5) found.push(`${name} is cut`);
        whole.remove();
        return found;
    });
})"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_headers_of_panes_are_whole_at_any_width(page: Page, theme: Literal["light", "dark"], screenshots: Path):
    page.emulate_media(color_scheme=theme)
    for width in (320, 360, 435, 475, 560, 700, 900, 1280):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate(_CUT) == [], width
        ticks = page.locator(".live .pane .ticks, .live .pane .code").evaluate_all(
            "parts => parts.map((part) => part.getBoundingClientRect().top)"
        )
        assert len(set(ticks[:2])) == 1, "the ticks start beside the first row"
        page.locator(".live").screenshot(path=screenshots / f"pane-headers-{theme}-{width}.png")


def test_it_reads_without_scripts_and_its_links_work(chromium: Browser, address: str):
    assert chromium.context.browser
    context = chromium.context.browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(address)
    assert page.locator("svg .node").count() >= 2
    link = page.locator('[data-stage="jaxpr"] a.n').last
    target = (link.get_attribute("href") or "").removeprefix("#")
    link.click()
    assert page.locator(f'[id="{target}"]').is_visible()
    context.close()


def flat(x):
    for number in range(1_000):
        with jax.named_scope(f"scope_{number}"):
            x = jnp.tanh(x * 2.0) + jnp.sin(x)
    return x


def test_a_page_of_1000_scopes_draws_what_is_visible(chromium: Browser, tmp_path: Path):
    path = tmp_path / "flat.html"
    inspect(flat, jax.ShapeDtypeStruct((16,), "float32")).to_html(path)
    with watched_page(chromium.context, path.as_uri(), 900) as page:
        page.wait_for_selector(".mnb-page[data-ready]", timeout=60_000)
        page.get_by_role("button", name="machine code", exact=True).click()
        table = page.locator(".scroll.long")
        assert table.locator("table").get_attribute("aria-rowcount") == "1000"
        width = table.locator("tr[data-line]").first.bounding_box()
        focus(table)
        press(page, "ArrowDown", "ArrowDown", "Enter")
        assert page.locator("tr.pin").get_attribute("data-block") == "scope_1"
        assert len(lines(page, "jaxpr", "pin")) == 4
        assert lines(page, "asm", "pin")  # all lines of the kernel
        table.evaluate("table => { table.scrollTop = table.scrollHeight }")
        page.locator('tr[data-block="scope_999"]').wait_for()
        after = table.locator("tr[data-line]").first.bounding_box()
        assert width is not None
        assert after is not None
        assert width["width"] == after["width"]
        code = page.locator('[data-stage="asm"] .code')
        code.evaluate("code => { code.scrollTop = code.scrollHeight / 2 }")
        page.locator('[data-stage="asm"] .l').first.wait_for()
        count = page.evaluate("document.getElementsByTagName('*').length")
        assert count <= 6_000
        numbers = page.locator('[data-stage="asm"] .margin .n').all_text_contents()
        assert len(numbers) == page.locator('[data-stage="asm"] .l').count() > 10
        assert int(numbers[0]) > 10_000


def test_a_stage_that_is_not_available_has_its_reason_and_no_box(chromium: Browser, tmp_path: Path):
    def early(x):
        raise ValueError("not today")

    inspect(early, jax.ShapeDtypeStruct((4,), "float32")).to_html(tmp_path / "early.html")
    with watched_page(chromium.context, (tmp_path / "early.html").as_uri(), 900) as page:
        page.wait_for_selector(".mnb-page[data-ready]", timeout=20_000)
        for stage, boxes in (("jaxpr", 1), ("stablehlo", 0), ("hlo", 0)):
            pane = page.locator(f'.live [data-stage="{stage}"]')
            assert "not available: ValueError: not today" in pane.inner_text()
            assert pane.locator(".code").count() == boxes


def test_a_selection_stays_on_another_device(chromium: Browser, tmp_path: Path, compilers: None):
    path = tmp_path / "page.html"
    inspect(program, jax.ShapeDtypeStruct((4, 4), "float32")).to_html(path, devices=["h100", "v5e"])
    with watched_page(chromium.context, path.as_uri(), 900) as page:
        menu, code = page.get_by_label("device"), page.locator('[data-stage="hlo"] .code')
        page.get_by_role("button", name="StableHLO", exact=True).click()
        page.locator('[data-stage="hlo"] .l', has_text="exponential(").locator(".x").click()
        for device in ("h100", "v5e", "cpu"):
            focus(menu)
            press(page, "ArrowDown" if device != "cpu" else "Home")
            page.locator("h1", has_text=f"({device})" if device != "cpu" else "every stage, by").wait_for()
            page.locator(".mnb-page[data-ready] .l.pin").first.wait_for()
            assert menu.evaluate("menu => [menu.value, menu === document.activeElement]") == [device, True]
            assert any("exponential(" in text for text in lines(page, "hlo", "pin"))
            assert page.locator('tr.pin[data-block="two/inner"]').count() == 1
            assert page.locator('[data-stage="stablehlo"]').count() == 0
            assert ("T(8,128)" in code.inner_text() or "T(4,128)" in code.inner_text()) == (device == "v5e")
            assert violations(page, "main") == []
        code.press("Escape")
        assert lines(page, "jaxpr", "pin") == []
        focus(menu)
        press(page, "ArrowDown")
        page.locator("h1", has_text="(h100)").wait_for()
        page.wait_for_function("() => !document.querySelector('.l.pin')")
