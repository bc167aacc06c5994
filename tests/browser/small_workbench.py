"""A small workbench to drive in a browser: the cells that open it, and how to wait for it."""

from __future__ import annotations

from lab import NotebookPage
from playwright.sync_api import Locator

# Unique sizes: a line with 53 belongs to linear_1, or to a reader of its output.
BATCH, SIZES = 7, (29, 37, 53, 11)
WIDTHS = {f"linear_{k}": (SIZES[k], SIZES[k + 1]) for k in range(3)}
STAGES = ("jaxpr", "stablehlo", "hlo")

MODEL = f"""
import mithril_nb as ml
from mithril_nb.models import Linear, Model, Relu
model = Model(name="net")
model |= Linear({SIZES[1]})
model += Relu()
model += Linear({SIZES[2]})
model += Relu()
model += Linear({SIZES[3]})
"""
OPEN = f'wb = ml.workbench(model, shapes={{"input": [{BATCH}, {SIZES[0]}]}})\nwb'


def shown(notebook: NotebookPage) -> None:
    """Wait for the workbench and scroll it into view."""
    root = notebook.page.locator("[data-mnb-version]").first
    root.wait_for()
    root.scroll_into_view_if_needed()


def settled(notebook: NotebookPage, *stages: str) -> None:
    """Wait until the panes show the texts of the drawn snapshot."""
    for stage in stages or STAGES:
        notebook.page.wait_for_function(
            """(stage) => {
                const root = document.querySelector('.mnb-root');
                const pane = root.querySelector(`[data-mnb-pane="${stage}"]`);
                return pane && pane.dataset.mnbState === 'ready' && pane.dataset.mnbVersion === root.dataset.mnbVersion;
            }""",
            arg=stage,
            timeout=60_000,
            polling=50,  # polling at every frame makes the browser draw sixty frames a second while XLA compiles
        )


def node(notebook: NotebookPage, path: str) -> Locator:
    """Return the picture of a block in the graph."""
    return notebook.page.locator(f'[data-mnb-node="{path}"]').first
