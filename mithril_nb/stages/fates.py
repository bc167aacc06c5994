"""What became of an equation, an op or an instruction, in any stage before machine code."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from mithril_nb.errors import StageUnavailableError
from mithril_nb.stages.records import Instruction
from mithril_nb.stages.xla.outcomes import HELPERS, Outcomes, at_work
from mithril_nb.stages.xla.passes import Fate, Outcome

if TYPE_CHECKING:
    from mithril_nb.stages.inspection import Inspection
    from mithril_nb.stages.pipeline import Pipeline

FATED = ("jaxpr", "stablehlo", "hlo_before", "hlo")
"""Stages whose instructions have a fate."""

_HLO_OPCODES = {
    "dot_general": "dot", "broadcast_in_dim": "broadcast", "case": "conditional", "if": "conditional",
    "return": "tuple", "real_dynamic_slice": "dynamic-slice",
}  # fmt: skip
"""Opcodes of HLO that have another name than in StableHLO."""
_AROUND = frozenset({"while", "conditional", "call"})
"""What runs the instructions of other equations."""
_UNUSED = "nothing uses it"
_LOWERED = "JAX lowers it to no op"
_CONVERTED = "no instruction is left of it when StableHLO becomes HLO"
_WRITTEN_OUT = "its body is written out in its place"


def find_fated(inspection: Inspection, stage: str, id: str) -> Instruction:
    """Return an instruction of one of the stages in `FATED`.

    Raises:
        StageUnavailableError: There is no such instruction.
    """
    given = inspection.given
    if given is not None and stage in FATED and stage not in given.stages:
        raise given.error(stage)
    if given is not None and not given.is_compiled_here:
        raise given.error("compile")
    instructions = inspection.stage(stage).instructions if stage in FATED else ()
    found = next((one for one in instructions if one.id == id), None)
    if found is None:
        at = stage if instructions else "hlo"
        raise StageUnavailableError(
            f"stage {stage!r} of program {inspection.name!r} has no instruction {id!r} that passes change.",
            (("stages", ", ".join(one for one in FATED if given is None or one in given.stages)),),
            f'inspection.who_changed("{at}", inspection.stage("{at}").instructions[0].id)',
        )
    return found


def read_outcomes(pipeline: Pipeline) -> Outcomes:
    """Return what follows instructions through the passes of a program."""
    last = {one.id: one.opcode for one in pipeline.stages["hlo"].get().instructions}
    tags = pipeline.names.get().tags
    return Outcomes(
        pipeline.compilation.passes.get(),
        pipeline.compilation.histories.get(),
        last,
        pipeline.owners.get().fusions,
        lambda op_name: tags.joint.join(tags.path(op_name.partition(";")[0])),
    )


def fate_of(pipeline: Pipeline, outcomes: Outcomes, stage: str, one: Instruction) -> Fate:
    """Return what became of an instruction of one of the stages in `FATED`."""
    histories = pipeline.compilation.histories.get()
    appeared, vanished = histories.appeared.get(one.id), histories.vanished.get(one.id)
    if stage == "hlo":
        return Fate(appeared, vanished)
    if stage == "hlo_before":
        found = _outcomes_of_instruction(pipeline, outcomes, one)
    elif not pipeline.names.get().tags.are_unique:
        found, appeared, vanished = _outcomes_by_name(pipeline, outcomes, one), None, None
    else:
        found, appeared, vanished = _outcomes_of(pipeline, outcomes, stage, one), None, None
    fused = sorted({each.into for each in found if each.became == "fused"})
    return Fate(appeared, vanished, tuple(fused), found)


def _outcomes_of_instruction(pipeline: Pipeline, outcomes: Outcomes, one: Instruction) -> tuple[Outcome, ...]:
    gone = pipeline.compilation.histories.get().vanished.get(one.id)
    if gone is not None and len(_namesakes(pipeline, "hlo_before", one, one.opcode)) > 1:
        return (Outcome("unknown", one.id, by=gone),)
    return outcomes.of(one.id, one.equations)


def _outcomes_by_name(pipeline: Pipeline, outcomes: Outcomes, op: Instruction) -> tuple[Outcome, ...]:
    """Return what became of an op of a given program, if its name and opcode belong to one op and one instruction."""
    made = _namesakes(pipeline, "hlo_before", op, _hlo_opcode(op))
    ops = _namesakes(pipeline, "stablehlo", op, op.opcode)
    known = len(ops) <= 1 and len(made) == 1 and not outcomes.is_in_combiner(made[0].id)
    return _outcomes_of_instruction(pipeline, outcomes, made[0]) if known else (Outcome("unknown"),)


def _namesakes(pipeline: Pipeline, stage: str, one: Instruction, opcode: str) -> list[Instruction]:
    """Return the instructions with the name and the opcode of another; none where each has a mark that is unique."""
    if pipeline.names.get().tags.are_unique:
        return []
    names = set(one.equations)
    stage_of = pipeline.stages[stage].get()
    return [each for each in stage_of.instructions if each.opcode == opcode and not names.isdisjoint(each.equations)]


def _hlo_opcode(op: Instruction) -> str:
    """Return the opcode of HLO for an op of StableHLO."""
    name = op.opcode.removeprefix("stablehlo.").removeprefix("func.")
    return _HLO_OPCODES.get(name, name.replace("_", "-"))


def _outcomes_of(pipeline: Pipeline, outcomes: Outcomes, stage: str, one: Instruction) -> tuple[Outcome, ...]:
    made = _made_of(pipeline, outcomes, stage, one)
    if made:
        found = tuple(dict.fromkeys(each for part in made for each in outcomes.of(part.id, one.equations)))
        # XLA may write an instruction anew, and then take away the old one.
        return (all(each.became == "simplified" for each in found) and _rewritten(pipeline, one, made)) or found
    known = pipeline.program.get().by_id
    equations = [known[id] for id in one.equations if id in known]
    if stage == "jaxpr" and equations and not equations[0].is_used:
        return (Outcome("dropped", reason=_UNUSED),)
    if any(equation.is_call for equation in equations):
        return (Outcome("inlined", reason=_WRITTEN_OUT),)
    if not equations:
        return (Outcome("unknown"),)
    is_lowered = stage == "stablehlo" or any(
        set(one.equations) & set(op.equations) for op in pipeline.stages["stablehlo"].get().instructions
    )
    return (Outcome("dropped", reason=_CONVERTED if is_lowered else _LOWERED),)


def _rewritten(pipeline: Pipeline, one: Instruction, made: list[Instruction]) -> tuple[Outcome, ...]:
    """Return where the optimized program does the work of an equation, by the equations that XLA kept with it.

    Args:
        pipeline: The stages.
        one: The equation or op.
        made: What XLA was given for it, and took away.
    """
    opcodes = {each.opcode for each in made}
    fusions, histories = pipeline.owners.get().fusions, pipeline.compilation.histories.get()
    found: dict[Outcome, None] = {}
    for each in pipeline.stages["hlo"].get().instructions:
        is_work = each.origin == "tagged" and each.opcode not in HELPERS and each.opcode != "fusion"
        if is_work and not set(one.equations).isdisjoint(each.equations) and not _is_around(each, one):
            fusion = fusions.get(each.id)
            if fusion is None:
                by = histories.appeared.get(each.id)
                same = each.opcode in opcodes
                found[Outcome("kept", into=each.id) if same else Outcome("rewritten", into=each.id, by=by)] = None
            else:
                found[Outcome("fused", into=fusion, by=histories.appeared.get(fusion))] = None
    return tuple(found)


def _made_of(pipeline: Pipeline, outcomes: Outcomes, stage: str, one: Instruction) -> list[Instruction]:
    """Return the instructions that XLA was given for an equation or an op: those that do its work, if any do."""
    wanted = set(one.equations)
    tagged = [
        each
        for each in pipeline.stages["hlo_before"].get().instructions
        if (each.origin == "tagged" or each.opcode == "parameter")
        and not wanted.isdisjoint(each.equations)
        and not _is_around(each, one)
        and not outcomes.is_in_combiner(each.id)
    ]
    if stage == "stablehlo":
        opcode = _hlo_opcode(one)
        same = [each for each in tagged if each.opcode == opcode]
        return same or ([] if opcode == "constant" else [each for each in tagged if each.opcode not in HELPERS])
    return at_work(tagged)


def _is_around(each: Instruction, one: Instruction) -> bool:
    """Whether an instruction is a loop, a branch or a call around what does the work of an equation or an op."""
    if each.opcode not in _AROUND:
        return False
    return all(any(outer in each.equations for outer in _outer(id)) for id in set(one.equations) & set(each.equations))


def _outer(id: str) -> Iterator[str]:
    """Yield the ids of the equations that an equation is inside of, and what names their branches."""
    while "." in id:
        id = id.rpartition(".")[0]
        yield id
