"""The live ranges of the values of a compiled program, read from XLA's report."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from mithril_nb.stages.xla.dump import Dump

_FILE = "after_optimizations-live-range"
_PLACE = re.compile(r"^    (\d+):(\S+)$")
_RANGE = re.compile(r"^    (\S+?)(\{[\d,]*\}):(\d+)-(\d+)$")
_MISSING = "this platform does not report the live ranges of a program"


@dataclass(frozen=True)
class LiveRanges:
    """The schedule of a compiled program, and the live range of each value in it.

    Attributes:
        sequence: Ids of the instructions of optimized HLO in the order they run. Loop bodies and branches are listed
            once, before the instruction that runs them; instructions inside fusions are not listed.
        ranges: First and last position in `sequence` at which a value is needed, by the id of the instruction that
            produces it and the part of its result (`"{}"` for the whole result). Arguments and results are needed up to
            the position after the last.
    """

    sequence: tuple[str, ...]
    ranges: Mapping[tuple[str, str], tuple[int, int]]


def read_live_ranges(dump: Dump) -> LiveRanges:
    """Return the live ranges of a compiled program.

    Raises:
        LookupError: XLA wrote no live ranges.
    """
    name = next((name for name in dump.names("txt") if name.endswith(_FILE)), None)
    found = None if name is None else live_ranges_in(dump.text(name, "txt"))
    if found is None or not found.sequence:
        raise LookupError(_MISSING)
    return found


def live_ranges_in(text: str) -> LiveRanges:
    r"""Return the live ranges in a report; skip lines that cannot be read.

    Examples:
        >>> live_ranges_in("HloLiveRange (max 2):\n  InstructionSequence:\n    0:x.1\n    1:add\n"
        ...                "  BufferLiveRange:\n    x.1{}:0-2\n    add{}:1-2\n")
        LiveRanges(sequence=('x.1', 'add'), ranges={('x.1', '{}'): (0, 2), ('add', '{}'): (1, 2)})
    """
    sequence: list[str] = []
    ranges: dict[tuple[str, str], tuple[int, int]] = {}
    for line in text.splitlines():
        if line.startswith("  Live ranges at"):
            break  # the rest repeats the same for one position
        place = _PLACE.match(line)
        if place is not None and int(place[1]) == len(sequence):
            sequence.append(place[2])
            continue
        found = _RANGE.match(line)
        if found is not None:
            ranges[found[1], found[2]] = int(found[3]), int(found[4])
    return LiveRanges(tuple(sequence), ranges)
