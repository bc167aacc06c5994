"""Questions about the compiled program: the fate of equations, kernels, and collectives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random

from mithril_nb.errors import StageUnavailableError
from mithril_nb.inspection import Inspection
from mithril_nb.stages.hlo.module import HloModule
from mithril_nb.stages.records import Equation, Instruction
from mithril_nb.stages.xla.outcomes import HELPERS
from mithril_nb.stages.xla.passes import Outcome
from mithril_nb.teach.answers import Choice, Number
from mithril_nb.teach.kinds.lines import code_of, device_text, jaxpr_lines, named
from mithril_nb.teach.question import Candidate

FATES = {
    "kept": "it is an instruction of its own",
    "fused": "it is inside a fusion",
    "merged": "an equal computation is used instead",
    "rewritten": "an instruction with another operation does its work",
    "simplified": "XLA removed it: simplified, or folded into a constant",
    "dropped": "JAX dropped it before XLA, because nothing uses it",
}
_MOST = 200
_UNUSED = "nothing uses it"
# An instruction with a body has the equations of all instructions in it.
_AROUND = frozenset({"while", "conditional", "call"})


def fate(program: Inspection, random: Random) -> Iterator[Candidate]:
    """Ask what the compiler made of an equation."""
    lines, linked = jaxpr_lines(program), _Linked(program)
    equations = [equation for equation in program.equations if not equation.is_call]
    random.shuffle(equations)
    equations = equations[:_MOST]  # the history of an equation takes milliseconds
    known = {equation.id: _outcome(program, equation) for equation in equations}
    order = random.sample(sorted(FATES), len(FATES))
    by_fate = [[each for each in equations if (known[each.id] or _UNKNOWN).became == name] for name in order]
    for equation in (row[index] for index in range(len(equations)) for row in by_fate if index < len(row)):
        outcome = known[equation.id]
        assert outcome is not None
        by = f" by the pass `{outcome.by.name}`" if outcome.by else ""
        yield Candidate(
            f"What is the fate of {named(equation)}, of `{program.name}` in the optimized HLO "
            f"({device_text(program)})?",
            Choice(tuple(FATES.values())),
            FATES[outcome.became],
            FATES.get(linked.fate(equation, outcome)),
            f"It was {outcome.without_pass}{by}.{linked.sentence(outcome)}",
            code=code_of(program, equation, lines.get(equation.id, "")),
            marks=(("jaxpr", (equation.id,)), ("hlo", (outcome.into,) if outcome.into else ())),
        )


_UNKNOWN = Outcome("unknown")


def _outcome(program: Inspection, equation: Equation) -> Outcome | None:
    """Return the outcome of an equation; `None` unless it has exactly one of the fates."""
    outcomes = program.who_changed("jaxpr", equation.id).outcomes
    kinds = {outcome.became for outcome in outcomes}
    if len(kinds) != 1 or not kinds <= FATES.keys():
        return None
    if outcomes[0].became == "dropped" and outcomes[0].reason != _UNUSED:
        return None
    return outcomes[0]


class _Linked:
    """The second oracle: the tags in the optimized HLO, and the computations of its fusions."""

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
        for instruction in program.stage("hlo").instructions:
            if instruction.id in combining or instruction.opcode in _AROUND:
                continue
            for equation in instruction.equations:
                self._of.setdefault(equation, []).append(instruction)
        self._received = program.links("jaxpr", "hlo_before")
        self._opcodes = {each.id: each.opcode for each in program.stage("hlo_before").instructions}

    def kernels(self, equation: str) -> frozenset[str]:
        """Return the instructions outside fusions that do work of an equation."""
        return frozenset(
            each.id
            for each in self._of.get(equation, ())
            if each.id not in self._in_fusions and each.opcode not in HELPERS
        )

    def fate(self, equation: Equation, outcome: Outcome) -> str:
        received = {self._opcodes[id] for id in self._received.get(equation.id, ())} - {"constant"}
        opcodes = received - HELPERS or received
        work = [each for each in self._of.get(equation.id, ()) if each.opcode not in HELPERS or each.opcode in opcodes]
        inside = [each for each in work if each.id in self._in_fusions]
        outside = [each for each in work if each.id not in self._in_fusions and each.opcode != "fusion"]
        if outside and not inside:
            return "kept" if opcodes & {each.opcode for each in outside} else "rewritten"
        if inside and not outside:
            return "fused"
        if outside:
            return ""
        if not equation.is_used and not self.program.links("jaxpr", "stablehlo").get(equation.id):
            return "dropped"
        # Nothing of it is left, which the HLO cannot explain further: a merged equation must have a twin there.
        twins = [twin for twin in outcome.equations if self._of.get(twin)]
        return "merged" if outcome.became == "merged" and twins else "simplified"

    def sentence(self, outcome: Outcome) -> str:
        instruction = next((each for each in self.program.stage("hlo").instructions if each.id == outcome.into), None)
        if instruction is None or not instruction.equations:
            return ""
        return f" `{instruction.id}` does work of the equations {', '.join(instruction.equations)}."


def kernel(program: Inspection, random: Random) -> Iterator[Candidate]:
    """Ask whether two equations end in the same kernel."""
    lines, linked = jaxpr_lines(program), _Linked(program)
    homes: dict[str, str] = {}
    for equation in program.equations:
        outcome = None if equation.is_call else _outcome(program, equation)
        if outcome is not None and outcome.became in ("fused", "kept") and outcome.into:
            homes[equation.id] = outcome.into
    equations = [equation for equation in program.equations if equation.id in homes]
    # Neighbours in the data flow: that two distant equations are in two kernels is no surprise.
    pairs = [
        (first, second)
        for at, first in enumerate(equations)
        for second in equations[at + 1 : at + 5]
        if set(first.outputs) & set(second.inputs)
    ]
    random.shuffle(pairs)
    same = [pair for pair in pairs if homes[pair[0].id] == homes[pair[1].id]]
    apart = [pair for pair in pairs if homes[pair[0].id] != homes[pair[1].id]]
    groups = random.sample([same, apart], 2)
    for first, second in (row[index] for index in range(len(pairs)) for row in groups if index < len(row)):
        left, right = linked.kernels(first.id), linked.kernels(second.id)
        is_same = homes[first.id] == homes[second.id]
        by_links = None
        if left and right and (left == right or not left & right) and len(left) == len(right) == 1:
            by_links = "yes" if left == right else "no"
        lines_of_both = [
            line for each in (first, second) for line in code_of(program, each, lines.get(each.id, "")).split("\n")
        ]
        where = f"Both are in `{homes[first.id]}`."
        if not is_same:
            where = f"{first.id} is in `{homes[first.id]}`, and {second.id} in `{homes[second.id]}`."
        yield Candidate(
            f"Do {named(first)}, and {named(second)}, of `{program.name}` end in the same kernel "
            f"({device_text(program)})?",
            Choice(("yes", "no")),
            "yes" if is_same else "no",
            by_links,
            f"{where} A fusion reads and writes memory once for all its operations.",
            code="\n".join(dict.fromkeys(lines_of_both)),
            marks=(
                ("jaxpr", (first.id, second.id)),
                ("hlo", tuple(dict.fromkeys((homes[first.id], homes[second.id])))),
            ),
        )


_OPCODES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")


def sharding(program: Inspection, random: Random) -> Iterator[Candidate]:
    """Ask which collective a program on a mesh needs, and how many bytes one device passes to it."""
    try:
        mesh = program.mesh
    except StageUnavailableError:
        return
    module = HloModule.of(program.stage("hlo"))
    by_hlo: dict[str, Instruction] = {}
    for home in () if module is None else module.computations.values():
        by_hlo |= {id: each for id, each in home.by_id.items() if each.opcode.removesuffix("-start") in _OPCODES}
    exchanges = list(mesh.collectives)
    random.shuffle(exchanges)
    kinds = {exchange.opcode.removesuffix("-start") for exchange in exchanges}
    kinds_in_hlo = {each.opcode.removesuffix("-start") for each in by_hlo.values()}
    if len(kinds) == 1 and kinds <= set(_OPCODES):
        (only,) = kinds
        reason = next(
            (f" {exchange.reason[:1].upper()}{exchange.reason[1:]}." for exchange in exchanges if exchange.reason), ""
        )
        yield Candidate(
            f"Which collective does XLA add to `{program.name}` on this mesh ({_mesh_text(mesh.axes)}; "
            f"{device_text(program)})?",
            Choice(_OPCODES),
            only,
            next(iter(kinds_in_hlo)) if len(kinds_in_hlo) == 1 else None,
            f"The compiled program has {len(exchanges)} `{only}`.{reason}",
            marks=(("hlo", tuple(exchange.id for exchange in exchanges)),),
        )
    for exchange in exchanges:
        instruction = by_hlo.get(exchange.id)
        if exchange.payload_bytes is None or instruction is None or exchange.opcode.endswith("-start"):
            continue
        operands = [by_id for home in module.computations.values() if exchange.id in home.by_id
                    for by_id in home.operands(instruction)] if module is not None else []  # fmt: skip
        sizes = [spec.nbytes for operand in operands for spec in operand.shapes]
        block = next((path for path, _ in exchange.blocks if path), "")
        yield Candidate(
            f"How many bytes does one device pass to the `{exchange.opcode}` {f'of block `{block}` ' if block else ''}"
            f"in `{program.name}` ({_mesh_text(mesh.axes)}; {device_text(program)})?",
            Number("B"),
            exchange.payload_bytes,
            sum(size or 0 for size in sizes) if sizes and None not in sizes else None,
            f"Its operands on one device have {exchange.payload_bytes:,} bytes.",
            marks=(("hlo", (exchange.id,)),),
        )


def _mesh_text(axes: Mapping[str, int]) -> str:
    return " × ".join(f"{name} = {size}" for name, size in axes.items())
