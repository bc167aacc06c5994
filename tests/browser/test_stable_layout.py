"""Blocks keep their places: when shapes arrive, the inspector opens, a block is added, a group opens and closes."""

from __future__ import annotations

import pytest
from lab import NotebookPage, press
from small_workbench import node, shown

MODEL = """
import mithril_nb as ml
from mithril_nb.models import MLP, Add, Linear, Model, Relu
model = Model(name="net")
model += (first := Linear(8))
for block in (Relu(), MLP(8, [16], 8), Relu(), Linear(8)):
    model += (last := block)
model |= (joined := Add())(left=first.output, right=last.output)
model |= Linear(4)(input=joined.output, output="output")
wb = ml.workbench(model, autosave=False)
"""

PLACES = """() => Object.fromEntries([...document.querySelectorAll('[data-mnb-node]')].map((node) => {
    const {left, top, width} = node.getBoundingClientRect();
    return [node.dataset.mnbNode, [left, top, width].map(Math.round)];
}))"""


def places(notebook: NotebookPage) -> dict[str, list[int]]:
    """Return the left and upper edge and the width of each node on the screen, by key."""
    notebook.page.wait_for_timeout(200)  # items follow the view when it has rested
    return notebook.page.evaluate(PLACES)


@pytest.mark.parametrize(("width", "height"), [(1440, 900), (1024, 768)])
def test_blocks_keep_their_places(run_cells, width: int, height: int) -> None:
    notebook = run_cells([MODEL, "wb"], width=width, height=height)
    notebook.command("application:toggle-left-area")
    shown(notebook)
    page = notebook.page
    page.locator('[data-mnb-action="full.graph"]').click()
    page.wait_for_function("!!document.fullscreenElement")
    at_first = places(notebook)
    node(notebook, "mlp_0").focus()
    press(page, "ArrowLeft")
    node(notebook, "mlp_0/relu_0").wait_for(state="detached")
    before = places(notebook)
    assert len(before) == 9
    notebook.execute("wb.do('set_shape', name='input', shape=[2, 3, 8])")
    page.locator('[data-mnb-node="linear_0"][aria-label*="(2, 3, 8)"]').wait_for()
    assert places(notebook) == before, "shapes"
    node(notebook, "relu_0").click()
    page.locator(".mnb-inspector").wait_for()
    assert places(notebook) == before, "the inspector, by mouse"
    press(page, "ArrowLeft", "Enter")
    assert places(notebook) == before, "the inspector, by keyboard"
    node(notebook, "mlp_0").focus()
    press(page, "ArrowRight")
    node(notebook, "mlp_0/relu_0").wait_for()
    assert places(notebook) == at_first
    press(page, "ArrowLeft")
    node(notebook, "mlp_0/relu_0").wait_for(state="detached")
    assert places(notebook) == before, "a group that was opened and closed"
    notebook.execute("wb.do('add_block', kind='Tanh', after='linear_2')")
    node(notebook, "tanh_0").wait_for()
    after = places(notebook)
    shared = [key for key in before if key in after and key != "output:output"]  # the view moves if it is too small
    fixed = shared[-1]
    assert len(shared) >= 4
    scale = after[fixed][2] / before[fixed][2]
    for key in shared:
        for axis in (0, 1):
            distance = [one[key][axis] - one[fixed][axis] for one in (before, after)]
            assert abs(distance[1] - scale * distance[0]) <= 2, key
    notebook.command("application:toggle-left-area")
