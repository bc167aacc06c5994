"""Where a compiled program keeps its values: XLA's buffer assignment, read."""

from __future__ import annotations

import re
from dataclasses import dataclass

from mithril_nb.display import Shown
from mithril_nb.stages.xla.dump import Dump

_FILE = "after_optimizations-buffer-assignment"
_ALLOCATION = re.compile(r"^allocation (\d+): size (\d+)(.*?):?$")
_VALUE = re.compile(r"^ +value: <\d+ ([^\s{>]+)(\{[\d,]*\})?[^>]*> \(size=(\d+),offset=(\d+)\)")
_PARAMETER = re.compile(r", parameter (\d+)\b")
_KINDS = {", parameter ": "parameter", ", constant": "constant", ", thread-local": "thread-local",
          ", maybe-live-out": "result"}  # fmt: skip
"""What XLA says of a piece of memory, the first that it says, and what it is called here."""
_MISSING = "this platform does not write down where a program keeps its values"


@dataclass(frozen=True)
class Held:
    """A value in a piece of memory.

    Attributes:
        instruction: Id of the instruction of optimized HLO that makes it.
        index: Which part of its result: `"{1}"`; `""` for all of it.
        size_bytes: Its size in bytes.
        offset_bytes: Where it begins in the piece, in bytes.
    """

    instruction: str
    index: str
    size_bytes: int
    offset_bytes: int


@dataclass(frozen=True)
class Buffer(Shown):
    """A piece of memory of a compiled program. Values that do not live at the same time may share it.

    Attributes:
        number: XLA's number of it.
        size_bytes: Its size in bytes.
        kind: `"parameter"` (an argument), `"result"` (given back, as far as XLA knows), `"constant"`, `"thread-local"`,
            or `"temporary"`.
        parameter: Which argument it is, counted from 0; `None` for other kinds.
        is_given_back: Whether a result may be in it; also so for arguments whose memory is reused.
        values: What is in it at one time or another.
    """

    number: int
    size_bytes: int
    kind: str
    parameter: int | None
    is_given_back: bool
    values: tuple[Held, ...]

    def __str__(self) -> str:
        what = self.kind if self.parameter is None else f"{self.kind} {self.parameter}"
        names = ", ".join(f"{one.instruction}{one.index}" for one in self.values)
        return f"{self.number}. {self.size_bytes:,} bytes, {what}: {names}"


def read_buffers(dump: Dump) -> tuple[Buffer, ...]:
    """Return the buffers of a compiled program, the largest first.

    Raises:
        LookupError: XLA wrote none down.
    """
    name = next((name for name in dump.names("txt") if name.endswith(_FILE)), None)
    if name is None:
        raise LookupError(_MISSING)
    return buffers_in(dump.text(name, "txt"))


def buffers_in(text: str) -> tuple[Buffer, ...]:
    r"""Return the buffers that a buffer assignment tells of, the largest first; what cannot be read is passed over.

    Examples:
        >>> (buffer,) = buffers_in("allocation 3: size 8, parameter 1, shape |f32[2]| at ShapeIndex {}:\n"
        ...                        " value: <7 x.1 @0> (size=8,offset=0): f32[2]{0}\n")
        >>> print(buffer)
        3. 8 bytes, parameter 1: x.1
    """
    found: list[tuple[re.Match[str], list[Held]]] = []
    for line in text.splitlines():
        head = _ALLOCATION.match(line)
        value = _VALUE.match(line) if head is None and found else None
        if head is not None:
            found.append((head, []))
        elif value is not None:
            found[-1][1].append(Held(value[1], value[2] or "", int(value[3]), int(value[4])))
        elif line and not line.startswith((" ", "BufferAssignment")):
            break  # what follows says the same in other words
    return tuple(sorted((_buffer(head, values) for head, values in found), key=lambda one: -one.size_bytes))


def _buffer(head: re.Match[str], values: list[Held]) -> Buffer:
    told = head[3]
    number = _PARAMETER.search(told)
    return Buffer(
        int(head[1]),
        int(head[2]),
        next((kind for sign, kind in _KINDS.items() if sign in told), "temporary"),
        int(number[1]) if number else None,
        "maybe-live-out" in told,
        tuple(values),
    )
