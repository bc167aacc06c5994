"""What became of equations: only if two oracles agree, the history through the passes and the optimized HLO."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from mithril_nb.inspection import Inspection
from mithril_nb.stages.hlo.module import HloModule
from mithril_nb.stages.records import Equation, Instruction
from mithril_nb.stages.xla.outcomes import HELPERS
from mithril_nb.stages.xla.passes import Outcome

# An instruction with a body has the equations of all instructions in it.
_AROUND = frozenset({"while", "conditional", "call"})
FATES = {
    "kept": "it is an instruction of its own",
    "fused": "it is inside a fusion",
    "merged": "an equal computation is used instead",
    "rewritten": "an instruction with another operation or other operands does its work",
    "simplified": "XLA removed it: simplified, or folded into a constant",
    "dropped": "JAX dropped it before XLA, because nothing uses it",
}
"""The fates that can be certain, as values of `Outcome.became`, with their texts."""
_UNUSED = "nothing uses it"


class Fates:
    """The fates of a program's equations; the second oracle reads the tags in the optimized HLO, and its fusions."""

    def __init__(self, program: Inspection):
        self.program = program
        module = HloModule.of(program.stage("hlo"))
        computations = () if module is None else module.computations.values()
        self._in_fusions = {
            id
            for home in computations
            for fusion in home.by_id.values()
            if fusion.opcode == "fusion" and module is not None
            for body in module.called(fusion, "calls")
            for id in body.by_id
        }
        # Functions of two elements that a reduction applies, but no calls, which are instructions of the program.
        combining = {
            id
            for home in computations
            for caller in home.by_id.values()
            if caller.opcode != "call" and module is not None
            for body in module.called(caller, "to_apply")
            for id in body.by_id
        }
        self._of: dict[str, list[Instruction]] = {}
        instructions = program.stage("hlo").instructions
        self._constants = {each.id for each in instructions if each.opcode == "constant"}
        for instruction in instructions:
            if instruction.id in combining or instruction.opcode in _AROUND:
                continue
            for equation in instruction.equations:
                self._of.setdefault(equation, []).append(instruction)
        self._received = program.links("jaxpr", "hlo_before")
        self._opcodes = {each.id: each.opcode for each in program.stage("hlo_before").instructions}

    def certain(self, equation: Equation, outcomes: Sequence[Outcome]) -> Outcome | None:
        """Return the only outcome of an equation; `None` if it has several, or if the second oracle differs."""
        kinds = {outcome.became for outcome in outcomes}
        if len(kinds) != 1 or not kinds <= FATES.keys():
            return None
        outcome = outcomes[0]
        if outcome.became == "dropped" and outcome.reason != _UNUSED:
            return None
        return outcome if self.by_links(equation, outcome) == outcome.became else None

    def kernels(self, equation: str) -> frozenset[str]:
        """Return the instructions outside fusions that do work of an equation."""
        return frozenset(
            each.id
            for each in self._of.get(equation, ())
            if each.id not in self._in_fusions and each.opcode not in HELPERS
        )

    def by_links(self, equation: Equation, outcome: Outcome) -> str:
        """Return the fate by the second oracle; `""` if an equation has several."""
        received = {self._opcodes[id] for id in self._received.get(equation.id, ())} - {"constant"}
        opcodes = received - HELPERS or received
        work = [each for each in self._of.get(equation.id, ()) if each.opcode not in HELPERS or each.opcode in opcodes]
        inside = [each for each in work if each.id in self._in_fusions]
        outside = [each for each in work if each.id not in self._in_fusions and each.opcode != "fusion"]
        if outside and not inside:
            is_kept = any(each.opcode in opcodes and each.shapes == equation.outputs for each in outside)
            return "kept" if is_kept else "rewritten"
        if inside and not outside:
            return "fused"
        if outside:
            return ""
        if not equation.is_used and not self.program.links("jaxpr", "stablehlo").get(equation.id):
            return "dropped"
        # Nothing of it is left, which the HLO cannot explain further: a merged equation must have a twin there.
        twins = [twin for twin in outcome.equations if self._of.get(twin)]
        if outcome.became == "merged" and twins:
            return "merged"
        # If an equal equation is left, it may have been merged; a broadcast of data may be left of its own.
        is_equal_left = any(self._of.get(twin) for twin in self._equal[equation.id] if twin != equation.id)
        broadcasts = (each for each in self._of.get(equation.id, ()) if each.opcode == "broadcast")
        is_data_left = any(name not in self._constants for each in broadcasts for name in each.operands)
        return "" if is_equal_left or is_data_left else "simplified"

    @cached_property
    def _equal(self) -> dict[str, list[str]]:
        """For each equation, the equations of the same primitive with equal operands, in any order."""
        equal: dict[str, list[str]] = {}
        groups: dict[tuple[object, ...], list[str]] = {}
        for line in self.program.stage("jaxpr").instructions:  # operands first
            operands = sorted(equal[name][0] if name in equal else name for name in line.operands)
            key = (line.opcode, line.shapes, *operands) if line.opcode != "parameter" else (line.id,)
            equal[line.id] = groups.setdefault(key, [])
            equal[line.id].append(line.id)
        return equal

    def sentence(self, outcome: Outcome) -> str:
        """Return which equations the instruction works for that an equation became; `""` if there is none."""
        instruction = next((each for each in self.program.stage("hlo").instructions if each.id == outcome.into), None)
        if instruction is None or not instruction.equations:
            return ""
        return f" `{instruction.id}` does work of the equations {', '.join(instruction.equations)}."
