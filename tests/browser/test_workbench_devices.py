"""The device menu of the workbench in a real browser: edits on another device, and the way back."""

from __future__ import annotations

import pytest
from device_menu import BUTTON, WITH_COMPILERS, WITHOUT_COMPILERS, choose, shows
from lab import press

pytestmark = pytest.mark.usefixtures("compilers")


def test_edits_are_compiled_for_the_device(show_workbench) -> None:
    notebook = show_workbench()
    page = notebook.page
    shows(notebook, "cpu")
    choose(notebook, "v5e", by_key=True)
    assert "T(8,128)" in shows(notebook, "v5e")
    notebook.execute("wb.do('set_attribute', path='linear_0', name='dimension', value=41)")
    shows(notebook, "v5e")
    assert notebook.evaluate("str(wb.session.analysis.inspection.device)") == "v5e"
    choose(notebook, "cpu")
    shows(notebook, "cpu")
    assert page.locator('[data-mnb-part="missing-compiler"]').is_hidden()
    # The choice survives another run of the cells.
    choose(notebook, "v5e")
    shows(notebook, "v5e")
    notebook.run_all()
    shows(notebook, "v5e")
    assert notebook.evaluate("len(wb.errors)") == 0


def test_the_device_of_the_code_needs_a_compiler(run_cells) -> None:
    cell = "wb = ml.workbench(model, shapes={'input': [7, 29]}, device='v5e')\nwb"
    model = "import mithril_nb as ml\nfrom mithril_nb.models import Linear\nmodel = Linear(31)"
    notebook = run_cells([WITHOUT_COMPILERS + "fails = False", model, cell], width=1280, height=1000)
    page = notebook.page
    install = page.locator('[data-mnb-action="device.install"]')
    install.wait_for()
    page.locator(BUTTON, has_text="cpu").wait_for()
    install.focus()
    press(page, "Enter")
    page.locator('progress[aria-label="Installation"]').wait_for()
    assert "T(8,128)" in shows(notebook, "v5e")
    assert notebook.evaluate("len(wb.errors)") == 0
    notebook.execute(WITH_COMPILERS)
