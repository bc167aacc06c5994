"""LeNet for handwritten digits, built and trained with the mouse alone from an empty canvas."""

from __future__ import annotations

from small_workbench import shown

CELL = """
import numpy as np
import mithril_nb as ml
from sklearn.datasets import load_digits
digits = load_digits()
order = np.random.default_rng(0).permutation(len(digits.data))
images = (digits.data[order] / 16).astype("float32").reshape(-1, 1, 8, 8)
wb = ml.workbench(data=(images, digits.target[order].astype("int32")), validation=0.2, epochs=8, autosave=False)
wb
"""
BLOCKS = "Conv2d Relu MaxPool2d Conv2d Relu MaxPool2d Flatten Linear Relu Linear Relu Linear".split()


def test_lenet_takes_fifteen_actions(run_cells, screenshots) -> None:
    notebook = run_cells([CELL], width=1440, height=1000)
    shown(notebook)
    page = notebook.page
    clicks = [f'[data-mnb-palette="{kind}"]' for kind in BLOCKS]
    clicks += ['[data-mnb-tab="train"]', '[data-mnb-action="train.run"]']
    for count, selector in enumerate(clicks, 1):
        page.locator(selector).first.click()
        if count <= len(BLOCKS):
            notebook.wait_for(f"len(wb.model.graph.nodes) == {count}")
        if count == len(BLOCKS):
            classes = page.locator('.mnb-inspector [data-mnb-field="dimension"] .mnb-number')
            classes.fill("10")
            classes.press("Enter")
            notebook.wait_for("wb.model.graph.nodes[-1].block.options['dimension'] == 10")
    notebook.pictures(screenshots, "lenet", widths=(1440,))
    notebook.wait_for("wb.run is not None and wb.run.state == 'done'", 120)
    assert notebook.evaluate("[node.block.kind for node in wb.model.graph.nodes]") == BLOCKS
    assert notebook.evaluate("wb.run.snapshot()['validation_accuracy']") >= 0.95
    assert len(clicks) + 1 == 15
