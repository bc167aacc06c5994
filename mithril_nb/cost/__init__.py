"""What a program costs, block by block: FLOPs, transcendentals, bytes, parameters; checked against XLA."""

from mithril_nb.cost.report import BlockCost, CostReport, EquationCost, Memory, Source, Total, Unknown, report, with_xla

__all__ = [
    "BlockCost", "CostReport", "EquationCost", "Memory", "Source", "Total", "Unknown", "report", "with_xla",
]  # fmt: skip
