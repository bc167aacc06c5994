"""Notes shown below costs: which costs are unknown and why, and which counts differ from XLA's or depend on values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mithril_nb.cost.equations import SymbolicProgram, likely_holders, unknown_params
from mithril_nb.cost.formulas.communication import SENDS_MORE
from mithril_nb.cost.formulas.rules import NOT_COUNTED
from mithril_nb.cost.formulas.sizes import repeated, sum_of
from mithril_nb.cost.records import NO_TRIP_COUNT, CostRow, group_by
from mithril_nb.figures import LOCAL, OF_XLA
from mithril_nb.stages.trace.params import COLLECTIVES

if TYPE_CHECKING:
    from mithril_nb.stages.records import Input

NOT_RUN = "time_s: not measured, because nothing ran"
ONE_OF = "counted for one of "
"""First words of the note on costs that are for one device."""
ON_EACH_DEVICE = "shard_map: equations inside run on each device, and are counted for all devices together"


@dataclass(frozen=True)
class Unknown:
    """Equations or instructions of one opcode whose FLOPs are unknown for the same reason. Sums leave them out.

    Attributes:
        opcode: The primitive of the equations, or the opcode of the instructions.
        reason: `"size unknown"`, `"trip count unknown"`, or a text that begins with `"no rule"`.
        count: Number of these equations or instructions.
        each: If the trip count is unknown, the sum of their FLOPs if each loop had one iteration; else `None`.
        share: `count` divided by the number of all equations or instructions of the program.
        blocks: Paths of the blocks that they come from; `""` means not attributed.
    """

    opcode: str
    reason: str
    count: int
    each: int | None
    share: float
    blocks: tuple[str, ...]


def unknown_of(rows: Iterable[CostRow]) -> tuple[Unknown, ...]:
    """Return a record for each group of rows whose FLOPs are unknown, by opcode and reason."""
    all_rows = tuple(rows)
    groups = group_by((row for row in all_rows if row.flops is None), lambda row: (row.opcode, row.unknown))
    return tuple(
        Unknown(
            opcode,
            reason,
            len(rows_of_group),
            sum((row.once.flops or 0) for row in rows_of_group if row.once is not None)
            if reason == NO_TRIP_COUNT
            else None,
            len(rows_of_group) / len(all_rows),
            tuple(dict.fromkeys(path for row in rows_of_group for path, _ in row.blocks or (("", 1.0),))),
        )
        for (opcode, reason), rows_of_group in groups.items()
    )


_MOST_EXPENSIVE_BRANCH = (
    "every run is counted as a run of the most expensive branch, as XLA counts; other branches cost less"
)


def notes_of(rows: Iterable[CostRow]) -> tuple[str, ...]:
    """Return a note for each group of unknown costs, with the reason. If nothing runs, return one note on that."""
    groups: Counter[tuple[str, str, str]] = Counter()
    all_rows = tuple(rows)
    if all_rows and all(row.repeats == 0 for row in all_rows):
        return ("all costs are 0: the results of the program do not depend on any of its equations",)
    for row in all_rows:
        unknown = [name for name in OF_XLA if getattr(row, name) is None]
        if unknown:
            why = NO_TRIP_COUNT if row.repeats is None else row.formula
            *first, last = unknown
            groups[f"{', '.join(first)} and {last}" if first else last, row.opcode, why] += 1
    notes = (f"{names} of {count} × {opcode}: {why}" for (names, opcode, why), count in groups.items())
    others = Counter(key for row in all_rows for key in LOCAL if key not in OF_XLA and getattr(row, key) is None)
    return (*notes, *(f"{key} of {count} rows: {NOT_COUNTED}" for key, count in others.items()))


def notes_of_branches(opcodes: Iterable[str]) -> tuple[str, ...]:
    """Return a note for each opcode with branches, because only the most expensive branch counts.

    Examples:
        >>> notes_of_branches(["add", "cond", "cond"])[0][:60]
        '2 × cond: every run is counted as a run of the most expensiv'
    """
    counts = Counter(opcode for opcode in opcodes if opcode in ("cond", "conditional"))
    return tuple(f"{count} × {opcode}: {_MOST_EXPENSIVE_BRANCH}" for opcode, count in counts.items())


def notes_of_params(inputs: Iterable[Input]) -> tuple[str, ...]:
    """Return notes on unknown numbers of parameters, or on parameters that no block owns because several share them.

    If no input looks like parameters, the note begins with `"params: "`; a summary may leave this note out.
    """
    all_inputs = tuple(inputs)
    unknown = unknown_params(all_inputs)
    if unknown is not None:
        why, example = unknown
        likely = likely_holders(all_inputs)
        subject = f"the parameters in {' and '.join(likely)} are not counted" if likely else "params"
        return (f"{subject}: {why}; pass ml.inspect(..., {example}), or params=() if the program has no parameters",)
    groups: dict[tuple[str, ...], list[Input]] = {}
    for argument in all_inputs:
        if argument.used_by:
            groups.setdefault(argument.used_by, []).append(argument)
    return tuple(
        f"unattributed params: {shared[0].name}{f' and {len(shared) - 1} more' if len(shared) > 1 else ''}, because "
        f"{len(blocks)} blocks share {'it' if len(shared) == 1 else 'them'}: {', '.join(blocks[:-1])} and {blocks[-1]}"
        for blocks, shared in groups.items()
    )


def notes_of_equations(rows: tuple[CostRow, ...], program: SymbolicProgram) -> tuple[str, ...]:
    """Return the notes on the costs of a program's equations."""
    unknown = program.notes if program.symbols else notes_of(rows)
    branches = notes_of_branches(equation.primitive for equation in program.equations if equation.repeats != 0)
    spread = (ON_EACH_DEVICE,) if any("shard_map" in equation.transforms for equation in program.equations) else ()
    params = notes_of_params(program.inputs)
    unknown = (*unknown, *notes_of_communication(rows, has_symbols=bool(program.symbols)))
    return (*unknown, *branches, *notes_of_conventions(rows, program), *params, *spread, NOT_RUN)


def notes_of_communication(rows: Iterable[CostRow], *, has_symbols: bool = False) -> tuple[str, ...]:
    """Return notes on equations or instructions of which it is unknown how much they send to other devices."""
    groups: Counter[str] = Counter()
    for row in rows:
        if row.wire_bytes is None:
            is_collective = row.opcode in COLLECTIVES or row.opcode.removesuffix("-start") in COLLECTIVES.values()
            if not (is_collective and has_symbols):
                groups[_of_collective(row) if is_collective else _PARTITIONER] += 1
    return tuple(f"payload_bytes and wire_bytes of {count} {reason}" for reason, count in groups.items())


_PARTITIONER = 'rows on sharded arrays: XLA adds collectives when it compiles; cost("compiled") counts them'


def _of_collective(row: CostRow) -> str:
    if row.repeats == 0:
        return f"× {row.opcode}: {SENDS_MORE}"
    if row.repeats is None:
        return f"× {row.opcode}: {NO_TRIP_COUNT}"
    if row.opcode.replace("_", "-") == "ragged-all-to-all":
        return f"× {row.opcode}: the bytes sent depend on values"
    return f"× {row.opcode}: the number of devices or the size of an operand is unknown"


def notes_of_conventions(rows: Iterable[CostRow], program: SymbolicProgram) -> tuple[str, ...]:
    """Return notes on FLOPs that XLA counts by another convention, and on FLOPs that depend on values.

    Examples:
        >>> import jax.numpy as jnp
        >>> from mithril_nb.inspection import inspect_function as inspect
        >>> inspect(jnp.fft.fft, jnp.zeros((3, 1000), "complex64")).cost().notes[0]
        '1 × fft: 149,487 FLOPs by 5·n·log2(N); XLA counts 216,000 by 8·in·rounds, 1.44 times as many'
    """
    # The FLOPs by our rules and by XLA's, of each equation with the same formula.
    groups: dict[tuple[str, str, str, str], list[tuple[int | None, int | None]]] = {}
    formulas = [cost.rule if cost.rule and (cost.rule.xla or cost.rule.typical) else None for cost in program.counted]
    for row, (_, index) in zip(rows, program.kinds.members, strict=False):  # ignores rows of arguments, which come last
        formula = formulas[index]
        if formula is not None and row.repeats != 0:
            each = formula.value(formula.xla or "0")
            theirs = repeated(each if isinstance(each, int) else None, row.repeats)
            key = row.opcode, formula.flops, formula.xla or "", formula.typical
            groups.setdefault(key, []).append((row.flops, theirs))
    notes: list[str] = []
    for (opcode, flops, xla, typical), pairs in groups.items():
        title = f"{len(pairs)} × {opcode}"
        ours, theirs = (sum_of(*counts) for counts in zip(*pairs, strict=True))
        if xla and (ours is None or theirs is None):
            notes.append(f"{title}: FLOPs by {flops}; XLA counts by {xla}")
        elif xla and ours != theirs and ours is not None and theirs is not None:
            by = "" if xla.isdigit() else f" by {xla}"
            much = f", {theirs / ours:.3g} times as many" if ours and theirs else ""
            notes.append(f"{title}: {ours:,} FLOPs by {flops}; XLA counts {theirs:,}{by}{much}")
        if typical:
            notes.append(f"{title}: {flops} is a typical count; the actual count depends on {typical}")
    return tuple(notes)
