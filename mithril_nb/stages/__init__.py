"""Every representation of a program between Python and machine code, and the origin of each line.

The records are plain data. The modules that compute them need JAX.
"""

from mithril_nb.stages.records import LOSS, OPTIMIZER, UNATTRIBUTED, Equation, Input, Instruction, Stage

__all__ = ["LOSS", "OPTIMIZER", "UNATTRIBUTED", "Equation", "Input", "Instruction", "Stage"]
