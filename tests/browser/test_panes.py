"""Folding, outline and filter of the stages, the motion between them, and the passes, by mouse and keyboard."""

from __future__ import annotations

from typing import Any

import pytest
from axe import violations
from lab import focus, press

PROGRAM = """
import jax, jax.numpy as jnp, mithril_nb as ml, mithril_nb.cost
from mithril_nb.ui.widgets import explore
def net(params, x):
    for at, (w, b) in enumerate(params):
        with jax.named_scope(f"layer_{at}"):
            with jax.named_scope("linear"):
                x = x @ w * 2 + b
            with jax.named_scope("act"):
                x = jnp.tanh(x) + jnp.sin(x) * jnp.exp(x)
    return x.sum()
spec = lambda *shape: jax.ShapeDtypeStruct(shape, "float32")
"""
OPEN = "e = explore(jax.grad(net), [(spec(31, 31), spec(31))] * 5, spec(7, 31))\ne"
DRAWN = """() => ['jaxpr', 'stablehlo'].every(
    (stage) => document.querySelector(`[data-mnb-pane="${stage}"]`)?.dataset.mnbVersion === '1')
    && document.querySelector('[data-mnb-pane="jaxpr"] .mnb-pane-crumb')"""
FORWARD = """__import__('mithril_nb.viz.units', fromlist=['flops']).flops(sum(
    roles['forward'].flops for path, roles in ml.cost.cost_of(e.inspection).by_block_and_role.items()
    if path.startswith('layer_0/') and 'forward' in roles))"""
JAXPR = '[data-mnb-pane="jaxpr"]'
COUNT_TRACES = """() => {
    window.traces = 0;
    const animate = Element.prototype.animate;
    Element.prototype.animate = function (...settings) {
        window.traces += this.className === 'mnb-trace' ? 1 : 0;
        return animate.apply(this, settings);
    };
}"""


@pytest.fixture
def explorer(run_cells) -> Any:
    notebook = run_cells([PROGRAM, OPEN], width=1600, height=1150)
    notebook.page.wait_for_function(DRAWN)
    notebook.page.locator(".mnb-explorer").scroll_into_view_if_needed()
    return notebook


def folded(page: Any, pane: str = JAXPR) -> list[str]:
    return page.locator(f"{pane} .mnb-fold").all_inner_texts()


def numbers(page: Any) -> list[int]:
    return [int(one) for one in page.locator(f"{JAXPR} .mnb-numbers").inner_text().split()]


def test_folding_outline_and_filter_by_keyboard(explorer, screenshots) -> None:
    page = explorer.page
    # The first equation is in sight: the signature is one row in both stages.
    assert folded(page) == ["11 parameters"]
    assert numbers(page)[:4] == [1, 2, 13, 14]
    assert folded(page, '[data-mnb-pane="stablehlo"]')[0] == "11 parameters"
    focus(page.locator(f"{JAXPR} .cm-content"))
    press(page, "ArrowDown", "Enter")
    page.wait_for_function(f"document.querySelectorAll('{JAXPR} .mnb-fold').length === 0")
    assert numbers(page)[:4] == [1, 2, 3, 4]
    # All parts: each block with its cost, as in the cost table.
    press(page, "Shift+Z")
    page.locator(f"{JAXPR} .mnb-fold", has_text="layer_0").first.wait_for()
    first = folded(page)[1]
    assert first.startswith("layer_0: ")
    assert f" lines, {explorer.evaluate(FORWARD)}, " in first
    assert first.endswith(" %")
    explorer.pictures(screenshots, "panes-folded", page.locator(".mnb-panes"), widths=(1280, 1600), height=1150)
    # The outline finds a block, and unfolds what hides it.
    press(page, "o")
    page.keyboard.type("layer_2/act")
    press(page, "Enter")
    page.wait_for_function(f"document.activeElement.closest('{JAXPR} .cm-content')")
    press(page, "z")
    page.wait_for_function(f"document.querySelectorAll('{JAXPR} .mnb-fold').length > 0")
    press(page, "Shift+Z", "Shift+Z")
    page.wait_for_function(f"document.querySelectorAll('{JAXPR} .mnb-fold').length === 0")
    # Only the selected block: every other line is folded.
    press(page, "Enter", "b")
    page.locator(f"{JAXPR} .mnb-fold", has_text="of other blocks").first.wait_for()
    assert page.locator(f'{JAXPR} [data-mnb-action="only.jaxpr"]').get_attribute("aria-pressed") == "true"
    labels = page.locator(f"{JAXPR} .mnb-fold").all()
    shown = set(numbers(page)) - {int(label.get_attribute("data-mnb-fold")) for label in labels}
    inside = explorer.evaluate(
        "[i.line for i in e.stages['jaxpr'].instructions if any(b == 'layer_2/linear' for b in i.blocks)]"
    )
    # A single line between others stays: its row would be as high.
    assert set(inside) <= shown
    assert all(line in inside or {line - 1, line + 1} & set(inside) for line in shown - {1})
    press(page, "b")
    page.wait_for_function(f"document.querySelectorAll('{JAXPR} .mnb-fold').length === 0")


def test_folding_by_mouse_keeps_the_first_line_in_place(explorer) -> None:
    page = explorer.page
    page.locator('[data-mnb-tab="cost"]').click()  # a short pane has to scroll
    page.locator(f"{JAXPR} .mnb-fold").click()
    page.wait_for_function(f"document.querySelectorAll('{JAXPR} .mnb-fold').length === 0")
    page.locator(f"{JAXPR} .mnb-margin").click(position={"x": 8, "y": 4 + 17 + 8})
    page.locator(f"{JAXPR} .mnb-fold", has_text="11 parameters").wait_for()
    scroller = page.locator(f"{JAXPR} .cm-scroller")
    scroller.evaluate("(one) => { one.scrollTop = 17 * 12; }")
    page.locator(f"{JAXPR} .mnb-pane-crumb", has_text="layer_").wait_for()
    block = page.locator(f"{JAXPR} .mnb-pane-crumb-name").inner_text().split("/")[0].split(" ")[0]
    page.locator(f'{JAXPR} [data-mnb-action="fold.jaxpr"]').click()
    page.locator(f"{JAXPR} .mnb-fold", has_text=block).first.wait_for()
    page.locator(f'{JAXPR} [data-mnb-action="outline.jaxpr"]').click()
    page.locator(f"{JAXPR} [role=option]", has_text="layer_4").first.click()
    page.locator(f"{JAXPR} .mnb-outline").wait_for(state="hidden")
    page.locator(f"{JAXPR} .mnb-pane-crumb-name", has_text="layer_").wait_for()


def test_lines_move_to_the_next_stage_unless_motion_is_reduced(explorer) -> None:
    page = explorer.page
    page.emulate_media(reduced_motion="no-preference")
    page.evaluate(COUNT_TRACES)
    line = page.locator(f"{JAXPR} .cm-line", has_text="tanh").first
    line.click(position={"x": 90, "y": 6})
    page.wait_for_function("window.traces > 0")
    press(page, "Alt+ArrowDown")
    page.wait_for_function("document.activeElement.closest('[data-mnb-pane=\"stablehlo\"]')")
    page.wait_for_function("!document.querySelector('.mnb-trace')")
    before = page.evaluate("window.traces")
    assert before > 1
    page.emulate_media(reduced_motion="reduce")
    press(page, "Alt+ArrowUp")
    page.wait_for_function(f"document.activeElement.closest('{JAXPR}')")
    page.evaluate("() => new Promise((done) => setTimeout(done, 300))")
    assert page.evaluate("window.traces") == before


def test_passes_side_by_side_filtered_and_searched(explorer, screenshots) -> None:
    page = explorer.page
    page.evaluate("localStorage.removeItem('mithril_nb.layouts')")
    page.locator('[data-mnb-tab="passes"]').click()
    page.locator('[data-mnb-action="passes.compile"]').click()
    page.locator("[data-mnb-shown]").wait_for(timeout=60_000)
    explorer.wait_for("e.exploration.passes.wait(0.1)" if explorer.evaluate("hasattr(e, 'exploration')") else "True")
    focus(page.locator('[data-mnb-action="diff.unified"]'))
    press(page, "ArrowRight")
    page.locator(".mnb-diff-half").first.wait_for()
    left, right = (page.locator(".mnb-diff-half .cm-content").nth(side) for side in (0, 1))
    assert left.locator(".mnb-diff-added").count() == right.locator(".mnb-diff-removed").count() == 0
    total = page.locator(".mnb-pass").count()
    box = page.locator('[data-mnb-action="passes.search"]')
    focus(box)
    page.keyboard.type("tanh")
    page.locator(".mnb-pass-found", has_text="in").wait_for()
    shown = page.locator(".mnb-pass:not([hidden])").count()
    assert 0 < shown <= total
    press(page, "Enter")
    page.locator(".mnb-pass-found", has_text="1 of").wait_for()
    page.locator(".mnb-found-line").first.wait_for()
    press(page, "Shift+Enter")
    page.locator(".mnb-found-line .mnb-found").first.wait_for()
    explorer.pictures(screenshots, "passes-beside", page.locator(".mnb-tabs"), widths=(1280, 1600), height=1150)
    focus(box)  # on a slow machine, JupyterLab takes the focus when the pictures switch its theme
    press(page, "Escape")
    page.wait_for_function(f"document.querySelectorAll('.mnb-pass:not([hidden])').length === {total}")
    page.locator('[data-mnb-action="passes.changed"]').click()
    sizes = page.locator(".mnb-pass:not([hidden]) .mnb-pass-size").all_inner_texts()
    assert "+0 −0 ~0" not in sizes
    page.locator(f'{JAXPR} [data-mnb-action="outline.jaxpr"]').click()
    assert violations(page, ".mnb-explorer") == []
    explorer.save()
    explorer.reload()
    page.locator(".mnb-diff-half").first.wait_for()  # its tab is open again
    assert page.locator('[data-mnb-action="passes.changed"]').get_attribute("aria-pressed") == "true"


def test_a_line_is_explained_by_key_and_by_mouse(explorer, screenshots) -> None:
    page = explorer.page
    card = page.locator(f"{JAXPR} .mnb-explanation")
    focus(page.locator(f"{JAXPR} .cm-content"))
    press(page, "ArrowDown", "ArrowDown", "ArrowDown", "x")
    card.wait_for()
    page.wait_for_function("document.activeElement.matches('.mnb-explanation')")
    # Until the passes are read, its fate is left open.
    assert "Multiplies (7, 31) float32 by (31, 31) float32 and sums over axis 1 of the left" in card.inner_text()
    assert "Known after the passes are read" in card.inner_text()
    assert violations(page, ".mnb-explorer") == []
    explorer.pictures(screenshots, "explanation", page.locator(".mnb-panes"), widths=(1280, 1600), height=1150)
    focus(card)
    press(page, "Escape")
    card.wait_for(state="hidden")
    page.wait_for_function(f"document.activeElement.closest('{JAXPR} .cm-content')")
    page.locator('[data-mnb-action="explain.jaxpr"]').click()
    card.wait_for()
    page.locator(f'{JAXPR} [data-mnb-action="explanation.close"]').click()
    card.wait_for(state="hidden")
