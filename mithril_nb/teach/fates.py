"""What became of equations: only if two oracles agree, the history through the passes and the optimized HLO."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property

from mithril_nb.inspection import Inspection
from mithril_nb.stages.hlo.module import HloModule
from mithril_nb.stages.records import Equation, Instruction
from mithril_nb.stages.xla.outcomes import HELPERS, TURNS
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
        self.in_fusions = {
            id: fusion.id
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
        if outcome.became == "fused":
            received, _ = self._work(equation)
            # Otherwise, the fusion only repeats or reshapes what another instruction computes.
            if not self.fusions(equation).get(outcome.into, Counter()).keys() & {outcome.opcode or "", *received}:
                return None
        return outcome if self.by_links(equation, outcome) == outcome.became else None

    def fusions(self, equation: Equation) -> dict[str, Counter[str]]:
        """Return the number of instructions by opcode that do work of an equation in each fusion."""
        received, work = self._work(equation)
        fusions: dict[str, Counter[str]] = {}
        for each in work:
            if each.id in self.in_fusions and (each.opcode not in TURNS or each.opcode in received):
                fusions.setdefault(self.in_fusions[each.id], Counter())[each.opcode] += 1
        return fusions

    def is_copied(self, equation: Equation) -> bool:
        """Return whether each fusion that does work of an equation does all of it."""
        received, _ = self._work(equation)
        count, *others = self.fusions(equation).values()
        is_single = sum(received.values()) == sum(count.values()) == 1
        return all(other == count for other in others) and (is_single or count == received)

    def kernels(self, equation: str) -> frozenset[str]:
        """Return the instructions outside fusions that do work of an equation."""
        return frozenset(
            each.id
            for each in self._of.get(equation, ())
            if each.id not in self.in_fusions and each.opcode not in HELPERS
        )

    def by_links(self, equation: Equation, outcome: Outcome) -> str:
        """Return the fate by the second oracle; `""` if an equation has several."""
        opcodes, work = self._work(equation)
        inside = [each for each in work if each.id in self.in_fusions]
        outside = [each for each in work if each.id not in self.in_fusions and each.opcode != "fusion"]
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

    def _work(self, equation: Equation) -> tuple[Counter[str], list[Instruction]]:
        """Return the number of instructions by opcode that XLA received for an equation, and those that do its work."""
        opcodes = Counter(self._opcodes[id] for id in self._received.get(equation.id, ()))
        del opcodes["constant"]
        opcodes = Counter({name: count for name, count in opcodes.items() if name not in HELPERS}) or opcodes
        of = self._of.get(equation.id, ())
        return opcodes, [each for each in of if each.opcode not in HELPERS or each.opcode in opcodes]

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
