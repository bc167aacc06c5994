"""Live ranges of values, the memory that they need together, and the live ranges of a compiled program.

A program is a schedule: the positions 0, 1, ... at which its instructions or equations run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import accumulate

from mithril_nb.stages.graph.draft import block_of
from mithril_nb.stages.hlo.module import Computation, HloModule, index_of
from mithril_nb.stages.records import UNATTRIBUTED, Instruction, Stage, quick_to_make
from mithril_nb.stages.xla.memory import Buffer, Held, LiveRanges

ARGUMENTS, OUTPUTS, TEMPORARIES, CONSTANTS = "arguments", "outputs", "temporaries", "constants"
UNFILLED = "unfilled"
"""Kind of allocated memory that holds no value at the peak: gaps between values and alignment."""
# XLA's CPU compiler aligns temporaries to 64 bytes and returns several outputs as a table of 8-byte pointers.
_ALIGNED, _POINTER = 64, 8
KINDS: tuple[str, ...] = (ARGUMENTS, OUTPUTS, TEMPORARIES, CONSTANTS, UNFILLED)
# Kinds of buffers that count. Thread-local buffers are left out: they are a few bytes on the stack.
_COUNTED = frozenset({"parameter", "result", "temporary", "constant"})
_NUMBERS = re.compile(r"\d+")
# Most steps in a search for the instruction that computes a value: unexpected HLO text may contain cycles.
_MOST_STEPS = 100
_CALLS = frozenset({"while", "conditional", "call", "fusion", "async-start", "call-start", "fusion-start"})


@quick_to_make
@dataclass(frozen=True)
class LiveRange:
    """The time during which a value holds memory, as positions in the schedule of the program.

    Attributes:
        id: The id of the instruction (`"while.3{1}"`, for its result with index 1) or the equation (`"12.b0.3"`) that
            produces the value; or the name of an argument.
        kind: `"arguments"`, `"outputs"`, `"temporaries"` or `"constants"`. For allocated memory that holds no value at
            the peak, `"unfilled"`.
        block: Path of the block that produces the value, or that an argument belongs to; `""` if not attributed.
        size_bytes: Size of the value in bytes.
        first: Index in `MemoryUse.timeline` at which the value is allocated.
        last: Index in `MemoryUse.timeline` at which the value is used last. If another value overwrites it, that value
            begins at the next index.
    """

    id: str
    kind: str
    block: str
    size_bytes: int
    first: int
    last: int


def held(lives: Iterable[LiveRange], positions: int) -> list[int]:
    """Return the bytes that values hold at each position, from 0 to `places - 1`.

    Examples:
        >>> held([LiveRange("x", "arguments", "", 4, 0, 2), LiveRange("y", "temporaries", "", 8, 1, 1)], 3)
        [4, 12, 4]
    """
    changes = [0] * (positions + 1)
    for life in lives:
        changes[life.first] += life.size_bytes
        changes[life.last + 1] -= life.size_bytes
    return list(accumulate(changes[:positions]))


def allocated_for(lives: Iterable[LiveRange], positions: int) -> int:
    """Estimate the bytes that XLA allocates before a program runs, from the live ranges of the program's values.

    - Each argument, output and constant has its own memory for the whole run. But an output overwrites a donated
      argument of the same size that is not used any more. An argument is donated if its live range ends before the
      last of the `positions` positions.
    - A temporary uses the memory of an output of at least its size that is not written yet, if there is one.
    - The other temporaries share memory. Their sizes are rounded up to 64 bytes.
    - Two or more outputs need a table of pointers, 8 bytes each.

    Examples:
        Argument `x`, temporary `y`, output `z`. `y` uses the memory of `z`:

        >>> x, y, z = (
        ...     LiveRange("x", "arguments", "", 4, 0, 2),
        ...     LiveRange("y", "temporaries", "", 8, 1, 1),
        ...     LiveRange("z", "outputs", "", 8, 2, 2),
        ... )
        >>> allocated_for([x, y, z], 3)  # x 4, z 8
        12

        `z` is too small for `y`:

        >>> allocated_for([x, y, replace(z, size_bytes=4)], 3)  # x 4, z 4, y 64
        72

        `x` is donated and as large as `z`, which overwrites it:

        >>> allocated_for([replace(x, size_bytes=8, last=1), y, z], 3)  # x and z 8, y 64
        72
    """
    lives = list(lives)
    before = _overwritten_by(lives, positions)
    # These outputs and the donated arguments that they overwrite are both added below, but share memory.
    separate = -sum(life.size_bytes for life in before.values())
    in_use = _MemoryInUse(positions)
    shared = 0
    others: list[LiveRange] = []
    # Outputs come before temporaries of the same size, so that these can use their memory.
    for life in sorted(lives, key=lambda value: (-value.size_bytes, value.kind != OUTPUTS)):
        if life.kind != TEMPORARIES:
            separate += life.size_bytes
            if life.kind == OUTPUTS:
                for user in (life, before.get(id(life))):
                    if user is not None:
                        in_use.add(shared, user)
                shared += 1
            continue
        free = ~in_use.during(life) & ((1 << shared) - 1)
        if free:
            in_use.add(free.bit_length() - 1, life)  # the highest bit is the smallest output
        else:
            others.append(replace(life, size_bytes=-(-life.size_bytes // _ALIGNED) * _ALIGNED))
    table = _POINTER * shared if shared > 1 else 0
    return separate + table + max(held(others, positions), default=0)


class _MemoryInUse:
    # A segment tree over the schedule. A list of live ranges for each output would take quadratic time: a
    # training step has an output for each parameter.
    def __init__(self, positions: int):
        self._leaves = positions
        # For each node, the outputs whose memory is in use at all positions of the node.
        self._throughout = [0] * (2 * positions)
        # For each node, the outputs whose memory is in use at one of its positions or more.
        self._somewhere = [0] * (2 * positions)

    def _above(self, position: int) -> Iterator[int]:
        node = position + self._leaves
        while node:
            yield node
            node //= 2

    def _covering(self, life: LiveRange) -> Iterator[int]:
        left, right = life.first + self._leaves, life.last + 1 + self._leaves
        while left < right:
            if left % 2:
                yield left
                left += 1
            if right % 2:
                right -= 1
                yield right
            left, right = left // 2, right // 2

    def add(self, output: int, life: LiveRange) -> None:
        for node in self._covering(life):
            self._throughout[node] |= 1 << output
            self._somewhere[node] |= 1 << output
        for position in (life.first, life.last):
            for node in self._above(position):
                self._somewhere[node] |= 1 << output

    def during(self, life: LiveRange) -> int:
        """Return the bits of the outputs whose memory is in use at any position of a live range."""
        outputs = 0
        for node in self._covering(life):
            outputs |= self._somewhere[node]
        for position in (life.first, life.last):
            for node in self._above(position):
                outputs |= self._throughout[node]
        return outputs


def _overwritten_by(lives: Iterable[LiveRange], positions: int) -> dict[int, LiveRange]:
    # Keys are the `id` of the live range of an output; the value is the donated argument that it overwrites.
    ended: dict[int, list[LiveRange]] = {}
    # Sorted so that `pop` returns the argument that ends first.
    for life in sorted(lives, key=lambda life: -life.last):
        if life.kind == ARGUMENTS and life.last < positions - 1:
            ended.setdefault(life.size_bytes, []).append(life)
    overwritten: dict[int, LiveRange] = {}
    for life in sorted(lives, key=lambda life: life.first):
        free = ended.get(life.size_bytes)
        if life.kind == OUTPUTS and free and free[-1].last < life.first:
            overwritten[id(life)] = free.pop()
    return overwritten


def allocated(buffers: Iterable[Buffer]) -> int:
    """Return the bytes that XLA allocates before a program runs, including constants."""
    return sum(buffer.size_bytes for buffer in buffers if buffer.kind in _COUNTED)


def compiled_lives(buffers: Iterable[Buffer], ranges: LiveRanges, producers: Producers) -> tuple[list[LiveRange], int]:
    """Return the live ranges of values, and the number of values left out because XLA reports no live range.

    No byte is counted twice: the live range of a value ends before the next value at the same offset begins.
    """
    end = len(ranges.sequence) - 1
    lives: list[LiveRange] = []
    unknown = 0
    for buffer in buffers:
        if buffer.kind not in _COUNTED:
            continue
        if buffer.kind == "constant":
            first = buffer.values[0] if buffer.values else None
            block = "" if first is None else producers.block_of(first.instruction, first.index)
            name = "" if first is None else first.instruction + first.index
            lives.append(LiveRange(name, CONSTANTS, block, buffer.size_bytes, 0, end))
            continue
        by_offset: dict[int, list[tuple[int, int, Held]]] = {}
        for value in buffer.values:
            span = ranges.ranges.get((value.instruction, value.index or "{}"))
            if span is None or span[0] > end:
                unknown += 1
            else:
                by_offset.setdefault(value.offset_bytes, []).append((*span, value))
        for values in by_offset.values():
            lives += _in_turn(buffer, values, end, producers)
    return lives, unknown


def _in_turn(
    buffer: Buffer, values: list[tuple[int, int, Held]], end: int, producers: Producers
) -> Iterable[LiveRange]:
    values.sort(key=lambda entry: entry[:2])
    reached = -1
    for index, (first, last, value) in enumerate(values):
        reached = max(reached, last)
        following = values[index + 1][0] if index + 1 < len(values) else reached + 1
        until = min(reached, following - 1, end)
        if until < first:  # overwritten where it is produced
            continue
        if buffer.kind == "parameter" and producers.is_argument(value.instruction):
            kind = ARGUMENTS
        else:
            # As in XLA, a temporary in the buffer of a later output counts as an output.
            kind = OUTPUTS if buffer.is_given_back else TEMPORARIES
        block = producers.block_of(value.instruction, value.index)
        yield LiveRange(value.instruction + value.index, kind, block, value.size_bytes, first, until)


class Producers:
    """The instructions and blocks that produce the values of a compiled program, read from its optimized HLO."""

    def __init__(self, stage: Stage):
        self._module = HloModule.of(stage)
        self._by_id = {instruction.id: instruction for instruction in stage.instructions}
        self._home: dict[str, Computation] = {}
        self._callers: dict[str, tuple[Instruction, Computation]] = {}
        for computation in () if self._module is None else self._module.computations.values():
            for inner in computation.by_id.values():
                self._home[inner.id] = computation
                if inner.opcode in _CALLS:
                    for called in self._module.called(inner) if self._module is not None else ():
                        self._callers[called.name] = inner, computation

    def block_of(self, id: str, index: str = "") -> str:
        """Return the path of the block that produces most of a value; `""` if not attributed."""
        first = self._by_id.get(id)
        if first is None:
            return UNATTRIBUTED
        if index == "{}":
            return UNATTRIBUTED  # XLA's own table of pointers to the elements of a tuple
        producer = self._producer(first, [int(number) for number in _NUMBERS.findall(index)])
        return block_of(producer) or block_of(first)

    def is_argument(self, id: str) -> bool:
        """Return whether a value is an argument of the program."""
        home = self._home.get(id)
        return home is not None and home.is_entry and self._by_id[id].opcode == "parameter"

    def _producer(self, instruction: Instruction, index: list[int]) -> Instruction:
        for _ in range(_MOST_STEPS):
            source = self._source(instruction, index)
            if source is None:
                break
            instruction, index = source
        return instruction

    def _source(self, instruction: Instruction, index: list[int]) -> tuple[Instruction, list[int]] | None:
        home = self._home.get(instruction.id)
        if home is None or self._module is None:
            return None
        if instruction.opcode == "parameter":
            caller = self._callers.get(home.name)
            if caller is None:
                return None
            return self._source_of_loop(caller[0], index) if caller[0].opcode == "while" else None
        operands = home.operands(instruction)
        if instruction.opcode == "tuple" and index and index[0] < len(instruction.operands):
            return self._known(instruction.operands[index[0]], index[1:])
        if instruction.opcode == "get-tuple-element" and operands:
            position = index_of(instruction)
            return operands[0], index if position is None else [position, *index]
        if instruction.opcode == "while":
            return self._source_of_loop(instruction, index)
        if instruction.opcode in _CALLS:
            roots = [body.root for body in self._module.called(instruction) if body.root is not None]
            return (roots[0], index) if roots else None
        if not instruction.shares and operands and instruction.opcode in ("copy", "bitcast", "copy-start", "copy-done"):
            return operands[0], []
        return None

    def _source_of_loop(self, loop: Instruction, index: list[int]) -> tuple[Instruction, list[int]] | None:
        # An element of a loop comes from the body, or from the operand of the loop if the body does not change it.
        assert self._module is not None
        bodies = self._module.called(loop, "body")
        element = bodies[0].element(index[0]) if bodies and index else None
        if element is None:
            return None
        if bodies[0].carried(element) == index[0]:
            return self._known(loop.operands[0], index) if loop.operands else None
        return element, index[1:]

    def _known(self, id: str, index: list[int]) -> tuple[Instruction, list[int]] | None:
        instruction = self._by_id.get(id)
        return None if instruction is None else (instruction, index)
