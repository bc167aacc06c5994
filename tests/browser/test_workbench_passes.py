"""The Passes tab of the workbench in a real browser: XLA's passes step by step, also of an older design."""

from __future__ import annotations

from typing import Any

from lab import focus, press

OPEN = """
import mithril_nb as ml
from mithril_nb.models import MLP
wb = ml.workbench(MLP(24, [32], 10), shapes={"input": [16, 24]})
wb
"""


def test_the_passes_of_a_design_are_stepped_through_by_keys(run_cells, record_property, screenshots) -> None:
    notebook = run_cells([OPEN], width=1600, height=1100)
    page: Any = notebook.page
    focus(page.locator('.mnb-workbench [data-mnb-tab="passes"]'))
    press(page, "Enter")
    focus(page.locator('[data-mnb-action="passes.compile"]'))
    press(page, "Enter")
    page.locator('[data-mnb-shown="0"]').wait_for()
    focus(page.locator(".mnb-pass-list"))
    press(page, "ArrowDown")
    page.locator('[data-mnb-shown="1"]').wait_for()
    page.locator(".mnb-diff-added, .mnb-diff-removed").first.wait_for()
    notebook.wait_for("wb.session.passes.wait(0.1)")
    record_property("diff_ms", page.evaluate("performance.getEntriesByName('mnb:diff').map((one) => one.duration)"))
    assert page.locator(".mnb-pass").count() == notebook.evaluate("len(wb.session.analysis.inspection.passes)")
    notebook.pictures(screenshots, "workbench-passes", page.locator(".mnb-workbench"), widths=(1280, 1600), height=1100)
    # A pinned line of HLO has a history; after a change of the model, the old list stays readable.
    page.locator('.mnb-workbench [data-mnb-tab="stages"]').click()
    page.locator('[data-mnb-pane="hlo"] .cm-line', has_text="fusion").first.click(position={"x": 90, "y": 6})
    page.locator('.mnb-workbench [data-mnb-tab="passes"]').click()
    page.locator(".mnb-pass-history", has_text="in HLO").wait_for()
    notebook.execute("wb.do('set_attribute', path='linear_0', name='dimension', value=40)")
    page.locator('.mnb-passes[data-mnb-state="stale"] .mnb-hint', has_text="The model has changed").wait_for()
    assert page.locator(".mnb-pass-body").is_visible()
    page.locator('[data-mnb-action="passes.compile"]').click()
    page.locator('.mnb-passes[data-mnb-state="ready"]').wait_for()
    page.locator(".mnb-pass-text .cm-line", has_text="40").first.wait_for()
    # A reloaded page receives the list from the kernel.
    notebook.save()
    notebook.reload()
    page.locator('.mnb-workbench [data-mnb-tab="passes"]').click()
    page.locator(".mnb-pass").first.wait_for()
    assert notebook.evaluate("[str(error) for error in wb.errors]") == []
