"""Division of a rectangle into parts of given areas that are nearly square."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Rect:
    """A rectangle in px, `y` growing downward."""

    x: float
    y: float
    w: float
    h: float

    @property
    def area(self) -> float:
        """Its area."""
        return self.w * self.h


def squarify(values: Sequence[float], within: Rect) -> list[Rect]:
    """Return a rectangle for each value, with an area proportional to it; together they fill `within`.

    The algorithm is that of Bruls, Huizing and van Wijk, "Squarified Treemaps" (2000): it lays rows along the shorter
    side, and extends each row while that improves the worst ratio of sides in it.

    Args:
        values: Numbers above 0, the largest first.
        within: The rectangle to divide.

    Examples:
        >>> squarify([2, 1, 1], Rect(0, 0, 4, 2))
        [Rect(x=0, y=0.0, w=2.0, h=2.0), Rect(x=2.0, y=0.0, w=2.0, h=1.0), Rect(x=2.0, y=1.0, w=2.0, h=1.0)]
    """
    found: list[Rect] = []
    left = within
    rest = [*values]
    while rest:
        scale = left.area / sum(rest)
        side = min(left.w, left.h)
        count = 1
        while count < len(rest) and _worst(rest[: count + 1], scale, side) <= _worst(rest[:count], scale, side):
            count += 1
        row, rest = rest[:count], rest[count:]
        rects, left = _row(row, left, sum(row) / (sum(row) + sum(rest)))
        found += rects
    return found


def _worst(row: Sequence[float], scale: float, side: float) -> float:
    """Return the worst ratio of sides among the parts of a row."""
    total = sum(row) * scale
    if not total or not side:
        return float("inf")
    return max(side * side * max(row) * scale / total**2, total**2 / (side * side * min(row) * scale))


def _row(row: Sequence[float], within: Rect, share: float) -> tuple[list[Rect], Rect]:
    """Return the parts of a row along the shorter side, which takes `share` of the area, and the remaining area."""
    upright = within.w >= within.h
    side, length = (within.h, within.w) if upright else (within.w, within.h)
    total = sum(row)
    depth = length * share
    rects, at = [], 0.0
    for place, value in enumerate(row):
        part = side - at if place == len(row) - 1 else side * value / total
        if upright:
            rects.append(Rect(within.x, within.y + at, depth, part))
        else:
            rects.append(Rect(within.x + at, within.y, part, depth))
        at += part
    if upright:
        return rects, Rect(within.x + depth, within.y, within.w - depth, within.h)
    return rects, Rect(within.x, within.y + depth, within.w, within.h - depth)
