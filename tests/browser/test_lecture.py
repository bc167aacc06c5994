"""Lecture: two linked stages side by side, in letters for the last row of a room, on a screen of 1024 × 768."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from axe import violations
from lab import DARK, LIGHT, Browser, focus, press, watched_page
from layered import EXPLORED, inspected

import mithril_nb as ml

TOUR = (
    EXPLORED.replace("e = ml.explore(", "ml.inspect(").removesuffix("\ne\n")
    + """.tour([
    {"stages": ["jaxpr", "stablehlo"], "block": "layer_0", "caption": "A layer <b>"},
    {"stages": ["jaxpr", "hlo"], "line": ("jaxpr", 7), "caption": "Where is tanh?", "is_hidden": True},
])
"""
)
WORKBENCH = """
import mithril_nb as ml
from mithril_nb.models import Linear, Model, Relu

model = Model()
for block in (Linear(64), Relu(), Linear(64), Relu(), Linear(10)):
    model += block
ml.workbench(model, shapes={"input": [32, 784]})
"""
LEGIBLE = """stages => stages.map((stage) => {
    const pane = document.querySelector(`[data-mnb-pane="${stage}"]`);
    const area = pane.querySelector('.cm-scroller').getBoundingClientRect();
    const lines = [...pane.querySelectorAll('.cm-line')].filter((line) => {
        const {top, bottom} = line.getBoundingClientRect();
        return top >= area.top - 1 && bottom <= Math.min(area.bottom, innerHeight) + 1;
    });
    const style = getComputedStyle(lines[0]);
    const size = parseFloat(style.fontSize) * lines[0].currentCSSZoom;
    return {lines: lines.length, px: size, left: area.left, top: area.top};
})"""


@pytest.mark.parametrize(("cell", "root"), [(EXPLORED, ".mnb-explorer"), (WORKBENCH, ".mnb-workbench")])
def test_a_lecture_shows_twelve_lines_of_two_stages(open_notebook, cell: str, root: str) -> None:
    notebook = open_notebook([cell], width=1024, height=768)
    notebook.run_all()
    page = notebook.page
    page.locator('[data-mnb-pane="stablehlo"] .cm-line').first.wait_for()
    line = page.locator('[data-mnb-pane="jaxpr"] .cm-content')
    focus(line)
    press(page, "5")
    page.locator(f'{root}[data-mnb-layout="lecture"]').wait_for()
    page.locator('[data-mnb-action="full.all"]').click()
    page.locator(f"{root}[data-mnb-screen]").wait_for()
    page.wait_for_function(f"innerHeight - document.querySelector('{root}').getBoundingClientRect().bottom < 2")
    jaxpr, stablehlo = shown = page.evaluate(LEGIBLE, ["jaxpr", "stablehlo"])
    assert min(pane["px"] for pane in shown) >= 16, shown
    assert min(pane["lines"] for pane in shown) >= 12, shown
    assert jaxpr["left"] < stablehlo["left"], shown
    assert abs(jaxpr["top"] - stablehlo["top"]) < 2, shown
    height = page.locator(f"{root} > .mnb-header").evaluate("header => header.getBoundingClientRect().height")
    assert height <= 64, "one row"
    text = "tanh" if root == ".mnb-explorer" else "dot_general"
    page.locator('[data-mnb-pane="jaxpr"] .cm-line', has_text=text).first.click()
    page.locator(f'{root} [data-mnb-pane="stablehlo"] [data-mnb-linked]').first.wait_for()
    press(page, "Escape")
    press(page, "5" if root == ".mnb-explorer" else "1")
    page.locator(f'{root}:not([data-mnb-layout="lecture"])').wait_for()
    assert not notebook.problems


def test_a_saved_page_shows_twelve_lines_of_two_stages(chromium: Browser, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    inspected().to_html(path, stages=["jaxpr", "stablehlo"])
    with watched_page(chromium.context, path.as_uri(), 768) as page:
        page.set_viewport_size({"width": 1024, "height": 768})
        page.get_by_role("button", name="Lecture").click()
        visible = """() => [...document.querySelectorAll('.live .pane .v')].map((area) => {
            const box = area.getBoundingClientRect();
            const lines = [...area.querySelectorAll('.rows .l')].filter((line) => {
                const {top, bottom} = line.getBoundingClientRect();
                return top >= box.top - 1 && bottom <= Math.min(box.bottom, innerHeight) + 1;
            });
            const size = parseFloat(getComputedStyle(lines[0]).fontSize) * lines[0].currentCSSZoom;
            return {lines: lines.length, px: size, left: box.left, top: box.top};
        })"""
        page.locator("main.lecture").wait_for()
        jaxpr, stablehlo = shown = page.evaluate(visible)
        assert min(pane["px"] for pane in shown) >= 16, shown
        assert min(pane["lines"] for pane in shown) >= 12, shown
        assert jaxpr["left"] < stablehlo["left"], shown
        assert jaxpr["top"] == stablehlo["top"], shown
        line = page.locator(".live .pane").first.locator(".l", has_text="tanh").first
        line.click()
        assert page.locator(".live .pane").nth(1).locator(".l.pin").count() > 0
        page.get_by_role("button", name="Lecture").click()
        assert page.locator("main.lecture").count() == 0


def test_a_tour_in_a_notebook_is_an_explorer_in_its_lecture(open_notebook, screenshots) -> None:
    notebook = open_notebook([TOUR], width=1024, height=768)
    notebook.run_all()
    page = notebook.page
    page.locator('[data-mnb-layout="lecture"] [data-mnb-pane="stablehlo"] .mnb-pinned').first.wait_for()
    page.locator('[data-mnb-action="full.all"]').click()
    page.locator(".mnb-explorer[data-mnb-screen]").wait_for()
    assert page.locator(".mnb-caption").inner_text() == "1 / 2 · A layer <b>"
    pinned = page.locator('[data-mnb-pane="jaxpr"] .mnb-pinned')
    focus(page.locator('[data-mnb-pane="jaxpr"] .cm-content'))
    press(page, "s")
    colours = """() => [true, false].map((isPinned) => getComputedStyle([...document.querySelectorAll(
        '[data-mnb-pane="jaxpr"] .cm-line')].find((line) =>
            line.textContent.includes('tanh') && line.classList.contains('mnb-pinned') === isPinned)).color)"""
    assert len(set(page.evaluate(colours))) == 2, "lines of the other layer are dimmed"
    found = {}
    for theme in (LIGHT, DARK):
        notebook.set_theme(theme)
        found[theme] = violations(page, ".mnb-explorer")
        notebook.picture(screenshots / f"tour-{theme}.png")
    notebook.set_theme(LIGHT)
    press(page, ".")
    page.locator('[data-mnb-pane="hlo"] .cm-line').first.wait_for(state="attached")
    assert pinned.count() == 1
    assert "tanh" in pinned.inner_text()
    assert page.locator('[data-mnb-pane="hlo"] .cm-content').is_hidden()
    page.get_by_role("button", name="Reveal").click()
    page.locator('[data-mnb-pane="hlo"] .mnb-pinned').first.wait_for()
    focus(page.locator('[data-mnb-pane="hlo"] .cm-content'))
    press(page, "h")
    page.locator('[data-mnb-pane="hlo"] .cm-content').wait_for(state="hidden")
    page.wait_for_function("document.activeElement.closest('.mnb-explorer') !== null")
    press(page, "h")
    page.locator('[data-mnb-pane="hlo"] .cm-content').wait_for()
    shown = page.evaluate(LEGIBLE, ["jaxpr", "hlo"])
    assert min(pane["lines"] for pane in shown) >= 12, shown
    page.get_by_role("button", name="Previous moment").click()
    assert page.locator(".mnb-caption").inner_text().startswith("1 / 2")
    assert {what: problems for what, problems in found.items() if problems} == {}
    assert not notebook.problems


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_saved_page_has_the_moments_of_its_tour(
    chromium: Browser, tmp_path: Path, screenshots: Path, theme: str
) -> None:
    def net(w, x):
        return jnp.tanh(x @ w).sum()

    array = jax.ShapeDtypeStruct
    program = ml.inspect(jax.grad(net), array((29, 37), "float32"), array((7, 29), "float32"))
    moments = [
        ml.teach.Moment(("jaxpr", "stablehlo"), line=("jaxpr", 6), caption="A tanh </p><script>x"),
        ml.teach.Moment("stablehlo", block="net"),
    ]
    file = program.tour(moments).save(tmp_path / "page.html", stages=["jaxpr", "stablehlo"], devices=["h100"])
    with watched_page(chromium.context, file.as_uri(), 768) as page:
        page.emulate_media(color_scheme=theme)
        page.locator("main.lecture").wait_for()  # a page with a tour starts with it
        assert page.locator(".mnb-caption").inner_text() == "1 / 2 · A tanh </p><script>x"
        assert ["tanh" in text for text in page.locator(".live .l.pin").all_inner_texts()] == [True, True]
        press(page, "s")
        assert violations(page, "main") == []
        press(page, ".")
        assert page.locator(".live .pane").count() == 1
        press(page, ",")
        assert page.locator(".live .pane").count() == 2
        page.get_by_role("button", name="Hide").click()
        assert [pane.is_visible() for pane in page.locator(".live .code").all()] == [True, False]
        assert violations(page, "main") == []
        press(page, ".")
        press(page, ".")
        page.locator("main .device select").select_option(index=1)
        page.locator("main.lecture .mnb-caption", has_text="2 / 2").wait_for()
        assert page.locator(".live .pane").count() == 1, "the lecture continues on another device"
        assert violations(page, "main") == []
        page.screenshot(path=screenshots / f"page-tour-{theme}.png")
