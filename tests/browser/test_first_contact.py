"""The first minutes with a workbench: an example, a model with two outputs, sizes with names, a model in a model."""

from __future__ import annotations

from typing import Any

from small_workbench import node, settled, shown

TWO_OUTPUTS = """
import mithril_nb as ml
from mithril_nb.models import IOKey, Linear, MLP, Model, Relu
model = Model()
model |= Linear(8)(input="x", output="hidden")
model |= Relu()(input="hidden", output=IOKey("features"))
model |= MLP(8, [16], 3, name="head")(input="hidden", output=IOKey("logits"))
wb = ml.workbench(model, shapes={"x": [4, 29]})
wb
"""


def opened(run_cells: Any, cell: str) -> Any:
    notebook = run_cells([cell], width=1280, height=1000)
    shown(notebook)
    return notebook


def test_one_click_on_the_example_fills_all_panes_and_trains(run_cells):
    notebook = opened(run_cells, "import mithril_nb as ml\nwb = ml.workbench(epochs=2)\nwb")
    page = notebook.page
    page.locator('[data-mnb-action="empty.example"]').click()
    node(notebook, "linear_1").wait_for()
    settled(notebook)
    page.locator('[data-mnb-tab="cost"]').click()
    assert page.locator('tr[data-mnb-cost="linear_1"] td').first.inner_text().endswith("FLOP")
    page.locator('[data-mnb-tab="train"]').click()
    page.locator('[data-mnb-action="train.run"]').click()
    page.locator('[data-mnb-run="done"]').wait_for(timeout=60_000)
    assert notebook.evaluate("len(wb.run.history['loss'])") == 64


def test_two_outputs_open_forward_and_names_of_sizes_are_typed(run_cells):
    notebook = opened(run_cells, TWO_OUTPUTS)
    page = notebook.page
    settled(notebook, "jaxpr", "stablehlo")
    note = page.locator(".mnb-program-note")
    assert note.inner_text().startswith(
        "Program forward: the model has 2 outputs, but the loss cross_entropy takes one"
    )
    page.locator('[data-mnb-action="output"]').select_option("logits")
    note.wait_for(state="hidden")
    settled(notebook)
    page.locator('[data-mnb-action="layout.cost"]').click()
    page.locator('tr[data-mnb-cost="(loss)"]').wait_for()
    # One block, one number: in the graph, the inspector, the table and the treemap.
    node(notebook, "head").click(position={"x": 90, "y": 10})  # the title of the open group, beside its chevron
    page.locator(".mnb-facts", has_text="compute, with inner blocks").wait_for()
    share = page.locator('tr[data-mnb-cost="head"] td').nth(6).inner_text()
    assert share in page.locator(".mnb-facts").inner_text()
    assert share in node(notebook, "head").get_attribute("aria-label")
    tree = notebook.evaluate("str(wb.cost.treemap())")
    assert any(line.split()[0] == "head" and share in line for line in tree.splitlines()[2:])
    field = page.locator('[data-mnb-shape="x"]')
    field.fill("batch, 29")
    field.press("Enter")
    settled(notebook, "jaxpr", "stablehlo")
    page.locator('[data-mnb-tab="stages"]').click()
    page.locator('[data-mnb-pane="hlo"] .mnb-pane-card', has_text="Enter a number for each size").wait_for()
    page.locator('[data-mnb-tab="cost"]').click()
    assert "batch" in page.locator('tr[data-mnb-cost="head"] td').nth(4).inner_text()
    field.fill("2*n, 29")
    field.press("Enter")
    page.locator('[data-mnb-shape][aria-invalid="true"]').wait_for()
    assert "'2*n' is neither a size nor a name" in field.get_attribute("title")
