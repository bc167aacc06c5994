"""The menus of `ml.try_shardings` by keyboard, and the table of what a choice costs."""

from __future__ import annotations

import pytest
from axe import violations
from lab import focus, press

pytestmark = pytest.mark.usefixtures("compilers")
CELLS = [
    """
import jax, jax.numpy as jnp, mithril_nb as ml
from jax.sharding import NamedSharding, PartitionSpec as P
mesh = ml.device_mesh("v5e:2x4", data=2, model=4)
def spec(shape, *axes):
    return jax.ShapeDtypeStruct(shape, "float32", sharding=NamedSharding(mesh, P(*axes)))
p = ml.inspect(lambda w, x: x @ w, spec((64, 128), None, "model"), spec((32, 64), "data"), device="v5e:2x4")
""",
    "menu = ml.try_shardings(p)\nmenu",
]
# ipywidgets replaces each space by a space that does not break.
CHOSEN = "document.activeElement.selectedOptions[0].label.replaceAll('\\u00a0', ' ')"


def test_a_choice_by_keyboard_updates_the_table(run_cells) -> None:
    notebook = run_cells(CELLS, width=1280, height=1000)
    page = notebook.page
    sent = page.locator("tr", has_text="bytes sent by one device").locator("td").last
    sent.get_by_text("0 B", exact=True).wait_for()
    array = page.get_by_label("array", exact=True)
    focus(array)
    press(page, "Tab")
    assert page.evaluate(CHOSEN) == "no dimension"
    press(page, "Tab")
    assert page.evaluate(CHOSEN) == "dimension 1 of 128"
    # JupyterLab takes arrow keys for its cells, except while a menu is open.
    press(page, "Space", "ArrowUp", "Enter")
    # The product then sums over a dimension that is split.
    sent.get_by_text("kB").wait_for()
    assert notebook.evaluate("str(menu.specs['w'])") == "P('model', None)"
    assert page.evaluate(CHOSEN) == "dimension 0 of 64"
    assert violations(page, ".jp-OutputArea-output .widget-hbox") == []
    press(page, "Tab")
    assert page.evaluate("document.activeElement.textContent") == "Reset"
    press(page, "Enter")
    sent.get_by_text("0 B", exact=True).wait_for()
    assert notebook.evaluate("menu.inspection is p and not menu.errors")
