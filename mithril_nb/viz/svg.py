"""SVG as text: elements with escaped attributes, and paths through points."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from mithril_nb.viz.text import escaped

Point = tuple[float, float]
FONT = "system-ui, -apple-system, 'Segoe UI', 'Helvetica Neue', Arial, 'Liberation Sans', sans-serif"
# Largest radius of a rounded corner in px.
_CORNER = 5


@dataclass(frozen=True)
class Rect:
    """A rectangle in px; `(x, y)` is its top left corner, and `y` grows downward."""

    x: float
    y: float
    w: float
    h: float

    @property
    def right(self) -> float:
        """The right edge."""
        return self.x + self.w

    @property
    def bottom(self) -> float:
        """The lower edge."""
        return self.y + self.h

    @property
    def area(self) -> float:
        """Area in px²."""
        return self.w * self.h

    def overlaps(self, other: Rect) -> bool:
        """Return whether the insides of two rectangles intersect; a common edge does not count."""
        beside = self.right <= other.x or other.right <= self.x
        return not beside and self.y < other.bottom and other.y < self.bottom


def element(tag: str, text: str | None = None, /, **attributes: str | float | None) -> str:
    """Return an SVG element as text.

    Examples:
        >>> element("text", "a < b", class_="ink", x=3.04, text_anchor="end")
        '<text class="ink" x="3" text-anchor="end">a &lt; b</text>'
        >>> element("rect", width=10, fill="none")
        '<rect width="10" fill="none"/>'
    """
    start = opening(tag, **attributes)
    return f"{start[:-1]}/>" if text is None else f"{start}{escaped(text)}</{tag}>"


def opening(tag: str, /, **attributes: str | float | None) -> str:
    """Return the start tag of an element, with attributes as in `element`."""
    pairs = "".join(
        # A trailing `_` is for names that Python reserves, as in `class_`. Other `_` become `-`.
        f' {name.rstrip("_").replace("_", "-")}="{escaped(value) if isinstance(value, str) else number(value)}"'
        for name, value in attributes.items()
        if value is not None and value != ""
    )
    return f"<{tag}{pairs}>"


def root_opening(
    name: str, width: float, height: float, *, role: str = "img", style: str, font_size: float | None = None
) -> str:
    """Return the start tag of an `svg` element with a width and height in px, and the CSS class `name`."""
    return opening(
        "svg", xmlns="http://www.w3.org/2000/svg", class_=name, role=role, width=width, height=height,
        viewBox=f"0 0 {number(width)} {number(height)}", font_family=FONT, font_size=font_size, style=style,
    )  # fmt: skip


def number(value: float) -> str:
    """Format a coordinate with at most one decimal, in the same way on every machine."""
    text = f"{value:.1f}"
    # Numbers from -0.05 to 0 would be `-0`, and equal pictures would differ.
    return text.removesuffix(".0") if text != "-0.0" else "0"


def line_path(points: Sequence[Point]) -> str:
    """Return a line through points as an SVG path."""
    return "M" + "L".join(f"{number(x)} {number(y)}" for x, y in points)


def rounded_path(points: Sequence[Point]) -> str:
    """Return a line through points as an SVG path with rounded corners. Short lines have smaller corners."""
    path = line_path(points[:1])
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        # A wire may repeat a point, where it has no direction.
        if corner in (before, after):
            continue
        (x0, y0), (x1, y1) = _towards(corner, before), _towards(corner, after)
        path += f"L{number(x0)} {number(y0)}Q{number(corner[0])} {number(corner[1])} {number(x1)} {number(y1)}"
    return f"{path}L{number(points[-1][0])} {number(points[-1][1])}"


def _towards(corner: Point, end: Point) -> Point:
    dx, dy = end[0] - corner[0], end[1] - corner[1]
    length = abs(dx) + abs(dy)
    # Lines of wires are level or upright, so this sum is their length.
    reach = min(_CORNER, length / 2) / length if length else 0
    return corner[0] + dx * reach, corner[1] + dy * reach


def curve_path(points: Sequence[Point]) -> str:
    """Return a cubic Bézier curve, given by its start, two control points and its end, as an SVG path."""
    return line_path(points[:1]) + "C" + " ".join(f"{number(x)} {number(y)}" for x, y in points[1:])


def curve_points(points: Sequence[Point]) -> list[Point]:
    """Return 13 points on a cubic Bézier curve, given as in `curve_path`."""
    curve: list[Point] = []
    for at in range(13):
        t = at / 12
        a, b, c, d = (1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3
        # Not `sum`, whose rounding depends on the version of Python.
        x, y = (a * p0 + b * p1 + c * p2 + d * p3 for p0, p1, p2, p3 in zip(*points, strict=True))
        curve.append((x, y))
    return curve


def point_along(points: Sequence[Point], share: float) -> Point:
    """Return a point on a line through points. `share` is the part of the line's length before it, 0 to 1."""
    lengths = [math.dist(point, other) for point, other in pairwise(points)]
    left = share * sum(lengths)
    for (start, other), length in zip(pairwise(points), lengths, strict=True):
        if left <= length and length:
            part = left / length
            return start[0] + (other[0] - start[0]) * part, start[1] + (other[1] - start[1]) * part
        left -= length
    # Rounding errors may leave a rest behind the last line.
    return points[-1]


def arrow(start: Point, end: Point) -> str:
    """Return the head of an arrow from `start` to `end` as an SVG path: a small triangle with its tip at `end`."""
    dx, dy = end[0] - start[0], end[1] - start[1]
    length = (dx * dx + dy * dy) ** 0.5
    # A line of length 0 has no direction. Its head points right, as most do.
    ux, uy = (dx / length, dy / length) if length > 0.01 else (1.0, 0.0)
    bx, by = end[0] - 7 * ux, end[1] - 7 * uy
    return line_path((end, (bx - 3.2 * uy, by + 3.2 * ux), (bx + 3.2 * uy, by - 3.2 * ux))) + "Z"
