"""The table from primitives to the functions that write their loops."""

from __future__ import annotations

from mithril_nb.emission.c.writing import Body
from mithril_nb.emission.rules import Rules

RULES: Rules[Body, None] = Rules()
"""Functions that write a statement, by primitive."""
rule = RULES.rule
