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
