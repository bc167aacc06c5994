"""Axes of plots: scales, numbers at ticks, and the marks of points."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from mithril_nb.viz.costs.canvas.svg_canvas import SvgCanvas
from mithril_nb.viz.svg import number

_TWO_DECADES = 100


@dataclass(frozen=True)
class Scale:
    """A linear or logarithmic axis.

    Attributes:
        low: Smallest number on the axis.
        high: Largest number on the axis.
        start: Position of `low` in px.
        end: Position of `high` in px.
        is_log: True if the axis is logarithmic.
    """

    low: float
    high: float
    start: float
    end: float
    is_log: bool

    def at(self, value: float) -> float:
        """Return the position of a number in px."""
        if self.is_log:
            low = math.log10(self.low)
            share = (math.log10(value) - low) / (math.log10(self.high) - low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self, most: int = 6) -> list[float]:
        """Return at most `most` round numbers on the axis. If it is logarithmic, they are powers of ten."""
        return _decades(self.low, self.high, most) if self.is_log else _steps(self.low, self.high, most)


def decades(values: Iterable[float], start: float, end: float) -> Scale:
    """Return a logarithmic scale that contains the values, all above 0. Its ends are powers of ten.

    Examples:
        >>> scale = decades([3, 250], 0, 300)
        >>> scale.low, scale.high, scale.at(10), scale.ticks()
        (1.0, 1000.0, 100.0, [1.0, 10.0, 100.0, 1000.0])
    """
    known = [*values]
    low, high = math.floor(math.log10(min(known)) + 1e-9), math.ceil(math.log10(max(known)) - 1e-9)
    return Scale(10.0**low, 10.0 ** max(high, low + 1), start, end, True)


def scale_of(values: Iterable[float], start: float, end: float) -> Scale:
    """Return a scale that contains the values.

    The scale is logarithmic if all values are above 0 and the largest is more than 100 times the smallest. Otherwise it
    is linear and contains 0.

    Args:
        values: The numbers to show.
        start: Position of the start of the axis in px.
        end: Position of the end of the axis in px.

    Examples:
        >>> scale_of([2, 8], 0, 100), scale_of([2, 800], 0, 100).is_log
        (Scale(low=0.0, high=8.0, start=0, end=100, is_log=False), True)
    """
    known = [*values] or [0.0]
    low, high = min(known), max(known)
    if low > 0 and high / low > _TWO_DECADES:
        return decades(known, start, end)
    low = min(low, 0.0)
    if high <= low:
        low, high = (0.0, high * 2) if high > 0 else (low, low + 1)
    step = _step(high - low, 5)
    return Scale(math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step, start, end, False)


def _decades(low: float, high: float, most: int) -> list[float]:
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    stride = max(1, math.ceil((last - first + 1) / most))
    return [10.0**power for power in range(first, last + 1, stride)]


def _steps(low: float, high: float, most: int) -> list[float]:
    step = _step(high - low, most - 1)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(at * step, 12) for at in range(first, last + 1)]


def _step(span: float, parts: int) -> float:
    """Return the smallest step of 1, 2, 2.5 or 5 times a power of ten with which `parts` steps cover the span."""
    power = 10.0 ** math.floor(math.log10(span / parts))
    return next(size * power for size in (1, 2, 2.5, 5, 10) if size * power * parts >= span * (1 - 1e-9))


def _polygon(*corners: tuple[float, float]) -> Callable[[float, float, float], str]:
    def path(x: float, y: float, r: float) -> str:
        return "M" + "L".join(f"{number(x + r * dx)} {number(y + r * dy)}" for dx, dy in corners) + "Z"

    return path


def _circle(x: float, y: float, r: float) -> str:
    size, across = f"a{number(r)} {number(r)} 0 1 0", number(2 * r)
    return f"M{number(x - r)} {number(y)}{size} {across} 0{size} -{across} 0Z"


MARKS = (
    _circle,
    _polygon((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),
    _polygon((0, -1.15), (1.1, 0.85), (-1.1, 0.85)),
    _polygon((0, -1.25), (1.25, 0), (0, 1.25), (-1.25, 0)),
    _polygon((0, 1.15), (1.1, -0.85), (-1.1, -0.85)),
    _polygon(
        (-0.4, -1.1), (0.4, -1.1), (0.4, -0.4), (1.1, -0.4), (1.1, 0.4), (0.4, 0.4), (0.4, 1.1), (-0.4, 1.1),
        (-0.4, 0.4), (-1.1, 0.4), (-1.1, -0.4), (-0.4, -0.4),
    ),
    _polygon((0, -1.15), (1.1, -0.35), (0.7, 0.95), (-0.7, 0.95), (-1.1, -0.35)),
    _polygon((-1.15, 0), (-0.55, -1), (0.55, -1), (1.15, 0), (0.55, 1), (-0.55, 1)),
)  # fmt: skip
"""One function for each shape of mark: it returns an SVG path. Different shapes distinguish points without colours."""


def mark(sheet: SvgCanvas, shape: int, x: float, y: float, tone: str, *, hollow: bool = False, r: float = 4.5) -> None:
    """Draw the mark of a point, about `2 * r` px wide, with its centre at `(x, y)`.

    `shape` is an index into `MARKS`; after the last shape, the first follows again. `tone` is the name of a colour,
    such as `"hue0"`. A `hollow` mark has only an edge.
    """
    d = MARKS[shape % len(MARKS)](x, y, r)
    sheet.path(d, fill="ground" if hollow else tone, stroke=tone if hollow else "ground", width=1.8 if hollow else 1)


def tick_text(value: float) -> str:
    """Format a round number in few characters.

    Examples:
        >>> [tick_text(value) for value in (0, 0.001, 0.25, 10, 2500, 1e9)]
        ['0', '0.001', '0.25', '10', '2.5 k', '1 G']
    """
    for power, prefix in ((18, "E"), (15, "P"), (12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if abs(value) >= 10.0**power * (1 - 1e-9):
            return f"{value / 10.0**power:.4g} {prefix}"
    return f"{value:.4g}"
