"""A stage of HLO as computations that call each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from mithril_nb.stages.hlo.syntax import COMPUTATIONS, device_counts, integer_in, layout_in, names_in, opened_by
from mithril_nb.stages.records import Instruction, Stage

_BEFORE = "hlo_before"
_UNPACKED = {"int2": "int8", "int4": "int8", "uint2": "uint8", "uint4": "uint8", "float4_e2m1fn": "float8_e4m3fn"}
"""Dtypes smaller than a byte: before its passes XLA has not packed them, and counts a byte for each element."""
_BRANCHES = ("branch_computations", "true_computation", "false_computation")


@dataclass
class Computation:
    """A computation of an HLO module.

    Attributes:
        name: Its name.
        is_entry: True for the entry computation.
        by_id: Its instructions by id, in order.
        layouts: Minor-to-major axes of the results that are not row-major, by id.
        numbers: Values of the integer constants, by id.
        root: The instruction that returns its result.
    """

    name: str
    is_entry: bool
    by_id: dict[str, Instruction] = field(default_factory=dict)
    layouts: dict[str, tuple[int, ...]] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    root: Instruction | None = None

    @cached_property
    def users(self) -> Mapping[str, tuple[Instruction, ...]]:
        """The users of the result of each instruction, by its id."""
        found: dict[str, list[Instruction]] = {}
        for one in self.by_id.values():
            for operand in dict.fromkeys(one.operands):
                found.setdefault(operand, []).append(one)
        return {id: tuple(users) for id, users in found.items()}

    def operands(self, one: Instruction) -> tuple[Instruction, ...]:
        """Return the operands of an instruction that are in this computation."""
        return tuple([self.by_id[id] for id in one.operands if id in self.by_id])


@dataclass(frozen=True)
class HloModule:
    """The computations of a stage of HLO.

    Attributes:
        computations: The computations by name.
        entry: The entry computation.
        replicas: Number of replicas; `None` if it is not in the text.
        partitions: Number of partitions of each replica; `None` if it is not in the text.
    """

    computations: Mapping[str, Computation]
    entry: Computation
    replicas: int | None = None
    partitions: int | None = None

    @classmethod
    def of(cls, stage: Stage) -> HloModule | None:
        """Return the module of a stage, or `None` if its text has no entry computation."""
        lines = stage.text.split("\n")
        found: dict[str, Computation] = {}
        current: Computation | None = None
        place = 0
        for one in stage.instructions:
            for number in range(place, one.line - 1):
                line = lines[number]
                if name := opened_by(line):
                    current = found[name] = Computation(name, line.startswith("ENTRY "))
            place = one.line
            if current is None:
                continue
            current.by_id[one.id] = _unpacked(one) if stage.name == _BEFORE else one
            line = lines[one.line - 1]
            if line.startswith("  ROOT "):
                current.root = one
            if one.opcode == "constant":
                number = integer_in(line)
                if number is not None:
                    current.numbers[one.id] = number
            if layout := layout_in(line):
                current.layouts[one.id] = layout
        entry = next((one for one in found.values() if one.is_entry), None)
        # The HLO text leaves out counts of 1.
        sizes = device_counts(lines[0])
        replicas, partitions = (sizes.get(name, 1 if sizes else None) for name in ("replica_count", "num_partitions"))
        return None if entry is None else cls(found, entry, replicas, partitions)

    def called(self, one: Instruction, *how: str) -> list[Computation]:
        """Return the computations that an instruction calls through some attributes (by default any)."""
        return [
            self.computations[name]
            for key, value in one.attributes
            if key in (how or COMPUTATIONS)
            for name in names_in(value)
            if name in self.computations
        ]

    def callers_last(self) -> list[Computation]:
        """Return the computations reachable from the entry, each after its callees."""
        done: dict[str, Computation] = {}
        waiting = [(self.entry, False)]
        while waiting:
            body, is_left = waiting.pop()
            if is_left:
                done.setdefault(body.name, body)
            elif body.name not in done:
                waiting.append((body, True))
                waiting += [(callee, False) for one in body.by_id.values() for callee in self.called(one)]
        return [*done.values()]

    def branches(self, one: Instruction) -> list[Computation]:
        """Return the branches of a condition."""
        return self.called(one, *_BRANCHES)


def _unpacked(one: Instruction) -> Instruction:
    if not any(spec.dtype in _UNPACKED for spec in one.shapes):
        return one
    return replace(one, shapes=tuple(replace(s, dtype=_UNPACKED.get(s.dtype, s.dtype)) for s in one.shapes))
