"""Binary messages with stages, graphs, passes and curves for the front end, because notebooks save traits.

Texts are compressed, because they are large. `viz/pages/listing.py` describes how a stage is sent.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from mithril_nb.inspection import Inspection
from mithril_nb.stages import Stage
from mithril_nb.stages.hlo.readable import readable
from mithril_nb.stages.transforms.marks import MarkedEquation
from mithril_nb.stages.transforms.stepping import TransformStep, TransformSteps
from mithril_nb.ui.session.commands import Reply
from mithril_nb.ui.session.training import Rows
from mithril_nb.viz.pages.listing import equation_data, stage_data

Message = tuple[dict[str, Any], list[bytes]]
"""A message and its buffers."""


def packed(data: Any) -> bytes:
    """Return data as compressed JSON."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")
    return gzip.compress(text, compresslevel=1)


def stage_message(name: str, version: int, inspection: Inspection, *, short: bool = False) -> Message:
    """Return a message that identifies a stage, and a buffer with its content."""
    stage = inspection.stage(name)
    data = {**stage_data(inspection, stage), "equations": equation_data(inspection, [stage])}
    if short:
        data.update(_shortened(stage))
    head = {"type": "stage", "stage": name, "version": version, "short": short}
    return head, [packed(data)]


def curves_message(rows: Rows) -> Message:
    """Return the message and buffer of rows of curves: little-endian float64, column after column."""
    values = np.ascontiguousarray(rows.values, dtype="<f8")
    return {"type": "curves", "from": rows.start, "columns": list(rows.columns)}, [values.tobytes()]


def _shortened(stage: Stage) -> dict[str, Any]:
    short = readable(stage.text)
    index_of = {instruction.id: at for at, instruction in enumerate(stage.instructions)}
    by_line: dict[int, list[int]] = {}
    for line, name in short.lines:
        if name in index_of:
            by_line.setdefault(line, []).append(index_of[name])
    lines = sorted(by_line)
    return {"text": short.text, "shown": {"line": lines, "instructions": [by_line[line] for line in lines]}}


def transforms_message(steps: TransformSteps) -> Message:
    """Return the message and buffer of transform steps: explanation, and both sides with a mark on each equation."""
    return {"type": "transforms", "left_out": list(steps.left_out)}, [packed([_step(step) for step in steps])]


def _step(step: TransformStep) -> dict[str, Any]:
    results: dict[str, list[str]] = {}
    for equation in step.equations:
        if equation.source is not None:
            results.setdefault(equation.source, []).append(equation.id)
    came_from = {equation.id: [equation.source] for equation in step.equations if equation.source is not None}
    is_first = step.before is None
    return {
        "name": step.name,
        "explanation": step.explanation,
        "problem": None if step.problem is None else step.problem.to_dict(),
        "before": _side(step.before, step.equations_before, results),
        "after": _side(step.after, () if is_first else step.equations, came_from),
    }


def _side(stage: Stage | None, marks: Sequence[MarkedEquation], others: dict[str, list[str]]) -> dict[str, Any] | None:
    if stage is None:
        return None
    line = {instruction.id: instruction.line for instruction in stage.instructions}
    rows = [
        (
            line[equation.id],
            equation.id,
            equation.mark,
            others.get(equation.id, []),
            equation.note,
            equation.origin == "inferred",
        )
        for equation in marks
        if equation.id in line
    ]
    return {"text": stage.text, "marks": sorted(rows)}


def reply_message(kind: str, reply: Reply) -> Message:
    """Return the message and buffer of a reply of a request handler."""
    return {"type": kind, **reply.head}, [] if reply.data is None else [packed(reply.data)]
