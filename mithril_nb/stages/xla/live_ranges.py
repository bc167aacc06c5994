"""From when to when a compiled program needs each of its values: XLA's live ranges, read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from mithril_nb.stages.xla.dump import Dump

_FILE = "after_optimizations-live-range"
_PLACE = re.compile(r"^    (\d+):(\S+)$")
_RANGE = re.compile(r"^    (\S+?)(\{[\d,]*\}):(\d+)-(\d+)$")
_MISSING = "this platform does not write down from when to when a program needs its values"


@dataclass(frozen=True)
class LiveRanges:
    """The order in which a compiled program runs, and between which places of it each value is needed.

    Attributes:
        sequence: Ids of the instructions of optimized HLO in the order in which they run. The bodies of loops and the
            branches of conditions stand once, before the instruction that runs them; the insides of fusions do not.
        ranges: By id of the instruction that makes a value, and which part of its result it is (`"{}"` for all of it):
            the first and the last place in `sequence` at which it is needed. Arguments and results are needed up to
            the place after the last.
    """

    sequence: tuple[str, ...]
    ranges: Mapping[tuple[str, str], tuple[int, int]]


def read_live_ranges(dump: Dump) -> LiveRanges:
    """Return the live ranges of a compiled program.

    Raises:
        LookupError: XLA wrote none down.
    """
    name = next((name for name in dump.names("txt") if name.endswith(_FILE)), None)
    found = None if name is None else live_ranges_in(dump.text(name, "txt"))
    if found is None or not found.sequence:
        raise LookupError(_MISSING)
    return found


def live_ranges_in(text: str) -> LiveRanges:
    r"""Return the live ranges that a report tells of; what cannot be read is passed over.

    Examples:
        >>> live_ranges_in("HloLiveRange (max 2):\n  InstructionSequence:\n    0:x.1\n    1:add\n"
        ...                "  BufferLiveRange:\n    x.1{}:0-2\n    add{}:1-2\n")
        LiveRanges(sequence=('x.1', 'add'), ranges={('x.1', '{}'): (0, 2), ('add', '{}'): (1, 2)})
    """
    sequence: list[str] = []
    ranges: dict[tuple[str, str], tuple[int, int]] = {}
    for line in text.splitlines():
        if line.startswith("  Live ranges at"):
            break  # what follows says the same of one place
        place = _PLACE.match(line)
        if place is not None and int(place[1]) == len(sequence):
            sequence.append(place[2])
            continue
        found = _RANGE.match(line)
        if found is not None:
            ranges[found[1], found[2]] = int(found[3]), int(found[4])
    return LiveRanges(tuple(sequence), ranges)
