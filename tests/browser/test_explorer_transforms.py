"""Transforms in the explorer in a real browser: steps by keyboard, both sides side by side, and numbers."""

from __future__ import annotations

from typing import Any

from lab import focus, press

OPEN = """
import jax, jax.numpy as jnp
import mithril_nb as ml
def loss(w, x):
    with jax.named_scope("layer"):
        return jnp.sum(jnp.tanh(w @ x) ** 2)
e = ml.explore(loss, jnp.ones((5, 3)), jnp.ones(3), through=("grad", ("vmap", 4), "jit"))
e
"""


def test_transforms_are_stepped_through_by_keys(run_cells, screenshots) -> None:
    notebook = run_cells([OPEN], width=1600, height=1150)
    page: Any = notebook.page
    part = page.locator('[data-mnb-part="transforms"]')
    page.locator('[data-mnb-part="transforms"][data-mnb-step="1"]').wait_for()
    page.locator(".mnb-explorer").scroll_into_view_if_needed()
    after = part.locator('[data-mnb-side="after"]')
    new = after.locator('[data-mnb-mark="new"]').first
    new.wait_for()
    assert page.evaluate("(line) => getComputedStyle(line, '::before').content", new.element_handle()) == '"+"'
    focus(part.locator('[role="listbox"]'))
    press(page, "ArrowDown")
    page.locator('[data-mnb-part="transforms"][data-mnb-step="2"]').wait_for()
    part.locator('[data-mnb-side="before"] [data-mnb-mark="changed"]').first.wait_for()
    # The line at the caret highlights related lines.
    part.locator('[data-mnb-side="before"] .cm-line', has_text="dot_general").first.click(position={"x": 90, "y": 6})
    after.locator(".mnb-pinned").first.wait_for()
    assert "to " in part.locator('[data-mnb-side="before"] .mnb-pane-figures').inner_text()
    assert not notebook.evaluate("bool(e.snapshot['transforms']['compared'])"), "nothing runs before a request"
    focus(page.locator('[data-mnb-action="transforms.compare"]'))
    press(page, "Enter")
    part.locator(".mnb-compared", has_text="✓ agrees with a Python loop of 4 runs").wait_for()
    assert part.locator(".mnb-pass", has_text="✓ agrees").count() == 4
    notebook.pictures(
        screenshots, "explorer-transforms", page.locator(".mnb-explorer"), widths=(900, 1280, 1600), height=1150
    )
    for width in range(800, 1601, 50):
        notebook.resize(width, 1150)
        beside = page.evaluate(
            """() => {
                const [search, help] = ['search', 'help'].map((name) =>
                    document.querySelector(`.mnb-explorer [data-mnb-action="${name}"]`).getBoundingClientRect());
                return search.top < help.bottom && help.top < search.bottom && help.left > search.right;
            }"""
        )
        assert beside, f"at {width} px the button of the keys stands in a row of its own"
    assert notebook.evaluate("[str(error) for error in e.errors]") == []
    html = notebook.evaluate("e._twin.bundle()['text/html']")
    assert "for the backward pass" in html, "a saved notebook shows the steps too"
