"""Short, unambiguous names of blocks for small spaces."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from mithril_nb.viz.text.width import elide, text_width

Path = tuple[str, ...]

_NUMBER = re.compile(r"\d+$")
_SHORTEST = 8
"""Fewest characters kept of a name whose middle is cut out."""


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
        """Return the ways to write a block, longest first; none of them matches another block.

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
        """Return the same ways for use in a list: ways with at most one outer block come first.

        Args:
            path: Path of the block.
        """
        ways = self.ways(path)
        return sorted(ways, key=lambda way: way.count(" / ") > 1 or "…" in way)

    def fitting(self, path: Path, repeat: int, size: float, room: float) -> str:
        """Return the longest way that fits, cut in the middle if none does; `""` without enough room.

        Args:
            path: Path of the block.
            repeat: Number of equal blocks that it represents.
            size: Size of the bold font.
            room: Available width in px.
        """
        times = f" ×{repeat}" if repeat > 1 else ""
        ways = self.ways(path)
        for way in ways:
            if text_width(way + times, size, bold=True) <= room:
                return way + times
        if len(self._by_last.get(path[-1], ())) > 1:
            return ""  # the part that distinguishes it does not fit
        cut = elide(ways[-1], size, room - text_width(times, size, bold=True), bold=True)
        return cut + times if len(cut) >= _SHORTEST else ""


def _apart(path: Path, others: Sequence[Path] | set[Path]) -> int | None:
    """Return the index of a name that differs from all others at that place; `None` if there is none."""
    for place, name in enumerate(path[:-1]):
        if not any(place < len(other) - 1 and other[place] == name for other in others):
            return place
    return None
