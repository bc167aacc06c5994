"""Live ranges of the values of a compiled program, from XLA's buffer assignment."""

from __future__ import annotations

from collections.abc import Iterable

from mithril_nb.cost.memory.liveness import ARGUMENTS, CONSTANTS, OUTPUTS, TEMPORARIES, LiveRange
from mithril_nb.cost.memory.producers import Makers
from mithril_nb.stages.xla.memory import Buffer, Held, LiveRanges

_COUNTED = frozenset({"parameter", "result", "temporary", "constant"})
"""Kinds of buffers that count. Thread-local buffers are left out: they are a few bytes on the stack."""


def set_aside(buffers: Iterable[Buffer]) -> int:
    """Return the bytes that XLA allocates before a program runs, including constants."""
    return sum(buffer.size_bytes for buffer in buffers if buffer.kind in _COUNTED)


def compiled_lives(buffers: Iterable[Buffer], ranges: LiveRanges, makers: Makers) -> tuple[list[LiveRange], int]:
    """Return the live ranges of values, and the number of values left out because XLA reports no live range.

    A value's live range ends where the next value at the same offset of the buffer begins, so the live ranges add up.
    Constants are live throughout.

    Args:
        buffers: The buffers.
        ranges: XLA's live ranges.
        makers: The blocks that produce the values.
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
        if until < first:  # overwritten where it is produced
            continue
        if buffer.kind == "parameter" and makers.is_argument(value.instruction):
            kind = ARGUMENTS
        else:
            # As in XLA, a temporary in the buffer of a later output counts as an output.
            kind = OUTPUTS if buffer.is_given_back else TEMPORARIES
        block = makers.block_of(value.instruction, value.index)
        yield LiveRange(value.instruction + value.index, kind, block, value.size_bytes, first, until)
