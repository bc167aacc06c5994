"""Parameters on the canvas, by mouse and by keyboard: each change of the model is one undo step."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from lab import NotebookPage, press
from small_workbench import node, shown

OPEN = """
import mithril_nb as ml
from mithril_nb.models import MLP, Linear, Model, Relu
model = Model(name="net") + Linear(8) + Relu() + MLP(8, [8], 8) + Linear(8)
wb = ml.workbench(model, shapes={"input": [4, 8]}, autosave=False)
start = wb.session.design
def frozen():
    return sorted(str(end.port) for end, note in wb.model.graph.notes if note.is_trainable is False)
def graph():
    return sorted(map(str, wb.model.graph.edges))
wb
"""


def opened(run_cells: Any) -> NotebookPage:
    notebook = run_cells([OPEN], width=1440, height=900)
    shown(notebook)
    return notebook


def choose(notebook: NotebookPage, path: str, title: str) -> None:
    node(notebook, path).click(button="right")
    notebook.page.locator('.mnb-popup > [role="menuitem"]', has_text=title).first.click()


def undone(notebook: NotebookPage) -> None:
    press(notebook.page, "Control+z")
    notebook.wait_for("wb.session.design == start")


def pictured(notebook: NotebookPage, name: str) -> None:
    """Save pictures of both themes for a person, if a folder is named."""
    if folder := os.environ.get("MITHRIL_NB_PICTURES"):
        notebook.pictures(Path(folder), name, notebook.page.locator(".mnb-canvas"), widths=(1440,))


def test_parameters_are_frozen_by_menu_key_and_inspector(run_cells) -> None:
    notebook = opened(run_cells)
    page = notebook.page
    choose(notebook, "linear_0", "Freeze")
    notebook.wait_for("frozen() == ['linear_0.bias', 'linear_0.weight']")
    page.wait_for_function(
        "document.querySelector('[data-mnb-node=linear_0]').getAttribute('aria-label').includes('parameters frozen')"
    )
    undone(notebook)
    node(notebook, "linear_1").click()
    press(page, "l")
    notebook.wait_for("frozen() == ['linear_1.bias', 'linear_1.weight']")
    press(page, "l")
    notebook.wait_for("frozen() == []")
    inspector = page.locator('[data-mnb-part="inspector"]')
    inspector.locator('[data-mnb-action="freeze.weight"]').click()
    notebook.wait_for("frozen() == ['linear_1.weight']")
    inspector.get_by_text("Frozen: training does not change it.").wait_for()
    inspector.get_by_label("starts as").first.select_option("zeros")
    notebook.wait_for("'zeros' in wb.source")
    pictured(notebook, "frozen")
    inspector.get_by_label("starts as").first.select_option("default")
    notebook.wait_for("'zeros' not in wb.source")


def test_a_weight_is_shared_by_a_drag_and_by_the_keyboard(run_cells) -> None:
    notebook = opened(run_cells)
    page = notebook.page
    node(notebook, "linear_0").click()
    page.locator('[data-mnb-action="inspector.hide"]').click()
    node(notebook, "linear_0").click()
    press(page, "w")
    port = page.locator('[data-mnb-node="linear_0"] [data-mnb-port="linear_0.weight"]')
    port.wait_for()
    start, end = port.bounding_box(), node(notebook, "linear_1").bounding_box()
    page.mouse.move(start["x"] + start["width"] / 2, start["y"] + start["height"] / 2)
    page.mouse.down()
    page.mouse.move(end["x"] + end["width"] / 2, end["y"] + 6, steps=6)
    page.locator(".mnb-tip", has_text="linear_1.weight uses linear_0.weight").wait_for()
    page.mouse.up()
    notebook.wait_for("'linear_0_weight -> linear_1.weight' in graph()")
    node(notebook, "input:linear_0_weight").wait_for()
    pictured(notebook, "shared")
    press(page, "Control+z")
    notebook.wait_for("wb.session.design == start")
    node(notebook, "linear_0").click()
    press(page, "s")
    choices = page.get_by_role("listbox", name="Share a parameter of linear_0 with")
    choices.wait_for()
    assert "its shape is (8,), not (8, 8)" in choices.inner_text()
    press(page, "ArrowDown", "Enter")
    notebook.wait_for("any('linear_0_weight -> mlp_0' in text for text in graph())")
    press(page, "Control+z")
    notebook.wait_for("wb.session.design == start")
