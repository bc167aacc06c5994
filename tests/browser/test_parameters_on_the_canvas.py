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


OUTPUTS = """
import numpy as np
import mithril_nb as ml
from mithril_nb.models import MLP, Linear, Model
data = (np.ones((64, 4), "float32"), np.ones((64, 8)))
wb = ml.workbench(Model() + MLP(4, [8], 8) + Linear(8), shapes={"input": [8, 4]}, data=data, autosave=False)
wb
"""


def test_a_second_output_with_its_loss_takes_four_actions_and_an_input_three(run_cells) -> None:
    notebook = run_cells([OUTPUTS], width=1920, height=1000)
    shown(notebook)
    page = notebook.page
    choose(notebook, "mlp_0/relu_0", "Make its output one of the model")
    notebook.wait_for("len(wb.model.outputs) == 2")
    page.locator('[data-mnb-tab="train"]').click()
    for port in notebook.evaluate("[port.name for port in wb.model.outputs]"):
        page.get_by_label(f"loss of {port}").select_option("mean_squared_error")
        notebook.wait_for(f"{port!r} in dict(wb.session.design.losses)")
    pictured(notebook, "outputs")
    page.locator('[data-mnb-action="train.run"]').first.click()
    notebook.wait_for("wb.run is not None and wb.run.step > 0", 60)
    notebook.execute("wb.run.stop()")
    choose(notebook, "linear_0", "Read a new input")
    page.keyboard.type("skip")
    press(page, "Enter")
    notebook.wait_for("'skip' in [port.name for port in wb.model.inputs]")
    choose(notebook, "input:skip", "Dtype: float32")
    page.locator('.mnb-popup > [role="menuitem"]', has_text="bfloat16").click()
    notebook.wait_for("wb.session.snapshot()['dtypes']['skip'] == 'bfloat16'")
    pictured(notebook, "inputs")


def test_what_a_search_finds_is_selected(run_cells) -> None:
    notebook = opened(run_cells)
    page = notebook.page
    node(notebook, "relu_0").click()
    press(page, "f")
    page.keyboard.type("kind:linear -mlp_0")
    page.wait_for_timeout(500)
    board = page.locator(".mnb-board").bounding_box()
    page.mouse.click(board["x"] + 6, board["y"] + board["height"] / 2, button="right")
    page.locator('.mnb-popup > [role="menuitem"]', has_text="Select what is found").click()
    notebook.wait_for("set(wb.selection) == {'linear_0', 'linear_1'}")
