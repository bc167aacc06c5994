"""Random mouse and key actions: the canvas shows the model, undo is exact, each key arrives where the user typed it."""

from __future__ import annotations

import json
import time
from random import Random
from typing import Any

import pytest
from key_walk import CELLS, INSTALL
from lab import NotebookPage, press
from playwright.sync_api import TimeoutError as PlaywrightTimeoutError
from small_workbench import shown
from stress import LONGEST_S, is_long

SHOW = """
import json
import numpy as np
import mithril_nb as ml
from mithril_nb.errors import MithrilError
from mithril_nb.models import MLP, Linear, Model, Relu
model = Model(name="net") + Linear(8) + Relu() + MLP(activations=[Relu(), Relu()], dimensions=[8, 4]) + Linear(3)
data = (np.linspace(0, 1, 64, dtype="float32").reshape(16, 4), np.arange(16) % 3)
wb = ml.workbench(model, autosave=False, data=data if WITH_DATA else None)  # without shapes, no stage is compiled
start = wb.session.design
def drawn():
    nodes = {node.key: [node.x, node.y, node.w, node.h, node.name] for node in wb.session.diagram.nodes}
    moved = {path: place for path, place in wb.session._view.moved.items() if "/" not in path and min(place) > 30}
    unexpected = [repr(error) for error in wb.session.errors if not isinstance(error, MithrilError)]
    return json.dumps([nodes, wb.session.snapshot()["source"], moved, unexpected])
wb
"""

TARGETS = """(kinds) => {
    // The points to click of some kinds: the middles of elements that nothing covers.
    const root = document.querySelector('.mnb-workbench');
    root.scrollIntoView({block: 'nearest'});  // Space and the page keys scroll the notebook, as on any page
    const selectors = {
        board: '.mnb-board',
        node: '.mnb-node:not(.mnb-frame)',
        frame: '.mnb-frame',
        output: '.mnb-port-output',
        input: '.mnb-port-input',
        kind: '.mnb-palette-item',
        item: '[role="menuitem"]',
        button: '[data-mnb-action^="canvas."], [data-mnb-action^="inspector."], [data-mnb-action^="layout."],'
            + '[role="tab"], [data-mnb-action="undo"], [data-mnb-action="redo"], .mnb-node-chevron, .mnb-crumb,'
            + '.mnb-question button, [data-mnb-action="empty.add"]',
        text: '.mnb-inspector-body, .mnb-status, .mnb-header, .mnb-source .cm-line, .mnb-hint',
        line: '[data-mnb-pane] .cm-line',
    };
    const {x, y, width, height} = root.querySelector('.mnb-board').getBoundingClientRect();
    const pointsOf = (kind) => [...root.querySelectorAll(selectors[kind])].flatMap((element) => {
        const {x, y, width, height} = element.getBoundingClientRect();
        const point = [x + width / 2, y + (kind === 'frame' ? 10 : height / 2)];
        const top = width ? document.elementFromPoint(...point) : null;
        return top && element.contains(top) ? [point] : [];
    });
    return [[x, y, width, height], ...kinds.map(pointsOf)];
}"""

DRAWN = """async () => {
    // What the graph and the source show, the scale of the graph, and the keys that left the widget.
    const root = document.querySelector('.mnb-workbench');
    if (root.querySelector('.mnb-graph-area').hidden) root.querySelector('[data-mnb-action="layout.build"]').click();
    root.querySelector('[data-mnb-action="canvas.fit"]').click();
    const tab = root.querySelector('[role="tab"][aria-selected="true"]');
    root.querySelector('[data-mnb-tab="source"]').click();
    root.querySelector('[data-mnb-action="source.discard"]')?.click();  // keys may have arrived in the editor
    for (let frame = 0; frame < 3; frame++) await new Promise(requestAnimationFrame);
    const nodes = {};
    for (const element of root.querySelectorAll('[data-mnb-node]')) {
        const [x, y] = /translate\\((.+)px, (.+)px\\)/.exec(element.style.transform).slice(1).map(Number);
        nodes[element.dataset.mnbNode] = [x, y, element.getAttribute('aria-label')];
    }
    const scale = Number(/scale\\((.+)\\)/.exec(root.querySelector('.mnb-scene').style.transform)[1]);
    const parts = [[]];
    for (const element of root.querySelectorAll('.mnb-source .cm-content > *')) {
        // Lines that are out of view have no element; that of the cursor always has one, behind a gap.
        if (element.matches('.cm-gap')) parts.push([]);
        else parts.at(-1).push(element.textContent);
    }
    tab?.click();
    return [nodes, parts.map((lines) => lines.join('\\n')), scale, window.mnbKeys.taken()];
}"""

PLACE = """(selector) => {
    // Return the middle of an element that is enabled and not covered, after scrolling it into view.
    const element = window.mnbSought = document.querySelector(selector);
    if (!element || element.matches(':disabled, [aria-disabled="true"]')) return null;
    element.scrollIntoView({block: 'nearest'});
    const {x, y, width, height} = element.getBoundingClientRect();
    const point = [x + width / 2, y + height / 2];
    return width && element.contains(document.elementFromPoint(...point)) ? point : null;
}"""

FOLLOW_MOUSE = """() => {
    window.mnbMouse = {};
    for (const type of ['pointerdown', 'pointerup']) {
        window.addEventListener(type, ({target}) => {
            window.mnbMouse[type] = {target, isInside: target.closest('.mnb-workbench') !== null};
        }, true);
    }
}"""

HOLD = """() => new Promise((done) => setTimeout(() => {
    // Take the focus back into the widget. Return where it was, unless the action pressed or released outside.
    const mouse = Object.values(window.mnbMouse);
    window.mnbMouse = {};
    if (window.mnbKeys.holds()) return done(null);
    const lost = `${window.mnbKeys.focus()} after a press on ${mouse[0]?.target.outerHTML.slice(0, 300)}`;
    document.querySelector('.mnb-workbench').focus();
    done(mouse.every(({isInside}) => isInside) ? lost : null);  // outside if the page moved before the press
}))"""

APPLIED = """() => {
    const source = document.querySelector('.mnb-source');
    return source.querySelector('[data-mnb-action="source.apply"][aria-disabled], .mnb-code-error') !== null;
}"""

FOCUS = """() => {
    const focused = document.activeElement;
    const isText = focused.matches('input:not([type=range], [type=checkbox], [type=number])');
    return {
        isText, on: focused.className,
        letters: focused.closest('.mnb-canvas, .mnb-board, [data-mnb-pane], .mnb-help') !== null,
        digits: focused.matches('[role=tab], [role=radio]'),
        value: isText ? focused.value : null,
        state: [document.querySelector('.mnb-workbench').dataset.mnbLayout, document.querySelector('.mnb-help').hidden],
    };
}"""

KEYS = (
    "a d p t c n f / e i ? b o z [ ] 0 + - x Enter Escape ArrowUp ArrowDown ArrowLeft ArrowRight"
    " Shift+ArrowRight Shift+ArrowLeft Home End Delete Backspace F2 Space 1 2 3 4 5 Control+a Control+z Control+z"
    " Control+Shift+z Alt+Shift+ArrowDown Alt+Shift+ArrowRight Shift+Enter v r Shift+F10 ContextMenu"
    " Control+c Control+x Control+v Control+d Control+g Control+Shift+g"
).split()
GROWING = ("Control+v", "Control+d")
CLICKED = {
    "wire": "output",
    "unwire": "input",
    "menu": "node",
    "drop": "kind",
    "drag": "node",
    "double": "node",
    "marquee": "board",
    "pan": "board",
}
ACTIONS = ("click", "click", "key", "key", "key", "type", "code", "train", "leave", *CLICKED)
ADDED_LINES = ("{0} += Tanh()", "{0} |= Linear(6)", "# a comment", "{0} +=", "{0} += Unknown()", "print({0})")
TRAIN_BUTTONS = ("run", "restart", "continue", "step", "stop")
ANYTHING = ("node", "node", "button", "button", "frame", "text", "line", "item")
KINDS = ("Relu", "Linear", "layernorm", "Tanh", "Add", "MLP", "gelu", "zz")
NAMES = ("head", "relu_0", "a/b", "100%", " x", "ü", "a  b", "input", "output")
MOST_BLOCKS = 14
CHECK_S = 60  # the page may be this late on a busy machine
LEAST_PX = (12, 8)
"""Smaller nodes have no element, because they are too small to click."""


class User:
    """Acts at random. `wrong` is what an action must not have done."""

    def __init__(self, notebook: NotebookPage, seed: int):
        self.notebook, self.page, self.random = notebook, notebook.page, Random(seed)
        self.log: list[str] = []
        self.wrong: list[str] = []

    def act(self) -> None:
        """Take one action."""
        action = self.random.choice(ACTIONS)
        if action == "key":
            self._press(self.random.choice(KEYS))
        elif action in ("type", "code", "train", "leave"):
            getattr(self, f"_{action}")()
        else:
            self._point(action)
        lost = self.page.evaluate(HOLD)
        if lost is not None:
            self.wrong.append(f"{self.log[-1]}: the focus is on {lost}")

    def _point(self, action: str) -> None:
        random, mouse = self.random, self.page.mouse
        kind = CLICKED.get(action) or random.choice(ANYTHING)
        (x, y, width, height), points, nodes = self.page.evaluate(TARGETS, [kind, "node"])
        start, end = ([x + random.random() * width, y + random.random() * height] for _ in range(2))
        if kind == "board":
            points = [start] * bool(width)
        if not points:
            return
        point = random.choice(points)
        self.log.append(f"{action} {kind} at {point}")
        if action in ("drag", "wire", "unwire", "drop", "marquee", "pan"):
            is_wire = action in ("wire", "unwire") and random.random() < 0.7
            button = "middle" if action == "pan" else "left"
            mouse.move(*point)
            mouse.down(button=button)
            mouse.move(*(random.choice(nodes or [end]) if is_wire else end), steps=3)
            mouse.up(button=button)
        elif action == "double":
            mouse.dblclick(*point)
        else:
            is_added = random.random() < 0.25
            if is_added:
                self.page.keyboard.down("Shift")
            mouse.click(*point, button="right" if action == "menu" else "left")
            if is_added:
                self.page.keyboard.up("Shift")

    def _press(self, key: str) -> None:
        if key in GROWING and self._blocks() >= MOST_BLOCKS:
            return
        before = self.page.evaluate(FOCUS)
        self.log.append(f"{key} with {before}")
        press(self.page, key)
        acts = before["letters"] or (before["digits"] and key.isdigit())
        if len(key) == 1 and not acts and self.page.evaluate(FOCUS)["state"] != before["state"]:
            self.wrong.append(f"{self.log[-1]} is a shortcut outside of graph and stages")

    def _type(self) -> None:
        """Type a word into a field that the user clicks or opens: each letter arrives in it."""
        field = self.random.choice(("palette.search", "palette.search", "search", "rename"))
        word = self.random.choice(NAMES if field == "rename" else KINDS)
        if field == "rename":
            press(self.page, "F2")
        else:
            if not self._clicks(f'[data-mnb-action="{field}"]'):
                return
        focus = self.page.evaluate(FOCUS)
        self.log.append(f"type {word!r} into {field} with {focus}")
        if not focus["isText"]:
            if field != "rename":
                self.wrong.append(f"{self.log[-1]}: the click did not focus it")
            return
        press(self.page, "Control+a")
        self.page.keyboard.type(word)
        after = self.page.evaluate(FOCUS)
        if after["value"] != word:
            self.wrong.append(f"{self.log[-1]}: it is {after}")
        if field != "palette.search" or self._blocks() < MOST_BLOCKS:
            press(self.page, "Enter")
        self.page.keyboard.press(self.random.choice(("Escape", "Shift")))

    def _code(self) -> None:
        """Add a line to the source or remove its last one, and apply or discard that."""
        page, random = self.page, self.random
        if not self._clicks('[data-mnb-tab="source"]') or not self._clicks(".mnb-source .cm-scroller"):
            return
        press(page, "Control+End")
        source, blocks = self.notebook.evaluate("(wb.source, len([*wb.session.design.graph.walk()]))")
        name = source.rpartition("\n")[2].partition(" ")[0]
        if random.random() < 0.3 or blocks >= MOST_BLOCKS:
            edit = "removed the last line of"
            for key in ("Shift+Home", "Delete", "Backspace"):
                press(page, key)
        else:
            edit = random.choice(ADDED_LINES).format(name)
            page.keyboard.type(f"\n{edit}")
            page.keyboard.press("Escape")
            typed = page.evaluate("[...document.querySelectorAll('.mnb-source .cm-line')].at(-1).textContent")
            if typed.lstrip() != edit.lstrip():  # the space bar, pressed here before, is text too
                focus = page.evaluate(FOCUS)
                self.wrong.append(f"typed {edit!r} into the source, which shows {typed!r} of {source!r} with {focus}")
        self.log.append(f"source: {edit}")
        if random.random() < 0.8:
            page.keyboard.press("Control+Enter")
            try:
                page.wait_for_function(APPLIED, timeout=60_000)
            except PlaywrightTimeoutError:
                state = page.evaluate("document.querySelector('.mnb-source').innerText.slice(-300)")
                started = time.monotonic()
                kernel = self.notebook.evaluate("(wb.source, wb.session.snapshot()['problems'])")
                waited = time.monotonic() - started
                self.wrong.append(
                    f"{edit!r} was not applied to {source!r}; the page shows {state!r} with {page.evaluate(FOCUS)}, "
                    f"the kernel {kernel} after {waited:.1f} s"
                )
        self._clicks('[data-mnb-action="source.discard"]')

    def _train(self) -> None:
        if self._clicks('[data-mnb-tab="train"]'):
            button = self.random.choice(TRAIN_BUTTONS)
            is_clicked = self._clicks(f'[data-mnb-action="train.{button}"]')
            self.log.append(f"{button} in the Train tab: {is_clicked}")

    def _leave(self) -> None:
        """Click into the cell of the notebook, and come back."""
        is_clicked = self._clicks(".jp-CodeCell .cm-content")  # a full screen covers it
        self.log.append(f"left the widget and came back: {is_clicked}")
        self.page.evaluate("document.querySelector('.mnb-workbench').scrollIntoView({block: 'nearest'})")
        self.page.evaluate("document.querySelector('.mnb-workbench').focus()")

    def _clicks(self, selector: str) -> bool:
        point = self.page.evaluate(PLACE, selector)
        if point is None:
            return False
        self.page.mouse.click(*point)
        # A notice may have moved it away before the press.
        return self.page.evaluate("window.mnbSought.contains(window.mnbMouse.pointerdown.target)")

    def _blocks(self) -> int:
        return self.notebook.evaluate("len([*wb.session.design.graph.walk()])")

    def check(self) -> None:
        """Compare graph and source in the page with the kernel's model."""
        deadline = time.monotonic() + CHECK_S
        while True:
            nodes, parts, scale, left = self.page.evaluate(DRAWN)
            self.wrong += [f"left the widget: {key}" for key in left]
            expected, code, moved, unexpected = json.loads(self.notebook.evaluate("drawn()"))
            is_source = any(map(str.strip, parts)) and all(part.strip() in code for part in parts)
            if is_source and self._is_drawn(nodes, expected, moved, scale):
                break
            if time.monotonic() > deadline:
                self.wrong.append(f"at scale {scale} the page shows {nodes} for {expected}, and {parts} for {code}")
                break
            self.page.wait_for_timeout(100)
        self.wrong += unexpected + self.notebook.problems
        assert self.wrong == [], "\n".join([*self.log[-25:], *self.wrong])

    def _is_drawn(
        self, nodes: dict[str, Any], expected: dict[str, Any], moved: dict[str, list[float]], scale: float
    ) -> bool:
        least_w, least_h = (size / scale for size in LEAST_PX)
        # The size of an open group depends on the width of the canvas, which the kernel does not know.
        opened = {key.rpartition("/")[0] for key in expected}
        sizes = {key: (w, h) for key, (_, _, w, h, _) in expected.items() if key not in opened}
        large = {key for key, (w, h) in sizes.items() if w > least_w and h > least_h}
        if not large <= nodes.keys() <= expected.keys():
            return False
        # Rows depend on that width, too. Blocks that were moved stay there.
        shifts = [(nodes[key][0] - x, nodes[key][1] - y) for key, (x, y) in moved.items() if key in nodes]
        is_in_place = all(abs(a[0] - b[0]) + abs(a[1] - b[1]) < 2 for a in shifts[:1] for b in shifts)
        return is_in_place and all(expected[key][-1] in label for key, (_, _, label) in nodes.items())


@pytest.mark.parametrize("seed", range(5 if is_long() else 2))
def test_random_actions_keep_page_and_model_equal(run_cells, stress, seed: int) -> None:
    notebook = run_cells([SHOW.replace("WITH_DATA", str(seed % 2 == 1))], width=1280, height=1000)
    shown(notebook)
    page = notebook.page
    page.evaluate(INSTALL, ".mnb-workbench")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.evaluate(FOLLOW_MOUSE)
    cells = page.evaluate(CELLS)["cells"]
    user = User(notebook, seed)
    page.locator(".mnb-board").first.click(position={"x": 300, "y": 60})
    actions = stress.size(short=100, long=5000)
    for number in range(1, actions + 1):
        user.act()
        if number % 20 == 0 or user.wrong:
            user.check()
    notebook.execute("if wb.session.training.run:\n    wb.session.do('stop')")
    end = json.loads(notebook.evaluate("drawn()"))[1]
    undone = "undone = 0\nwhile wb.session._history.undo:\n    undone += 1\n    wb.session.do('undo')"
    notebook.execute(undone, patience_s=LONGEST_S)
    assert notebook.evaluate("(wb.session.design == start, dict(wb.session._view.moved))") == (True, {})
    user.check()
    notebook.execute("for _ in range(undone):\n    wb.session.do('redo')", patience_s=LONGEST_S)
    assert json.loads(notebook.evaluate("drawn()"))[1] == end
    user.check()
    assert page.evaluate(CELLS)["cells"] == cells
    page.evaluate("window.mnbKeys.stop()")
    stress.report(actions=actions)
