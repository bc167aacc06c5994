"""Direct manipulation of the canvas, by mouse and by keyboard: each change of the model is one undo step."""

from __future__ import annotations

import pytest
from axe import violations
from lab import DARK, LIGHT, NotebookPage, focus, press
from playwright.sync_api import Page
from small_workbench import node, settled, shown

CHAIN = """
import mithril_nb as ml
from mithril_nb.models import MLP, Linear, Model, Relu, Tanh
model = Model(name="net") + Linear(8) + Relu() + MLP(8, [4], 2) + Tanh()
wb = ml.workbench(model, autosave=False)  # without shapes, no stage is compiled
start = wb.session.design
def graph():
    return sorted(map(str, wb.model.graph.edges))
def names():
    return [node.name for node in wb.model.graph.nodes]
wb
"""


def opened(run_cells) -> NotebookPage:
    notebook = run_cells([CHAIN], width=1440, height=900)
    shown(notebook)
    notebook.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    return notebook


def drag(page: Page, start: tuple[float, float], end: tuple[float, float]) -> None:
    page.mouse.move(*start)
    page.mouse.down()
    page.mouse.move(*end, steps=6)
    page.mouse.up()


def middle(notebook: NotebookPage, path: str) -> tuple[float, float]:
    box = node(notebook, path).bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def edge(notebook: NotebookPage) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return the middle of the first edge, and a point near its end."""
    notebook.page.locator('[data-mnb-action="canvas.fit"]').click()
    one, two = node(notebook, "linear_0").bounding_box(), node(notebook, "relu_0").bounding_box()
    y = two["y"] + two["height"] / 2
    return ((one["x"] + one["width"] + two["x"]) / 2, y), (two["x"] - 8, y)


def choose(page: Page, title: str) -> None:
    page.locator('.mnb-popup > [role="menuitem"]', has_text=title).first.click()


def selected(notebook: NotebookPage) -> list[str]:
    return notebook.page.evaluate(
        "[...document.querySelectorAll('.mnb-board [aria-selected=true]')].map((node) => node.dataset.mnbNode)"
    )


def undone(notebook: NotebookPage) -> None:
    """Assert that one undo restores the model."""
    press(notebook.page, "Control+z")
    notebook.wait_for("wb.session.design == start")


def test_blocks_are_selected_by_a_marquee_and_move_together(run_cells) -> None:
    notebook = opened(run_cells)
    page = notebook.page
    first, last = node(notebook, "linear_0").bounding_box(), node(notebook, "relu_0").bounding_box()
    low = max(first["y"] + first["height"], last["y"] + last["height"])
    drag(page, (first["x"] - 8, first["y"] - 20), (last["x"] + last["width"] - 5, low + 8))
    assert selected(notebook) == ["linear_0", "relu_0"]
    press(page, "v")
    assert selected(notebook) == ["mlp_0", "tanh_0"]
    press(page, "Control+a")
    assert selected(notebook) == ["linear_0", "relu_0", "mlp_0", "tanh_0"]
    assert page.evaluate("getSelection().toString()") == ""
    x, y = middle(notebook, "relu_0")
    drag(page, (x, y), (x + 60, y + 40))
    notebook.wait_for("len(wb.session._view.moved) == 4")
    press(page, "Control+z")
    notebook.wait_for("not wb.session._view.moved")
    press(page, "Escape")
    assert selected(notebook) == []


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_a_dragged_block_snaps_to_others_with_guides(run_cells, screenshots, theme: str) -> None:
    notebook = opened(run_cells)
    page = notebook.page
    notebook.set_theme(theme)
    try:
        page.locator('[data-mnb-action="canvas.fit"]').click()
        anchor, start = node(notebook, "linear_0").bounding_box(), node(notebook, "tanh_0").bounding_box()
        grip = start["x"] + 20, start["y"] + 20
        for keys in ([], ["Control"]):
            page.mouse.move(*grip)
            page.mouse.down()
            for key in keys:
                page.keyboard.down(key)
            # The left edge is 4 px beside that of linear_0.
            page.mouse.move(grip[0] + anchor["x"] + 4 - start["x"], grip[1] + 73, steps=6)
            dragged = node(notebook, "tanh_0").bounding_box()
            word = "dark" if theme == DARK else "light"
            notebook.picture(screenshots / f"canvas-snap-{len(keys)}-{word}.png")
            page.mouse.up()
            for key in keys:
                page.keyboard.up(key)
            notebook.wait_for("len(wb.session._view.moved) == 1")
            dropped = node(notebook, "tanh_0").bounding_box()
            assert dropped == pytest.approx(dragged, abs=0.01)
            assert dropped["x"] - anchor["x"] == pytest.approx(4 if keys else 0, abs=0.6)
            press(page, "Control+z")
            notebook.wait_for("not wb.session._view.moved")
    finally:
        notebook.set_theme(LIGHT)


def test_the_menu_opens_by_keyboard_for_what_has_the_focus(run_cells) -> None:
    notebook = opened(run_cells)
    page = notebook.page
    node(notebook, "relu_0").click()
    for keys in ("Shift+F10", "ContextMenu"):
        press(page, keys)
        menu = page.locator('[role="menu"][aria-label="relu_0"]')
        menu.wait_for()
        press(page, "Escape")
        menu.wait_for(state="detached")
        assert page.evaluate("document.activeElement.dataset.mnbNode") == "relu_0"
    press(page, "Shift+F10", "d")  # the first item that begins with D
    assert page.evaluate("document.activeElement.textContent").startswith("Duplicate")
    press(page, "Enter")
    notebook.wait_for("'relu_1' in names()")
    undone(notebook)


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_axe_finds_no_violation_in_menu_search_and_marquee(run_cells, screenshots, theme: str) -> None:
    notebook = opened(run_cells)
    page = notebook.page
    notebook.set_theme(theme)
    word = "dark" if theme == DARK else "light"
    try:
        box = node(notebook, "linear_0").bounding_box()
        page.mouse.move(box["x"] - 10, box["y"] - 12)
        page.mouse.down()
        page.mouse.move(box["x"] + 400, box["y"] + 90, steps=5)
        notebook.picture(screenshots / f"canvas-marquee-{word}.png")
        assert violations(page, ".mnb-workbench") == []
        page.mouse.up()
        for keys, name in (("Shift+F10", "menu"), ("r", "search")):
            node(notebook, "relu_0").click()
            press(page, keys)
            notebook.picture(screenshots / f"canvas-{name}-{word}.png")
            assert violations(page, ".mnb-workbench") == []
            press(page, "Escape")
            assert page.evaluate("document.activeElement.dataset.mnbNode") == "relu_0"
    finally:
        notebook.set_theme(LIGHT)


def test_blocks_are_copied_as_python_and_pasted_with_their_wires(run_cells) -> None:
    notebook = opened(run_cells)
    page = notebook.page
    node(notebook, "linear_0").click()
    node(notebook, "relu_0").click(modifiers=["Shift"])
    press(page, "Control+c")
    page.locator(".mnb-status", has_text="Copied 2 blocks").wait_for()
    text = page.evaluate("navigator.clipboard.readText()")
    assert (
        text
        == "from mithril_nb.models import Linear, Model, Relu\n\nmodel = Model()\nmodel |= Linear(8)\nmodel += Relu()\n"
    )
    press(page, "Control+v")
    notebook.wait_for("names()[-2:] == ['linear_1', 'relu_1']")
    assert notebook.evaluate("'linear_1.output -> relu_1.input' in graph()")
    undone(notebook)
    press(page, "Control+d")
    notebook.wait_for("'relu_1' in names()")
    undone(notebook)
    node(notebook, "relu_0").click()
    press(page, "Control+x")
    notebook.wait_for("'relu_0' not in names()")
    press(page, "Control+v")
    notebook.wait_for("'relu_0' in names()")
    for code in ("import os; os.remove('x')", "model |= ", "Linear(3).graph"):
        before = notebook.evaluate("graph()")
        page.evaluate("(code) => navigator.clipboard.writeText(code)", code)
        press(page, "Control+v")
        page.locator(".mnb-notice:not([hidden])").wait_for()
        assert notebook.evaluate("graph()") == before
        page.locator('[data-mnb-action="notice.dismiss"]').click()


def test_a_wire_on_the_background_asks_for_the_next_block(run_cells) -> None:
    notebook = opened(run_cells)
    page = notebook.page
    node(notebook, "relu_0").hover()
    port = page.locator('[data-mnb-node="relu_0"] .mnb-port-output').bounding_box()
    board = page.locator(".mnb-board").bounding_box()
    drag(page, (port["x"] + port["width"] / 2, port["y"] + port["height"] / 2), (board["x"] + 900, board["y"] + 290))
    search = page.locator('[data-mnb-action="blocks.search"]')
    search.wait_for()
    page.keyboard.type("softm")
    press(page, "Enter")
    notebook.wait_for("'relu_0.output -> softmax_0.input' in graph()")
    undone(notebook)


def test_edges_take_blocks_and_give_up_their_ends(run_cells) -> None:
    notebook = opened(run_cells)
    page = notebook.page
    between, near = edge(notebook)
    page.mouse.click(*between)
    press(page, "n")
    page.keyboard.type("gelu")
    press(page, "Enter")
    notebook.wait_for("'gelu_0.output -> relu_0.input' in graph()")
    undone(notebook)
    between, near = edge(notebook)
    page.mouse.click(*between, button="right")
    assert page.locator('.mnb-popup > [role="menuitem"]').all_text_contents()[-2:] == [
        "RemoveDelete",
        "Show the whole graph0",
    ]
    press(page, "Escape")
    board = page.locator(".mnb-board").bounding_box()
    drag(page, near, (board["x"] + 900, board["y"] + 290))
    notebook.wait_for("'linear_0.output -> relu_0.input' not in graph()")
    undone(notebook)
    _, near = edge(notebook)
    drag(page, near, middle(notebook, "tanh_0"))
    notebook.wait_for("'linear_0.output -> tanh_0.input' in graph()")
    undone(notebook)


def test_blocks_are_grouped_ungrouped_repeated_replaced_and_inputs_renamed(run_cells) -> None:
    notebook = opened(run_cells)
    page = notebook.page
    node(notebook, "linear_0").click()
    node(notebook, "relu_0").click(modifiers=["Shift"])
    press(page, "Control+g")
    page.keyboard.type("stem")
    press(page, "Enter")
    notebook.wait_for("names() == ['stem', 'mlp_0', 'tanh_0']")
    node(notebook, "stem").wait_for()
    press(page, "Control+Shift+g")
    notebook.wait_for("'relu_0' in names()")
    press(page, "Control+z", "Control+z")
    notebook.wait_for("wb.session.design == start")
    node(notebook, "relu_0").click()
    press(page, "r")
    page.keyboard.type("gelu")
    press(page, "Enter")
    notebook.wait_for("names()[1] == 'gelu_0' and 'gelu_0.output -> mlp_0.input' in graph()")
    undone(notebook)
    node(notebook, "relu_0").click(button="right")
    choose(page, "Repeat")
    page.keyboard.type("3")
    press(page, "Enter")
    notebook.wait_for("wb.model.graph.by_name['relu_0'].block.options.get('count') == 3")
    undone(notebook)
    node(notebook, "linear_0").click(button="right")
    choose(page, "Repeat with shared")
    page.keyboard.type("3")
    press(page, "Enter")
    notebook.wait_for("wb.model.graph.by_name['linear_0'].block.options.get('is_shared')")
    undone(notebook)
    for old, new in (("input", "x"), ("output", "y")):
        node(notebook, f"{old}:{old}").click()
        press(page, "F2")
        page.keyboard.type(new)
        press(page, "Enter")
        notebook.wait_for(f"any(port.name == {new!r} for port in wb.model.graph.{old}s)")
        undone(notebook)


def test_a_residual_takes_three_actions_and_a_second_output_two(run_cells) -> None:
    notebook = opened(run_cells)
    page = notebook.page
    notebook.execute("wb.session.do('collapse', path='mlp_0')")
    between, _ = edge(notebook)
    page.mouse.click(*between)
    press(page, "n")
    page.keyboard.type("add")
    press(page, "Enter")
    node(notebook, "add_0").hover()
    right = page.locator('[data-mnb-node="add_0"] .mnb-port-input').nth(1).bounding_box()
    node(notebook, "input:input").hover()
    output = page.locator('[data-mnb-node="input:input"] .mnb-port-output').bounding_box()
    drag(page, *((box["x"] + box["width"] / 2, box["y"] + box["height"] / 2) for box in (output, right)))
    notebook.wait_for("{'linear_0.output -> add_0.left', 'input -> add_0.right'} <= {*graph()}")
    node(notebook, "relu_0").click(button="right")
    choose(page, "Make its output one of the model")
    notebook.wait_for("len(wb.model.outputs) == 2")


def test_a_palette_item_and_a_free_block_are_dropped_into_an_edge(run_cells) -> None:
    notebook = opened(run_cells)
    page = notebook.page
    between, _ = edge(notebook)
    page.locator('[data-mnb-action="palette.search"]').click()
    item = page.locator('[data-mnb-palette="Gelu"]')
    item.scroll_into_view_if_needed()
    box = item.bounding_box()
    drag(page, (box["x"] + 20, box["y"] + 10), between)
    notebook.wait_for("{'linear_0.output -> gelu_0.input', 'gelu_0.output -> relu_0.input'} <= {*graph()}")
    notebook.execute("wb.session.do('undo')")  # the focus is in the search, where Ctrl+Z undoes what was typed
    assert notebook.evaluate("wb.session.design == start")
    notebook.execute("wb.session.do('place_block', kind='Softmax', x=20, y=400)\nplaced = wb.session.design")
    node(notebook, "softmax_0").wait_for()
    between, _ = edge(notebook)
    drag(page, middle(notebook, "softmax_0"), between)
    notebook.wait_for("{'linear_0.output -> softmax_0.input', 'softmax_0.output -> relu_0.input'} <= {*graph()}")
    press(page, "Control+z")
    notebook.wait_for("wb.session.design == placed")


SHAPED = CHAIN.replace("autosave=False)", 'shapes={"input": [7, 3]}, autosave=False)')
DIFFERENCE = """
def difference(kind, **ends):
    from mithril_nb.cost import memory_of
    from mithril_nb.ui.session.design import EDITS
    now = wb.session.analysis
    after = now.with_design(EDITS["place_block"](now.design, kind, **ends).design)
    sides = [(memory_of(side.local, "analytic").peak_bytes, side.cost.total.flops) for side in (now, after)]
    return [after - before for before, after in zip(*sides)]
"""


def test_a_preview_shows_what_a_drop_and_a_highlighted_block_would_change(run_cells) -> None:
    notebook = run_cells([SHAPED], width=1440, height=900)
    shown(notebook)
    settled(notebook)
    page = notebook.page
    notebook.execute(DIFFERENCE)
    between, _ = edge(notebook)
    search = page.locator('[data-mnb-action="palette.search"]')
    search.fill("layernorm")
    box = page.locator('[data-mnb-palette="LayerNorm"]').bounding_box()
    page.mouse.move(box["x"] + 20, box["y"] + 10)
    page.mouse.down()
    page.mouse.move(*between, steps=6)
    ghost = page.locator(".mnb-ghost")
    ghost.locator(".mnb-preview", has_text="at the peak").wait_for()
    memory, flops = notebook.evaluate('difference("LayerNorm", source="linear_0.output", target="relu_0.input")')
    assert ghost.inner_text().splitlines() == [
        "LayerNorm",
        "→ (7, 8)",
        "+ 16 parameters",
        f"+ {flops / 1000:.2f} kFLOP",
        f"+ {memory} B at the peak",
    ]
    page.mouse.move(box["x"] + 20, box["y"] + 10, steps=3)
    page.mouse.up()  # not over the canvas
    assert ghost.count() == 0
    assert notebook.evaluate("wb.session.design == start")
    node(notebook, "linear_0").click()
    search.fill("conv2d")
    problem = page.locator(".mnb-palette .mnb-preview[data-mnb-bad]")
    problem.wait_for()
    assert "cannot connect" in problem.inner_text()
    search.fill("tanh")
    preview = page.locator(".mnb-palette .mnb-preview", has_text="at the peak")
    preview.wait_for()
    assert preview.inner_text().splitlines()[:2] == ["→ (7, 8)", "± 0 parameters"]
    assert violations(page, ".mnb-workbench") == []
    press(page, "Enter")
    notebook.wait_for("'linear_0.output -> tanh_1.input' in graph()")
    node(notebook, "linear_0").click()  # the palette keeps its order while it has the focus
    page.wait_for_function("document.querySelector('.mnb-palette-item').dataset.mnbPalette === 'Tanh'")


def test_families_have_colours_that_the_legend_names(run_cells) -> None:
    notebook = opened(run_cells)
    page = notebook.page
    legend = page.locator(".mnb-canvas .mnb-legend")
    assert legend.inner_text().split() == ["colour:", "family", "layers", "activations", "composites"]
    assert "Relu, activations" in (node(notebook, "relu_0").get_attribute("aria-label") or "")
    page.locator('[data-mnb-action="layout.cost"]').click()
    assert legend.inner_text() == "colour: block, as in the code"
    page.locator('[data-mnb-action="layout.build"]').click()
    for theme in (LIGHT, DARK):
        notebook.set_theme(theme)
        assert violations(page, ".mnb-canvas") == []
    notebook.set_theme(LIGHT)


def test_a_lost_graph_has_a_way_back(run_cells) -> None:
    notebook = opened(run_cells)
    page = notebook.page
    notebook.execute("wb.do('move', places=[['tanh_0', 4000, 3000]])")
    page.locator('[data-mnb-action="canvas.fit"]').click()
    notebook.execute("wb.do('select', paths=['linear_0'])")
    focus(page.locator(".mnb-canvas .mnb-board"))
    press(page, "z")
    page.wait_for_function("document.querySelector('[data-mnb-node=linear_0]').getBoundingClientRect().width > 150")
    back = page.locator('[data-mnb-action="graph.back"]')
    assert back.is_hidden()
    board = page.locator(".mnb-canvas .mnb-board").bounding_box()
    for _ in range(3):  # to the right, where nothing is
        page.mouse.move(board["x"] + board["width"] - 20, board["y"] + board["height"] - 20)
        page.mouse.down(button="middle")
        page.mouse.move(board["x"] + 20, board["y"] + board["height"] - 20, steps=3)
        page.mouse.up(button="middle")
    back.click()
    back.wait_for(state="hidden")
    notebook.execute("wb.do('undo')")


def test_inputs_are_put_in_order_by_menu_and_by_keys(run_cells) -> None:
    cell = """
import mithril_nb as ml
from mithril_nb.models import Add, Model
wb = ml.workbench(Model() | Add()(left="x", right="y", output="z"), autosave=False)
def order():
    return [port.name for port in wb.model.inputs]
wb
"""
    notebook = run_cells([cell], width=1440, height=900)
    shown(notebook)
    page = notebook.page
    node(notebook, "input:y").click(button="right")
    assert page.locator('.mnb-popup > [role="menuitem"]', has_text="Move down").count() == 0
    choose(page, "Move up")
    notebook.wait_for("order() == ['y', 'x'] and 'set_order' in wb.source")
    page.wait_for_function(
        "document.querySelector('.mnb-board [data-mnb-node^=\"input:\"]').dataset.mnbNode === 'input:y'"
    )
    node(notebook, "input:y").focus()
    press(page, "Alt+Shift+ArrowDown")
    notebook.wait_for("order() == ['x', 'y']")
    press(page, "Control+z")
    notebook.wait_for("order() == ['y', 'x']")
    assert violations(page, ".mnb-workbench") == []
