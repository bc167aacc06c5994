"""Which values of a compiled program hold memory, from when to when: XLA's buffer assignment and its live ranges."""

from __future__ import annotations

from collections.abc import Iterable

from mithril_nb.cost.memory.liveness import ARGUMENTS, CONSTANTS, OUTPUTS, TEMPORARIES, LiveRange
from mithril_nb.cost.memory.producers import Makers
from mithril_nb.stages.xla.buffers import Buffer, Held
from mithril_nb.stages.xla.live_ranges import LiveRanges

_COUNTED = frozenset({"parameter", "result", "temporary", "constant"})
"""Kinds of buffers that take memory. What is local to a thread lies on its stack: a number or two."""


def set_aside(buffers: Iterable[Buffer]) -> int:
    """Return the bytes that XLA sets aside before a program runs, constants included."""
    return sum(buffer.size_bytes for buffer in buffers if buffer.kind in _COUNTED)


def compiled_lives(buffers: Iterable[Buffer], ranges: LiveRanges, makers: Makers) -> tuple[list[LiveRange], int]:
    """Return the values that hold memory, and how many are left out as XLA does not say when they are needed.

    Values that lie at the same place of a buffer take turns: a value's life ends where the next one's begins, so that
    the lives add up. Constants are there throughout.

    Args:
        buffers: The buffers.
        ranges: When values are needed.
        makers: Who makes them.
    """
    end = len(ranges.sequence) - 1
    lives: list[LiveRange] = []
    unknown = 0
    for buffer in buffers:
        if buffer.kind not in _COUNTED:
            continue
        if buffer.kind == "constant":
            first = buffer.values[0] if buffer.values else None
            block = "" if first is None else makers.block_of(first.instruction, first.index)
            name = "" if first is None else first.instruction + first.index
            lives.append(LiveRange(name, CONSTANTS, block, buffer.size_bytes, 0, end))
            continue
        places: dict[int, list[tuple[int, int, Held]]] = {}
        for value in buffer.values:
            known = ranges.ranges.get((value.instruction, value.index or "{}"))
            if known is None or known[0] > end:
                unknown += 1
            else:
                places.setdefault(value.offset_bytes, []).append((*known, value))
        for values in places.values():
            lives += _in_turn(buffer, values, end, makers)
    return lives, unknown


def _in_turn(buffer: Buffer, values: list[tuple[int, int, Held]], end: int, makers: Makers) -> Iterable[LiveRange]:
    values.sort(key=lambda one: one[:2])
    reached = -1
    for place, (first, last, value) in enumerate(values):
        reached = max(reached, last)
        following = values[place + 1][0] if place + 1 < len(values) else reached + 1
        until = min(reached, following - 1, end)
        if until < first:  # it is taken over as soon as it is made
            continue
        if buffer.kind == "parameter" and makers.is_argument(value.instruction):
            kind = ARGUMENTS
        else:
            # As XLA counts: all that lies where an output will lie, for that memory is the output's from the start.
            kind = OUTPUTS if buffer.is_given_back else TEMPORARIES
        block = makers.block_of(value.instruction, value.index)
        yield LiveRange(value.instruction + value.index, kind, block, value.size_bytes, first, until)
