"""Display of values in JupyterLab without widgets: pictures, listings, tables, curves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from lab import DARK, LIGHT, NotebookPage
from playwright.sync_api import Locator

CELLS = [
    "import numpy as np, mithril_nb as ml\n"
    "from mithril_nb.models import MLP, Linear, Model, Relu\n"
    "model = Model() + Linear(48) + Relu() + MLP(48, [40], 24) + Linear(10)\n"
    'pm = ml.compile(model, ml.JaxBackend(), shapes={"input": [16, 56]})',
    "pm",
    'pm.inspect("forward+backward").stage("hlo")\npm.inspect("forward+backward")',
    "pm.cost",
    "x = np.random.default_rng(0).normal(size=(256, 56)).astype('float32')\n"
    "ml.fit(pm, (x, (x[:, 0] > 0).astype('int32')), epochs=3).wait()",
]


def cells_of(row: Locator) -> list[str]:
    return row.locator("th, td").all_inner_texts()


def test_values_have_a_rich_display(open_notebook: Callable[..., NotebookPage], screenshots: Path):
    page = open_notebook(CELLS)
    page.run_all()
    graph = page.output(1).locator("img, svg").first
    box = graph.bounding_box()
    assert box
    assert 400 < box["width"] < 840, "the graph has its own size"
    listing = page.output(2)
    assert listing.locator(".mnb-linked[data-live]").count() == 1, "the script runs"
    line = listing.locator('[data-stage="jaxpr"] .l[data-of="linear_0"]:not([data-e^="arg"])').first
    line.locator(".x").click()
    for stage in ("jaxpr", "stablehlo"):
        assert listing.locator(f'[data-stage="{stage}"] .l.pin').count() > 0, stage
    assert listing.locator('.picture .node.pin[data-block="linear_0"]').count() == 1
    # Compiled stages have no pane, even if available; the table shows their length, or that they are not computed.
    panes = listing.locator("[data-stage]").evaluate_all("panes => panes.map(pane => pane.dataset.stage)")
    assert panes == ["jaxpr", "stablehlo"]
    rows = {row[0]: row[1:] for row in map(cells_of, listing.locator("table.made tbody tr").all())}
    assert int(rows["optimized HLO"][0].replace(",", "")) > 100
    assert rows["LLVM IR"] == ["", "", "not computed yet"]
    code = listing.locator(".code").first.bounding_box()
    assert code
    assert code["height"] <= 448, "JupyterLab's style sheet leaves the panes their height"
    assert page.output(3).locator("table.cost").count() >= 2
    assert page.output(4).locator("img, svg").count() >= 1
    for theme in ("light", "dark"):
        page.set_theme(LIGHT if theme == "light" else DARK)
        ground = listing.locator(".mnb").first.evaluate("element => getComputedStyle(element).backgroundColor")
        assert (ground == "rgb(255, 255, 255)") == (theme == "light")
        page.resize(1280, 2400)
        page.picture(screenshots / f"static-{theme}.png")
