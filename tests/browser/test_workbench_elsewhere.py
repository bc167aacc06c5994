"""The workbench after a reload of the page, in a saved notebook, and in Notebook 7."""

from __future__ import annotations

import nbformat
from key_walk import press_everywhere
from small_workbench import BATCH, MODEL, OPEN, STAGES, node, settled, shown

SLIDER = """
import ipywidgets
ipywidgets.IntSlider(value=3, min=0, max=10, description="width")
"""


def test_a_reload_restores_the_widget(open_workbench) -> None:
    notebook = open_workbench(*STAGES)
    notebook.execute("wb.do('set_attribute', path='linear_0', name='dimension', value=41)")
    settled(notebook)
    notebook.save()
    notebook.reload()
    node(notebook, "linear_0").wait_for(timeout=40_000)
    settled(notebook)
    assert f"({BATCH}, 41)" in node(notebook, "linear_0").inner_text()


def test_a_saved_notebook_shows_the_workbench_without_kernel(open_workbench, open_notebook, tmp_path) -> None:
    notebook = open_workbench(*STAGES)
    twin = "[style*='--mnb-twin'] .mnb"
    # A new picture and the replaced one are both in the page for a while, hidden.
    notebook.page.locator(twin).first.wait_for(state="attached")
    visible = notebook.page.locator(twin).filter(visible=True)
    assert visible.count() == 0, "while the widget lives, its picture is hidden"
    notebook.execute("wb.do('rename', path='linear_0', name='entrance')")
    # The graph comes at once, stages and costs when nothing has changed for a while.
    notebook.page.locator(twin, has_text="entrance").filter(has_text="dot_general").first.wait_for(state="attached")
    assert visible.count() == 0

    saved = notebook.save()
    pictures = [one for one in saved.cells[-1].outputs if "mnb-still" in one.get("data", {}).get("text/html", "")]
    assert len(pictures) == 1, "the newest one alone is kept"
    assert "widgets" not in saved.metadata, "JupyterLab saves no widget state by default"
    copy = tmp_path / "reopened.ipynb"
    nbformat.write(saved, copy)
    later = open_notebook(copy, width=1280, height=1000)
    for word in ("entrance", "dot_general", "stablehlo"):
        later.page.locator(twin, has_text=word).wait_for()
    assert "Loading widget" not in later.page.locator(".jp-OutputArea").last.inner_text(), "nothing is on its way"


def test_notebook_7_shows_the_same_slider_and_workbench(open_notebook, stress) -> None:
    notebook = open_notebook([SLIDER, MODEL, OPEN], app="notebooks", height=1300)
    notebook.run_all()
    notebook.page.locator(".widget-slider .noUi-handle").wait_for()
    shown(notebook)
    settled(notebook)
    node(notebook, "linear_1").click()
    notebook.wait_for("wb.selection == ('linear_1',)")
    assert [text for text in notebook.problems if "mnb" in text or "mithril" in text] == []
    found = press_everywhere(notebook, ".mnb-workbench", stress.size(short=40, long=10_000))
    stress.report(kinds=found["kinds"], presses=found["presses"], wrong=len(found["wrong"]))
    assert found["wrong"] == []
