"""The layout of the workbench: presets, full screen, sizes, widths, keyboard and accessibility rules."""

from __future__ import annotations

from typing import Any

import pytest
from axe import violations
from lab import DARK, LIGHT, NotebookPage, focus, press
from small_workbench import MODEL, OPEN, STAGES, node, settled, shown

PRESETS = ("build", "read", "cost", "train", "lecture")

REACHED = """() => {
    // The focused control, and all visible controls, by name.
    const root = document.querySelector('.mnb-workbench');
    const nameOf = (one) => one.dataset.mnbAction ?? one.dataset.mnbTab ?? one.dataset.mnbNode ?? one.dataset.mnbCost
        ?? one.dataset.mnbShape ?? one.getAttribute('aria-label') ?? one.textContent.slice(0, 40);
    const controls = root.querySelectorAll('button, input, select, summary, [role=separator], .cm-content');
    const visible = [...controls].filter((one) => one.checkVisibility({visibilityProperty: true}));
    // The arrow keys step the number beside the buttons of a stepper, and move within a tree and a table.
    const others = '.mnb-step, [role=treeitem], tr, [aria-disabled="true"], :disabled';
    const usable = visible.filter((one) => !one.closest(others));
    const active = document.activeElement;
    const isRoving = active?.matches('[role=radio], [role=tab]');
    return {focus: root.contains(active) ? nameOf(active) : null, isRoving, all: usable.map(nameOf)};
}"""


def choose(notebook: NotebookPage, preset: str) -> None:
    """Press a preset's button."""
    notebook.page.locator(f'.mnb-workbench [data-mnb-action="layout.{preset}"]').first.click()


def box(notebook: NotebookPage, part: str) -> tuple[int, int]:
    """Return the width and height of a part on the screen."""
    found = notebook.page.locator(part).first.bounding_box() or {"width": 0, "height": 0}
    return round(found["width"]), round(found["height"])


@pytest.fixture
def open_one(run_cells):
    """Open the workbench with the Build preset and nothing remembered."""

    def opened(**size: int) -> NotebookPage:
        notebook = run_cells([MODEL, OPEN], **{"width": 1280, "height": 1000, **size})
        notebook.page.evaluate("localStorage.removeItem('mithril_nb.layouts')")
        shown(notebook)
        choose(notebook, "build")
        return notebook

    return opened


LINES = """() => [...document.querySelectorAll('.mnb-pane')].map((pane) => {
    // The lines in view. Stages below each other scroll in their row.
    const boxes = [pane.querySelector('.cm-scroller'), pane.parentElement].map((part) => part.getBoundingClientRect());
    return [...pane.querySelectorAll('.cm-line')].map((line) => line.getBoundingClientRect())
        .filter((line) => boxes.every(({top, bottom}) => line.top >= top && line.bottom <= bottom)).length;
})"""


COVERED = """() => [...document.querySelectorAll('.mnb-workbench .mnb-node')].filter((node) => {
    // The blocks whose corners something else lies over.
    const {left, right, top, bottom} = node.getBoundingClientRect();
    const places = [[left + 9, top + 9], [right - 9, top + 9], [left + 9, bottom - 9], [right - 9, bottom - 9]];
    return places.some(([x, y]) => !document.elementFromPoint(x, y)?.closest('.mnb-board'));
}).map((node) => node.textContent)"""


def test_the_default_layout_shows_graph_and_code(open_one) -> None:
    notebook = open_one(height=800)
    settled(notebook)
    assert min(notebook.page.evaluate(LINES)) >= 8
    assert box(notebook, ".mnb-canvas")[1] >= 300, "beside the list of files"
    notebook.command("application:toggle-left-area")
    width, height = box(notebook, ".mnb-canvas")
    whole = box(notebook, ".mnb-workbench")
    assert width >= 0.68 * whole[0], "70 % from 1,200 px on"
    assert height >= 300
    assert whole[1] <= 720
    assert width + box(notebook, ".mnb-palette")[0] + box(notebook, ".mnb-inspector")[0] == pytest.approx(
        whole[0], abs=3
    )
    node(notebook, "linear_0").click()
    assert box(notebook, ".mnb-canvas") == (width, height), "the inspector is beside the graph"
    assert notebook.page.evaluate(COVERED) == []
    notebook.command("application:toggle-left-area")


PALETTE = """() => {
    // The list of the palette: its height, whether all of it is on top, and whether the chosen row is in it.
    const list = document.querySelector('.mnb-palette-list');
    const chosen = list.querySelector('[aria-selected="true"]').getBoundingClientRect();
    const {left, right, top, bottom, height} = list.getBoundingClientRect();
    const places = [[left + 20, top + 12], [right - 20, bottom - 8]];
    const isOnTop = places.every(([x, y]) => list.contains(document.elementFromPoint(x, y)));
    return [height, isOnTop, top <= chosen.top + 1 && chosen.bottom <= bottom + 1];  // rows scroll by whole pixels
}"""


@pytest.mark.parametrize("width", [1280, 800])
def test_the_list_of_blocks_is_readable(open_one, width: int) -> None:
    notebook = open_one(width=width, height=800)
    page = notebook.page
    for is_full in (False, True):
        if is_full:
            page.locator('[data-mnb-action="full.all"]').click()
            page.wait_for_function("!!document.fullscreenElement")
        page.locator(".mnb-palette-search").click()
        press(page, *["ArrowDown"] * 25)
        height, is_on_top, has_chosen = page.evaluate(PALETTE)
        assert height >= 250
        assert is_on_top
        assert has_chosen
    press(page, "Escape")  # closes the list
    press(page, "Escape")
    page.wait_for_function("!document.fullscreenElement")
    blocks = page.locator(".mnb-palette-list")
    for key in ("Enter", "Tab") if width == 800 else ():  # the list lies over the graph
        page.locator(".mnb-palette-search").click()
        blocks.wait_for()
        press(page, key)
        blocks.wait_for(state="hidden")


def test_presets_by_click_and_by_key(open_one) -> None:
    notebook = open_one()
    page = notebook.page
    parts = (".mnb-canvas", '[data-mnb-pane="jaxpr"]', ".mnb-costs", ".mnb-train")
    expected = {
        "build": [True, True, False, False],
        "read": [False, True, False, False],
        "cost": [True, False, True, False],
        "train": [False, False, False, True],
        "lecture": [True, True, False, False],
    }

    def visible() -> list[bool]:
        return [page.locator(part).first.is_visible() for part in parts]

    for preset, parts_shown in expected.items():
        choose(notebook, preset)
        assert visible() == parts_shown, preset
        assert box(notebook, ".mnb-workbench")[1] <= 720
    for key, parts_shown in zip("12345", expected.values(), strict=True):
        press(page, key)
        assert visible() == parts_shown, key
        assert page.evaluate("document.activeElement.closest('.mnb-workbench') !== null")
    sizes = page.evaluate("[...document.querySelectorAll('.mnb-tab')].map((tab) => tab.getBoundingClientRect().height)")
    press(page, "1")
    assert sizes[0] == pytest.approx(1.4 * box(notebook, ".mnb-tab")[1], abs=1)


def test_the_pointer_works_in_a_zoomed_lecture(open_one) -> None:
    notebook = open_one()
    settled(notebook)
    page = notebook.page
    choose(notebook, "lecture")
    height = box(notebook, ".mnb-canvas")[1]
    at = page.locator('[aria-label="Size of the graph"]').bounding_box()
    page.mouse.move(at["x"] + 300, at["y"] + 0.5)
    page.mouse.down()
    page.mouse.move(at["x"] + 300, at["y"] - 60, steps=3)
    page.mouse.up()
    assert box(notebook, ".mnb-canvas")[1] == pytest.approx(height - 60, abs=2)
    line = page.locator('[data-mnb-pane="stablehlo"] .cm-line', has_text="dot_general").first
    line.hover(position={"x": 60, "y": 6})
    place = line.bounding_box()
    x, y = place["x"] + 60, place["y"] + 6
    tip = page.locator(".mnb-tip")
    tip.wait_for()
    shown_at = tip.bounding_box()
    assert abs(shown_at["x"] - x) < 40
    assert min(abs(shown_at["y"] - y), abs(shown_at["y"] + shown_at["height"] - y)) < 40


def test_a_reload_restores_preset_sizes_and_height(open_workbench) -> None:
    notebook = open_workbench(*STAGES)
    page = notebook.page
    choose(notebook, "cost")
    edge = page.locator('[data-mnb-part="height"]')
    at = edge.bounding_box()
    page.mouse.move(at["x"] + 200, at["y"] + 3)
    page.mouse.down()
    page.mouse.move(at["x"] + 200, at["y"] + 3 - 120, steps=4)
    page.mouse.up()
    assert edge.get_attribute("aria-valuenow") == str(720 - 120)
    press(page, *["ArrowDown"] * 2)  # the drag has focused the edge
    divider = page.locator('[aria-label="Size of the graph"]')
    focus(divider)
    press(page, *["ArrowDown"] * 5)
    before = [box(notebook, ".mnb-workbench"), box(notebook, ".mnb-canvas"), divider.get_attribute("aria-valuenow")]
    assert before[0][1] == 640
    assert before[2] == "50"
    notebook.save()
    notebook.reload()
    page.locator('.mnb-workbench[data-mnb-layout="cost"]').wait_for(timeout=40_000)
    page.locator(".mnb-costs tr[data-mnb-cost]").first.wait_for()
    after = [box(notebook, ".mnb-workbench"), box(notebook, ".mnb-canvas"), divider.get_attribute("aria-valuenow")]
    assert after == before
    # A new run of the cell has a new widget with the same layout.
    notebook.run_all()
    page.locator('.mnb-workbench[data-mnb-layout="cost"]').wait_for()
    assert box(notebook, ".mnb-workbench") == before[0]


@pytest.mark.parametrize("room", [680, 1008, 2560])
def test_every_width_shows_everything(open_one, room: int) -> None:
    notebook = open_one(width=room + 432, height=900)
    notebook.resize(room + 432 + room - box(notebook, ".mnb-workbench")[0], 900)
    page = notebook.page
    page.locator(f'[data-mnb-room="{ {680: "stacked", 1008: "column", 2560: "wide"}[room] }"]').wait_for()
    assert box(notebook, ".mnb-workbench")[0] == room
    settled(notebook)
    for preset in PRESETS:
        choose(notebook, preset)
        if preset in ("build", "read"):
            assert max(page.evaluate(LINES)) >= 8, preset
        wide = page.evaluate(
            """() => {
                const root = document.querySelector('.mnb-workbench');
                const {left, right, bottom} = root.getBoundingClientRect();
                const names = '.mnb-header > *, .mnb-header-end > *, .mnb-main > *, .mnb-pane, .mnb-tab';
                return [...root.querySelectorAll(names)].filter((one) => one.checkVisibility()).filter((one) => {
                    const box = one.getBoundingClientRect();
                    const isInRow = one.closest('.mnb-panes-row') !== null;  // stages below each other scroll
                    return box.left < left - 1 || box.right > right + 1 || (box.bottom > bottom + 1 && !isInRow);
                }).map((one) => one.getAttribute('class'));
            }"""
        )
        assert wide == [], preset
        if preset == "read":
            boxes = [page.locator(f'[data-mnb-pane="{stage}"]').bounding_box() for stage in STAGES]
            same = "x" if room == 680 else "y"
            assert len({one[same] for one in boxes}) == 1


def test_full_screen_of_each_part_keeps_the_focus(open_one) -> None:
    notebook = open_one()
    settled(notebook)
    page = notebook.page
    for action, part in (
        ("full.graph", ".mnb-graph-area"),
        ("full.jaxpr", '[data-mnb-pane="jaxpr"]'),
        ("full.tab", ".mnb-tabs"),
        ("full.all", ".mnb-main"),
    ):
        button = page.locator(f'.mnb-workbench [data-mnb-action="{action}"]')
        small = box(notebook, part)
        button.click()
        page.wait_for_function("document.fullscreenElement?.matches('.mnb-workbench')")
        width, height = box(notebook, part)
        assert width >= 1270, action
        assert height >= 850, action
        assert button.evaluate("button => document.activeElement === button")
        press(page, "Escape")
        page.wait_for_function("!document.fullscreenElement")
        assert box(notebook, part) == small
        assert button.evaluate("button => document.activeElement === button")
    # By a key, with the focus in the text of a stage.
    focus(page.locator('[data-mnb-pane="hlo"] .cm-content'))
    press(page, "e")
    page.wait_for_function("document.fullscreenElement")
    assert page.locator('[data-mnb-pane="jaxpr"]').is_hidden()
    assert page.evaluate("document.activeElement.closest('[data-mnb-pane]')?.dataset.mnbPane") == "hlo"
    press(page, "e")
    page.wait_for_function("!document.fullscreenElement")
    assert page.locator('[data-mnb-pane="jaxpr"]').is_visible()


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_axe_finds_no_violation_in_any_preset(open_one, theme: str) -> None:
    notebook = open_one()
    settled(notebook)
    notebook.set_theme(theme)
    page = notebook.page
    found: dict[str, Any] = {}
    for preset in PRESETS:
        choose(notebook, preset)
        page.mouse.move(2, 2)
        if preset == "build":
            node(notebook, "linear_0").click()
            page.locator(".mnb-inspector").wait_for()
        found[preset] = violations(page, ".mnb-workbench")
    choose(notebook, "build")
    page.locator(".mnb-palette-search").click()
    found["palette"] = violations(page, ".mnb-workbench")
    press(page, "Escape")  # in a narrow widget, the open list lies over the tabs
    for tab in ("passes", "source", "problems"):
        page.locator(f'[data-mnb-tab="{tab}"]').click()
        found[tab] = violations(page, ".mnb-workbench")
    press(page, "?")
    found["keys"] = violations(page, ".mnb-workbench")
    press(page, "Escape")
    notebook.set_theme(LIGHT)
    assert {what: problems for what, problems in found.items() if problems} == {}
    page.locator('[data-mnb-action="help"]').evaluate("button => button.removeAttribute('aria-label')")
    page.locator('[data-mnb-action="help"]').evaluate("button => (button.title = button.textContent = '')")
    assert [id for id, *_ in violations(page, ".mnb-workbench")] == ["button-name"], "axe is at work"


@pytest.mark.parametrize("preset", PRESETS)
def test_every_control_is_reached_by_keyboard(open_one, preset: str) -> None:
    notebook = open_one()
    settled(notebook)
    page = notebook.page
    if preset != "lecture":
        node(notebook, "linear_0").click()
    choose(notebook, preset)
    page.evaluate("document.querySelector('.mnb-workbench').focus()")
    everything = set(page.evaluate(REACHED)["all"])
    reached: set[str] = set()
    for _ in range(120):
        press(page, "Tab")
        now = page.evaluate(REACHED)
        if now["focus"] is None:
            break
        reached.add(now["focus"])
        if now["isRoving"] and not now["focus"].startswith("layout"):
            start = now["focus"]
            for _ in range(12):  # arrows move within a group, round and round
                press(page, "ArrowRight")
                now = page.evaluate(REACHED)
                reached.add(now["focus"])
                if now["focus"] == start:
                    break
    missing = everything - reached - {f"layout.{one}" for one in PRESETS}
    assert missing == set()


def test_the_presets_are_a_group_with_arrow_keys(open_one) -> None:
    notebook = open_one()
    page = notebook.page
    focus(page.locator('[data-mnb-action="layout.build"]'))
    for preset in (*PRESETS[1:], "build"):
        press(page, "ArrowRight")
        page.locator(f'.mnb-workbench[data-mnb-layout="{preset}"]').wait_for()
        assert page.evaluate("document.activeElement.dataset.mnbAction") == f"layout.{preset}"


def test_a_workbench_opens_in_a_tab_of_jupyterlab(open_workbench) -> None:
    notebook = open_workbench(*STAGES, height=900)
    page = notebook.page
    page.locator('[data-mnb-action="tab.open"]').click()
    tab = page.locator(".mnb-filled .mnb-workbench")
    tab.wait_for()
    panel = page.locator(".mnb-filled").bounding_box()
    assert tab.bounding_box() == pytest.approx(panel, abs=2), "it fills its tab, which has a border of one pixel"
    assert tab.locator('[data-mnb-action="tab.open"]').is_hidden()
    assert tab.locator('[data-mnb-part="height"]').is_hidden()
    label = page.locator(".lm-TabBar-tab.lm-mod-current .lm-TabBar-tabLabel", has_text="net")
    label.first.wait_for()
    tab.locator('[data-mnb-node="linear_1"]').click()
    tab.locator('[data-mnb-node="linear_1"][data-mnb-linked="pinned"]').wait_for()
    label.first.locator("xpath=..").locator(".lm-TabBar-tabCloseIcon").click()
    tab.wait_for(state="detached")
    notebook.wait_for("wb.selection == ('linear_1',)")
    assert page.locator(".jp-Dialog").count() == 0
    assert notebook.problems == []


def test_notebook_7_has_no_tabs(open_workbench) -> None:
    notebook = open_workbench(app="notebooks", height=900)
    assert notebook.page.locator('[data-mnb-action="tab.open"]').count() == 0
    assert notebook.page.locator('[data-mnb-action="full.all"]').is_visible()
