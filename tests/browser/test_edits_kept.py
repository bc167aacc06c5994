"""Edits of the user outlive the kernel and a new run of the cell; views of what is gone are labelled."""

from __future__ import annotations

from typing import Any

from lab import NotebookPage
from playwright.sync_api import Locator, expect
from small_workbench import node, shown

from mithril_nb.ui.session.session import DESIGN_MIME


def part(notebook: NotebookPage, name: str) -> Locator:
    return notebook.page.locator(f'[data-mnb-part="{name}"]').first


def action(notebook: NotebookPage, name: str) -> Locator:
    return notebook.page.locator(f'[data-mnb-action="{name}"]').first


def add(notebook: NotebookPage, kind: str) -> None:
    palette = notebook.page.locator(".mnb-palette-search").first
    palette.fill(kind)
    palette.press("Enter")
    palette.fill("")


def saved_outputs(notebook: NotebookPage, edits: int) -> tuple[list[Any], dict[str, Any]]:
    """Return the outputs of the last cell and their one design, once it has so many edits."""
    while True:
        outputs = notebook.save().cells[-1].outputs
        [design] = [one["data"][DESIGN_MIME] for one in outputs if DESIGN_MIME in one.get("data", {})]
        if design["edits"] == edits:
            return outputs, design
        notebook.page.wait_for_timeout(200)  # the output follows an edit within a second, later on a busy machine


def restart(notebook: NotebookPage) -> None:
    notebook.page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()")
    part(notebook, "connection").wait_for(timeout=30_000)


def test_edits_survive_a_restart_and_are_restored_by_a_button(open_workbench):
    notebook = open_workbench("jaxpr")
    add(notebook, "Tanh")
    node(notebook, "tanh_0").wait_for()
    add(notebook, "Sigmoid")
    node(notebook, "sigmoid_0").wait_for()
    outputs, design = saved_outputs(notebook, edits=2)
    assert design["source"].count("model += Sigmoid()") == 1
    assert any("sigmoid_0" in one["data"].get("text/html", "") for one in outputs)

    restart(notebook)
    strip = part(notebook, "connection")
    expect(strip).to_contain_text("Disconnected from the kernel. Your 2 edits are saved in ")
    expect(strip).to_contain_text(".mithril_nb/test_edits_survive_a_restart_and_are_restored_by_a_button-0-")
    expect(strip).to_contain_text("Run this notebook from the top to continue. This cell then offers to restore them.")
    expect(action(notebook, "connection.copy")).to_be_visible()
    expect(node(notebook, "tanh_0")).to_be_visible()
    add(notebook, "Relu")
    expect(strip).to_contain_text("Not run, because no kernel is connected: add block.")

    notebook.run_all()
    shown(notebook)
    offer = part(notebook, "restore")
    expect(offer).to_contain_text("An earlier run of this cell saved 2 edits on ")
    expect(offer).to_contain_text(": add Tanh, add Sigmoid.")
    assert notebook.evaluate("'tanh_0' in repr(wb)") is False
    action(notebook, "restore.difference").click()
    expect(offer).to_contain_text("+model += Tanh()")
    action(notebook, "restore.edits").click()
    node(notebook, "sigmoid_0").wait_for()
    expect(offer).to_be_hidden()
    assert notebook.evaluate("'tanh_0' in repr(wb)") is True
    focused = notebook.page.evaluate("() => document.activeElement.className")
    assert "mnb-palette-search" in focused


def test_a_rerun_cell_offers_edits_or_starts_from_code(open_workbench):
    notebook = open_workbench(more=("wb",))
    add(notebook, "Tanh")
    node(notebook, "tanh_0").wait_for()
    notebook.execute("old = wb")
    notebook.run_all()  # the model's cell again, the workbench's, and a cell that shows it a second time
    offer = part(notebook, "restore")
    expect(offer).to_contain_text("An earlier run of this cell saved 1 edit on ")
    action(notebook, "restore.decline").click()
    expect(offer).to_be_hidden()
    assert notebook.evaluate("'tanh_0' in repr(wb)") is False
    assert notebook.evaluate("'tanh_0' in repr(old)") is True, "what code holds stays as it was"
    assert notebook.evaluate("old.comm is None") is True


def test_a_view_of_a_replaced_workbench_is_labelled(open_workbench):
    notebook = open_workbench(more=("wb",))
    notebook.page.wait_for_timeout(500)
    notebook.page.evaluate(
        """async () => {
            const panel = window.jupyterapp.shell.currentWidget;
            panel.content.activeCellIndex = 1;
            await window.jupyterapp.commands.execute('notebook:run-cell');
        }"""
    )
    notebook.wait_for_cells()
    still = notebook.output(2).locator(".mnb-still > p").first
    expect(still).to_have_text(
        "Replaced: a newer run of the cell shows the current widget. This is a picture of the old one.", timeout=20_000
    )
