"""Keys and clicks reach what they are meant for: the focused field, the shown model, the block under the pointer."""

from __future__ import annotations

import pytest
from key_walk import CELLS
from lab import focus, press
from small_workbench import OPEN, node


def focused(notebook) -> str:
    """Return the action of the focused element, or the key of its block."""
    return notebook.page.evaluate(
        "() => { const {dataset} = document.activeElement; return dataset.mnbAction ?? dataset.mnbNode ?? ''; }"
    )


def nodes(notebook) -> list[str]:
    return notebook.evaluate("[node.name for node in wb.model.graph.nodes]")


@pytest.mark.parametrize("field", ["palette.search", "search"])
@pytest.mark.parametrize("start", ["pill", "escape", "selected"])
def test_a_click_on_a_field_keeps_the_focus_there(show_workbench, start, field):
    notebook = show_workbench(OPEN, "jaxpr")
    node(notebook, "output:output" if start == "pill" else "linear_1").click()
    if start == "escape":
        press(notebook.page, "Escape")
    notebook.page.locator(f'[data-mnb-action="{field}"]').click()
    assert focused(notebook) == field
    notebook.page.keyboard.type("layernorm")
    assert notebook.page.locator(f'[data-mnb-action="{field}"]').input_value() == "layernorm"
    assert focused(notebook) == field
    if field == "palette.search":
        press(notebook.page, "Enter")
        notebook.wait_for("any(node.block.kind == 'LayerNorm' for node in wb.model.graph.nodes)")


GROUP = """
import mithril_nb as ml
from mithril_nb.models import MLP, Linear, Model, Relu
model = Model(name="net") + Linear(37) + MLP(activations=[Relu(), Relu()], dimensions=[8, 4]) + Relu()
wb = ml.workbench(model, shapes={"input": [7, 29]})
wb
"""


@pytest.mark.parametrize("room", ["stacked", "column"])
def test_a_click_moves_no_block_and_a_double_click_opens(show_workbench, room: str) -> None:
    notebook = show_workbench(GROUP, "jaxpr")
    page = notebook.page
    notebook.resize(1040 if room == "stacked" else 1600, 1000)
    page.locator(f'.mnb-workbench[data-mnb-room="{room}"]').wait_for()
    blocks = ("linear_0", "mlp_0", "relu_0")
    notebook.execute("wb.session.do('collapse', path='mlp_0')")
    node(notebook, "mlp_0/layer_0").wait_for(state="detached")
    inspector = page.locator(".mnb-inspector")
    if room == "stacked":
        node(notebook, "linear_0").click()
        page.locator('[data-mnb-action="inspector.show"]').click()
        inspector.wait_for()
        press(page, "Escape")
    for block in blocks:
        page.locator('[data-mnb-action="canvas.fit"]').click()
        before = {name: node(notebook, name).bounding_box() for name in blocks}
        middle = [before[block]["x"] + before[block]["width"] / 2, before[block]["y"] + before[block]["height"] / 2]
        for _ in range(2):
            page.mouse.click(*middle)
            inspector.wait_for()
            assert {name: node(notebook, name).bounding_box() for name in blocks} == before
            page.wait_for_timeout(500)  # a click, not a double-click
            assert page.evaluate(
                "middle => document.elementFromPoint(...middle).closest('.mnb-board') !== null", middle
            )
        press(page, "Escape")
    for block in ("relu_0", "linear_0"):
        page.locator('[data-mnb-action="canvas.fit"]').click()
        node(notebook, block).dblclick()
        field = page.locator(f'[data-mnb-node="{block}"] .mnb-rename')
        assert field.evaluate("field => field === document.activeElement")
        press(page, "Escape", "Escape")
    node(notebook, "mlp_0").dblclick()
    node(notebook, "mlp_0/layer_0").wait_for()
    assert nodes(notebook) == ["linear_0", "mlp_0", "relu_0"]


def test_keys_after_a_click_in_the_help_stay_in_the_help(show_workbench) -> None:
    notebook = show_workbench(OPEN, "jaxpr")
    page = notebook.page
    node(notebook, "linear_0").click()
    press(page, "?")
    page.locator(".mnb-help-card h4").first.click()
    press(page, "Delete", "Control+z", "Alt+ArrowDown", "2", "Escape")
    page.locator(".mnb-help").wait_for(state="hidden")
    assert page.evaluate("document.activeElement.dataset.mnbNode") == "linear_0"
    assert page.locator(".mnb-workbench").get_attribute("data-mnb-layout") == "build"
    assert notebook.evaluate("len(wb.model.graph.nodes)") == 5


def test_letters_typed_into_a_vanished_field_are_no_shortcuts(show_workbench) -> None:
    notebook = show_workbench(OPEN, "jaxpr")
    page = notebook.page
    node(notebook, "linear_0").click()
    press(page, "F2")
    page.keyboard.type("second")
    press(page, "Enter")
    notebook.wait_for("'second' in wb.model.graph.by_name")
    page.wait_for_function("document.activeElement.dataset.mnbNode === 'second'")
    press(page, "F2")
    page.keyboard.type("th")
    notebook.execute("wb.session.do('rename', path='second', name='first')")
    node(notebook, "first").wait_for()
    page.keyboard.type("in2?")
    press(page, "Delete")
    assert page.locator(".mnb-workbench").get_attribute("data-mnb-layout") == "build"
    assert page.locator(".mnb-help").is_hidden()
    assert page.locator(".mnb-inspector").is_visible()
    assert focused(notebook) == ""
    assert len(nodes(notebook)) == 5


def test_keys_pressed_in_a_panel_that_closes_stay_in_the_widget(show_workbench) -> None:
    """Without shapes, the layout Build closes the panel of the stages, which may have the focus."""
    notebook = show_workbench("wb = ml.workbench(model, autosave=False)\nwb")
    page = notebook.page
    cells = page.evaluate(CELLS)["cells"]
    for stop in ('[data-mnb-action="copy.jaxpr"]', '[data-mnb-pane="jaxpr"] .cm-content'):
        page.locator('[data-mnb-action="layout.lecture"]').click()
        focus(page.locator(stop))
        press(page, "1")
        page.wait_for_function(
            """() => document.querySelector('.mnb-workbench[data-mnb-closed]')?.contains(document.activeElement)"""
        )
        press(page, "d", "d")
    assert page.evaluate(CELLS)["cells"] == cells
