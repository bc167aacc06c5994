"""Every representation of a program on its way to the machine, and where each line of it came from."""

from mithril_nb.stages.inspection import STAGES, Input, Inspection, inspect
from mithril_nb.stages.records import (
    LOSS,
    OPTIMIZER,
    UNATTRIBUTED,
    Equation,
    Instruction,
    Stage,
)

__all__ = [
    "LOSS", "OPTIMIZER", "STAGES", "UNATTRIBUTED", "Equation", "Input", "Inspection", "Instruction", "Stage", "inspect",
]  # fmt: skip
