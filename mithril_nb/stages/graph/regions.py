"""Nesting of instructions in loops, branches and calls, read from line ranges and called computations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from mithril_nb.stages.hlo.syntax import COMPUTATIONS, names_in
from mithril_nb.stages.hlo.text import by_computation
from mithril_nb.stages.records import Instruction, Stage


@dataclass(frozen=True)
class Region:
    """An instruction that contains others.

    Attributes:
        kind: Its opcode without a dialect.
        name: Its label.
        look: Whether it is a loop, has branches, or calls.
        note: How often it runs.
        id: The instruction.
    """

    kind: str
    name: str
    look: Literal["loop", "cond", "call"]
    note: str
    id: str

    @property
    def is_call(self) -> bool:
        """Return whether it runs its contents exactly once."""
        return self.look == "call"

    def label(self, inner: str) -> str:
        """Return the name of the branch that contains an instruction of a jaxpr, from its id; else `""`."""
        branch = inner[len(self.id) + 1 :].partition(".")[0] if inner.startswith(f"{self.id}.") else ""
        return f"branch {branch[1:]}" if branch[:1] == "b" and branch[1:].isdigit() else ""


def region_of(one: Instruction) -> Region:
    """Return the region of an instruction that contains others.

    Examples:
        >>> region_of(Instruction("3", "scan", 1, attributes=(("length", "10"),))).note
        '×10 rounds'
        >>> region_of(Instruction("while.1", "while", 1, attributes=(("known_trip_count", "7"),))).note
        '×7 rounds'
        >>> region_of(Instruction("3", "while", 1)).note
        'unknown number of rounds'
    """
    kind = one.opcode.rpartition(".")[2]
    attributes = dict(one.attributes)
    if kind in ("scan", "while"):
        trips = attributes.get("length") or attributes.get("known_trip_count", "")
        note = f"×{trips} rounds" if trips.isdigit() else "unknown number of rounds"
        return Region(kind, kind, "loop", note, one.id)
    if kind in ("cond", "conditional", "case", "if", "switch"):
        return Region(kind, kind, "cond", "one branch runs", one.id)
    return Region(kind, attributes.get("name", kind), "call", "", one.id)


def parents_of(stage: Stage) -> dict[str, str]:
    """Return the innermost instruction around each instruction that is inside another."""
    parents: dict[str, str] = {}
    open_ones: list[tuple[int, str]] = []  # the line after its last, and its id
    for one in sorted(stage.instructions, key=lambda one: (one.line, -one.lines)):
        while open_ones and open_ones[-1][0] <= one.line:
            open_ones.pop()
        if open_ones:
            parents[one.id] = open_ones[-1][1]
        if one.lines > 1:
            open_ones.append((one.line + one.lines, one.id))
    parents.update(_by_computation(stage, parents))
    return parents


def _by_computation(stage: Stage, known: Mapping[str, str]) -> dict[str, str]:
    """Return the same for HLO, whose bodies are separate computations that name no caller."""
    callers: dict[str, str] = {}
    for one in stage.instructions:
        for key, value in one.attributes:
            if key in COMPUTATIONS:
                for name in names_in(value):
                    callers.setdefault(name, one.id)
    if not callers:
        return {}
    inside = by_computation(stage.text, sorted(stage.instructions, key=lambda one: one.line))
    return {
        one.id: callers[name] for name, ones in inside.items() if name in callers for one in ones if one.id not in known
    }
