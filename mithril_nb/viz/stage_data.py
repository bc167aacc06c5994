"""A stage as data for the front end: its text, its instructions with their provenance, and help.

Instructions are columns. Values that many of them share (equations, blocks, lines of Python) are indices into tables.
The widgets receive this data from the kernel, and saved pages contain it; `kernel/messages.ts` reads it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Any

from mithril_nb.viz.op_help import op_help

if TYPE_CHECKING:  # these import JAX
    from mithril_nb.inspection import Inspection
    from mithril_nb.stages.records import Stage


def stage_data(inspection: Inspection, name: str) -> dict[str, Any]:
    """Return a stage of a program as JSON data."""
    stage = inspection.stage(name)
    columns: dict[str, list[int]] = {
        "line": [one.line for one in stage.instructions],
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
        "equations": _equations(inspection, stage),
        "help": [(opcode, text) for opcode in tables["opcode"] if (text := op_help(name, opcode)) is not None],
    }


def _indexed(values: Iterable[Hashable]) -> tuple[list[int], list[Any]]:
    """Return the index of each value, and the distinct values."""
    places: dict[Hashable, int] = {}
    return [places.setdefault(value, len(places)) for value in values], list(places)


def _equations(inspection: Inspection, stage: Stage) -> dict[str, Any]:
    """Return the data of the equations of a stage; empty if the program cannot be traced."""
    from mithril_nb.stages.program_stages import known_equations

    used = {equation for group in {one.equations for one in stage.instructions} for equation in group}
    known = [one for one in known_equations(inspection) if one.id in used] if stage.unavailable is None else []
    found: dict[str, Any] = {"id": [one.id for one in known], "source": [one.place for one in known], "tables": {}}
    for column, values in (
        ("primitive", (one.primitive for one in known)),
        ("block", (one.block for one in known)),
        ("role", (one.role for one in known)),
    ):
        found[column], found["tables"][column] = _indexed(values)
    return found
