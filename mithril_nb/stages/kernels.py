"""The kernels of a compiled program: LLVM IR and machine code of each, and which instructions of the HLO it runs.

XLA gives a kernel the name of the instruction that it runs, mostly a fusion; a comparison that is handed to a sort has
the name of its computation. So what is known of the HLO is known of them, all lines of a kernel alike.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from mithril_nb.display import Shown
from mithril_nb.stages.dump import Dump
from mithril_nb.stages.inference import blend, by_place, majority
from mithril_nb.stages.machine_code import disassemble, read_ptx
from mithril_nb.stages.records import Instruction

OPTIMIZED, PLAIN = "ir-with-opt.ll", "ir-no-opt.ll"
_DEFINE = re.compile(r"^define [^@\n]*@(\"[^\"]+\"|[\w.$-]+)\(", re.MULTILINE)
_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) (?:\(.*\) -> .*)?\{$")


@dataclass(frozen=True)
class Kernel(Shown):
    """The code of one kernel.

    Attributes:
        name: Its symbol: the name of the HLO instruction, or computation, that it runs.
    """

    name: str
    _dump: Dump = field(repr=False, compare=False)
    _file: str = field(repr=False, compare=False)

    def __str__(self) -> str:
        return self.llvm

    @property
    def llvm_before(self) -> str:
        """Its LLVM IR as XLA emits it, the whole module."""
        return self._dump.text(self._file, PLAIN)

    @property
    def llvm(self) -> str:
        """Its LLVM IR after LLVM's own optimizer, the whole module."""
        return self._dump.text(self._file, OPTIMIZED)

    @property
    def object_code(self) -> bytes:
        """The object file that was linked.

        Raises:
            FileNotFoundError: The platform writes none.
        """
        return self._dump.path("obj-file", self._file, "o").read_bytes()

    @property
    def asm(self) -> list[AsmLine]:
        """Its machine code, or PTX: text, opcode and operands of each line.

        Raises:
            ValueError: The machine's code cannot be read here.
            FileNotFoundError: The platform writes none.
        """
        ptx = self._dump.path(self._file, "ptx")
        return read_ptx(ptx.read_text(), self.name) if ptx.exists() else disassemble(self.object_code, self.name)


AsmLine = tuple[str, str, tuple[str, ...]]
"""A line, its opcode (`""` for a label) and its operands."""


def read_kernels(dump: Dump, order: Sequence[str]) -> tuple[Kernel, ...]:
    """Return the kernels in a dump.

    Args:
        dump: The dump.
        order: Names of HLO instructions in the order in which their kernels shall stand; the others follow by name.
    """
    place = {name: at for at, name in enumerate(order)}
    found = []
    for file in dump.names(OPTIMIZED):
        for name in _DEFINE.findall(dump.text(file, OPTIMIZED)):
            found.append(Kernel(name.strip('"'), dump, file))
    return tuple(
        sorted(found, key=lambda kernel: (place.get(kernel.name.removesuffix("_kernel"), len(place)), kernel.name))
    )


class Owners:
    """What each kernel runs, as known of the HLO.

    Args:
        text: Text of the optimized HLO as it is shown.
        instructions: Its instructions.
    """

    def __init__(self, text: str, instructions: Iterable[Instruction]):
        self._by_name = {one.id: one for one in instructions}
        heads = [
            (number, match.group(1))
            for number, line in enumerate(text.splitlines(), 1)
            if line[:1] not in " }" and (match := _COMPUTATION.match(line))
        ]
        self._by_computation: Mapping[str, list[Instruction]] = {name: [] for _, name in heads}
        at = -1
        for one in self._by_name.values():
            while at + 1 < len(heads) and heads[at + 1][0] < one.line:
                at += 1
            if at >= 0:
                self._by_computation[heads[at][1]].append(one)

    @cached_property
    def fusions(self) -> Mapping[str, str]:
        """The fusion that each fused instruction is a part of, by id."""
        found: dict[str, str] = {}
        for one in self._by_name.values():
            for name, value in one.attributes if one.opcode == "fusion" else ():
                if name == "calls":
                    found.update((inner.id, one.id) for inner in self._by_computation.get(value.lstrip("%"), ()))
        return found

    def of(self, kernel: str) -> Instruction:
        """Return what is known of a kernel, as an instruction that stands for all of its lines."""
        for name in (kernel, kernel.removesuffix("_kernel")):  # an instruction that runs a loop has the longer name
            if name in self._by_name:
                return self._by_name[name]
        inside = [one for one in self._by_computation.get(kernel, ()) if one.opcode != "parameter"]
        equations = {id for one in inside for id in one.equations}
        return Instruction(
            kernel,
            "kernel",
            0,
            tuple(sorted(equations, key=by_place)),
            blend((one.shares, 1.0) for one in inside),
            majority((one.role, 1.0) for one in inside),
            "inferred" if any(one.shares for one in inside) else None,
            transforms=max((one.transforms for one in inside), key=len, default=()),
            source=tuple(dict.fromkeys(line for one in inside for line in one.source)),
        )


def listing(
    kernels: Iterable[Kernel],
    owners: Owners,
    lines_of: Callable[[Kernel], Iterable[AsmLine]],
    title: Callable[[str, int], str],
) -> tuple[str, tuple[Instruction, ...]]:
    """Return the code of kernels one after another as one text, and its instructions.

    Args:
        kernels: The kernels.
        owners: What each of them runs.
        lines_of: Gives the lines of a kernel.
        title: Gives the line above a kernel, from its name and the number of its instructions.
    """
    shown: list[str] = []
    found: list[Instruction] = []
    for kernel in kernels:
        owner = owners.of(kernel.name)
        lines = list(lines_of(kernel))
        shown.append(title(kernel.name, sum(1 for _, opcode, _ in lines if opcode)))
        head = replace(
            owner, id=kernel.name, opcode="kernel", line=len(shown), lines=len(lines) + 1, operands=(), attributes=()
        )
        found.append(head)
        for number, (line, opcode, operands) in enumerate(lines):
            shown.append(line)
            if opcode:
                found.append(
                    replace(
                        head,
                        id=f"{kernel.name}:{number}",
                        opcode=opcode,
                        line=len(shown),
                        lines=1,
                        operands=operands,
                        shapes=(),
                    )
                )
        shown.append("")
    return "\n".join(shown), tuple(found)
