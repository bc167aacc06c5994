"""How stages and curves travel to the front end: on request, as binary; traits would be saved and sent again."""

from __future__ import annotations

import gzip
import json
from typing import Any

import numpy as np

from mithril_nb.session.training import Rows
from mithril_nb.stages import Inspection


def stage_message(name: str, version: int, inspection: Inspection) -> tuple[dict[str, Any], list[bytes]]:
    """Return the message and buffer of a stage: its text and its instructions with their provenance."""
    stage = inspection.stage(name)
    used = {equation for instruction in stage.instructions for equation in instruction.equations}
    data = {
        "text": stage.text,
        "instructions": [
            [one.line, one.lines, one.opcode, one.equations, one.shares, one.role, one.origin]
            for one in stage.instructions
        ],
        "equations": {
            one.id: {"primitive": one.primitive, "block": one.block, "role": one.role, "source": one.source}
            for one in inspection.equations
            if one.id in used
        },
    }
    packed = gzip.compress(json.dumps(data, separators=(",", ":")).encode(), compresslevel=1)
    return {"type": "stage", "stage": name, "version": version}, [packed]


def curves_message(rows: Rows) -> tuple[dict[str, Any], list[bytes]]:
    """Return the message and buffer of rows of curves: little-endian float64, column after column."""
    values = np.ascontiguousarray(rows.values, dtype="<f8")
    return {"type": "curves", "from": rows.start, "columns": list(rows.columns)}, [values.tobytes()]
