"""The workbench with a new user's input: keys typed without waiting, keys pressed after a click anywhere."""

from __future__ import annotations

import pytest
from lab import DARK, LIGHT, press
from small_workbench import MODEL, OPEN, node, shown

_COUNT_SAVES = """() => {
    window.mnbSaves = 0;
    const {context} = window.jupyterapp.shell.currentWidget;
    context.saveState.connect((_, state) => { window.mnbSaves += state === 'completed'; });
}"""
_CELLS = "window.jupyterapp.shell.currentWidget.content.widgets.length"


@pytest.mark.parametrize("app", ["lab", "notebooks"])
def test_the_save_key_saves_the_notebook_from_inside_a_widget(open_workbench, app: str) -> None:
    notebook = open_workbench("jaxpr", app=app, height=1300)
    node(notebook, "linear_1").click()
    notebook.wait_for("wb.selection == ('linear_1',)")
    page = notebook.page
    places = (
        '[data-mnb-node="linear_1"]',
        ".mnb-palette-search",
        '[data-mnb-field="dimension"] input',
        '[data-mnb-pane="jaxpr"] .cm-line',
        '[data-mnb-tab="cost"]',
    )
    page.evaluate(_COUNT_SAVES)
    for count, place in enumerate(places):
        page.locator(place).first.click()
        page.wait_for_timeout(200)
        assert page.evaluate("window.mnbSaves") == count
        # JupyterLab ignores the key until the checkpoint of the last save is written.
        with page.expect_response(lambda reply: reply.url.partition("?")[0].endswith("/checkpoints")):
            press(page, "Control+s")
        page.wait_for_function(f"window.mnbSaves === {count + 1}", timeout=10_000)
        assert page.evaluate("document.activeElement.closest('.mnb-root') !== null"), place
    cells = page.evaluate(_CELLS)
    press(page, "s", "x", "a", "d", "d")
    assert page.evaluate(_CELLS) == cells


@pytest.mark.parametrize("delay_ms", [0, 30, 110])
def test_blocks_typed_one_after_the_other_are_all_added(run_cells, delay_ms: int) -> None:
    notebook = run_cells([MODEL, "wb = ml.workbench(autosave=False)\nwb"], height=1000)
    page = notebook.page
    page.locator('[data-mnb-action="empty.add"]').click()
    for kind in ("Linear", "Relu", "Linear"):
        page.keyboard.type(kind, delay=delay_ms)
        page.keyboard.press("Enter", delay=delay_ms)
    notebook.wait_for("len(wb.model.graph.nodes) == 3")
    assert notebook.evaluate("[node.name for node in wb.model.graph.nodes]") == ["linear_0", "relu_0", "linear_1"]
    edges = "[str(edge) for edge in wb.model.graph.edges if edge.source.node and edge.target.node]"
    assert notebook.evaluate(edges) == ["linear_0.output -> relu_0.input", "relu_0.output -> linear_1.input"]
    page.keyboard.type("no_such_block_of_a_long_name", delay=0)
    hint = page.locator(".mnb-palette-list .mnb-hint")
    assert "No block matches “no_such_block_of_a_long_name”." in hint.inner_text()
    assert hint.evaluate("hint => hint.scrollWidth <= hint.clientWidth && hint.clientHeight > 30"), "it wraps"


def test_rename_button_and_delete_key_in_the_graph(show_workbench) -> None:
    notebook = show_workbench(OPEN, "jaxpr")
    page = notebook.page
    node(notebook, "relu_1").click()
    page.locator('[data-mnb-action="inspector.rename"]').click()
    page.keyboard.type("act")
    press(page, "Enter")
    notebook.wait_for("'act' in wb.model.graph.by_name")
    assert page.locator(".mnb-rename").count() == 0
    # A click on text focuses the element around it.
    places = (
        '[data-mnb-pane="jaxpr"] .cm-line',
        '[data-mnb-pane="jaxpr"] .mnb-pane-head > b',
        '[data-mnb-tab="train"]',
        ".mnb-train-control > span",
        ".mnb-inspector-name",
    )
    for place in places:
        node(notebook, "act").click()
        notebook.wait_for("wb.selection == ('act',)")
        page.locator(place).first.click()
        press(page, "Delete", "Backspace")
    node(notebook, "act").click()
    press(page, "Delete")
    page.locator(".mnb-status", has_text="Removed act. Undo: Ctrl+Z").wait_for()
    kept = ["linear_0", "relu_0", "linear_1", "linear_2"]
    assert notebook.evaluate("[node.name for node in wb.model.graph.nodes]") == kept


TRAINING = """
import numpy as np
x = np.random.default_rng(0).normal(size=(64, 29)).astype("float32")
data = (x, (x[:, 0] > 0).astype("int32"))
wb = ml.workbench(model, shapes={"input": [7, 29]}, data=data, validation=0.25, epochs=400, autosave=False)
wb
"""


LEGENDS = """() => [...document.querySelectorAll('.mnb-plot')].map((plot) => {
    // The names in the legend whose values are not cut off.
    const {right, bottom} = plot.getBoundingClientRect();
    return [...plot.querySelectorAll('.u-series')].filter((one) => {
        const box = one.lastChild.getBoundingClientRect();
        return box.right <= right && box.bottom <= bottom;
    }).map((one) => one.querySelector('.u-label').textContent).join(', ');
}).join('; ')"""


def test_charts_stay_complete_with_another_theme_and_width(run_cells) -> None:
    notebook = run_cells([MODEL, TRAINING], height=1000)
    page = notebook.page
    shown(notebook)
    page.locator('[data-mnb-tab="train"]').click()
    page.locator('[data-mnb-action="train.run"]').click()
    notebook.wait_for("wb.run is not None and wb.run.state == 'done'", 60)
    last = notebook.evaluate("int(wb.run.history.to_dict()['step'][-1])")
    page.locator('[data-mnb-run="done"]').wait_for()
    readout = page.locator(".mnb-plot .u-legend .u-value").first
    page.wait_for_function(
        "([element, last]) => element.textContent === String(last)", arg=[readout.element_handle(), last]
    )
    assert page.locator(".u-legend .u-value").nth(1).inner_text() not in ("", "–", "--")
    page.locator('[data-mnb-action="layout.train"]').click()
    names = [f"step, batch {one}, validation {one}" for one in ("loss", "accuracy")]
    for theme, width in ((DARK, 1280), (LIGHT, 1280), (LIGHT, 800)):
        notebook.set_theme(theme)
        notebook.resize(width, 800)
        page.wait_for_function(f"() => ({LEGENDS})() === {'; '.join(names)!r}")


PLACES = """() => {
    const rect = (part) => part.getBoundingClientRect();
    const [palette, tools, row, minimap, board] = ['palette', 'canvas-tools', 'overflow-row', 'minimap', 'board'].map(
        (one) => rect(document.querySelector(`.mnb-${one}`)));
    const meet = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
    const nodes = [...document.querySelectorAll('.mnb-board [data-mnb-node]')].map(rect);
    const stages = [...document.querySelectorAll('.mnb-overflow-row > .mnb-toggles > button')].map(rect);
    return {
        covered: [palette, tools, minimap].flatMap((part) => nodes.filter((node) => meet(node, part))).length,
        outside: nodes.filter(({left, right, bottom}) => left < board.left || right > board.right
            || bottom > board.bottom).length,
        overlapping: meet(palette, tools),
        beyond: [...document.querySelectorAll('.mnb-palette-kind, .mnb-inspector .mnb-row')].filter(
            (part) => part.checkVisibility() && part.scrollWidth > part.clientWidth).length,
        cut: stages.filter((stage) => stage.left < row.left - 1 || stage.right > row.right + 1).length,
    };
}"""


def test_nothing_is_covered_or_cut_in_small_windows(show_workbench) -> None:
    images = OPEN.replace("[7, ", "[4, 3, 224, ")
    notebook = show_workbench(
        f"for _ in range(2):\n    model += Linear(16)\n    model += Relu()\n{images}", width=1024, height=768
    )
    notebook.page.wait_for_function(f"() => Object.values(({PLACES})()).join() === '0,0,false,0,0'")
    assert notebook.page.locator(".mnb-board [data-mnb-node]").count() == 11
    notebook.resize(1440, 900)
    notebook.page.locator("[data-mnb-docked]").wait_for()
    notebook.page.wait_for_function(f"() => Object.values(({PLACES})()).join() === '0,0,false,0,0'")
    notebook = show_workbench(OPEN, "jaxpr", height=800)
    page = notebook.page
    search = page.locator('[data-mnb-action="search"]')
    for width, room in ((1280, "column"), (800, "stacked")):
        notebook.resize(width, 800)
        page.locator(f'[data-mnb-room="{room}"]').wait_for()
        page.wait_for_function(f"() => Object.values(({PLACES})()).join() === '0,0,false,0,0'")
        assert search.bounding_box()["width"] < 40
        search.focus()
        page.wait_for_function("search => search.getBoundingClientRect().width > 200", arg=search.element_handle())
        search.blur()
    node(notebook, "linear_0").click()
    page.locator('[data-mnb-action="inspector.show"]').click()
    assert page.locator(".mnb-inspector").is_visible()
    notebook.resize(1280, 800)
    page.locator('[data-mnb-action="panes.more"]').click()
    page.locator('.mnb-overflow > [data-mnb-action="pane.numpy"]').click()
    page.locator(".mnb-status", has_text="jaxpr is closed: at most three stages are open.").wait_for()
    assert page.locator('.mnb-toggles > [data-mnb-action="pane.numpy"][aria-pressed="true"]').is_visible()
    page.locator('[data-mnb-action="help"]').click()
    card = page.locator(".mnb-help-card").bounding_box()
    assert card["height"] <= 0.8 * 800


def test_an_empty_workbench_shows_a_placeholder(run_cells) -> None:
    notebook = run_cells(
        [MODEL, "wb = ml.workbench(Model() + Linear(3), autosave=False)\nwb", "ml.workbench(autosave=False)"]
    )
    page = notebook.page
    notebook.output(2).locator(".mnb-empty").wait_for()
    text = notebook.output(2).get_by_text("Workbench: no block yet")
    text.first.wait_for(state="attached")
    assert text.filter(visible=True).count() == 0
    room = """box => {
        box.value = box.placeholder;
        const fits = box.scrollWidth <= box.clientWidth;
        box.value = '';
        return fits;
    }"""
    box = page.locator('[data-mnb-shape="input"]').first
    assert box.get_attribute("placeholder") == "32, 64"
    assert box.evaluate(room)
    box.click()
    page.keyboard.type("4")
    press(page, "Backspace", "Enter")
    page.locator(".mnb-header .mnb-field-problem", has_text="Enter at least one size, such as 32, 64.").wait_for()
