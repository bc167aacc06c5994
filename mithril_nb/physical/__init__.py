"""A logical model and a backend become a physical model, that runs and shows what it is made of.

It stands above `stages` and `cost`, so that a physical model can answer with them, and below `train`.
"""

from mithril_nb.physical.compiling import compile, graph_of, shape_log
from mithril_nb.physical.model import PROGRAMS, PhysicalModel

__all__ = ["PROGRAMS", "PhysicalModel", "compile", "graph_of", "shape_log"]
