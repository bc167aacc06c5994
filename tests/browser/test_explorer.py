"""The explorer in a real browser: the first view, links between graph and stages, the passes, and its size."""

from __future__ import annotations

import json
from typing import Any

import pytest
from key_walk import press_everywhere
from lab import focus, press

PROGRAM = """
import jax, jax.numpy as jnp
from mithril_nb.ui.widgets import explore
def net(params, x):
    for at, w in enumerate(params):
        with jax.named_scope(f"layer_{at}"):
            x = jnp.tanh(x @ w)
    return x.sum()
spec = lambda *shape: jax.ShapeDtypeStruct(shape, "float32")
"""
OPEN = "e = explore(jax.grad(net), [spec(29, 37), spec(37, 53)], spec(7, 29))\ne"
DRAWN = """() => document.querySelector('[data-mnb-graph="jaxpr"]') && ['jaxpr', 'stablehlo'].every(
    (stage) => document.querySelector(`[data-mnb-pane="${stage}"]`)?.dataset.mnbVersion === '1')"""


@pytest.fixture
def open_explorer(run_cells):
    def open_one(cell: str = OPEN, drawn: str = DRAWN) -> Any:
        notebook = run_cells([PROGRAM, cell], width=1600, height=1150)
        notebook.page.wait_for_function(drawn)
        notebook.page.locator(".mnb-explorer").scroll_into_view_if_needed()
        return notebook

    return open_one


def lit(notebook: Any, stage: str) -> list[int]:
    lines = notebook.page.locator(f'[data-mnb-pane="{stage}"] [data-mnb-linked="pinned"]')
    lines.first.wait_for()
    return [int(line.get_attribute("data-mnb-line")) for line in lines.all()]


def test_the_first_view_is_linked_for_mouse_and_keyboard(open_explorer, record_property) -> None:
    notebook = open_explorer()
    page = notebook.page
    assert not notebook.evaluate("e.inspection.is_compiled"), "compiled without a request"
    layer = page.locator('.mnb-stage-graph [data-mnb-node="layer_1"]')
    layer.click()
    for stage in ("jaxpr", "stablehlo"):
        expected = notebook.evaluate(
            f"[n for i in e.stages[{stage!r}].instructions if 'layer_1' in i.blocks"
            " for n in range(i.line, i.line + i.lines)]"
        )
        found = lit(notebook, stage)
        assert found, stage
        assert set(found) <= set(expected), stage
    assert page.locator(".mnb-stripe").count() > 4
    # A line's tooltip explains its operation, and its node is highlighted.
    line = page.locator('[data-mnb-pane="stablehlo"] .cm-line', has_text="stablehlo.tanh").first
    line.hover(position={"x": 90, "y": 6})
    page.locator(".mnb-tip", has_text="tangent").wait_for()
    line.click(position={"x": 90, "y": 6})
    page.locator('.mnb-stage-graph [data-mnb-node="layer_0"][data-mnb-linked="pinned"]').wait_for()
    # By keyboard: opening and closing the node keeps the focus on it.
    focus(layer)
    nodes = page.locator("[data-mnb-nodes]")
    before = int(nodes.get_attribute("data-mnb-nodes"))
    press(page, "ArrowRight")
    page.wait_for_function(f"Number(document.querySelector('[data-mnb-nodes]').dataset.mnbNodes) > {before}")
    assert page.evaluate("document.activeElement.dataset.mnbNode") == "layer_1"
    press(page, "ArrowLeft")
    page.wait_for_function(f"Number(document.querySelector('[data-mnb-nodes]').dataset.mnbNodes) === {before}")
    press(page, "Escape")
    assert page.locator('.mnb-explorer [data-mnb-linked="pinned"]').count() == 0
    record_property("link_ms", page.evaluate("performance.getEntriesByName('mnb:link').map((one) => one.duration)"))
    saved = notebook.save()
    kept = len(json.dumps(saved.cells[1]))
    record_property("kept_bytes", kept)
    assert kept < 300_000
    assert notebook.evaluate("len(e.errors)") == 0


def test_compiled_results_are_computed_on_request(open_explorer, record_property) -> None:
    notebook = open_explorer()
    page = notebook.page
    page.locator('[data-mnb-tab="passes"]').click()
    page.locator('[data-mnb-action="passes.compile"]').click()
    page.locator('[data-mnb-action="pane.hlo"]').click()
    page.locator('[data-mnb-pane="hlo"][data-mnb-state="ready"][data-mnb-version="1"]').wait_for()
    page.locator('[data-mnb-shown="0"]').wait_for()
    focus(page.locator(".mnb-pass-list"))
    press(page, "ArrowDown")
    page.locator('[data-mnb-shown="1"]').wait_for()
    page.locator(".mnb-diff-added, .mnb-diff-removed").first.wait_for()
    long = notebook.evaluate("e.stages['hlo'].text.count(chr(10))")
    page.locator('[data-mnb-action="short.hlo"]').click()
    page.locator('[data-mnb-pane="hlo"] .cm-line', has_text="entry:").wait_for()
    line = page.locator('[data-mnb-pane="hlo"] .cm-line', has_text="tanh").first
    line.click(position={"x": 90, "y": 6})
    assert lit(notebook, "hlo")
    assert all(number < long for number in lit(notebook, "hlo"))
    assert lit(notebook, "stablehlo"), "lines in short are linked as the long ones are"
    page.locator(".mnb-pass-history", has_text="in HLO").wait_for()
    took = page.evaluate("performance.getEntriesByName('mnb:diff').map((one) => one.duration)")
    record_property("diff_ms", took)
    assert notebook.evaluate("len(e.errors)") == 0


def test_an_untraceable_program_shows_the_traced_part(open_explorer) -> None:
    cell = "def broken(x):\n    return jnp.sin(x) + jnp.ones(7)\ne = explore(broken, spec(3))\ne"
    notebook = open_explorer(cell, "() => document.querySelector('[data-mnb-pane=\"jaxpr\"][data-mnb-version]')")
    pane = notebook.page.locator('[data-mnb-pane="jaxpr"]')
    pane.locator(".mnb-pane-card", has_text="jaxpr ends here").wait_for()
    assert pane.locator(".mnb-failing").count() > 0
    pane.locator(".cm-line", has_text="sin").first.wait_for()


def test_a_program_from_hlo_shows_available_costs(open_explorer) -> None:
    cell = """text = jax.jit(net).lower([spec(29, 37), spec(37, 53)], spec(7, 29)).compile().as_text()
e = explore(text)
e"""
    notebook = open_explorer(cell, "() => document.querySelector('tr[data-mnb-cost=\"layer_1\"]')")
    page = notebook.page
    page.locator('[data-mnb-tab="cost"]').click()
    flops = notebook.evaluate(
        "[e.inspection.cost('compiled').total.flops, e.inspection.cost('compiled').by_block['layer_1'].flops]"
    )
    assert page.locator(".mnb-total td").nth(0).get_attribute("title") == f"{flops[0]:,} FLOP"
    assert page.locator('tr[data-mnb-cost="layer_1"] td').nth(0).get_attribute("title") == f"{flops[1]:,} FLOP"
    assert page.locator('[data-mnb-action="cost.source.compiled"]').get_attribute("aria-pressed") == "true"
    analytic = page.locator('[data-mnb-action="cost.source.analytic"]')
    why = "this program was given as HLO text: it has no jaxpr"
    assert analytic.get_attribute("title") == f"Not available: {why}"
    assert page.locator(".mnb-costs > .mnb-hint:visible").count() == 0
    page.locator('[data-mnb-pane="hlo"] .cm-line', has_text="HloModule").wait_for()
    assert page.locator("[data-mnb-pane]").count() == 1
    page.locator('[data-mnb-action="cost.view.treemap"]').click()
    page.locator(".mnb-cost-picture svg").wait_for()
    page.locator('[data-mnb-action="cost.view.what_if"]').click()
    page.locator('[data-mnb-part="cost"]').get_by_text(why).first.wait_for()
    assert notebook.problems == []
    assert notebook.evaluate("len(e.errors)") == 0


def test_keys_pressed_anywhere_in_an_explorer_stay_in_it(open_explorer, stress) -> None:
    notebook = open_explorer()
    notebook.resize(1280, 1300)
    found = press_everywhere(notebook, ".mnb-explorer", stress.size(short=40, long=10_000))
    stress.report(kinds=found["kinds"], presses=found["presses"], wrong=len(found["wrong"]))
    assert found["wrong"] == []


def test_the_figures_are_beside_the_search_at_every_width(open_explorer) -> None:
    notebook = open_explorer()
    for width in range(1000, 1500, 10):
        notebook.resize(width, 1150)
        overlaps = notebook.page.evaluate(
            """() => {
                const [figures, search] = ['.mnb-figures', '.mnb-search'].map(
                    (part) => document.querySelector(`.mnb-explorer ${part}`).getBoundingClientRect());
                return figures.right > search.left && figures.bottom > search.top + 1;
            }"""
        )
        assert not overlaps, width
