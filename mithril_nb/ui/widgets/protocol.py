"""Binary messages with stages, graphs, passes and curves for the front end, because notebooks save traits.

Texts are compressed, because they are large. `viz/pages/listing.py` describes how a stage is sent.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from typing import Any, Literal, NotRequired, TypedDict

import numpy as np

from mithril_nb.inspection import Inspection
from mithril_nb.stages import Stage
from mithril_nb.stages.hlo.readable import readable
from mithril_nb.stages.transforms.marks import MarkedEquation
from mithril_nb.stages.transforms.stepping import TransformStep, TransformSteps
from mithril_nb.ui.session.commands import ProblemData, problem_data
from mithril_nb.ui.session.cost_requests import CostHead, CostPicture, CostRowsHead, FormulaHead, KeyHead
from mithril_nb.ui.session.cost_tables import BlockFormula, CostDetails, CostTableData
from mithril_nb.ui.session.explanations import ExplanationHead
from mithril_nb.ui.session.exploring import StageHead
from mithril_nb.ui.session.graphs.exports import ExportHead
from mithril_nb.ui.session.graphs.fits import FitsHead, Preview
from mithril_nb.ui.session.graphs.overlays import OverlayData, OverlayHead
from mithril_nb.ui.session.graphs.values import ParametersHead, ParameterStatistics, ValueHead, ValuePicture
from mithril_nb.ui.session.passes import DiffHead, HistoryHead, MatchesHead, PassesHead, PassRow
from mithril_nb.ui.session.snapshot import GraphOfStage
from mithril_nb.ui.session.training import CurvesHead, RunData, RunRows
from mithril_nb.ui.session.what_if import WhatIfAnswer
from mithril_nb.viz.pages.listing import equation_data, stage_data

# A message and its buffers.
Message = tuple[dict[str, Any], list[bytes]]


class StageTextHead(TypedDict):
    """A text of a stage; the data are a `PackedStage`."""

    stage: str
    version: int
    short: bool  # whether the text is the short form of optimized HLO


class PackedEquations(TypedDict):
    """The equations of a stage in columns; `tables` has the values of the columns of indices."""

    id: list[str]
    primitive: list[int]
    block: list[int]
    role: list[int]
    source: list[str]
    tables: dict[str, list[Any]]


class ShownLines(TypedDict):
    """For a shortened text: the instructions on each line, the displayed one first."""

    line: list[int]
    instructions: list[list[int]]


class PackedStage(TypedDict):
    """A stage: instructions as columns of indices into tables of distinct values; `step` is the distance in lines."""

    text: str
    columns: dict[str, list[int]]
    tables: dict[str, list[Any]]
    equations: PackedEquations
    help: NotRequired[list[tuple[str, str]]]  # descriptions of operations by opcode
    # regular expressions that occur in the text, with descriptions, in which $1 is the first group
    patterns: NotRequired[list[tuple[str, str]]]
    shown: NotRequired[ShownLines]
    kinds: NotRequired[dict[str, str]]  # in the first stage, which is searched: the kind of each block, by path


class TransformsHead(TypedDict):
    """The steps of transforms follow as `TransformStepData`; `left_out` are transforms that are not shown."""

    left_out: list[str]


# Line, id and mark of an equation; the related equations on the other side; a note; and whether they are inferred.
MarkedLine = tuple[int, str, Literal["kept", "new", "changed", "gone"], list[str], str, bool]


class TransformSide(TypedDict):
    """A jaxpr before or after a transform."""

    text: str
    marks: list[MarkedLine]


class TransformStepData(TypedDict):
    """One transform."""

    name: str
    explanation: str
    problem: ProblemData | None
    before: TransformSide | None
    after: TransformSide | None


class RunHead(TypedDict):
    """The state of the run."""

    run: RunData


class ReplyHead(TypedDict):
    """The reply to the command with this id."""

    id: int
    ok: bool
    error: ProblemData | None


# The types of head and data by kind of message. `tools/contract.py` writes them in TypeScript, for the page.
MESSAGES: dict[str, tuple[Any, Any]] = {
    "reply": (ReplyHead, None),
    "stage": (StageTextHead, PackedStage),
    "graph": (StageHead, GraphOfStage),
    "graph_shares": (StageHead, list[float | None]),
    "overlay": (OverlayHead, OverlayData),
    "run": (RunHead, None),
    "curves": (CurvesHead, bytes),
    "cost": (CostHead, CostTableData),
    "cost_rows": (CostRowsHead, CostDetails),
    "cost_picture": (KeyHead, CostPicture),
    "formula": (FormulaHead, BlockFormula),
    "what_if": (KeyHead, WhatIfAnswer),
    "passes": (PassesHead, list[PassRow]),
    "diff": (DiffHead, str),
    "pass_matches": (MatchesHead, list[tuple[int, list[int]]]),
    "instruction_history": (HistoryHead, None),
    "explanation": (ExplanationHead, None),
    "transforms": (TransformsHead, list[TransformStepData]),
    "export": (ExportHead, str),
    "fits": (FitsHead, dict[str, str]),
    "preview": (KeyHead, Preview),
    "value": (ValueHead, list[ValuePicture]),
    "parameters": (ParametersHead, list[ParameterStatistics]),
}


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
    head = StageTextHead(stage=name, version=version, short=short)
    return {"type": "stage", **head}, [packed(data)]


def curves_message(rows: RunRows) -> Message:
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
    head = TransformsHead(left_out=list(steps.left_out))
    return {"type": "transforms", **head}, [packed([_step(step) for step in steps])]


def _step(step: TransformStep) -> TransformStepData:
    came_from = {equation.id: [equation.source] for equation in step.equations if equation.source is not None}
    results: dict[str, list[str]] = {}
    for id, [source] in came_from.items():
        results.setdefault(source, []).append(id)
    is_first = step.before is None
    return {
        "name": step.name,
        "explanation": step.explanation,
        "problem": step.problem and problem_data(step.problem),
        "before": _side(step.before, step.equations_before, results),
        "after": _side(step.after, () if is_first else step.equations, came_from),
    }


def _side(stage: Stage | None, marks: Sequence[MarkedEquation], others: dict[str, list[str]]) -> TransformSide | None:
    if stage is None:
        return None
    line_of = {instruction.id: instruction.line for instruction in stage.instructions}
    rows: list[MarkedLine] = [
        (line_of[mark.id], mark.id, mark.mark, others.get(mark.id, []), mark.note, mark.origin == "inferred")
        for mark in marks
        if mark.id in line_of
    ]
    return {"text": stage.text, "marks": sorted(rows)}
