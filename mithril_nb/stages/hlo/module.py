"""A stage of HLO as computations that call each other, and the trip counts of its loops."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from mithril_nb.stages.hlo.syntax import (
    COMPUTATIONS,
    device_counts,
    integer_in,
    layout_in,
    names_in,
    opened_by,
    spaces_in,
)
from mithril_nb.stages.records import Equation, Instruction, Read, Stage
from mithril_nb.stages.trace.params import TRIPS
from mithril_nb.stages.trace.trips import rounds

_DIGITS = re.compile(r"\d+")
# For each dtype smaller than a byte, a dtype of one byte: before XLA's passes, an element takes a whole byte.
_UNPACKED = {"int2": "int8", "int4": "int8", "uint2": "uint8", "uint4": "uint8", "float4_e2m1fn": "float8_e4m3fn"}
_BRANCHES = ("branch_computations", "true_computation", "false_computation")


@dataclass
class Computation:
    """A computation of an HLO module.

    Attributes:
        name: Name of the computation.
        is_entry: True for the entry computation.
        by_id: The instructions by id, in order.
        layouts: A dict from the id of an instruction to the axes of its result from minor to major. Results in
            row-major order are left out.
        spaces: A dict from the id of an instruction to the memory space of each array of its result, on TPUs.
        numbers: A dict from the id of an integer constant to its value.
        root: The instruction that returns the result of the computation.
    """

    name: str
    is_entry: bool
    by_id: dict[str, Instruction] = field(default_factory=dict)
    layouts: dict[str, tuple[int, ...]] = field(default_factory=dict)
    spaces: dict[str, tuple[int, ...]] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    root: Instruction | None = None

    @cached_property
    def users(self) -> Mapping[str, tuple[Instruction, ...]]:
        """A dict from the id of each instruction to the instructions that use its result."""
        by_operand: dict[str, list[Instruction]] = {}
        for instruction in self.by_id.values():
            for operand in dict.fromkeys(instruction.operands):
                by_operand.setdefault(operand, []).append(instruction)
        return {id: tuple(users) for id, users in by_operand.items()}

    def operands(self, instruction: Instruction) -> tuple[Instruction, ...]:
        """Return the operands of an instruction; operands whose text is missing are left out."""
        return tuple([self.by_id[id] for id in instruction.operands if id in self.by_id])

    def element(self, index: int) -> Instruction | None:
        """Return the instruction that computes one element of the result; `None` if the result has no such element."""
        if self.root is None or self.root.opcode != "tuple" or index >= len(self.root.operands):
            return None
        return self.by_id.get(self.root.operands[index])

    def carried(self, instruction: Instruction) -> int | None:
        """Return the index of the loop-carried value that an instruction reads; `None` if it reads none."""
        # Loop-carried values are the elements of the parameter of a loop's body, such as a counter.
        operands = self.operands(instruction)
        if instruction.opcode != "get-tuple-element" or not operands or operands[0].opcode != "parameter":
            return None
        return index_of(instruction)


@dataclass(frozen=True)
class HloModule:
    """The computations of a stage of HLO.

    Attributes:
        computations: The computations by name.
        entry: The entry computation.
        replicas: Number of replicas; `None` if unknown.
        partitions: Number of partitions of each replica; `None` if unknown.
    """

    computations: Mapping[str, Computation]
    entry: Computation
    replicas: int | None = None
    partitions: int | None = None

    @classmethod
    def of(cls, stage: Stage) -> HloModule | None:
        """Return the module of a stage, or `None` if its text has no entry computation."""
        lines = stage.text.split("\n")
        computations: dict[str, Computation] = {}
        current: Computation | None = None
        previous_line = 0
        for instruction in stage.instructions:
            # A computation begins on a line between two instructions.
            for number in range(previous_line, instruction.line - 1):
                line = lines[number]
                if name := opened_by(line):
                    current = computations[name] = Computation(name, line.startswith("ENTRY "))
            previous_line = instruction.line
            if current is None:
                continue
            current.by_id[instruction.id] = instruction
            if stage.name == "hlo_before" and any(spec.dtype in _UNPACKED for spec in instruction.shapes):
                shapes = [replace(spec, dtype=_UNPACKED.get(spec.dtype, spec.dtype)) for spec in instruction.shapes]
                current.by_id[instruction.id] = replace(instruction, shapes=tuple(shapes))
            line = lines[instruction.line - 1]
            if line.startswith("  ROOT "):
                current.root = instruction
            if instruction.opcode == "constant":
                number = integer_in(line)
                if number is not None:
                    current.numbers[instruction.id] = number
            if layout := layout_in(line):
                current.layouts[instruction.id] = layout
            if spaces := spaces_in(line):
                current.spaces[instruction.id] = spaces
        # The entry may be missing in text that the user passes.
        entry = next((computation for computation in computations.values() if computation.is_entry), None)
        # HLO text leaves out `replica_count` and `num_partitions` if they are 1.
        sizes = device_counts(lines[0])
        replicas, partitions = (sizes.get(name, 1 if sizes else None) for name in ("replica_count", "num_partitions"))
        return None if entry is None else cls(computations, entry, replicas, partitions)

    def called(self, instruction: Instruction, *how: str) -> list[Computation]:
        """Return the computations in the attributes `how` of an instruction, such as `"body"`; by default in all."""
        return [
            self.computations[name]
            for key, value in instruction.attributes
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
                waiting += [
                    (callee, False) for instruction in body.by_id.values() for callee in self.called(instruction)
                ]
        return [*done.values()]

    def branches(self, instruction: Instruction) -> list[Computation]:
        """Return the branches of a `conditional`."""
        return self.called(instruction, *_BRANCHES)


def index_of(element: Instruction) -> int | None:
    """Return the index of a `get-tuple-element`; `None` if its text is incomplete."""
    match = _DIGITS.search(dict(element.attributes).get("index", ""))
    return int(match[0]) if match else None


def counted_rounds(loop: Instruction, home: Computation, module: HloModule) -> int | None:
    """Return the trip count of a `while` that counts from one constant to another; `None` if it depends on values."""
    # Needed for loops that JAX's lowering adds, such as the rounds of Threefry: they are not in the jaxpr, and XLA's
    # passes have not annotated their trip counts yet.
    return _CountedLoop(loop, home, module).rounds()


def rounds_of_loops(module: HloModule, rounds: Mapping[str, int | None]) -> dict[str, int]:
    """Return a dict from the id of a `while` instruction to the trip count of the loop equation that it comes from.

    `rounds`: A dict from the id of a loop equation to its trip count; `None` if unknown.
    """
    # The metadata of a `while` may name several loop equations: also those of loops inside it and around it. The
    # right one is the innermost equation that contains all equations of the instruction's body. A `while` is left out
    # if no equation fits, if an outer `while` has the same equation, or if the trip count is unknown.
    inside: dict[str, frozenset[str]] = {}
    own: dict[str, str] = {}
    outer: dict[str, set[str]] = {name: set() for name in module.computations}
    for body in module.callers_last():
        ids: set[str] = set()
        for instruction in body.by_id.values():
            within = frozenset[str]().union(*(inside.get(callee.name, ()) for callee in module.called(instruction)))
            if instruction.opcode == "while":
                # The innermost of the nested loop equations that contains all equations inside; `""` if none does.
                nested = [id for id in instruction.equations if id in rounds]
                outermost = min(nested, key=len, default="")
                ours = [f"{id}." for id in within if f"{id}.".startswith(f"{outermost}.")]
                fitting = [loop for loop in nested if all(id.startswith(f"{loop}.") for id in ours)]
                own[instruction.id] = max(fitting, key=len, default="")
            ids |= (
                within if instruction.opcode in ("while", "call", "conditional") else {*instruction.equations, *within}
            )
        inside[body.name] = frozenset(ids)
    counts: dict[str, int] = {}
    for body in reversed([*inside]):
        for instruction in module.computations[body].by_id.values():
            around = {own[instruction.id], *outer[body]} if instruction.opcode == "while" else outer[body]
            for callee in module.called(instruction):
                if callee.name in outer:
                    outer[callee.name] |= around
            count = (
                rounds.get(own[instruction.id])
                if instruction.opcode == "while" and own[instruction.id] not in outer[body]
                else None
            )
            if count is not None:
                counts[instruction.id] = count
    return counts


def trip_counts(equations: Iterable[Equation]) -> dict[str, int | None]:
    """Return a dict from the id of each `scan` and `while` equation to its trip count; `None` if unknown."""
    loops = [equation for equation in equations if equation.primitive in ("scan", "while")]
    counts: dict[str, Any] = {}
    for loop in loops:
        # A body may run several unrolled steps.
        length, unroll = loop.param.get("length"), loop.param.get("unroll", 1)
        counts[loop.id] = length // max(unroll, 1) if isinstance(length, int) and isinstance(unroll, int) else None
        if loop.primitive == "while":
            counts[loop.id] = loop.param.get(TRIPS)
    return counts


def with_trip_counts(name: str, read: Read, equations: Iterable[Equation]) -> Read:
    """Return the text and instructions of a stage, with the attribute `known_trip_count` of each `while`, if known."""
    # XLA annotates only loops of the optimized HLO. Other counts come from the jaxpr, or from the loop itself.
    text, instructions = read
    loops = [
        instruction
        for instruction in instructions
        if instruction.opcode.endswith("while") and "known_trip_count" not in dict(instruction.attributes)
    ]
    if not loops:
        return read
    trips = trip_counts(equations)
    counts: dict[str, int | None] = {}
    module = HloModule.of(Stage(name, text, instructions)) if name.startswith("hlo") else None
    if module is not None:
        homes = {id: body for body in module.computations.values() for id in body.by_id}
        counts = {loop.id: counted_rounds(loop, homes[loop.id], module) for loop in loops if loop.id in homes}
        counts |= rounds_of_loops(module, trips)
    for loop in loops if module is None else ():
        # A function that is called several times has an equation for each call.
        candidates = {trips.get(id) for id in (loop.equations[:1] if name == "jaxpr" else loop.equations)}
        counts[loop.id] = candidates.pop() if len(candidates) == 1 else None
    annotated = {
        loop.id: replace(loop, attributes=(*loop.attributes, ("known_trip_count", str(counts[loop.id]))))
        for loop in loops
        if counts.get(loop.id) is not None
    }
    return text, tuple(annotated.get(instruction.id, instruction) for instruction in instructions)


class _CountedLoop:
    """A loop with a counter: a loop-carried value to which each iteration adds the same number."""

    def __init__(self, loop: Instruction, home: Computation, module: HloModule):
        self._home = home
        self._given = home.by_id.get(loop.operands[0]) if loop.operands else None
        self._condition = next(iter(module.called(loop, "condition")), None)
        self._body = next(iter(module.called(loop, "body")), None)

    def rounds(self) -> int | None:
        condition = self._condition
        test = None if condition is None else condition.root
        if condition is None or test is None or test.opcode != "compare":
            return None
        how = dict(test.attributes).get("direction", "").lower()
        counter, end = condition.operands(test)
        index, dtype = condition.carried(counter), counter.shapes[0].dtype
        # `eq` is left out: such a loop runs at most once or forever.
        if index is None or how not in ("lt", "le", "gt", "ge", "ne"):
            return None
        start, step, stop = self._start(index), self._step(index), self._number(condition, end)
        return None if start is None or step is None or stop is None else rounds(how, start, step, stop, dtype)

    def _start(self, index: int) -> int | None:
        initial = self._given
        if initial is None or initial.opcode != "tuple" or index >= len(initial.operands):
            return None
        return self._home.numbers.get(initial.operands[index])

    def _step(self, index: int) -> int | None:
        result = None if self._body is None else self._body.element(index)
        if self._body is None or result is None or result.opcode not in ("add", "subtract"):
            return None
        first, second = self._body.operands(result)
        if result.opcode == "add" and self._body.carried(first) != index:
            first, second = second, first
        if self._body.carried(first) != index:
            return None
        step = self._number(self._body, second)
        return step if step is None or result.opcode == "add" else -step

    def _number(self, where: Computation, instruction: Instruction) -> int | None:
        index = where.carried(instruction)
        if index is None:
            return where.numbers.get(instruction.id)
        result = None if self._body is None else self._body.element(index)
        is_kept = result is not None and self._body is not None and self._body.carried(result) == index
        return self._start(index) if is_kept else None
