"""The form of a question: answered by mouse and by keyboard, once; the truth is not in the page before."""

from __future__ import annotations

import pytest
from axe import violations
from lab import DARK, LIGHT, focus, press

CELLS = [
    """
import jax.numpy as jnp, mithril_nb as ml
p = ml.inspect(lambda x, w: jnp.tanh(x @ w), jnp.zeros((32, 8)), jnp.zeros((8, 4)), name="net")
cost, kernel = ml.teach.ask(p, "cost"), ml.teach.ask(p, "kernel")
cost
""",
    "kernel",
    'ml.teach.ask(p, "sharding")',
    """
flow = ml.teach.ask(ml.inspect(lambda a, b: (jnp.sin(jnp.cos(a)), jnp.exp(b)), 1.0, 1.0, name="net"), "flow")
flow
""",
]


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_a_question_is_answered_once(run_cells, theme, screenshots) -> None:
    notebook = run_cells(
        [cell.replace("net", f"net_{theme.rpartition(' ')[2]}") for cell in CELLS], width=1280, height=1000
    )
    notebook.set_theme(theme)
    page = notebook.page
    answer = page.get_by_placeholder("a number of FLOP")
    answer.wait_for()
    assert page.get_by_text("2,048 FLOP").count() == 0
    page.get_by_text("arguments on a mesh").wait_for()
    focus(answer)
    page.keyboard.type("many")
    press(page, "Tab", "Enter")
    page.get_by_text("'many' is not a number").wait_for()
    focus(answer)
    press(page, "Control+a")
    page.keyboard.type("1.024 kFLOP")
    press(page, "Tab", "Enter")
    page.get_by_text("✗ not right").wait_for()
    page.get_by_text("2,048 FLOP").first.wait_for()
    page.get_by_text("two FLOPs").wait_for()
    assert answer.is_disabled()
    page.get_by_label("no", exact=True).check()
    page.get_by_role("button", name="Predict").nth(1).click()
    page.get_by_text("✓ right").or_(page.get_by_text("✗ not right")).nth(1).wait_for()
    assert notebook.evaluate("(cost.result.right, kernel.result.answer)") == (False, "no")
    line = page.get_by_label("sin", exact=False).and_(page.locator("[type=checkbox]"))
    focus(line)
    press(page, " ", "Tab", "Tab", "Enter")  # marked; past the second line, to the button
    page.get_by_text("✓ right 1").wait_for()
    assert notebook.evaluate("flow.result.truth") == "1"
    assert violations(page, ".jp-OutputArea-output .question") == []
    assert violations(page, ".jp-OutputArea-output .result") == []
    notebook.picture(screenshots / f"questions-{theme.rpartition(' ')[2]}.png")
