"""What is unknown in costs, and the notes that state it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mithril_nb.cost.records import COUNTED, NO_TRIP_COUNT, CostRow
from mithril_nb.stages.param_names import example_of_params, why_unknown

if TYPE_CHECKING:
    from mithril_nb.stages.records import Input


_MOST_HOLDERS = 3


@dataclass(frozen=True)
class Unknown:
    """Equations or instructions with unknown FLOPs, which the sums leave out.

    Attributes:
        opcode: Their primitive, or their opcode.
        reason: `"no rule"`, `"size unknown"`, `"trip count unknown"`, or a more specific reason.
        count: How many there are.
        each: Sum of their FLOPs with loops counted once, if the reason is the trip count; else `None`.
        share: Their share of all the program's equations or instructions, by number.
        blocks: The blocks that they are in; `""` means not attributed.
    """

    opcode: str
    reason: str
    count: int
    each: int | None
    share: float
    blocks: tuple[str, ...]


def unknown_of(rows: Iterable[CostRow]) -> tuple[Unknown, ...]:
    """Return the rows with unknown FLOPs, grouped by opcode and reason."""
    every = tuple(rows)
    groups: dict[tuple[str, str], list[CostRow]] = {}
    for row in every:
        if row.flops is None:
            groups.setdefault((row.opcode, row.unknown), []).append(row)
    return tuple(
        Unknown(
            opcode,
            reason,
            len(found),
            sum((row.once.flops or 0) for row in found if row.once is not None) if reason == NO_TRIP_COUNT else None,
            len(found) / len(every),
            tuple(dict.fromkeys(path for row in found for path, _ in row.blocks or (("", 1.0),))),
        )
        for (opcode, reason), found in groups.items()
    )


_MOST_EXPENSIVE_BRANCH = (
    "the most expensive branch is counted each time, as XLA counts; where another one runs, it costs less"
)


def notes_of(rows: Iterable[CostRow]) -> tuple[str, ...]:
    """Return notes on unknown figures with the reason, or one note if no result needs any equation."""
    groups: dict[tuple[str, str, str], int] = {}
    every = tuple(rows)
    if every and all(row.repeats == 0 for row in every):
        return ("nothing is computed: the results of the program need none of its equations",)
    for row in every:
        unknown = [name for name in COUNTED if getattr(row, name) is None]
        if unknown:
            why = NO_TRIP_COUNT if row.repeats is None else row.formula
            *first, last = unknown
            key = f"{', '.join(first)} and {last}" if first else last, row.opcode, why
            groups[key] = groups.get(key, 0) + 1
    return tuple(f"{names} of {count} × {opcode}: {why}" for (names, opcode, why), count in groups.items())


def notes_of_branches(opcodes: Iterable[str]) -> tuple[str, ...]:
    """Return a note for each opcode with branches: the most expensive branch is counted.

    Examples:
        >>> notes_of_branches(["add", "cond", "cond"])[0][:47]
        '2 × cond: the most expensive branch is counted '
    """
    counts = Counter(opcode for opcode in opcodes if opcode in ("cond", "conditional"))
    return tuple(f"{count} × {opcode}: {_MOST_EXPENSIVE_BRANCH}" for opcode, count in counts.items())


def unknown_params(inputs: Iterable[Input]) -> tuple[str, str] | None:
    """Return why it is unknown which inputs are parameters, and an example of `params=`; `None` if it is known.

    Args:
        inputs: The inputs of a program.
    """
    every = tuple(inputs)
    if all(one.is_param is not None for one in every):
        return None
    arguments = list(dict.fromkeys(one.argument for one in every))
    first = [*_likely_holders(every), *arguments]
    return why_unknown(arguments), example_of_params(first, [one.name for one in every])


def notes_of_params(inputs: Iterable[Input]) -> tuple[str, ...]:
    """Return notes on why parameters are unknown, or on parameters not attributed because unrelated blocks use them.

    Notes that begin with `"params: "` can be left out of a summary: no input looks like parameters.
    """
    every = tuple(inputs)
    unknown = unknown_params(every)
    if unknown is not None:
        why, example = unknown
        likely = _likely_holders(every)
        what = f"params of {' and '.join(likely)} are not counted" if likely else "params"
        return (f"{what}: {why}; name them with ml.inspect(..., {example}), or params=() if there are none",)
    groups: dict[tuple[str, ...], list[Input]] = {}
    for one in every:
        if one.used_by:
            groups.setdefault(one.used_by, []).append(one)
    return tuple(
        f"params of {found[0].name}{f' and {len(found) - 1} more' if len(found) > 1 else ''} are unattributed: "
        f"{', '.join(blocks)} use them"
        for blocks, found in groups.items()
    )


def _likely_holders(inputs: Iterable[Input]) -> list[str]:
    """Return the arguments that look like parameters: several float arrays under one name."""
    found = Counter(one.argument for one in inputs if one.name != one.argument and "float" in one.spec.dtype)
    return [name for name, count in found.items() if count > 1][:_MOST_HOLDERS]
