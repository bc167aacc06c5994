"""Keys and clicks reach what they are meant for: the focused field, the shown model, the block under the pointer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from small_workbench import MODEL, OPEN, node, settled, shown


@pytest.fixture
def show_workbench(run_cells) -> Callable[..., Any]:
    def show_one(cell: str = OPEN) -> Any:
        notebook = run_cells([MODEL, cell], width=1280, height=1000)
        shown(notebook)
        settled(notebook, "jaxpr")
        return notebook

    return show_one


def focused(notebook) -> str:
    """Return the action of the focused element, or the key of its block."""
    return notebook.page.evaluate(
        "() => { const {dataset} = document.activeElement; return dataset.mnbAction ?? dataset.mnbNode ?? ''; }"
    )


def nodes(notebook) -> list[str]:
    return notebook.evaluate("[node.name for node in wb.model.graph.nodes]")


@pytest.mark.parametrize("field", ["palette.search", "search"])
@pytest.mark.parametrize("start", ["pill", "escape", "selected"])
def test_a_click_on_a_field_keeps_the_focus_there(show_workbench, start, field):
    notebook = show_workbench()
    node(notebook, "output:output" if start == "pill" else "linear_1").click()
    if start == "escape":
        notebook.page.keyboard.press("Escape")
    notebook.page.locator(f'[data-mnb-action="{field}"]').click()
    assert focused(notebook) == field
    notebook.page.keyboard.type("layernorm")
    assert notebook.page.locator(f'[data-mnb-action="{field}"]').input_value() == "layernorm"
    assert focused(notebook) == field
    if field == "palette.search":
        notebook.page.keyboard.press("Enter")
        notebook.wait_for("any(node.block.kind == 'LayerNorm' for node in wb.model.graph.nodes)")
    assert notebook.problems == []
