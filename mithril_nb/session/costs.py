"""Costs as a front end shows them: rows in the order of the model, with hues, and whether they are up to date."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mithril_nb.cost import CostReport
from mithril_nb.session.analysis import Analysis
from mithril_nb.viz.palette import hue_of


def cost_view(report: CostReport, analysis: Analysis, hues: Mapping[str, int], is_stale: bool) -> dict[str, Any]:
    """Return the cost table of a snapshot."""
    return {**cost_rows(report, [path for path, _ in analysis.design.graph.walk()], hues), "stale": is_stale}


def cost_rows(report: CostReport, paths: Sequence[str], hues: Mapping[str, int]) -> dict[str, Any]:
    """Return the costs, the rows in the order of some paths."""
    data = report.to_dict()
    order = {path: index for index, path in enumerate(paths)}
    rows = data["rows"]
    assert isinstance(rows, list)
    for row in rows:
        row["label"] = row["block"] or "unattributed"
        hue = hue_of(row["block"], hues)
        row["hue"] = -1 if hue is None else hue
    rows.sort(key=lambda row: (order.get(row["block"], len(order)), row["block"] == "", row["block"]))
    return {**data, "rows": rows, "stale": False}
