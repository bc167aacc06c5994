"""Live ranges of the values of a compiled program from XLA's buffer assignment, and the blocks that produce them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from mithril_nb.cost.hlo.module import Computation, HloModule, index_of
from mithril_nb.cost.memory.liveness import ARGUMENTS, CONSTANTS, OUTPUTS, TEMPORARIES, LiveRange
from mithril_nb.stages.records import UNATTRIBUTED, Instruction, Stage
from mithril_nb.stages.xla.buffers import Buffer, Held
from mithril_nb.stages.xla.live_ranges import LiveRanges

_COUNTED = frozenset({"parameter", "result", "temporary", "constant"})
"""Kinds of buffers that count. Thread-local buffers are left out: they are a few bytes on the stack."""
_NUMBERS = re.compile(r"\d+")
_MOST_STEPS = 100
"""Enough for nested loops; the limit protects against endless cycles in unexpected HLO text."""
_CALLS = frozenset({"while", "conditional", "call", "fusion", "async-start"})


def set_aside(buffers: Iterable[Buffer]) -> int:
    """Return the bytes that XLA allocates before a program runs, including constants."""
    return sum(buffer.size_bytes for buffer in buffers if buffer.kind in _COUNTED)


def compiled_lives(buffers: Iterable[Buffer], ranges: LiveRanges, makers: Makers) -> tuple[list[LiveRange], int]:
    """Return the live ranges of values, and the number of values left out because XLA reports no live range.

    A value's live range ends where the next value at the same offset of the buffer begins, so the live ranges add up.
    Constants are live throughout.
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


class Makers:
    """The instructions and blocks that produce the values of a compiled program.

    Args:
        stage: Optimized HLO.
    """

    def __init__(self, stage: Stage):
        self._module = HloModule.of(stage)
        self._by_id = {one.id: one for one in stage.instructions}
        self._home: dict[str, Computation] = {}
        self._callers: dict[str, tuple[Instruction, Computation]] = {}
        for computation in () if self._module is None else self._module.computations.values():
            for one in computation.by_id.values():
                self._home[one.id] = computation
                if one.opcode in _CALLS:
                    for called in self._module.called(one) if self._module is not None else ():
                        self._callers[called.name] = one, computation

    def block_of(self, id: str, index: str = "") -> str:
        """Return the path of the block that produces a value, or most of it; `""` if not attributed."""
        first = self._by_id.get(id)
        if first is None:
            return UNATTRIBUTED
        if index == "{}":
            return UNATTRIBUTED  # XLA's own table of pointers to the elements of a tuple
        made = self._maker(first, [int(number) for number in _NUMBERS.findall(index)])
        return _most(made) or _most(first)

    def is_argument(self, id: str) -> bool:
        """Return whether a value is an argument of the program."""
        home = self._home.get(id)
        return home is not None and home.is_entry and self._by_id[id].opcode == "parameter"

    def _maker(self, one: Instruction, index: list[int]) -> Instruction:
        """Follow an element of a result to the instruction that computes it."""
        for _ in range(_MOST_STEPS):
            found = self._behind(one, index)
            if found is None:
                break
            one, index = found
        return one

    def _behind(self, one: Instruction, index: list[int]) -> tuple[Instruction, list[int]] | None:
        """Take one step of `_maker`; return `None` at the end."""
        home = self._home.get(one.id)
        if home is None or self._module is None:
            return None
        if one.opcode == "parameter":
            caller = self._callers.get(home.name)
            if caller is None:
                return None
            return self._round_loop(caller[0], index) if caller[0].opcode == "while" else None
        operands = home.operands(one)
        if one.opcode == "tuple" and index and index[0] < len(one.operands):
            return self._known(one.operands[index[0]], index[1:])
        if one.opcode == "get-tuple-element" and operands:
            place = index_of(one)
            return operands[0], index if place is None else [place, *index]
        if one.opcode == "while":
            return self._round_loop(one, index)
        if one.opcode in _CALLS:
            roots = [body.root for body in self._module.called(one) if body.root is not None]
            return (roots[0], index) if roots else None
        if not one.shares and operands and one.opcode in ("copy", "bitcast", "copy-start", "copy-done"):
            return operands[0], []
        return None

    def _round_loop(self, loop: Instruction, index: list[int]) -> tuple[Instruction, list[int]] | None:
        """Return an element of the loop body's result, or of the loop's operand if the body passes it on unchanged."""
        assert self._module is not None
        bodies = self._module.called(loop, "body")
        found = bodies[0].element(index[0]) if bodies and index else None
        if found is None:
            return None
        if bodies[0].carried(found) == index[0]:
            return self._known(loop.operands[0], index) if loop.operands else None
        return found, index[1:]

    def _known(self, id: str, index: list[int]) -> tuple[Instruction, list[int]] | None:
        one = self._by_id.get(id)
        return None if one is None else (one, index)


def _most(one: Instruction) -> str:
    """Return the block with the largest share, or the first of several."""
    return max(one.shares, key=lambda share: share[1])[0] if one.shares else UNATTRIBUTED
