"""The memory of a compiled program, read from XLA's reports: buffers, and live ranges of values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from mithril_nb.display import Shown
from mithril_nb.stages.xla.dump import Dump

_BUFFERS, _LIVE_RANGES = "after_optimizations-buffer-assignment", "after_optimizations-live-range"
# For example: allocation 3: size 64, parameter 2, shape |f32[16]| at ShapeIndex {}, maybe-live-out:
_ALLOCATION = re.compile(r"^allocation (\d+): size (\d+)(.*?):?$")
# For example: value: <9 while.7{1} @0> (size=32,offset=32): f32[8]{0}
_VALUE = re.compile(r"^ +value: <\d+ ([^\s{>]+)(\{[\d,]*\})?[^>]*> \(size=(\d+),offset=(\d+)\)")
_PARAMETER = re.compile(r", parameter (\d+)\b")
# In this order, because an argument that XLA reuses for a result has the attributes of both.
# `Buffer.kind` by the attribute of an allocation in XLA's text; the first match counts.
_KINDS = {", parameter ": "parameter", ", constant": "constant", ", thread-local": "thread-local",
          ", maybe-live-out": "result"}  # fmt: skip
# For example: 3:add.1 in the sequence, and add.1{}:1-2 in the ranges.
_PLACE = re.compile(r"^    (\d+):(\S+)$")
_RANGE = re.compile(r"^    (\S+?)(\{[\d,]*\}):(\d+)-(\d+)$")


@dataclass(frozen=True)
class Held:
    """A value in a buffer.

    Attributes:
        instruction: Id of the instruction of the optimized HLO that produces the value.
        index: `"{1}"` if the value is the part with index 1 of a result that is a tuple; `""` for the whole result.
        size_bytes: Size of the value in bytes.
        offset_bytes: Offset of the value in the buffer, in bytes.
    """

    instruction: str
    index: str
    size_bytes: int
    offset_bytes: int


@dataclass(frozen=True)
class Buffer(Shown):
    """A buffer of a compiled program. Values with disjoint live ranges may share it.

    Attributes:
        number: XLA's number of the buffer.
        size_bytes: Size of the buffer in bytes.
        kind: `"parameter"` for an argument of the program, `"result"` if it may contain a result, `"constant"`,
            `"thread-local"` or `"temporary"`.
        parameter: Index of the argument, counted from 0; `None` for other kinds.
        is_given_back: True if the buffer may contain a result of the program when it ends. The kind of such a buffer
            is `"parameter"` if XLA reuses the memory of an argument for the result.
        values: All values that are in the buffer at some time.
    """

    number: int
    size_bytes: int
    kind: str
    parameter: int | None
    is_given_back: bool
    values: tuple[Held, ...]

    def __str__(self) -> str:
        label = self.kind if self.parameter is None else f"{self.kind} {self.parameter}"
        names = ", ".join(f"{value.instruction}{value.index}" for value in self.values)
        return f"{self.number}. {self.size_bytes:,} bytes, {label}: {names}"


def read_buffers(dump: Dump) -> tuple[Buffer, ...]:
    """Return the buffers of a compiled program, the largest first."""
    return buffers_in(_report(dump, _BUFFERS, "buffers"))


def buffers_in(text: str) -> tuple[Buffer, ...]:
    r"""Return the buffers in the text of a buffer assignment, the largest first; skip lines that cannot be read.

    Examples:
        >>> (buffer,) = buffers_in("allocation 3: size 8, parameter 1, shape |f32[2]| at ShapeIndex {}:\n"
        ...                        " value: <7 x.1 @0> (size=8,offset=0): f32[2]{0}\n")
        >>> print(buffer)
        3. 8 bytes, parameter 1: x.1
    """
    allocations: list[tuple[re.Match[str], list[Held]]] = []
    for line in text.splitlines():
        head = _ALLOCATION.match(line)
        value = _VALUE.match(line) if head is None and allocations else None
        if head is not None:
            allocations.append((head, []))
        elif value is not None:
            allocations[-1][1].append(Held(value[1], value[2] or "", int(value[3]), int(value[4])))
        elif line and not line.startswith((" ", "BufferAssignment")):
            break  # the rest repeats the same in another form
    buffers: list[Buffer] = []
    for head, values in allocations:
        number, size, details = head.groups()
        kind = next((kind for sign, kind in _KINDS.items() if sign in details), "temporary")
        parameter = _PARAMETER.search(details)
        index = int(parameter[1]) if parameter else None
        buffers.append(Buffer(int(number), int(size), kind, index, "maybe-live-out" in details, tuple(values)))
    return tuple(sorted(buffers, key=lambda buffer: -buffer.size_bytes))


@dataclass(frozen=True)
class LiveRanges:
    """The schedule of a compiled program, and the live range of each value in it.

    Attributes:
        sequence: Ids of the instructions of the optimized HLO in the order they run. The body of a loop or branch is
            listed once, before its loop or conditional. Instructions inside fusions are not listed.
        ranges: A dict from each value to the first and the last position in `sequence` at which it is needed. A value
            is a pair: the id of the instruction that produces it, and the part of the instruction's result, as in
            `("while.7", "{1}")`, or `("add.1", "{}")` for the whole result. The last position of an argument or
            result of the program is the length of `sequence`.
    """

    sequence: tuple[str, ...]
    ranges: Mapping[tuple[str, str], tuple[int, int]]


def read_live_ranges(dump: Dump) -> LiveRanges:
    """Return the live ranges of a compiled program."""
    live_ranges = live_ranges_in(_report(dump, _LIVE_RANGES, "live ranges"))
    if not live_ranges.sequence:
        raise _missing("live ranges")
    return live_ranges


def live_ranges_in(text: str) -> LiveRanges:
    r"""Return the live ranges in the text of XLA's report of live ranges; skip lines that cannot be read.

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
        entry = _PLACE.match(line)
        if entry is not None and int(entry[1]) == len(sequence):
            sequence.append(entry[2])
            continue
        match = _RANGE.match(line)
        if match is not None:
            ranges[match[1], match[2]] = int(match[3]), int(match[4])
    return LiveRanges(tuple(sequence), ranges)


def _report(dump: Dump, ending: str, title: str) -> str:
    name = next((name for name in dump.names("txt") if name.endswith(ending)), None)
    if name is None:
        raise _missing(title)
    return dump.text(name, "txt")


def _missing(title: str) -> LookupError:
    return LookupError(f"this platform does not report the {title} of a program")
