"""The device menu of the explorer in a real browser: another device and back, its costs, and a missing compiler."""

from __future__ import annotations

import pytest
from axe import violations
from device_menu import BUTTON, WITH_COMPILERS, WITHOUT_COMPILERS, choose, shows
from lab import press
from test_explorer import DRAWN, PROGRAM

pytestmark = pytest.mark.usefixtures("compilers")
OPEN = "e = explore(net, [spec(256, 512), spec(512, 128)], spec(64, 256))\ne"


@pytest.fixture
def notebook(run_cells, request):
    cells = [PROGRAM, getattr(request, "param", "before = None"), OPEN]
    notebook = run_cells(cells, width=1280, height=1000)
    notebook.page.wait_for_function(DRAWN)
    notebook.page.locator(".mnb-explorer").scroll_into_view_if_needed()
    notebook.page.locator('[data-mnb-action="pane.hlo"]').click()
    shows(notebook, "cpu")
    return notebook


def test_another_device_and_back(notebook) -> None:
    page = notebook.page
    before = shows(notebook, "cpu")
    choose(notebook, "v5e")
    assert "T(8,128)" in shows(notebook, "v5e")
    assert violations(page, ".mnb-header") == []
    page.locator('[data-mnb-action="pane.asm"]').click()
    page.locator('[data-mnb-pane="asm"]', has_text="the compiler for TPUs writes no files").wait_for()
    page.locator('[data-mnb-tab="cost"]').click()
    page.locator('[data-mnb-part="cost"]', has_text="v5e: fits in 16 GiB: yes").wait_for()
    page.locator('[data-mnb-action="cost.source.predicted"]').click()
    page.locator(".mnb-cost-table th", has_text="redicted time").first.wait_for()
    # By keyboard, with a topology of the menu and one that is typed; the focus returns to the button.
    choose(notebook, "h100:4", by_key=True)
    shows(notebook, "h100:4")
    assert page.evaluate("document.activeElement.dataset.mnbAction") == "device"
    page.locator('[data-mnb-part="cost"]', has_text="autotuning needs the device").wait_for()
    press(page, "ArrowDown")
    assert violations(page, ".mnb-device") == []
    press(page, "Escape")
    choose(notebook, "v5e:2x8", by_key=True)
    shows(notebook, "v5e:2x8")
    choose(notebook, "cpu")
    assert shows(notebook, "cpu") == before
    # The choice survives another run of the cell.
    choose(notebook, "v5e")
    shows(notebook, "v5e")
    notebook.run_all()
    page.locator(BUTTON, has_text="v5e").wait_for()
    assert notebook.evaluate("str(e.inspection.device)") == "v5e"
    assert notebook.evaluate("len(e.errors)") == 0


@pytest.mark.parametrize("notebook", [WITHOUT_COMPILERS], indirect=True)
def test_a_missing_compiler_is_installed(notebook) -> None:
    page = notebook.page
    problem = page.locator('[data-mnb-part="missing-compiler"]')
    page.locator(BUTTON).click()
    page.locator(".mnb-option", has_text="needs a compiler of 720 MB").first.wait_for()
    page.keyboard.type("v5e")
    press(page, "Enter")
    problem.get_by_text("v5e needs XLA's compiler for TPUs, which is not installed.").wait_for()
    assert violations(page, '[data-mnb-part="missing-compiler"]') == []
    shows(notebook, "cpu")
    problem.get_by_text("Install", exact=True).click()
    problem.get_by_text("Could not find a version").wait_for()
    notebook.execute("fails = False")
    problem.get_by_text("Install", exact=True).click()
    problem.get_by_text("Downloading libtpu").wait_for()
    assert violations(page, '[data-mnb-part="missing-compiler"]') == []
    page.locator('[data-mnb-action="device.dismiss"]').click()
    problem.wait_for(state="hidden")
    choose(notebook, "v5e", by_key=True)
    problem.get_by_text("Install", exact=True).click()
    assert "T(8,128)" in shows(notebook, "v5e")
    assert not problem.is_visible()
    assert notebook.evaluate("len(e.errors)") == 0
    notebook.execute(WITH_COMPILERS)
