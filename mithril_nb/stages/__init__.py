"""Every representation of a program between Python and machine code, and the origin of each line.

The records are plain data; the code that computes them needs JAX, which is imported on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from mithril_nb.stages.records import LOSS, OPTIMIZER, UNATTRIBUTED, Equation, Instruction, Stage

if TYPE_CHECKING:
    from mithril_nb.stages.inspection import STAGES, Inspection, inspect
    from mithril_nb.stages.trace.traced import Input

__all__ = [
    "LOSS", "OPTIMIZER", "STAGES", "UNATTRIBUTED", "Equation", "Input", "Inspection", "Instruction", "Stage", "inspect",
]  # fmt: skip

_HOMES = {name: "mithril_nb.stages.inspection" for name in ("STAGES", "Inspection", "inspect")}
_HOMES["Input"] = "mithril_nb.stages.trace.traced"


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'mithril_nb.stages' has no attribute {name!r}")
    globals()[name] = value = getattr(importlib.import_module(_HOMES[name]), name)
    return value
