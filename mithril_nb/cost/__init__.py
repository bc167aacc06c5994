"""What a program costs, block by block: FLOPs, transcendentals, bytes, parameters; checked against XLA."""

from mithril_nb.cost.costs import Cost, CostRow, Figures, cost_of
from mithril_nb.cost.records import BlockCost, CostReport, EquationCost, Total, Unknown
from mithril_nb.cost.report import report, with_xla
from mithril_nb.cost.xla import Memory, Source

__all__ = [
    "BlockCost", "Cost", "CostReport", "CostRow", "EquationCost", "Figures", "Memory", "Source", "Total", "Unknown",
    "cost_of", "report", "with_xla",
]  # fmt: skip
