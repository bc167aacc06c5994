"""*My blocks*: saved from a menu, found, dragged and deleted in the palette, by mouse and by keyboard."""

from __future__ import annotations

import pytest
from axe import violations
from lab import DARK, LIGHT, press
from small_workbench import node, shown

CELL = """
import os, tempfile
from pathlib import Path
import mithril_nb as ml
from mithril_nb.models import MLP, Linear, Model, Relu
os.chdir(tempfile.mkdtemp())
Path("my_blocks").mkdir()
Path("my_blocks/newer.json").write_text('{"format": "mithril_nb.model", "version": 99}')
wb = ml.workbench(Model(name="net") + Linear(8) + Relu() + MLP(8, [4], 8), autosave=False)
def names():
    return [node.name for node in wb.model.graph.nodes]
def files():
    return sorted(path.stem for path in Path("my_blocks").iterdir())
wb
"""
OWN = '[data-mnb-palette="my_blocks/{}.json"]'


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_a_block_is_saved_used_and_deleted(run_cells, screenshots, theme: str) -> None:
    notebook = run_cells([CELL], width=1440, height=900)
    shown(notebook)
    page = notebook.page
    notebook.set_theme(theme)
    try:
        # By mouse: save in three actions, add in one, insert into a wire in one, delete in two.
        node(notebook, "mlp_0").click(button="right", position={"x": 40, "y": 8})
        page.locator('[role="menuitem"]', has_text="Save to My blocks").click()
        page.locator('[aria-label="Name in My blocks"]').fill("a/b")
        press(page, "Enter")
        page.locator(".mnb-field-problem", has_text="no name for a file").wait_for()
        page.locator('[aria-label="Name in My blocks"]').fill("encoder")
        press(page, "Enter")
        notebook.wait_for("files() == ['encoder', 'newer']")
        item = page.locator(OWN.format("encoder"))
        item.click()
        notebook.wait_for("names()[-1] == 'encoder'")
        assert "version 99" in page.locator(OWN.format("newer")).inner_text()
        assert violations(page, ".mnb-workbench") == []
        page.locator(OWN.format("newer")).click()
        page.locator(".mnb-notice", has_text="version 99").first.wait_for()
        notebook.picture(screenshots / f"own-blocks-{'dark' if theme == DARK else 'light'}.png")
        item.click(button="right")
        page.locator('[role="menuitem"]', has_text="Delete my_blocks/encoder.json").click()
        notebook.wait_for("files() == ['newer']")
        # By keyboard.
        node(notebook, "mlp_0").focus()
        press(page, "Shift+F10")
        while not page.evaluate("document.activeElement.textContent").startswith("Save to"):
            press(page, "s")  # the next item that begins with S
        press(page, "Enter")
        page.locator('[aria-label="Name in My blocks"]').fill("second")
        press(page, "Enter")
        notebook.wait_for("files() == ['newer', 'second']")
        search = page.locator('[data-mnb-action="palette.search"]')
        search.fill("seco")
        press(page, "Enter")
        notebook.wait_for("'second' in names()")
        for _ in range(40):
            if page.locator(OWN.format("second") + '[aria-selected="true"]').count():
                break
            press(page, "ArrowDown")
        press(page, "Delete", "ArrowDown", "Enter")  # keep it
        assert notebook.evaluate("files()") == ["newer", "second"]
        press(page, "Delete", "Enter")
        notebook.wait_for("files() == ['newer']")
        assert page.evaluate("document.activeElement.dataset.mnbAction") == "palette.search"
    finally:
        notebook.set_theme(LIGHT)
