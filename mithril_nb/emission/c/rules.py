"""The table from primitives to the functions that write their loops."""

from __future__ import annotations

from collections.abc import Callable

from mithril_nb.emission.c.writing import Body
from mithril_nb.emission.program import Statement

Rule = Callable[[Body, Statement], None]
RULES: dict[str, Rule] = {}
"""Functions that write a statement, by primitive."""


def rule(*primitives: str) -> Callable[[Rule], Rule]:
    """Register the function that writes some primitives."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(primitives, function))
        return function

    return register
