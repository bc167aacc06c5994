"""A stage as data for the front end: its text, its instructions with their provenance, and help.

Instructions are columns: the lines from one to the next, which compress to almost nothing, and for values that many of
them share (equations, blocks, lines of Python) indices into tables.
The widgets receive this data from the kernel, and saved pages contain it; `kernel/messages.ts` reads it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Any

from mithril_nb.viz.op_help import op_help

if TYPE_CHECKING:  # these import JAX
    from mithril_nb.inspection import Inspection
    from mithril_nb.stages.records import Stage


def stage_data(stage: Stage) -> dict[str, Any]:
    """Return a stage as JSON data, without the data of its equations."""
    starts = [one.line for one in stage.instructions]
    columns: dict[str, list[int]] = {
        "step": [line - before for line, before in zip(starts, [0, *starts], strict=False)],
        "lines": [one.lines for one in stage.instructions],
    }
    tables: dict[str, list[Any]] = {}
    for column, values in (
        ("opcode", (one.opcode for one in stage.instructions)),
        ("equations", (one.equations for one in stage.instructions)),
        ("shares", (one.shares for one in stage.instructions)),
        ("role", (one.role for one in stage.instructions)),
        ("origin", (one.origin for one in stage.instructions)),
        ("transforms", (one.transforms for one in stage.instructions)),
        ("source", (one.source for one in stage.instructions)),
        ("library", (one.library_source for one in stage.instructions)),
    ):
        columns[column], tables[column] = _indexed(values)
    return {
        "text": stage.text,
        "columns": columns,
        "tables": tables,
        "help": [(opcode, text) for opcode in tables["opcode"] if (text := op_help(stage.name, opcode)) is not None],
    }


def equation_data(inspection: Inspection, stages: Iterable[Stage]) -> dict[str, Any]:
    """Return the data of the equations that stages of a program name; empty if the program cannot be traced."""
    from mithril_nb.stages.program_stages import known_equations

    groups = {one.equations for stage in stages if stage.unavailable is None for one in stage.instructions}
    used = {equation for group in groups for equation in group}
    known = [one for one in known_equations(inspection) if one.id in used] if used else []
    found: dict[str, Any] = {"id": [one.id for one in known], "source": [one.place for one in known], "tables": {}}
    for column, values in (
        ("primitive", (one.primitive for one in known)),
        ("block", (one.block for one in known)),
        ("role", (one.role for one in known)),
    ):
        found[column], found["tables"][column] = _indexed(values)
    return found


def _indexed(values: Iterable[Hashable]) -> tuple[list[int], list[Any]]:
    """Return the index of each value, and the distinct values."""
    places: dict[Hashable, int] = {}
    return [places.setdefault(value, len(places)) for value in values], list(places)
