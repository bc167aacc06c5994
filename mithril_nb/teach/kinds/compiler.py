"""Questions about the compiled program: the fate of equations, kernels, and collectives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random

from mithril_nb.cost.mesh import Exchange
from mithril_nb.errors import StageUnavailableError
from mithril_nb.inspection import Inspection
from mithril_nb.stages.hlo.module import HloModule
from mithril_nb.stages.records import Instruction
from mithril_nb.teach.answers import Choice, Number
from mithril_nb.teach.fates import FATES, Fates
from mithril_nb.teach.kinds.lines import code_of, device_text, jaxpr_lines, named
from mithril_nb.teach.question import Candidate

_MOST = 200


def fate(program: Inspection, random: Random) -> Iterator[Candidate]:
    """Ask what the compiler made of an equation."""
    lines, fates = jaxpr_lines(program), Fates(program)
    equations = [equation for equation in program.equations if not equation.is_call]
    random.shuffle(equations)
    equations = equations[:_MOST]  # the history of an equation takes milliseconds
    pairs = [
        (equation, outcome)
        for equation in equations
        if (outcome := fates.certain(equation, program.who_changed("jaxpr", equation.id).outcomes)) is not None
    ]
    order = random.sample(sorted(FATES), len(FATES))
    by_fate = [[pair for pair in pairs if pair[1].became == name] for name in order]
    for equation, outcome in (row[index] for index in range(len(pairs)) for row in by_fate if index < len(row)):
        by = f" by the pass `{outcome.by.name}`" if outcome.by else ""
        yield Candidate(
            f"What is the fate of {named(equation)}, of `{program.name}` in the optimized HLO "
            f"({device_text(program)})?",
            Choice(tuple(FATES.values())),
            FATES[outcome.became],
            FATES[fates.by_links(equation, outcome)],
            f"It was {outcome.without_pass}{by}.{fates.sentence(outcome)}",
            code=code_of(program, equation, lines.get(equation.id, "")),
            marks=(("jaxpr", (equation.id,)), ("hlo", (outcome.into,) if outcome.into else ())),
        )


def kernel(program: Inspection, random: Random) -> Iterator[Candidate]:
    """Ask whether two equations end in the same kernel."""
    lines, fates = jaxpr_lines(program), Fates(program)
    homes: dict[str, str] = {}
    for equation in program.equations:
        outcome = None
        if not equation.is_call:
            outcome = fates.certain(equation, program.who_changed("jaxpr", equation.id).outcomes)
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
        left, right = fates.kernels(first.id), fates.kernels(second.id)
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
    # Not those that the user's code calls, as in `shard_map`.
    exchanges = [exchange for exchange in mesh.collectives if "program's own" not in exchange.reason]
    random.shuffle(exchanges)
    kinds = {exchange.opcode.removesuffix("-start") for exchange in exchanges}
    if len(exchanges) < len(mesh.collectives):
        return
    kinds_in_hlo = {each.opcode.removesuffix("-start") for each in by_hlo.values()}
    candidates: list[Candidate] = []
    if len(kinds) == 1 and kinds <= set(_OPCODES):
        (only,) = kinds
        candidates.append(
            Candidate(
                f"Which collective does XLA add to `{program.name}` on this mesh ({_mesh_text(mesh.axes)}; "
                f"{device_text(program)})?",
                Choice(_OPCODES),
                only,
                next(iter(kinds_in_hlo)) if len(kinds_in_hlo) == 1 else None,
                f"The compiled program has {len(exchanges)} `{only}`.",
                marks=(("hlo", tuple(exchange.id for exchange in exchanges)),),
            )
        )
    payloads: dict[tuple[str, str], set[int | None]] = {}
    for exchange in exchanges:
        payloads.setdefault((exchange.opcode, _blocks_text(exchange)), set()).add(exchange.payload_bytes)
    for exchange in exchanges:
        instruction = by_hlo.get(exchange.id)
        if exchange.payload_bytes is None or instruction is None or exchange.opcode.endswith("-start"):
            continue
        blocks = _blocks_text(exchange)
        if len(payloads[exchange.opcode, blocks]) > 1:  # the question would not state which of them
            continue
        operands = [by_id for home in module.computations.values() if exchange.id in home.by_id
                    for by_id in home.operands(instruction)] if module is not None else []  # fmt: skip
        sizes = [spec.nbytes for operand in operands for spec in operand.shapes]
        candidates.append(
            Candidate(
                f"How many bytes does one device pass to the `{exchange.opcode}` {blocks}"
                f"in `{program.name}` ({_mesh_text(mesh.axes)}; {device_text(program)})?",
                Number("B"),
                exchange.payload_bytes,
                sum(size or 0 for size in sizes) if sizes and None not in sizes else None,
                f"Its operands on one device have {exchange.payload_bytes:,} bytes.",
                marks=(("hlo", (exchange.id,)),),
            )
        )
    yield from random.sample(candidates, len(candidates))


def _blocks_text(exchange: Exchange) -> str:
    # XLA combines collectives of several blocks into one.
    paths = sorted(f"`{path}`" for path, _ in exchange.blocks if path)
    return f"of block{'s' if len(paths) > 1 else ''} {' and '.join(paths)} " if paths else ""


def _mesh_text(axes: Mapping[str, int]) -> str:
    return " × ".join(f"{name} = {size}" for name, size in axes.items())
