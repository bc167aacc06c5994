"""The kernels of a compiled program: their LLVM IR and machine code, and the HLO instructions that they run.

XLA names a kernel after the HLO instruction that it runs, which is mostly a fusion. (A kernel that compares the items
in a sort is named after an HLO computation.) Every line of the kernel gets the blocks and the role of this instruction.
If several fusions compute the same on different arrays, XLA writes one kernel for all of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, cast

from mithril_nb.display import Shown
from mithril_nb.stages.hlo.syntax import OPERAND
from mithril_nb.stages.hlo.text import by_computation
from mithril_nb.stages.inference import blend_equally, distinct, in_program_order, majority_of
from mithril_nb.stages.once import paused_collector
from mithril_nb.stages.records import Instruction
from mithril_nb.stages.xla.dump import Dump
from mithril_nb.stages.xla.kernel_code import disassemble, read_ptx
from mithril_nb.stages.xla.sass import read_sass

OPTIMIZED = "ir-with-opt.ll"
_NO_CODE = "XLA writes no machine code for this platform; see the stage 'llvm' for the LLVM IR"
# For example: define void @add_fusion(ptr %0). On a GPU, one file has the definitions of all kernels.
_DEFINE = re.compile(r"^define [^@\n]*@(\"[^\"]+\"|[\w.$-]+)\(", re.MULTILINE)
# For example: the dots of the instruction add.fusion.1. On a GPU its kernel is add_fusion_1.
_UNPLAIN = re.compile(r"[^\w]")


@dataclass(frozen=True)
class Kernel(Shown):
    """The code of one kernel.

    Attributes:
        name: Name of the kernel's function. XLA derives it from the HLO instruction that the kernel runs.
    """

    name: str
    _dump: Dump = field(repr=False, compare=False)
    _file: str = field(repr=False, compare=False)

    def __str__(self) -> str:
        return self.llvm

    @property
    def llvm(self) -> str:
        """The LLVM IR after LLVM optimized it: the module that contains the kernel."""
        return self._dump.text(self._file, OPTIMIZED)

    @property
    def object_code(self) -> bytes:
        """The object file with the machine code of the kernel."""
        path = self._dump.path("obj-file", self._file, "o")
        if not path.exists():
            raise LookupError(_NO_CODE)
        return path.read_bytes()

    @property
    def asm(self) -> list[AsmLine]:
        """Text, opcode and operands of each line of the machine code, or of the PTX on an NVIDIA GPU."""
        if self._dump.path(self._file, "ptx").exists():
            return read_ptx(self._dump.text(self._file, "ptx"), self.name)
        return disassemble(self.object_code, self.name)

    @property
    def sass(self) -> list[AsmLine]:
        """The machine code of an NVIDIA GPU, as `asm`."""
        if not self._dump.path(self._file, "ptx").exists():
            raise LookupError("only kernels for NVIDIA GPUs have PTX, from which SASS is made")
        return read_sass(self._dump.text(self._file, "ptx"), self.name)


AsmLine = tuple[str, str, tuple[str, ...]]
"""Text, opcode (`""` for a label) and operands of a line."""


def read_kernels(dump: Dump, order: Sequence[str]) -> tuple[Kernel, ...]:
    """Return the kernels of a program."""
    positions = {name: at for at, name in enumerate(order)}
    names = _by_symbol(order)
    kernels = []
    for file in dump.names(OPTIMIZED):
        for name in _DEFINE.findall(dump.text(file, OPTIMIZED)):
            kernels.append(Kernel(name.strip('"'), dump, file))
    return tuple(
        sorted(kernels, key=lambda kernel: (positions.get(names.get(kernel.name, ""), len(positions)), kernel.name))
    )


def _by_symbol(names: Iterable[str]) -> Mapping[str, str]:
    # On a GPU, XLA replaces dots by underscores, and sometimes adds `_kernel`. If two HLO names lead to the same
    # kernel name, the dict contains the HLO name that is more similar to it.
    names = tuple(names)
    symbols: dict[str, str] = {}
    for plain in (False, True):
        for ending in ("", "_kernel"):
            for name in names:
                symbols.setdefault((_UNPLAIN.sub("_", name) if plain else name) + ending, name)
    return symbols


class Owners:
    """The HLO instructions that each kernel runs.

    Args:
        text: Text of the stage `"hlo"`.
        launches: On a GPU, the instructions of the stage `"launches"`.
    """

    def __init__(self, text: str, instructions: Iterable[Instruction], launches: Iterable[Instruction] = ()):
        self._text = text
        self._numbered: dict[str, str | int] = {}
        self._numbers: dict[str, int] = {}
        self._by_name = {instruction.id: instruction for instruction in instructions}
        self._by_computation = by_computation(text, self._by_name.values())
        # A Pallas kernel has the name of its Python function.
        named = {value: run.id for run in launches for name, value in run.attributes if name == "kernel"}
        self._symbols = named | {**_by_symbol((*self._by_name, *self._by_computation))}

    @cached_property
    def fusions(self) -> Mapping[str, str]:
        """The id of the fusion around each instruction by id; without parameters of fusions."""
        return {
            inner.id: id
            for id, body in self._bodies.items()
            for inner in self._by_computation.get(body, ())
            if inner.opcode != "parameter"
        }

    @cached_property
    def _bodies(self) -> Mapping[str, str]:
        return {
            instruction.id: value.lstrip("%")
            for instruction in self._by_name.values()
            if instruction.opcode == "fusion"
            for name, value in instruction.attributes
            if name == "calls"
        }

    def of(self, kernels: Iterable[str]) -> Mapping[str, Instruction]:
        """Return a dict from the name of each kernel to an instruction with the kernel's blocks, role and equations.

        Args:
            kernels: Names of all kernels of the program.
        """
        # The role is the part of a training step, such as `"forward"`. XLA may run equal fusions with one kernel,
        # whose blocks are then the blocks of all these fusions.
        runs = {kernel: self._symbols.get(kernel, "") for kernel in kernels}
        groups: dict[object, list[str]] = {}
        for id, body in self._bodies.items():
            groups.setdefault(self._likeness(body), []).append(id)
        others: dict[str, list[str]] = {}
        run = set(runs.values())
        for group in groups.values():
            have = [id for id in group if id in run]
            if len(have) == 1:  # if several have kernels, it is unknown which of these the others run
                others[have[0]] = [id for id in group if id != have[0]]
        owners: dict[str, Instruction] = {}
        for kernel, name in runs.items():
            inside = self._by_computation.get(name, ())
            parts = [instruction for instruction in inside if instruction.opcode != "parameter"]
            if name in self._by_name:
                parts = [self._by_name[id] for id in (name, *others.get(name, ()))]
            owners[kernel] = Instruction(
                kernel,
                "kernel",
                0,
                in_program_order(id for part in parts for id in part.equations),
                blend_equally(parts),
                majority_of(parts),
                "kernel" if any(part.shares for part in parts) else None,
                transforms=max((part.transforms for part in parts), key=len, default=()),
                source=distinct(line for part in parts for line in part.source),
                library_source=distinct(line for part in parts for line in part.library_source),
            )
            if len(parts) == 1:
                owners[kernel] = replace(parts[0], origin=owners[kernel].origin)
        return owners

    @cached_property
    def _lines(self) -> Mapping[str, str]:
        # It also has the name of each computation as a key, whose value is the names of its instructions, the root
        # last.
        lines = self._text.split("\n")
        texts = {
            instruction.id: lines[instruction.line - 1].partition(" = ")[2] for instruction in self._by_name.values()
        }
        for name, inside in self._by_computation.items():
            ordered = sorted(inside, key=lambda instruction: lines[instruction.line - 1].startswith("  ROOT "))
            texts[name] = " ".join(f"%{instruction.id}" for instruction in ordered)
        return texts

    def _likeness(self, name: str) -> str | int:
        """Return the same number for instructions, or computations, that compute the same from the same operands."""
        if not self._lines.get(name):
            return name
        if name not in self._numbered:
            # Operands come first in the text, so they have numbers already, and the recursion is not deep.
            numbers = [self._likeness(operand) for operand in OPERAND.findall(self._lines[name])]
            if name in self._by_computation:
                self._numbered[name] = numbers[-1]
            else:
                rest = iter(numbers)
                line = OPERAND.sub(lambda _: f"%{next(rest)}", self._lines[name])
                self._numbered[name] = self._numbers.setdefault(line, len(self._numbers))
        return self._numbered[name]


def listing(
    kernels: Iterable[Kernel],
    owners: Owners,
    lines_of: Callable[[Kernel], Iterable[AsmLine]],
    title: str,
) -> tuple[str, tuple[Instruction, ...]]:
    """Return the code of all kernels as the text of a stage, and its instructions.

    `kernels`: The kernels. `lines_of`: Function of a kernel that returns text, opcode and operands of each of its
    lines. `title`: Format of the line above a kernel, for the name of the kernel and its number of instructions.
    """
    printed: list[str] = []
    kernels = tuple(kernels)
    owner_by_kernel = owners.of(kernel.name for kernel in kernels)
    heads: list[tuple[Instruction, list[str]]] = []
    for kernel in kernels:
        texts: list[str] = []
        opcodes: list[str] = []
        for text, opcode, _ in lines_of(kernel):
            texts.append(text)
            opcodes.append(opcode)
        printed.append(title.format(kernel.name, len(opcodes) - opcodes.count("")))
        head = replace(
            owner_by_kernel[kernel.name], id=kernel.name, opcode="kernel", line=len(printed), lines=len(texts) + 1,
            operands=(), attributes=(),
        )  # fmt: skip
        heads.append((head, opcodes))
        printed += texts
        printed.append("")

    def make() -> Iterator[Instruction]:
        for kernel, (head, _) in zip(kernels, heads, strict=True):
            yield head
            for number, (_, opcode, operands) in enumerate(lines_of(kernel)):
                if opcode:
                    yield line_of(head, number, opcode, operands)

    return "\n".join(printed), cast("tuple[Instruction, ...]", KernelLines(heads, lambda: tuple(make())))


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
    def _instructions(self) -> tuple[Instruction, ...]:
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
        if "_instructions" in self.__dict__:
            yield from self._instructions
            return
        for head, opcodes in self._kernels:
            yield head
            for number, opcode in enumerate(opcodes):
                if opcode:
                    yield line_of(head, number, opcode)

    def __getitem__(self, index: Any) -> Any:
        return self._instructions[index]

    def __iter__(self) -> Iterator[Instruction]:
        return iter(self._instructions)

    def __len__(self) -> int:
        return sum(self._counts)

    def __eq__(self, other: object) -> bool:
        return self._instructions == (other._instructions if isinstance(other, KernelLines) else other)

    def __hash__(self) -> int:
        return hash(self._instructions)

    def __reduce__(self) -> tuple[Any, ...]:
        return tuple, (self._instructions,)


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
