"""Messages with stages, graphs, passes and curves for the front end: binary, on request. Traits would be saved.

Texts are compressed, because they are large. Instructions are sent as columns. Values that many of them share
(equations, blocks, lines of Python) are sent once, in a table.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np

from mithril_nb.inspection import Inspection
from mithril_nb.stages import Stage
from mithril_nb.stages.hlo.readable import readable
from mithril_nb.stages.program_stages import known_equations
from mithril_nb.stages.transforms.marks import MarkedEquation
from mithril_nb.stages.transforms.stepping import TransformStep, TransformSteps
from mithril_nb.ui.session.costs.formulas import BlockFormula
from mithril_nb.ui.session.costs.requests import BlockRows, CostPicture, CostTable
from mithril_nb.ui.session.costs.what_if import WhatIfAnswer
from mithril_nb.ui.session.stages.passes import PassList
from mithril_nb.ui.session.training import Rows
from mithril_nb.viz.op_help import op_help

Message = tuple[dict[str, Any], list[bytes]]
"""A message and its buffers."""


def packed(data: Any) -> bytes:
    """Return data as compressed JSON."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")
    return gzip.compress(text, compresslevel=1)


def stage_message(name: str, version: int, inspection: Inspection, *, short: bool = False) -> Message:
    """Return the message and buffer of a stage: its text, and its instructions with their provenance as columns.

    Args:
        name: Name of the stage.
        version: Version of the design.
        inspection: The program.
        short: True to send the readable form of optimized HLO, with the same instructions.
    """
    stage = inspection.stage(name)
    data = _columns(stage)
    data["equations"] = _equations(inspection, stage)
    opcodes = data["tables"]["opcode"]
    data["help"] = [(opcode, text) for opcode in opcodes if (text := op_help(name, opcode)) is not None]
    if short:
        data.update(_shortened(stage))
    head = {"type": "stage", "stage": name, "version": version, "short": short}
    return head, [packed(data)]


def curves_message(rows: Rows) -> Message:
    """Return the message and buffer of rows of curves: little-endian float64, column after column."""
    values = np.ascontiguousarray(rows.values, dtype="<f8")
    return {"type": "curves", "from": rows.start, "columns": list(rows.columns)}, [values.tobytes()]


class _Table:
    """A table of distinct values with their indices."""

    def __init__(self) -> None:
        self._places: dict[Hashable, int] = {}

    def of(self, values: Iterable[Hashable]) -> list[int]:
        """Return the index of each value."""
        places, found = self._places, list(values)
        for value in dict.fromkeys(found):
            places.setdefault(value, len(places))
        return [*map(places.__getitem__, found)]

    @property
    def values(self) -> list[Any]:
        return list(self._places)


def _columns(stage: Stage) -> dict[str, Any]:
    found: dict[str, Any] = {
        "text": stage.text,
        "line": [one.line for one in stage.instructions],
        "lines": [one.lines for one in stage.instructions],
    }
    tables: dict[str, list[Any]] = {}
    for name, values in (
        ("opcode", (one.opcode for one in stage.instructions)),
        ("equations", (one.equations for one in stage.instructions)),
        ("shares", (one.shares for one in stage.instructions)),
        ("role", (one.role for one in stage.instructions)),
        ("origin", (one.origin for one in stage.instructions)),
        ("transforms", (one.transforms for one in stage.instructions)),
        ("source", (one.source for one in stage.instructions)),
        ("library", (one.library_source for one in stage.instructions)),
    ):
        table = _Table()
        found[name] = table.of(values)
        tables[name] = table.values
    return {"columns": found, "tables": tables, "text": found.pop("text")}


def _equations(inspection: Inspection, stage: Stage) -> dict[str, Any]:
    """Return the data of the equations of a stage; empty if the program cannot be traced."""
    used = {equation for group in {one.equations for one in stage.instructions} for equation in group}
    known = [one for one in known_equations(inspection) if one.id in used] if stage.unavailable is None else []
    blocks, roles, primitives = _Table(), _Table(), _Table()
    return {
        "id": [one.id for one in known],
        "primitive": primitives.of(one.primitive for one in known),
        "block": blocks.of(one.block for one in known),
        "role": roles.of(one.role for one in known),
        "source": [one.place for one in known],
        "tables": {"primitive": primitives.values, "block": blocks.values, "role": roles.values},
    }


def _shortened(stage: Stage) -> dict[str, Any]:
    """Return the short text, and the instructions that each of its lines shows."""
    short = readable(stage.text)
    place = {one.id: at for at, one in enumerate(stage.instructions)}
    shown: dict[int, list[int]] = {}
    for line, name in short.lines:
        if name in place:
            shown.setdefault(line, []).append(place[name])
    lines = sorted(shown)
    return {"text": short.text, "shown": {"line": lines, "instructions": [shown[line] for line in lines]}}


def passes_message(found: PassList) -> Message:
    """Return the message and buffer of the list of passes: number, name, pipeline, added, removed, rewritten."""
    head = {"type": "passes", "version": found.version, "number": found.number}
    return head, [packed([list(one) for one in found.rows])]


def transforms_message(steps: TransformSteps) -> Message:
    """Return the message and buffer of transform steps: explanation, and both sides with a mark on each equation."""
    return {"type": "transforms", "left_out": list(steps.left_out)}, [packed([_step(one) for one in steps])]


def _step(step: TransformStep) -> dict[str, Any]:
    results: dict[str, list[str]] = {}
    for one in step.equations:
        if one.source is not None:
            results.setdefault(one.source, []).append(one.id)
    came_from = {one.id: [one.source] for one in step.equations if one.source is not None}
    is_first = step.before is None
    return {
        "name": step.name,
        "explanation": step.explanation,
        "problem": None if step.problem is None else step.problem.to_dict(),
        "before": _side(step.before, step.equations_before, results),
        "after": _side(step.after, () if is_first else step.equations, came_from),
    }


def _side(stage: Stage | None, marks: Sequence[MarkedEquation], others: dict[str, list[str]]) -> dict[str, Any] | None:
    """Return a jaxpr with its marks: line, id, mark, ids on the other side, note, whether inferred."""
    if stage is None:
        return None
    line = {made.id: made.line for made in stage.instructions}
    rows = [
        (line[one.id], one.id, one.mark, others.get(one.id, []), one.note, one.origin == "inferred")
        for one in marks
        if one.id in line
    ]
    return {"text": stage.text, "marks": sorted(rows)}


def cost_message(found: CostTable | BlockRows | BlockFormula | CostPicture | WhatIfAnswer) -> Message:
    """Return the message and buffer of costs: a table, the contents of a row, a formula, a picture, or a what-if."""
    if isinstance(found, CostTable):
        return {"type": "cost", "source": found.source, "version": found.version}, [packed(found.data)]
    if isinstance(found, BlockRows):
        head = {"type": "cost_rows", "source": found.source, "block": found.block, "figure": found.figure}
        return head, [packed(found.data)]
    if isinstance(found, BlockFormula):
        return {"type": "formula", "block": found.block, "version": found.version}, [packed(found.to_dict())]
    if isinstance(found, CostPicture):
        return {"type": "cost_picture", "key": found.key}, [packed(picture_data(found))]
    return {"type": "what_if", "key": found.key}, [packed({**found.data, "picture": picture_data(found.picture)})]


def picture_data(picture: CostPicture) -> dict[str, str]:
    """Return the data of a picture: markup, text, and the reason if it is missing."""
    return {"svg": picture.svg, "text": picture.text, "reason": picture.reason}


def text_message(head: dict[str, Any], text: str) -> Message:
    """Return a message with one large text."""
    return head, [packed(text)]
