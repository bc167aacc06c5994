"""Names of blocks that are short but not ambiguous, and free places for them beside the points of a plot."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

from mithril_nb.viz.costs.canvas import NORMAL, CostPage
from mithril_nb.viz.svg import Point, Rect
from mithril_nb.viz.text import elide, text_width, times

Path = tuple[str, ...]
_NUMBER = re.compile(r"\d+$")
# If a name is too wide, its middle is replaced by `…`. A result with fewer characters than this is not shown.
_SHORTEST = 8


class BlockNames:
    """Short names for the blocks of a picture, given by their paths. No two blocks have the same name.

    Examples:
        >>> names = BlockNames([("block_0", "mlp", "up"), ("block_1", "mlp", "up"), ("block_1", "mlp", "down")])
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
        names = [" / ".join(path)]
        names += [
            " / ".join(path[start:])
            for start in range(1, len(path))
            if not any(other[-(len(path) - start) :] == path[start:] for other in others)
        ]
        # The last names are equal; the first name that no other path has at its index differs.
        shared = (
            any(at < len(other) - 1 and other[at] == name for other in others) for at, name in enumerate(path[:-1])
        )
        apart = next((at for at, is_shared in enumerate(shared) if not is_shared), None)
        if others and apart is not None:
            name, last = path[apart], path[-1]
            names += [f"{name} / … / {last}" if apart < len(path) - 2 else f"{name} / {last}", f"{name}…{last}"]
            number = _NUMBER.search(name)
            if number and not any(other[apart : apart + 1] and other[apart].endswith(number[0]) for other in others):
                names.append(f"…{number[0]} / {last}")
        return list(dict.fromkeys(names))

    def brief(self, path: Path) -> list[str]:
        """Return all names of a block. The best name comes first.

        Names without `…` that include at most one outer block come before the others.
        """
        return sorted(self.all_of(path), key=lambda name: name.count(" / ") > 1 or "…" in name)

    def fitting(self, path: Path, repeat: int, size: float, room: float) -> str:
        """Return the longest name of a block that fits into `room`; `""` if none fits.

        If no other block has the same last name, the middle of the shortest name may be replaced by `…`.
        """
        names = self.all_of(path)
        for name in (times(name, repeat) for name in names):
            if text_width(name, size, bold=True) <= room:
                return name
        if len(self._by_last.get(path[-1], ())) > 1:
            return ""
        cut = elide(names[-1], size, room - text_width(times("", repeat), size, bold=True), bold=True)
        return times(cut, repeat) if len(cut) >= _SHORTEST else ""


Line = Sequence[Point]
# Largest width of a name, as a share of the plot's width. Smallest gap in px between a name and anything else.
_WIDEST, _GAP = 0.22, 3
# Height of a name in px. Half the width of a mark in px.
_HIGH, _MARK = 14, 5
# Lengths in px of the line between a point and a name that is not directly beside it.
_FAR = (26, 42, 58, 76)
# Directions of this line, as (right, down), in the order in which they are tried.
_WAYS_OFF = (
    (0.6, 0.8), (-0.6, -0.8), (0.0, 1.0), (0.0, -1.0), (0.95, 0.3), (-0.95, -0.3), (0.3, 0.95), (-0.3, -0.95),
    (0.6, -0.8), (-0.6, 0.8), (0.95, -0.3), (-0.95, 0.3), (0.3, -0.95), (-0.3, 0.95),
)  # fmt: skip


@dataclass
class PointNames:
    """Writes names beside the points of a plot, where there is free space within `area`.

    No name covers the areas in `occupied` or the `lines`, to which those of the written names are added.
    """

    page: CostPage
    area: Rect
    points: Sequence[Point]
    occupied: list[Rect]
    lines: list[Line] = field(default_factory=list[Line])

    @cached_property
    def marks(self) -> list[Rect]:
        """The areas that the marks of the points cover."""
        return [Rect(x - _MARK, y - _MARK, 2 * _MARK, 2 * _MARK) for x, y in self.points]

    def write(self, at: Point, names: Sequence[str], repeat: int, *, bold: bool = False) -> bool:
        """Write the name of a point where there is free space, and return whether there was any.

        The best name comes first. Names that are too wide are skipped; if all are, the last one is used.
        """
        fitting = [name for name in names if text_width(name, NORMAL, bold=bold) <= self.area.w * _WIDEST]
        labels = [times(name, repeat) for name in fitting or names[-1:]]
        sized = [(name, text_width(name, NORMAL, bold=bold)) for name in labels]
        # A short name beside its point is clearer than a long one at the end of a line.
        for candidates in (_near, _far):
            for name, width in sized:
                for left, top, line in candidates(at, width):
                    rect = Rect(left - _GAP, top, width + 2 * _GAP, _HIGH)
                    if self._is_free(rect, line, at):
                        if line:
                            self.page.line(line, "muted")
                            self.lines.append(line)
                        self.page.text(left, top + 11, name, bold=bold, halo=True)
                        self.occupied.append(rect)
                        return True
        return False

    def _is_free(self, rect: Rect, line: Line, at: Point) -> bool:
        area, marks = self.area, self.marks
        is_inside = area.x <= rect.x + _GAP and rect.right - _GAP <= area.right
        if not is_inside or rect.y < area.y or rect.bottom > area.bottom:
            return False
        if any(map(rect.overlaps, (*self.occupied, *marks))) or any(_crossed(rect, other) for other in self.lines):
            return False
        # Points may overlap, so the line may cross marks that are closer to this point than one width of a mark.
        far = [
            mark for mark, point in zip(marks, self.points, strict=True) if line and math.dist(point, at) > 2 * _MARK
        ]
        return not line or not (
            any(_crossed(obstacle, line) for obstacle in (*self.occupied, *far))
            or any(_cross(line, other) for other in self.lines)
        )


def _near(at: Point, width: float) -> Iterator[tuple[float, float, Line]]:
    x, y = at
    for left, top in (
        (x + 9, y - 7), (x - 9 - width, y - 7), (x + 4, y + 8), (x - width / 2, y + 9), (x - width / 2, y - 24),
        (x - width - 4, y - 22), (x + 4, y - 22),
    ):  # fmt: skip
        yield left, top, ()


def _far(at: Point, width: float) -> Iterator[tuple[float, float, Line]]:
    x, y = at
    for far in _FAR:
        for dx, dy in _WAYS_OFF:
            end = x + far * dx, y + far * dy
            left = end[0] + 3 if dx > 0 else end[0] - width - 3 if dx < 0 else end[0] - width / 2
            top = end[1] - _HIGH / 2 if dx else end[1] + 1 if dy > 0 else end[1] - _HIGH - 1
            yield left, top, ((x + (_MARK + 1) * dx, y + (_MARK + 1) * dy), end)


def _crossed(rect: Rect, line: Line) -> bool:
    left, top, right, bottom = rect.x, rect.y, rect.right, rect.bottom
    if any(left <= x <= right and top <= y <= bottom for x, y in line):
        return True
    # A line that crosses a rectangle crosses one of its diagonals.
    return _cross(line, ((left, top), (right, bottom))) or _cross(line, ((left, bottom), (right, top)))


def _cross(line: Line, other: Line) -> bool:
    return any(
        _side(a, b, c) != _side(a, b, d) and _side(c, d, a) != _side(c, d, b)
        for a, b in pairwise(line)
        for c, d in pairwise(other)
    )


def _side(a: Point, b: Point, c: Point) -> bool:
    return (b[0] - a[0]) * (c[1] - a[1]) > (b[1] - a[1]) * (c[0] - a[0])
