"""The first notebook, as a new user meets it: open it, run all, and look."""

from __future__ import annotations

from pathlib import Path

NOTEBOOK = Path(__file__).resolve().parents[2] / "notebooks" / "01_build_and_train.ipynb"


def test_every_cell_runs_and_the_digits_are_learnt(open_notebook) -> None:
    notebook = open_notebook(NOTEBOOK, width=1280, height=1000)
    notebook.run_all(patience_s=180)
    assert notebook.evaluate("float(wb.run.history['validation_accuracy'][-1])") > 0.95
    workbench = notebook.page.locator("[data-mnb-version]").first
    workbench.scroll_into_view_if_needed()
    # The cells after it changed the model, and trained it: the widget above has followed.
    notebook.page.locator('[data-mnb-node="gelu_0"]').first.wait_for(state="attached")
    # JupyterLab may scroll on to the last cell and hide this one: it is waited for, not asked once.
    notebook.page.locator('[data-mnb-node="linear_0"]', has_text="(32, 128)").first.wait_for(state="attached")
    notebook.page.locator('[data-mnb-tab="train"]').first.click()
    notebook.page.locator('[data-mnb-run="done"]').first.wait_for()
    assert notebook.problems == []
