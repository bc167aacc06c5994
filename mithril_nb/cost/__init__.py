"""What a program costs, block by block: FLOPs, transcendentals, bytes, parameters; checked against XLA."""

from mithril_nb.cost.costs import Cost, CostRow, Figures, cost_of
from mithril_nb.cost.lives import Life
from mithril_nb.cost.memory import MemoryUse, Moment, memory_of
from mithril_nb.cost.multiply_adds import MultiplyAdds, multiply_adds
from mithril_nb.cost.records import BlockCost, CostReport, EquationCost, Total, Unknown
from mithril_nb.cost.report import report, with_xla
from mithril_nb.cost.xla import Memory, Source

__all__ = [
    "BlockCost", "Cost", "CostReport", "CostRow", "EquationCost", "Figures", "Life", "Memory", "MemoryUse", "Moment",
    "MultiplyAdds", "Source", "Total", "Unknown", "cost_of", "memory_of", "multiply_adds", "report", "with_xla",
]  # fmt: skip
