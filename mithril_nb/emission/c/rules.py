"""The registry of the C emitter: a dict from primitives to the functions that write them."""

from __future__ import annotations

from mithril_nb.emission.c.writing import Body
from mithril_nb.emission.rules import Rules

RULES: Rules[Body, None] = Rules()
rule = RULES.rule
