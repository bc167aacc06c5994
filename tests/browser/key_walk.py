"""Click on every kind of element inside a widget, press keys there, and record each key that leaves the widget."""

from __future__ import annotations

from typing import Any

from lab import NotebookPage

KEYS = (
    "x a b m v c d d Enter ArrowUp ArrowDown ArrowLeft ArrowRight Home End PageUp PageDown y r k j l h z 0 0 i i"
    " Space Shift+M Shift+K Shift+Enter Control+Enter F2 Delete Control+z Backspace 1 o Escape Escape"
).split()

_FIRST = ("palette-item", " off", "mnb-status", "div.mnb-root", "pane-head", "section.mnb-inspector", "palette-group")
"""Kinds that a short walk begins with: keys pressed after a click there once changed the notebook."""

INSTALL = """(selector) => {
    const active = () => {
        let found = document.activeElement;
        while (found?.shadowRoot?.activeElement) found = found.shadowRoot.activeElement;
        return found;
    };
    const root = () => document.querySelector(selector);
    // One kind for all elements that look alike: the own tag and class, and those of the nearest part with a name.
    const kindOf = (element) => {
        const own = (one) => `${one.tagName.toLowerCase()}.${(one.getAttribute('class') ?? '').split(' ')[0]}`;
        const part = element.closest('[data-mnb-action], [data-mnb-part], [data-mnb-tab], [role], section');
        const off = element.closest(':disabled, [aria-disabled="true"]') ? ' off' : '';
        const name = part ? `${part.dataset.mnbAction ?? part.getAttribute('role') ?? ''} ${own(part)}` : '';
        return `${own(element)} in ${name}${off}`;
    };
    const topmost = (x, y) => {
        let found = document.elementFromPoint(x, y);
        while (found?.shadowRoot?.elementFromPoint(x, y) && found.shadowRoot.elementFromPoint(x, y) !== found) {
            found = found.shadowRoot.elementFromPoint(x, y);
        }
        return found;
    };
    const inside = (element) => {
        for (let one = element; one; one = one.parentNode ?? one.host) if (one === root()) return true;
        return false;
    };
    window.mnbKeys?.stop();
    const left = [];
    const describe = (one) => one?.tagName ? `${one.tagName.toLowerCase()}.${one.getAttribute('class') ?? ''}` : 'none';
    const early = (event) => inside(event.composedPath()[0]) || left.push(`${event.key} at ${describe(event.target)}`);
    const late = (event) => inside(event.target) && left.push(`${event.key} through ${describe(event.target)}`);
    let hit = false;
    const press = (event) => (hit = inside(event.composedPath()[0]));
    window.addEventListener('pointerdown', press, true);
    window.addEventListener('keydown', early, true);
    window.addEventListener('keydown', late);
    window.mnbKeys = {
        stop: () => {
            window.removeEventListener('pointerdown', press, true);
            window.removeEventListener('keydown', early, true);
            window.removeEventListener('keydown', late);
        },
        taken: () => left.splice(0),
        isHit: () => hit,
        holds: () => inside(active()),
        focus: () => describe(active()),
        // A place for each kind that is not in `done`, where an element of it is on top.
        places: (done) => {
            if (!root()) return {};
            root().scrollIntoView({block: 'end'});  // Space and the page keys scroll the notebook, as on any page
            const found = {}, tried = {}, known = new Set(done);
            const look = (elements) => {
                for (const one of elements) {
                    const kind = kindOf(one);
                    if (known.has(kind) || found[kind] || tried[kind] > 20) continue;
                    tried[kind] = (tried[kind] ?? 0) + 1;
                    const {left, top, right, bottom} = one.getBoundingClientRect();
                    if (right - left < 1 || bottom - top < 1) continue;
                    const [x, y] = [(left + right) / 2, (top + bottom) / 2];
                    const sides = [left + 1.5, right - 1.5];
                    const corners = sides.flatMap((side) => [[side, top + 1.5], [side, bottom - 1.5]]);
                    const edges = [[x, top + 1], [x, bottom - 1], [left + 1, y], [right - 1, y]];
                    const place = [[x, y], ...corners, ...edges].find(([px, py]) => topmost(px, py) === one);
                    if (place) found[kind] = place;
                    if (one.shadowRoot) look(one.shadowRoot.querySelectorAll('*'));
                }
            };
            look([root(), ...root().querySelectorAll('*')]);
            return found;
        },
    };
}"""

CELLS = """() => {
    const notebook = window.jupyterapp.shell.currentWidget.content;
    return {
        mode: notebook.mode,
        active: notebook.activeCellIndex,
        selected: notebook.widgets.filter((cell) => notebook.isSelectedOrActive(cell)).map(({model}) => model.id),
        cells: notebook.widgets.map(({model}) => [
            model.id, model.type, model.sharedModel.getSource(), model.executionCount ?? null,
        ]),
    };
}"""


def press_everywhere(notebook: NotebookPage, root: str, presses: int) -> dict[str, Any]:
    """Click on each kind of element of a widget, and press each of `KEYS` there.

    Args:
        notebook: The page; the widget is in its window.
        root: CSS selector of the widget.
        presses: The number of key presses to stop at.

    Returns:
        The numbers of `kinds` of elements and of `presses`, and `wrong`: the keys that left the widget, and the kinds
        of elements after which the focus was outside, or the notebook different.
    """
    page = notebook.page
    page.evaluate(INSTALL, root)
    done: set[str] = set()
    pressed, wrong = 0, []
    while True:
        places = page.evaluate("(done) => window.mnbKeys.places(done)", list(done))
        fresh = list(places)
        if not fresh or pressed >= presses:
            break
        kind = next((one for name in _FIRST for one in fresh if name in one), fresh[(7 * len(done)) % len(fresh)])
        page.mouse.click(*places[kind])
        if not page.evaluate("window.mnbKeys.isHit()"):
            continue  # the page moved before the click
        done.add(kind)
        before = page.evaluate(CELLS)
        if not page.evaluate("new Promise((done) => setTimeout(() => done(window.mnbKeys.holds())))"):
            wrong.append(f"{kind}: after the click the focus is on {page.evaluate('window.mnbKeys.focus()')}")
        for key in KEYS:
            page.keyboard.press(key)
            pressed += 1
        wrong += [f"{kind}: {one}" for one in page.evaluate("window.mnbKeys.taken()")]
        if not page.evaluate("window.mnbKeys.holds()"):
            wrong.append(f"{kind}: after the keys the focus is on {page.evaluate('window.mnbKeys.focus()')}")
        after = page.evaluate(CELLS)
        if after != before:
            wrong.append(f"{kind}: {before} became {after}")
    page.evaluate("window.mnbKeys.stop()")
    return {"kinds": len(done), "presses": pressed, "wrong": wrong}
