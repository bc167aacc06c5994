"""Which instructions of two stages came from the same equations."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from mithril_nb.stages.records import Instruction


def linked(source: Sequence[Instruction], target: Sequence[Instruction]) -> dict[str, frozenset[str]]:
    """Return which instructions of one stage share an equation with each instruction of another.

    Args:
        source: The instructions of one stage.
        target: Those of another.

    Returns:
        Ids in `target` by id in `source`.
    """
    # Thousands of lines of a kernel have the same equations: they are looked up once, and share their links.
    groups: dict[tuple[str, ...], list[str]] = {}
    for instruction in target:
        groups.setdefault(instruction.equations, []).append(instruction.id)
    places: dict[str, list[tuple[str, ...]]] = {}
    for group in groups:
        for equation in group:
            places.setdefault(equation, []).append(group)

    @cache
    def near(equations: tuple[str, ...]) -> frozenset[str]:
        found = {group for equation in equations for group in places.get(equation, ())}
        return frozenset(id for group in found for id in groups[group])

    return {instruction.id: near(instruction.equations) for instruction in source}
