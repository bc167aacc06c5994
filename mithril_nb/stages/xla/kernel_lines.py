"""The instructions of kernels, created on first use.

A page may show 700,000 of them, but reads only some attributes. These are computed without the instructions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, overload

from mithril_nb.stages.once import paused_collector
from mithril_nb.stages.records import Instruction


class KernelLines(Sequence[Instruction]):
    """The instructions of the stage `"llvm"` or `"asm"`, created on first use.

    Args:
        kernels: For each kernel, the instruction of its title line, and the opcode of each line below the title (`""`
            for a line without an instruction).
        make: Function that creates all instructions, with operands.
    """

    def __init__(
        self, kernels: Sequence[tuple[Instruction, Sequence[str]]], make: Callable[[], tuple[Instruction, ...]]
    ):
        self._kernels, self._make = kernels, make
        self._counts = [1 + len(opcodes) - opcodes.count("") for _, opcodes in kernels]

    @cached_property
    def _every(self) -> tuple[Instruction, ...]:
        with paused_collector():
            return self._make()

    def column(self, name: str) -> list[Any]:
        """Return an attribute of each instruction."""
        # Only for `"operands"`, this creates the instructions.
        values: list[Any] = []
        for (head, opcodes), count in zip(self._kernels, self._counts, strict=True):
            values += _OWN[name](head, opcodes) if name in _OWN else [getattr(head, name)] * count
        return values

    def shared(self, name: str) -> list[tuple[Any, int]] | None:
        """Return an attribute of each kernel, with its number of instructions; `None` if it differs between these."""
        if name in _OWN or name == "operands":
            return None
        return [(getattr(head, name), count) for (head, _), count in zip(self._kernels, self._counts, strict=True)]

    def without_operands(self) -> Iterator[Instruction]:
        """Yield the instructions."""
        # Their operands are `()`, unless `make` was called before.
        if "_every" in self.__dict__:
            yield from self._every
            return
        for head, opcodes in self._kernels:
            yield head
            for number, opcode in enumerate(opcodes):
                if opcode:
                    yield line_of(head, number, opcode)

    @overload
    def __getitem__(self, index: int) -> Instruction: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Instruction, ...]: ...
    def __getitem__(self, index: int | slice) -> Instruction | tuple[Instruction, ...]:
        return self._every[index]

    def __iter__(self) -> Iterator[Instruction]:
        return iter(self._every)

    def __len__(self) -> int:
        return sum(self._counts)

    def __eq__(self, other: object) -> bool:
        return self._every == (other._every if isinstance(other, KernelLines) else other)

    def __hash__(self) -> int:
        return hash(self._every)

    def __reduce__(self) -> tuple[Any, ...]:
        return tuple, (self._every,)


def line_of(head: Instruction, number: int, opcode: str, operands: tuple[str, ...] = ()) -> Instruction:
    """Return the instruction on line `number` below the title of a kernel, counted from 0; `head` is the title's."""
    # Not `dataclasses.replace`, which takes ten times as long: a kernel may have 100,000 lines.
    return Instruction(
        f"{head.id}:{number}", opcode, head.line + 1 + number, head.equations, head.shares, head.role,
        head.origin, operands=operands, transforms=head.transforms, source=head.source,
        library_source=head.library_source,
    )  # fmt: skip


# Attributes that differ between the lines of a kernel: functions of the title's instruction and the opcodes.
_OWN: dict[str, Callable[[Instruction, Sequence[str]], list[Any]]] = {
    "id": lambda head, ops: [head.id, *(f"{head.id}:{at}" for at, opcode in enumerate(ops) if opcode)],
    "opcode": lambda head, ops: [head.opcode, *filter(None, ops)],
    "line": lambda head, ops: [head.line, *(at for at, opcode in enumerate(ops, head.line + 1) if opcode)],
    "lines": lambda head, ops: [head.lines, *[1] * (len(ops) - ops.count(""))],
}
