"""Costs of a program by block: FLOPs, transcendentals, bytes, parameters, memory; checked against XLA."""

from mithril_nb.cost.comparison import CostChange, CostComparison, Difference, DifferenceRow
from mithril_nb.cost.costs import Cost
from mithril_nb.cost.counting import SOURCES, Costs, cost_of, costs_of, costs_so_far
from mithril_nb.cost.hlo.xla import Memory, xla_memory
from mithril_nb.cost.memory.liveness import LiveRange
from mithril_nb.cost.memory.use import MemoryUse, Moment, memory_of
from mithril_nb.cost.notes import Unknown
from mithril_nb.cost.records import CostRow, Figures, Fusion

__all__ = [
    "SOURCES",
    "Cost",
    "CostChange",
    "CostComparison",
    "CostRow",
    "Costs",
    "Difference",
    "DifferenceRow",
    "Figures",
    "Fusion",
    "LiveRange",
    "Memory",
    "MemoryUse",
    "Moment",
    "Unknown",
    "cost_of",
    "costs_of",
    "costs_so_far",
    "memory_of",
    "xla_memory",
]
