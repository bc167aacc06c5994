"""Each common mistake has a button that mends it, or a sentence why there is none; no text contains code to type."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest
from ui.session.common_mistakes import MISTAKES

from mithril_nb.ui.session import Session

# A call, or a name of this package. `groups=2` alone names a setting and its value.
CODE = re.compile(r"\w\(|\b(?:ml|wb|np|pm|run|mithril_nb)\.\w")


def problems_of(wb: Session, *, trains: bool = True) -> list[dict[str, Any]]:
    """Return the problems and the notice of a workbench; without any, train first."""
    snapshot = wb.snapshot()
    problems = [*snapshot["problems"], *([snapshot["notice"]] if snapshot["notice"] else [])]
    if problems or not trains:
        return problems  # pyright: ignore
    wb.run_command("train", {})
    if wb.training.run is not None:
        for _ in wb.training.run.events():
            pass
    assert CODE.search(wb.snapshot()["run"]["message"]) is None
    return problems_of(wb, trains=False)


def kinds_of(wb: Session) -> Counter[str]:
    """Return the number of blocks of each kind, without blocks of blocks."""
    return Counter(node.block.kind for _, node in wb.design.graph.walk() if node.block.graph is None)


@pytest.mark.parametrize("name", MISTAKES)
def test_a_common_mistake_has_a_button_that_mends_it(name: str) -> None:
    mistake = MISTAKES[name]
    wb = mistake.session()
    before, kinds = problems_of(wb), kinds_of(wb)
    assert before
    for problem in before:
        texts = [problem["summary"], problem["advice"], *(text for _, text in problem["facts"])]
        assert [text for text in texts if CODE.search(text)] == []
        assert (problem["fix"] is not None) == mistake.has_button
        assert bool(problem["advice"]) == (not mistake.has_button), "a button or a sentence"
        assert "=" not in problem["advice"]
    if mistake.has_button:
        design, fix = wb.design, before[0]["fix"]
        assert wb.run_command(fix["command"], fix["args"]) is None
        mended = wb.design
        assert kinds <= kinds_of(wb), "no block is deleted"
        after = problems_of(wb)
        assert before[0] not in after
        assert len([problem for problem in after if problem not in before]) <= len(before)
        if mended != design:
            wb.run_command("undo", {})
            assert wb.design == design
    wb.end()


def test_most_mistakes_have_a_button() -> None:
    assert sum(mistake.has_button for mistake in MISTAKES.values()) >= 40
    assert sum(not mistake.has_button for mistake in MISTAKES.values()) <= 6
