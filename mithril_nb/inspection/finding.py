"""Search the instructions of a stage by block, kind, role, dtype, cost or line of Python."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from mithril_nb.cost.counting import cost_of
from mithril_nb.cost.records import CostRow
from mithril_nb.errors import MithrilError, UnknownOptionError
from mithril_nb.graph.paths import lineage
from mithril_nb.graph.query import Found, Match, Searchable, parse_query
from mithril_nb.graph.spec import ITEM_BYTES, TensorSpec
from mithril_nb.stages.hlo.optimized import TRIVIAL
from mithril_nb.stages.hlo.text import by_computation
from mithril_nb.stages.program_stages import ProgramStages, first_stage
from mithril_nb.stages.records import Instruction, Stage

COST_SOURCES = {"jaxpr": "analytic", "hlo_before": "lowered", "hlo": "compiled"}
"""The stages with costs, and the source of costs whose rows have the ids of their instructions."""


def find_in(program: ProgramStages, query: str, stage: str | None = None) -> Found:
    """Return the instructions of a stage that match a query; see `Inspection.find`."""
    parsed = parse_query(query)
    name = stage or first_stage(program)
    instructions = program.stage(name).instructions
    rows = costs_of_stage(program, name)
    # Without rows, a query such as flops>1e6 would match nothing and look like an answer.
    needs = next((key for key in parsed.keys if key in ("flops", "bytes")), None)
    if needs is not None and instructions and not rows:
        reason = (
            "the costs cannot be computed" if name in COST_SOURCES else f"only {', '.join(COST_SOURCES)} have costs"
        )
        raise UnknownOptionError(f"stage {name!r} has no {needs} to search for.", (("reason", reason),))
    kinds = program.block_kinds
    bodies = _bodies_of_fusions(program.stage(name)) if name == "hlo" else {}
    matches = tuple(
        _match(instruction, rows.get(instruction.id), bodies.get(instruction.id, ()))
        for instruction in instructions
        if parsed.matches(item_of(instruction, rows.get(instruction.id), kinds))
    )
    return Found(program.name, name, parsed, matches, len(instructions))


def costs_of_stage(program: ProgramStages, stage: str) -> Mapping[str, CostRow]:
    """Return the cost of each instruction of a stage by id; `{}` if the costs are unknown."""
    try:
        return {row.id: row for row in cost_of(program, COST_SOURCES[stage]).rows} if stage in COST_SOURCES else {}
    except MithrilError:  # the program cannot be lowered or compiled: its texts can still be searched
        return {}


def item_of(instruction: Instruction, row: CostRow | None, kinds: Mapping[str, str]) -> Searchable:
    """Return the properties of an instruction that a query can match."""
    # `row` is its cost, `None` if unknown.
    blocks = tuple(path for path, _ in instruction.shares if path)
    # A block of many operations has a kind too, such as a Model: `kind:gpt` matches all that is inside it.
    around = dict.fromkeys(kinds[path] for block in blocks for path in lineage(block) if path in kinds)
    lines = (*instruction.source, *instruction.library_source)
    return Searchable(
        blocks,
        (instruction.opcode, *around),
        instruction.role or "",
        dtypes_of(instruction.shapes),
        lines,
        numbers_of(instruction, row),
    )


def numbers_of(instruction: Instruction, row: CostRow | None) -> dict[str, int | None]:
    """Return the numbers of an instruction that a query can compare, by their key, such as `"flops"`."""
    flops, moved = (None, None) if row is None else (row.flops, row.bytes_accessed)
    return {"flops": flops, "bytes": moved, "memory": memory_of(instruction.shapes)}


@lru_cache(maxsize=1 << 12)  # a program has few distinct specs
def memory_of(specs: tuple[TensorSpec, ...]) -> int | None:
    """Return the total size of arrays in bytes; `None` if a size or dtype is unknown, or `specs` is empty."""
    sizes = [None if spec.size is None or spec.dtype not in ITEM_BYTES else spec.nbytes for spec in specs]
    known_sizes = [size for size in sizes if size is not None]
    return sum(known_sizes) if known_sizes and len(known_sizes) == len(sizes) else None


# The opcode of a fusion does not state what it computes, so a match lists the operations of its body.
def _bodies_of_fusions(stage: Stage) -> dict[str, tuple[str, ...]]:
    inside = by_computation(stage.text, stage.instructions)
    fusions = {
        instruction.id: dict(instruction.attributes).get("calls", "")
        for instruction in stage.instructions
        if instruction.opcode == "fusion"
    }
    return {
        id: tuple(
            dict.fromkeys(
                instruction.opcode
                for instruction in inside.get(name.lstrip("%"), ())
                if instruction.opcode not in TRIVIAL
            )
        )
        for id, name in fusions.items()
    }


def _match(instruction: Instruction, row: CostRow | None, contains: tuple[str, ...]) -> Match:
    blocks = tuple(path for path, _ in sorted(instruction.shares, key=lambda pair: -pair[1]) if path)
    numbers = numbers_of(instruction, row)
    return Match(
        instruction.id, instruction.opcode, blocks, instruction.role, dtypes_of(instruction.shapes), numbers["flops"],
        numbers["bytes"], numbers["memory"], tuple(instruction.source), contains,
    )  # fmt: skip


@lru_cache(maxsize=1 << 12)
def dtypes_of(specs: tuple[TensorSpec, ...]) -> tuple[str, ...]:
    """Return the distinct dtypes of arrays."""
    return tuple(dict.fromkeys(str(spec.dtype) for spec in specs))
