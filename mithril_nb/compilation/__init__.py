"""`compile` turns a logical model into a physical model, which runs on a backend and shows its stages and costs.

This room may import `stages` and `cost`; `train` imports this room.
"""

from mithril_nb.compilation.compiling import compile, graph_of, shape_log
from mithril_nb.compilation.inspecting import PROGRAMS
from mithril_nb.compilation.model import PhysicalModel

__all__ = ["PROGRAMS", "PhysicalModel", "compile", "graph_of", "shape_log"]
