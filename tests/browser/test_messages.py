"""Messages between kernel and page: none while the user looks around, small ones otherwise; the saved state."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from lab import NotebookPage
from small_workbench import MODEL, STAGES, node, settled

from benchmarks.workbench import COUNT_MESSAGES


@pytest.fixture
def notebook(open_workbench: Callable[..., NotebookPage]) -> NotebookPage:
    return open_workbench(*STAGES, model=MODEL + COUNT_MESSAGES)


def quiet(notebook: NotebookPage) -> tuple[int, int]:
    """Wait, then return the number of messages since the last call, and their bytes."""
    notebook.page.wait_for_timeout(1500)
    return tuple(notebook.evaluate("size()"))


def save_widget_state(notebook: NotebookPage, is_on: bool) -> None:
    """Turn the setting that saves the widgets' state with a notebook on or off."""
    toggle = "@jupyter-widgets/jupyterlab-manager:saveWidgetState"
    is_toggled = f"window.jupyterapp.commands.isToggled({toggle!r})"
    if notebook.page.evaluate(is_toggled) != is_on:
        notebook.command(toggle)
        notebook.page.wait_for_function(f"() => {is_toggled} === {json.dumps(is_on)}")


def snapshot_in_page(notebook: NotebookPage) -> dict[str, Any]:
    """Save the widgets' state in the notebook, and return the snapshot in it."""
    save_widget_state(notebook, True)
    try:
        states = notebook.save().metadata["widgets"]["application/vnd.jupyter.widget-state+json"]["state"]
    finally:
        save_widget_state(notebook, False)
    (found,) = [one["state"]["snapshot"] for one in states.values() if "snapshot" in one["state"]]
    return found


def is_current(notebook: NotebookPage) -> bool:
    return snapshot_in_page(notebook) == json.loads(notebook.evaluate("json.dumps(wb.snapshot)"))


def test_looking_around_sends_nothing_and_a_click_little(notebook: NotebookPage, record_property) -> None:
    quiet(notebook)
    board = notebook.page.locator(".mnb-board").first
    node(notebook, "linear_0").hover()
    box = board.bounding_box()
    assert box is not None
    mouse = notebook.page.mouse
    mouse.move(box["x"] + box["width"] - 20, box["y"] + box["height"] - 20)
    mouse.down()
    mouse.move(box["x"] + box["width"] - 60, box["y"] + box["height"] - 50, steps=5)
    mouse.up()
    mouse.wheel(0, 100)
    notebook.page.locator('[data-mnb-pane="jaxpr"] .cm-line').nth(4).hover()
    assert quiet(notebook) == (0, 0)
    node(notebook, "linear_1").click()
    notebook.wait_for("wb.selection == ('linear_1',)")
    count, size = quiet(notebook)
    record_property("click", (count, size))
    print(f"a click: {size} bytes in {count} messages")
    assert count > 0, "messages are counted"
    assert size <= 2_000


def test_the_saved_state_is_current_after_edits_and_a_reload(notebook: NotebookPage) -> None:
    quiet(notebook)  # a page follows changes once it has the first snapshot
    notebook.execute("wb.do('set_attribute', path='linear_0', name='dimension', value=41)")
    node(notebook, "linear_1").click()
    notebook.wait_for("wb.selection == ('linear_1',)")
    settled(notebook)
    updates = "[one for one, _ in replies if one.get('method') == 'update' and 'snapshot' in one['state']]"
    assert notebook.evaluate(f"len({updates})") == 0, "only changes were sent"
    assert is_current(notebook)
    notebook.reload()
    node(notebook, "linear_0").wait_for(timeout=40_000)
    settled(notebook)
    assert is_current(notebook)
    notebook.execute("wb.do('rename', path='linear_0', name='entrance')")
    node(notebook, "entrance").wait_for()
    settled(notebook)
    assert is_current(notebook)


def test_two_views_show_the_same_changes(open_workbench) -> None:
    notebook = open_workbench(*STAGES, model=MODEL + "import json\n", more=("wb",))
    views = notebook.page.locator(".mnb-workbench")
    views.nth(1).scroll_into_view_if_needed()
    notebook.execute("wb.do('rename', path='linear_0', name='entrance')")
    for view in (0, 1):
        views.nth(view).locator('[data-mnb-node="entrance"]').first.wait_for(state="attached")
    settled(notebook)  # stages that arrive between the two readings would make them differ
    assert is_current(notebook)
    assert notebook.problems == []
