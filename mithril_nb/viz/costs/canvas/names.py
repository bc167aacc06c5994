"""Names of blocks that are short but not ambiguous, and free places for them beside the points of a plot."""

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
"""If a name is too wide, its middle is replaced by `…`. A result with fewer characters than this is not shown."""


class Names:
    """Short names for the blocks of a picture. No two blocks have the same name.

    Args:
        paths: The path of each block, as a tuple of names.

    Examples:
        >>> names = Names([("block_0", "mlp", "up"), ("block_1", "mlp", "up"), ("block_1", "mlp", "down")])
        >>> names.all_of(("block_1", "mlp", "up"))
        ['block_1 / mlp / up', 'block_1 / … / up', 'block_1…up', '…1 / up']

        Only one block is called `down`, so its last name is enough:

        >>> names.all_of(("block_1", "mlp", "down"))
        ['block_1 / mlp / down', 'mlp / down', 'down']
    """

    def __init__(self, paths: Iterable[Path]):
        self._by_last: dict[str, set[Path]] = {}
        for path in paths:
            self._by_last.setdefault(path[-1], set()).add(path)

    def all_of(self, path: Path) -> list[str]:
        """Return all names of a block, from the full path to the shortest."""
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
        """Return all names of a block. The best name comes first.

        Names without `…` that include at most one outer block come before the others.
        """
        return sorted(self.all_of(path), key=lambda name: name.count(" / ") > 1 or "…" in name)

    def fitting(self, path: Path, repeat: int, size: float, room: float) -> str:
        """Return the longest name of a block that fits into `room`; `""` if none fits.

        If no other block has the same last name, the middle of the shortest name may be replaced by `…`.

        Args:
            path: Path of the block.
            repeat: Number of equal blocks that share the name; it is written behind the name.
            size: Size of the bold font in px.
            room: Available width in px.
        """
        names = self.all_of(path)
        for name in (times(name, repeat) for name in names):
            if text_width(name, size, bold=True) <= room:
                return name
        if len(self._by_last.get(path[-1], ())) > 1:
            return ""
        cut = elide(names[-1], size, room - text_width(times("", repeat), size, bold=True), bold=True)
        return times(cut, repeat) if len(cut) >= _SHORTEST else ""


def _apart(path: Path, others: Sequence[Path] | set[Path]) -> int | None:
    """Return the index of the first name in `path` that no path in `others` has at this index, or `None`.

    The last name of each path is ignored.
    """
    for place, name in enumerate(path[:-1]):
        if not any(place < len(other) - 1 and other[place] == name for other in others):
            return place
    return None


Line = Sequence[Point]
_WIDEST, _GAP = 0.22, 3
"""Largest width of a name, as a share of the plot's width. Smallest gap in px between a name and anything else."""
_HIGH, _MARK = 14, 5
"""Height of a name in px. Half the width of a mark in px."""
_FAR = (26, 42, 58, 76)
"""Lengths in px of the line between a point and a name that is not directly beside it."""
_WAYS_OFF = (
    (0.6, 0.8), (-0.6, -0.8), (0.0, 1.0), (0.0, -1.0), (0.95, 0.3), (-0.95, -0.3), (0.3, 0.95), (-0.3, -0.95),
    (0.6, -0.8), (-0.6, 0.8), (0.95, -0.3), (-0.95, 0.3), (0.3, -0.95), (-0.3, 0.95),
)  # fmt: skip
"""Directions of this line, as (right, down), in the order in which they are tried."""


@dataclass
class PointNames:
    """Writes names beside the points of a plot, where there is free space.

    Attributes:
        sheet: The canvas to draw on.
        area: Area that must contain all names.
        points: Positions of all points.
        taken: Areas that no name may cover; each written name is added.
        lines: Lines that no name may cover; each line from a point to its name is added.
    """

    sheet: SvgCanvas
    area: Rect
    points: Sequence[Point]
    taken: list[Rect]
    lines: list[Line] = field(default_factory=list[Line])

    @cached_property
    def marks(self) -> list[Rect]:
        """The areas that the marks of the points cover."""
        return [Rect(x - _MARK, y - _MARK, 2 * _MARK, 2 * _MARK) for x, y in self.points]

    def write(self, at: Point, names: Sequence[str], repeat: int, *, bold: bool = False) -> bool:
        """Write the name of a point where there is free space, and return whether there was any.

        Args:
            at: Position of the point.
            names: Names of the point, best first. Names that are too wide are skipped. If all are, the last one is
                used.
            repeat: Number of equal blocks that the point represents; it is written behind the name.
            bold: Whether the name is bold.
        """
        fitting = [name for name in names if text_width(name, NORMAL, bold=bold) <= self.area.w * _WIDEST]
        shown = [times(name, repeat) for name in fitting or names[-1:]]
        sized = [(name, text_width(name, NORMAL, bold=bold)) for name in shown]
        for places in (_near, _far):
            for name, width in sized:
                for left, top, line in places(at, width):
                    if self._is_free(Rect(left - _GAP, top, width + 2 * _GAP, _HIGH), line, at):
                        self._put(name, left, top, line, bold=bold)
                        return True
        return False

    def _put(self, name: str, left: float, top: float, line: Line, *, bold: bool) -> None:
        width = text_width(name, NORMAL, bold=bold)
        if line:
            self.sheet.line(line, "muted")
            self.lines.append(line)
        self.sheet.text(left, top + 11, name, bold=bold, halo=True)
        self.taken.append(Rect(left - _GAP, top, width + 2 * _GAP, _HIGH))

    def _is_free(self, rect: Rect, line: Line, at: Point) -> bool:
        area = self.area
        if rect.x + _GAP < area.x or rect.x + rect.w - _GAP > area.x + area.w:
            return False
        if rect.y < area.y or rect.y + rect.h > area.y + area.h:
            return False
        if any(rect.overlaps(one) for one in (*self.taken, *self.marks)):
            return False
        if any(_crossed(rect, one) for one in self.lines):
            return False
        if not line:
            return True
        # Points may overlap, so the line may cross marks that are closer to this point than one width of a mark.
        others = [mark for mark, point in zip(self.marks, self.points, strict=True) if math.dist(point, at) > 2 * _MARK]
        return not any(_crossed(one, line) for one in (*self.taken, *others)) and not any(
            _cross(line, one) for one in self.lines
        )


def _near(at: Point, width: float) -> Iterator[tuple[float, float, Line]]:
    """Yield places beside a point: the left and top edge of the name, and `()`, because no line is needed."""
    x, y = at
    for left, top in (
        (x + 9, y - 7), (x - 9 - width, y - 7), (x + 4, y + 8), (x - width / 2, y + 9), (x - width / 2, y - 24),
        (x - width - 4, y - 22), (x + 4, y - 22),
    ):  # fmt: skip
        yield left, top, ()


def _far(at: Point, width: float) -> Iterator[tuple[float, float, Line]]:
    """Yield places farther away: the left and top edge of the name, and the line from the point to the name."""
    x, y = at
    for far in _FAR:
        for dx, dy in _WAYS_OFF:
            end = x + far * dx, y + far * dy
            left = end[0] + 3 if dx > 0 else end[0] - width - 3 if dx < 0 else end[0] - width / 2
            top = end[1] - _HIGH / 2 if dx else end[1] + 1 if dy > 0 else end[1] - _HIGH - 1
            yield left, top, ((x + (_MARK + 1) * dx, y + (_MARK + 1) * dy), end)


def _crossed(rect: Rect, line: Line) -> bool:
    """Return whether a line ends inside a rectangle or crosses one of its diagonals."""
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
    """Return whether `c` is to the left of the line from `a` to `b`."""
    return (b[0] - a[0]) * (c[1] - a[1]) > (b[1] - a[1]) * (c[0] - a[0])
