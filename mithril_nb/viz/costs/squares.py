"""Dividing a rectangle into parts of given areas that are as square as can be."""

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


def squarified(values: Sequence[float], within: Rect) -> list[Rect]:
    """Return a rectangle for each value, of an area in proportion to it; together they are `within`.

    The algorithm is that of Bruls, Huizing and van Wijk, "Squarified Treemaps" (2000): rows along the shorter side,
    each as long as its worst part gets better by it.

    Args:
        values: Numbers above 0, the largest first.
        within: What to divide.

    Examples:
        >>> squarified([2, 1, 1], Rect(0, 0, 4, 2))
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
    """Return the ratio of the sides of the part of a row that is the least square."""
    total = sum(row) * scale
    if not total or not side:
        return float("inf")
    return max(side * side * max(row) * scale / total**2, total**2 / (side * side * min(row) * scale))


def _row(row: Sequence[float], within: Rect, share: float) -> tuple[list[Rect], Rect]:
    """Return the parts of a row along the shorter side, which takes a share of the area, and what is left."""
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
