"""The first notebook, as a new user runs it: open it, run all cells, and check the outputs."""

from __future__ import annotations

from pathlib import Path

NOTEBOOK = Path(__file__).resolve().parents[2] / "notebooks" / "01_build_and_train.ipynb"


def test_every_cell_runs_and_the_digits_are_learnt(open_notebook) -> None:
    notebook = open_notebook(NOTEBOOK, width=1280, height=1000)
    notebook.run_all(patience_s=180)
    assert notebook.evaluate("float(wb.run.history['validation_accuracy'][-1])") > 0.95
    workbench = notebook.page.locator("[data-mnb-version]").first
    workbench.scroll_into_view_if_needed()
    # Later cells changed and trained the model: the widget above shows this.
    notebook.page.locator('[data-mnb-node="gelu_0"]').first.wait_for(state="attached")
    # JupyterLab may scroll to the last cell and hide this one, so the check waits.
    notebook.page.locator('[data-mnb-node="linear_0"]', has_text="(32, 128)").first.wait_for(state="attached")
    notebook.page.locator('[data-mnb-tab="train"]').first.click()
    notebook.page.locator('[data-mnb-run="done"]').first.wait_for()
    assert notebook.problems == []
