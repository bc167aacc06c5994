"""The history of an equation, op or instruction through XLA's passes, in any stage before machine code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from mithril_nb.errors import StageUnavailableError
from mithril_nb.stages import jax_versions
from mithril_nb.stages.given.program import Given
from mithril_nb.stages.hlo.syntax import HloLine
from mithril_nb.stages.records import Ids, Instruction, Stage
from mithril_nb.stages.xla.outcomes import HELPERS, TURNS, Outcomes, at_work
from mithril_nb.stages.xla.passes import InstructionHistory, Outcome

if TYPE_CHECKING:
    from mithril_nb.stages.pipeline import Pipeline

STAGES_WITH_HISTORY = ("jaxpr", "stablehlo", "hlo_before", "hlo")
"""Stages whose instructions have a history."""

# HLO opcodes by name of the StableHLO op, where the names differ.
_HLO_OPCODES = {
    "dot_general": "dot", "broadcast_in_dim": "broadcast", "case": "conditional", "if": "conditional",
    "return": "tuple", "real_dynamic_slice": "dynamic-slice",
}  # fmt: skip
# Opcodes of instructions whose bodies contain the instructions of other equations.
_AROUND = frozenset({"while", "conditional", "call"})
_PRODUCTS = frozenset({"dot", "convolution"})
_UNUSED = "nothing uses it"
_LOWERED = "JAX emits no op for it"
_CONVERTED = "removed when StableHLO becomes HLO"
_FOLDED = "folded into a constant when StableHLO becomes HLO"
_NAMELESS = "no instruction has its name"
# Maximum number of ops without an instruction of their name through which a result is followed.
_DEPTH = 16
_WRITTEN_OUT = "its body is inlined"


def find_instruction(
    program: str, given: Given | None, read: Callable[[str], Stage], stage: str, id: str
) -> Instruction:
    """Return an instruction of one of the stages in `STAGES_WITH_HISTORY`.

    `given`: The program, if the user passed it in lowered or compiled form instead of as a function; else `None`.
    `read`: A function that returns a stage by name.
    """
    if given is not None and stage in STAGES_WITH_HISTORY and stage not in given.stages:
        raise given.error(stage)
    if given is not None and not given.is_compiled_here:
        raise given.error("compile")
    instructions = read(stage).instructions if stage in STAGES_WITH_HISTORY else ()
    instruction = next((instruction for instruction in instructions if instruction.id == id), None)
    if instruction is None:
        kind = f"instruction {id!r}" if stage in STAGES_WITH_HISTORY else "instruction history"
        at = stage if instructions else "hlo"
        raise StageUnavailableError(
            f"stage {stage!r} of program {program!r} has no {kind}.",
            (("stages", ", ".join(name for name in STAGES_WITH_HISTORY if given is None or name in given.stages)),),
            f'inspection.who_changed("{at}", inspection.stage("{at}").instructions[0].id)',
        )
    return instruction


def read_outcomes(pipeline: Pipeline) -> Outcomes:
    """Return the `Outcomes` of a program, which follow its instructions through the passes."""
    last = {instruction.id: instruction.opcode for instruction in pipeline.stages["hlo"].get().instructions}
    tags = pipeline.names.get().tags
    return Outcomes(
        pipeline.compilation.passes.get(),
        pipeline.compilation.histories.get(),
        last,
        pipeline.owners.get().fusions,
        lambda op_name: tags.joint.join(tags.path(op_name.partition(";")[0])),
    )


def history_of(pipeline: Pipeline, outcomes: Outcomes, stage: str, instruction: Instruction) -> InstructionHistory:
    """Return the history of an instruction of one of the stages in `STAGES_WITH_HISTORY`."""
    histories = pipeline.compilation.histories.get()
    appeared, vanished = histories.appeared.get(instruction.id), histories.vanished.get(instruction.id)
    if stage == "hlo":
        return InstructionHistory(appeared, vanished)
    if stage == "hlo_before":
        results = _outcomes_of_instruction(pipeline, outcomes, instruction)
    else:
        appeared = vanished = None
        results = _outcomes_of(pipeline, outcomes, stage, instruction)
    if {each.became for each in results} == {"kept"}:
        vanished = None  # the instruction exists to the end under another name
    fused = sorted({each.into for each in results if each.became == "fused"})
    return InstructionHistory(appeared, vanished, tuple(fused), results)


def _outcomes_of_instruction(pipeline: Pipeline, outcomes: Outcomes, instruction: Instruction) -> tuple[Outcome, ...]:
    gone = pipeline.compilation.histories.get().vanished.get(instruction.id)
    # Histories are found by name. In a `Given`, several instructions may have the same name.
    if gone is not None and len(_namesakes(pipeline, "hlo_before", instruction, instruction.opcode)) > 1:
        return (Outcome("unknown", instruction.id, by=gone),)
    results = outcomes.of(instruction.id, instruction.equations)
    if {each.became for each in results} == {"simplified"}:
        # XLA removed the instruction, but it may have created another one for the same equation.
        received = _received_for(pipeline, outcomes, "jaxpr", instruction)
        if [each.id for each in received] == [instruction.id]:
            return _of_all(pipeline, outcomes, instruction, received)
    return results


def _namesakes(pipeline: Pipeline, stage: str, instruction: Instruction, opcode: str) -> list[Instruction]:
    if pipeline.names.get().tags.are_unique:
        return []
    names = set(instruction.equations)
    stage_of = pipeline.stages[stage].get()
    return [each for each in stage_of.instructions if each.opcode == opcode and not names.isdisjoint(each.equations)]


def _hlo_opcode(op: Instruction) -> str:
    name = op.opcode.removeprefix("stablehlo.").removeprefix("func.")
    return _HLO_OPCODES.get(name, name.replace("_", "-"))


def _outcomes_of(pipeline: Pipeline, outcomes: Outcomes, stage: str, instruction: Instruction) -> tuple[Outcome, ...]:
    if not pipeline.names.get().tags.are_unique:  # lowered elsewhere: ops have names, and several may have the same
        received = _namesakes(pipeline, "hlo_before", instruction, _hlo_opcode(instruction))
        ops = _namesakes(pipeline, "stablehlo", instruction, instruction.opcode)
        is_known = len(ops) <= 1 and len(received) == 1 and received[0].id not in outcomes.in_combiners
        return _outcomes_of_instruction(pipeline, outcomes, received[0]) if is_known else (Outcome("unknown"),)
    received = _received_for(pipeline, outcomes, stage, instruction)
    if received:
        return _of_all(pipeline, outcomes, instruction, received)
    by_id = pipeline.program.get().by_id
    equations = [by_id[id] for id in instruction.equations if id in by_id]
    if stage == "jaxpr" and equations and not equations[0].is_used:
        return (Outcome("dropped", reason=_UNUSED),)
    is_constant = stage == "stablehlo" and _hlo_opcode(instruction) == "constant"
    if any(equation.is_call for equation in equations) and not is_constant:
        return (Outcome("inlined", reason=_WRITTEN_OUT),)
    if instruction.opcode == "parameter":
        inputs = [each for each in pipeline.stages["hlo_before"].get().instructions if each.opcode == "parameter"]
        inputs = [each for each in inputs if each.equations == instruction.equations]
        return _of_all(pipeline, outcomes, instruction, inputs) if inputs else (Outcome("dropped", reason=_UNUSED),)
    if not equations:
        return (Outcome("unknown"),)
    ops = [instruction]
    if stage == "jaxpr":
        lowered = pipeline.stages["stablehlo"].get().instructions
        ops = [op for op in lowered if not set(instruction.equations).isdisjoint(op.equations)]
        ops = [op for op in ops if _hlo_opcode(op) != "constant"] or ops
    if not outcomes.passes:
        return (Outcome("unknown", reason=_NAMELESS),)
    if not ops:
        # The lowering of another package's primitive may run its nested equations, whose ops then have the name of the
        # primitive only.
        around = (by_id[id].primitive for id in _outer(instruction.id) if id in by_id)
        is_dropped = all(map(jax_versions.is_lowered_by_jax, around))
        return (Outcome("dropped", reason=_LOWERED) if is_dropped else Outcome("unknown", reason=_NAMELESS),)
    named = _Nameless(pipeline, outcomes)
    results = tuple(dict.fromkeys(each for op in ops for each in named.outcomes_of(op)))
    # If the outcome of some ops is known, ignore the ops whose names are lost.
    return tuple(each for each in results if each.became not in ("dropped", "unknown")) or results


def _of_all(
    pipeline: Pipeline, outcomes: Outcomes, instruction: Instruction, received: list[Instruction]
) -> tuple[Outcome, ...]:
    """Return the outcomes of the instructions that XLA received for an equation."""
    parts = outcomes.of_each([part.id for part in received], instruction.equations)
    results = tuple(dict.fromkeys(each for part in parts for each in part))
    if any(each.became != "simplified" for each in results):
        return results
    # XLA may create an instruction again and then remove the old one.
    if rewritten := _rewritten(pipeline, outcomes, instruction, received):
        return rewritten
    # convolution-canonicalization creates convolutions without op names, so the product is lost from sight.
    products = {part.opcode for part in received} & _PRODUCTS
    is_alive = any(
        each.opcode in products and not set(instruction.equations).isdisjoint(each.equations)
        for each in pipeline.stages["hlo"].get().instructions
    )
    return (Outcome("unknown", reason=_NAMELESS),) if is_alive else results


class _Nameless:
    def __init__(self, pipeline: Pipeline, outcomes: Outcomes):
        self._pipeline, self._outcomes, self._lines = pipeline, outcomes, outcomes.first.lines
        self._ops = {op.id: op for op in pipeline.stages["stablehlo"].get().instructions}
        self._received = {each.id: each for each in pipeline.stages["hlo_before"].get().instructions}
        self._users: dict[str, list[Instruction]] = {}
        for op in self._ops.values():
            for operand in dict.fromkeys(op.operands):
                self._users.setdefault(operand, []).append(op)

    def outcomes_of(self, op: Instruction) -> tuple[Outcome, ...]:
        results: dict[Outcome, None] = {}
        for name, is_folded in self._stand_ins(op, 0):
            if not name:
                return (Outcome("unknown", reason=_NAMELESS),)
            if is_folded:
                results[Outcome("simplified", name, reason=_FOLDED)] = None
            elif not self._is_named(self._lines[name]):
                results.update(dict.fromkeys(self._outcomes.of(name, op.equations)))
        return tuple(results) or (Outcome("dropped", reason=_CONVERTED),)

    def _stand_ins(self, op: Instruction, depth: int) -> list[tuple[str, bool]]:
        """Find the instructions, of the HLO that XLA received, whose results the users of an op read instead of it."""
        stand_ins: dict[tuple[str, bool], None] = {}
        users = self._users.get(op.id, ())
        loops = [user for user in users if _hlo_opcode(user) == "while"]
        for user in users:
            opcode = _hlo_opcode(user)
            if any(loop.line < user.line < loop.line + loop.lines for loop in loops):
                continue  # it uses the loop's carry
            if user.id.startswith("@return"):
                first = self._outcomes.first
                root = first.lines[first.roots[first.homes[next(iter(self._received))]]]
                results = root.operands if root.opcode == "tuple" else (root.name,)
                stand_ins[self._matching_operand(op, user, results)] = None
                continue
            if depth > _DEPTH or opcode == "tuple":
                return [("", False)]
            received = _received_for(self._pipeline, self._outcomes, "stablehlo", user)
            opcodes = (opcode, "reshape") if opcode == "broadcast" else (opcode,)
            same = [(each.id, False) for each in received if each.opcode in opcodes and each.id in self._lines]
            for name, is_folded in same or self._stand_ins(user, depth + 1):
                if not name or len(same) > 1:
                    return [("", False)]
                if is_folded:
                    stand_ins[name, True] = None
                elif same or not self._is_named(self._lines[name]):
                    line = self._lines[name]
                    is_tuple = line.opcode == "while" and self._lines[line.operands[0]].opcode == "tuple"
                    operands = self._lines[line.operands[0]].operands if is_tuple else line.operands
                    stand_ins[self._matching_operand(op, user, operands)] = None
        return [*stand_ins]

    def _matching_operand(self, op: Instruction, user: Instruction, names: Ids) -> tuple[str, bool]:
        opcode = _hlo_opcode(op)
        if len(names) != len(user.operands):
            return "", False
        candidates = [self._lines[name] for name in dict.fromkeys(names)]
        nameless = [each for each in candidates if not self._is_named(each)]
        fit = [each for each in nameless if each.opcode == opcode and each.specs == op.shapes]
        alike = [
            each
            for each in map(self._ops.get, dict.fromkeys(user.operands))
            if each is not None and (_hlo_opcode(each), each.shapes) == (opcode, op.shapes)
        ]
        if len(fit) == len(alike) == 1:
            return fit[0].name, False
        at = self._lines[names[user.operands.index(op.id)]]
        if user.opcode.endswith("while") or (self._is_named(at) and nameless):  # XLA may reorder them
            return "", False
        if self._is_named(at):
            received = self._received.get(at.name)  # JAX 0.12: the call of a shard_map has another name in XLA's dump
            is_other = at.opcode == "parameter" or (received and set(received.equations).isdisjoint(op.equations))
            return (at.name if is_other else ""), False
        waiting, seen = [op.id], set[str]()
        while waiting and self._is_constant(at):  # folded, if the op depends on no input, call or loop
            id = waiting.pop()
            if id not in self._ops or self._ops[id].opcode.endswith(("call", "while")):
                return "", False
            seen.add(id)
            waiting += [each for each in self._ops[id].operands if each not in seen]
        return (at.name, opcode != "constant") if self._is_constant(at) else ("", False)

    @staticmethod
    def _is_named(line: HloLine) -> bool:
        return bool(line.op_name) or line.opcode in ("parameter", "get-tuple-element")

    def _is_constant(self, line: HloLine) -> bool:
        return line.opcode == "constant" or (
            line.opcode in ("broadcast", "reshape") and self._is_constant(self._lines[line.operands[0]])
        )


def _rewritten(
    pipeline: Pipeline, outcomes: Outcomes, instruction: Instruction, received: list[Instruction]
) -> tuple[Outcome, ...]:
    forms = {(each.opcode, each.shapes) for each in received}
    fusions, histories = pipeline.owners.get().fusions, pipeline.compilation.histories.get()
    results: dict[Outcome, None] = {}
    for each in pipeline.stages["hlo"].get().instructions:
        is_work = each.origin == "tagged" and each.opcode not in HELPERS | TURNS | {"fusion"}
        if (
            is_work
            and not set(instruction.equations).isdisjoint(each.equations)
            and not _is_around(outcomes, each, instruction)
        ):
            fusion = fusions.get(each.id)
            if fusion is None:
                is_kept = (each.opcode, each.shapes) in forms
                results[Outcome("kept" if is_kept else "rewritten", into=each.id)] = None
            else:
                results[Outcome("fused", into=fusion, by=histories.appeared.get(fusion))] = None
    return tuple(results)


def _received_for(pipeline: Pipeline, outcomes: Outcomes, stage: str, instruction: Instruction) -> list[Instruction]:
    """Return the instructions that XLA received for an equation or op, without `HELPERS` if there are others."""
    equations = set(instruction.equations)
    tagged = [
        each
        for each in pipeline.stages["hlo_before"].get().instructions
        if each.origin == "tagged"
        and not equations.isdisjoint(each.equations)
        and not _is_around(outcomes, each, instruction)
        and each.id not in outcomes.in_combiners
    ]
    if stage == "stablehlo":
        opcode = _hlo_opcode(instruction)
        same = [each for each in tagged if each.opcode == opcode]
        return same or ([] if opcode == "constant" else [each for each in tagged if each.opcode not in HELPERS])
    return at_work(tagged)


def _is_around(outcomes: Outcomes, each: Instruction, instruction: Instruction) -> bool:
    """Return whether an instruction runs a body that contains the work of an equation, but is not work of it."""
    if each.opcode not in _AROUND:
        return False
    line = outcomes.first.lines.get(each.id) or outcomes.final.lines.get(each.id)
    tag = outcomes.equation_of(line.op_name) if line is not None else ""
    own = f".{tag}" if tag else ""
    return not any(
        f".{id}".endswith(own) and not any(outer in each.equations for outer in _outer(id))
        for id in set(instruction.equations) & set(each.equations)
    )


def _outer(id: str) -> Iterator[str]:
    """Yield the ids of the equations and branches around an equation: `12.b1` and `12` for `12.b1.3`."""
    while "." in id:
        id = id.rpartition(".")[0]
        yield id
