"""The workbench in JupyterLab as the README shows it: real data, trained, every pane filled."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest
from lab import NotebookPage, focus, press
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from playwright.sync_api import Error as PlaywrightError

ROOT = Path(__file__).resolve().parents[2]
README_PICTURE = ROOT / "notebooks" / "images" / "workbench.png"
REFRESH = "MITHRIL_NB_REFRESH_SCREENSHOT"
"""Set by `make screenshot`, which renews the picture of the README."""
LABELS = "labels of the controls"
"""Key of the text in the PNG by which the test finds a picture that is older than the front end."""

CELLS = [
    """\
import optax
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import mithril_nb as ml
from mithril_nb.models import Linear, Model, Relu

digits = load_digits()
images = (digits.data / 16).astype("float32")
train_x, test_x, train_y, test_y = train_test_split(images, digits.target, test_size=300, random_state=0)""",
    """\
model = Model(name="digits")
model |= Linear(dimension=64)
model += Relu()
model += Linear(dimension=32)
model += Relu()
model += Linear(dimension=10)

wb = ml.workbench(
    model,
    shapes={"input": [64, 64]},
    data=(train_x, train_y),
    validation=(test_x, test_y),
    loss="cross_entropy",
    optimizer=optax.adam(3e-3),
    batch_size=64,
    epochs=20,
    seed=0,
)
wb""",
]


@pytest.fixture
def trained(open_notebook) -> NotebookPage:
    notebook = open_notebook(CELLS, width=1440, height=1320)
    notebook.command("application:toggle-left-area")
    notebook.run_all()
    page = notebook.page
    # JupyterLab hides the outputs of cells out of view, and the page may be laid out again after the scroll.
    notebook_js = "jupyterapp.shell.currentWidget.content"
    for _ in range(20):
        page.evaluate(f"() => {notebook_js}.scrollToItem({notebook_js}.widgets.length - 1)")
        with contextlib.suppress(PlaywrightError):
            page.locator(".mnb-workbench").wait_for(timeout=3_000)
            break
    for stage in ("jaxpr", "stablehlo", "hlo"):
        page.locator(f'[data-mnb-pane="{stage}"][data-mnb-state="ready"]').wait_for(timeout=60_000)
    notebook.execute("wb.do('train')")
    notebook.wait_for("wb.run is not None and wb.run.state == 'done'", patience_s=60)
    return notebook


def test_the_picture_of_the_readme(trained: NotebookPage, screenshots: Path) -> None:
    page = trained.page
    workbench = page.locator(".mnb-workbench")
    page.locator('[data-mnb-node="linear_1"]').click()
    for label, key, count in (("Height of the widget", "ArrowDown", 20), ("Size of the graph", "ArrowUp", 12)):
        focus(page.locator(f'[aria-label="{label}"]'))
        for _ in range(count):
            press(page, key)
    page.get_by_role("tab", name="Stages").click()
    page.wait_for_timeout(500)  # panes scroll to what is lit up
    place = README_PICTURE if os.environ.get(REFRESH) else screenshots / "workbench.png"
    trained.picture(place, workbench)
    labels = " ".join(
        workbench.locator(".mnb-header button, .mnb-header select, [role=tab]").evaluate_all(
            "controls => controls.map(one => one.getAttribute('aria-label') || one.textContent)"
        )
    )
    if os.environ.get(REFRESH):
        with_labels = PngInfo()
        with_labels.add_text(LABELS, labels)
        with Image.open(README_PICTURE) as picture:
            picture.load()
        picture.save(README_PICTURE, pnginfo=with_labels, optimize=True)
    with Image.open(README_PICTURE) as picture:
        assert picture.info.get(LABELS) == labels, "the picture is older: run make screenshot"
    trained.pictures(screenshots, "workbench", workbench, height=1320)
    assert trained.problems == []
