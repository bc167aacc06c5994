"""Short, unambiguous names of blocks, and their positions beside the points of a plot."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

from mithril_nb.viz.costs.canvas.svg_canvas import NORMAL, SvgCanvas
from mithril_nb.viz.svg import Point, Rect
from mithril_nb.viz.text import elide, text_width, times

Path = tuple[str, ...]

_NUMBER = re.compile(r"\d+$")
_SHORTEST = 8
"""Fewest characters, with the `…`, of a name whose middle is cut out."""


class Names:
    """The names of all blocks of a picture.

    Args:
        paths: The path of each block, as a tuple of names.

    Examples:
        >>> names = Names([("block_0", "mlp", "up"), ("block_1", "mlp", "up"), ("block_1", "mlp", "down")])
        >>> names.ways(("block_1", "mlp", "up"))
        ['block_1 / mlp / up', 'block_1 / … / up', 'block_1…up', '…1 / up']
        >>> names.ways(("block_1", "mlp", "down"))
        ['block_1 / mlp / down', 'mlp / down', 'down']
    """

    def __init__(self, paths: Iterable[Path]):
        self._by_last: dict[str, set[Path]] = {}
        for path in paths:
            self._by_last.setdefault(path[-1], set()).add(path)

    def ways(self, path: Path) -> list[str]:
        """Return the ways to write the name of a block, longest first; none of them could mean another block.

        Args:
            path: Path of the block.
        """
        others = self._by_last.get(path[-1], set()) - {path}
        found = [" / ".join(path)]
        found += [
            " / ".join(path[start:])
            for start in range(1, len(path))
            if not any(other[-(len(path) - start) :] == path[start:] for other in others)
        ]
        if others and (apart := _apart(path, others)) is not None:
            name, last = path[apart], path[-1]
            found += [f"{name} / … / {last}" if apart < len(path) - 2 else f"{name} / {last}", f"{name}…{last}"]
            number = _NUMBER.search(name)
            if number and not any(other[apart : apart + 1] and other[apart].endswith(number[0]) for other in others):
                found.append(f"…{number[0]} / {last}")
        return list(dict.fromkeys(found))

    def brief(self, path: Path) -> list[str]:
        """Return the result of `ways` in the order for a list: first, names with at most one outer block and no `…`.

        Args:
            path: Path of the block.
        """
        ways = self.ways(path)
        return sorted(ways, key=lambda way: way.count(" / ") > 1 or "…" in way)

    def fitting(self, path: Path, repeat: int, size: float, room: float) -> str:
        """Return the longest name of a block that fits into `room`.

        If none fits, the middle of the shortest one is cut out. The result is `""` if too little would remain, or if
        another block has the same last name: the rest of the name could then mean either block.

        Args:
            path: Path of the block.
            repeat: Number of equal blocks that share the name.
            size: Size of the bold font in px.
            room: Available width in px.
        """
        ways = self.ways(path)
        for name in (times(way, repeat) for way in ways):
            if text_width(name, size, bold=True) <= room:
                return name
        if len(self._by_last.get(path[-1], ())) > 1:
            return ""
        cut = elide(ways[-1], size, room - text_width(times("", repeat), size, bold=True), bold=True)
        return times(cut, repeat) if len(cut) >= _SHORTEST else ""


def _apart(path: Path, others: Sequence[Path] | set[Path]) -> int | None:
    """Return the first index at which the outer block of `path` has another name than those of all `others`.

    `None` if there is no such index.
    """
    for place, name in enumerate(path[:-1]):
        if not any(place < len(other) - 1 and other[place] == name for other in others):
            return place
    return None


Line = Sequence[Point]
_WIDEST, _APART = 0.22, 3
"""Largest share of the plot's width for a name, and least distance in px between a name and other items."""
_HIGH, _MARK = 14, 5
"""Height of a name, and distance from the middle of a mark to its edge, in px."""
_FAR = (26, 42, 58, 76)
"""Distances in px between a point and a name that a line connects to the point."""
_WAYS_OFF = (
    (0.6, 0.8), (-0.6, -0.8), (0.0, 1.0), (0.0, -1.0), (0.95, 0.3), (-0.95, -0.3), (0.3, 0.95), (-0.3, -0.95),
    (0.6, -0.8), (-0.6, 0.8), (0.95, -0.3), (-0.95, 0.3), (0.3, -0.95), (-0.3, 0.95),
)  # fmt: skip
"""Directions from a point to such a name, as (right, down): first those below and above a rising line."""


@dataclass
class PointNames:
    """Writes names beside the points of a plot, where they cover nothing.

    Attributes:
        sheet: The sheet to draw on.
        area: Area that contains all names.
        points: Positions of the points.
        taken: Areas of the texts drawn so far, names included.
        lines: Lines that no name covers and no line to a name crosses.
    """

    sheet: SvgCanvas
    area: Rect
    points: Sequence[Point]
    taken: list[Rect]
    lines: list[Line] = field(default_factory=list[Line])

    @cached_property
    def marks(self) -> list[Rect]:
        """The areas of the marks."""
        return [Rect(x - _MARK, y - _MARK, 2 * _MARK, 2 * _MARK) for x, y in self.points]

    def write(self, at: Point, ways: Sequence[str], repeat: int, *, bold: bool = False) -> bool:
        """Write the name of a point beside it, where the name covers nothing; write nothing if there is no room.

        Args:
            at: Position of the point.
            ways: Ways to write the name, best first. Those that are too wide for the plot are skipped; if all are, the
                last one is tried.
            repeat: Number of equal blocks that the point represents.
            bold: Whether the name is bold.

        Returns:
            True if there was room.
        """
        fitting = [way for way in ways if text_width(way, NORMAL, bold=bold) <= self.area.w * _WIDEST]
        names = [times(way, repeat) for way in fitting or ways[-1:]]
        sized = [(name, text_width(name, NORMAL, bold=bold)) for name in names]
        for places in (_near, _far):
            for name, width in sized:
                for left, top, line in places(at, width):
                    if self._is_free(Rect(left - _APART, top, width + 2 * _APART, _HIGH), line, at):
                        self._put(name, left, top, line, bold=bold)
                        return True
        return False

    def _put(self, name: str, left: float, top: float, line: Line, *, bold: bool) -> None:
        width = text_width(name, NORMAL, bold=bold)
        if line:
            self.sheet.line(line, "muted")
            self.lines.append(line)
        self.sheet.text(left, top + 11, name, bold=bold, halo=True)
        self.taken.append(Rect(left - _APART, top, width + 2 * _APART, _HIGH))

    def _is_free(self, rect: Rect, line: Line, at: Point) -> bool:
        area = self.area
        if rect.x + _APART < area.x or rect.x + rect.w - _APART > area.x + area.w:
            return False
        if rect.y < area.y or rect.y + rect.h > area.y + area.h:
            return False
        if any(rect.overlaps(one) for one in (*self.taken, *self.marks)):
            return False
        if any(_crossed(rect, one) for one in self.lines):
            return False
        if not line:
            return True
        # A line to a point may cross the marks that overlap the mark of this point.
        others = [mark for mark, point in zip(self.marks, self.points, strict=True) if math.dist(point, at) > 2 * _MARK]
        return not any(_crossed(one, line) for one in (*self.taken, *others)) and not any(
            _cross(line, one) for one in self.lines
        )


def _near(at: Point, width: float) -> Iterator[tuple[float, float, Line]]:
    """Yield positions of a name beside its point, as left edge, top edge and an empty line."""
    x, y = at
    for left, top in (
        (x + 9, y - 7), (x - 9 - width, y - 7), (x + 4, y + 8), (x - width / 2, y + 9), (x - width / 2, y - 24),
        (x - width - 4, y - 22), (x + 4, y - 22),
    ):  # fmt: skip
        yield left, top, ()


def _far(at: Point, width: float) -> Iterator[tuple[float, float, Line]]:
    """Yield positions of a name further away from its point, as left edge, top edge and the line to the point."""
    x, y = at
    for far in _FAR:
        for dx, dy in _WAYS_OFF:
            end = x + far * dx, y + far * dy
            left = end[0] + 3 if dx > 0 else end[0] - width - 3 if dx < 0 else end[0] - width / 2
            top = end[1] - _HIGH / 2 if dx else end[1] + 1 if dy > 0 else end[1] - _HIGH - 1
            yield left, top, ((x + (_MARK + 1) * dx, y + (_MARK + 1) * dy), end)


def _crossed(rect: Rect, line: Line) -> bool:
    """Return whether a line crosses a rectangle: an end of the line is inside, or the line crosses a diagonal."""
    left, top, right, bottom = rect.x, rect.y, rect.x + rect.w, rect.y + rect.h
    if any(left <= x <= right and top <= y <= bottom for x, y in line):
        return True
    return _cross(line, ((left, top), (right, bottom))) or _cross(line, ((left, bottom), (right, top)))


def _cross(line: Line, other: Line) -> bool:
    return any(
        _side(a, b, c) != _side(a, b, d) and _side(c, d, a) != _side(c, d, b)
        for a, b in pairwise(line)
        for c, d in pairwise(other)
    )


def _side(a: Point, b: Point, c: Point) -> bool:
    """Return on which side of the line through `a` and `b` the point `c` is, as a bool."""
    return (b[0] - a[0]) * (c[1] - a[1]) > (b[1] - a[1]) * (c[0] - a[0])
