"""What a program costs, block by block: FLOPs, transcendentals, bytes, parameters; checked against XLA."""

from mithril_nb.cost.comparison import Change, Comparison
from mithril_nb.cost.costs import Cost, Costs
from mithril_nb.cost.counting import SOURCES, cost_of, costs_of, costs_so_far
from mithril_nb.cost.difference import Difference, DifferenceRow
from mithril_nb.cost.multiply_adds import MultiplyAdds, multiply_adds
from mithril_nb.cost.records import CostRow, Figures, Fusion, Unknown
from mithril_nb.cost.xla import Memory, Source, memory_of, xla_figures

__all__ = [
    "SOURCES", "Change", "Comparison", "Cost", "CostRow", "Costs", "Difference", "DifferenceRow", "Figures", "Fusion",
    "Memory", "MultiplyAdds", "Source", "Unknown", "cost_of", "costs_of", "costs_so_far", "memory_of", "multiply_adds",
    "xla_figures",
]  # fmt: skip
