"""Rich display and pictures of costs."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from mithril_nb.analysis.measure import machines
from mithril_nb.cost.comparison import Comparison
from mithril_nb.cost.costs import Cost
from mithril_nb.cost.counting import Costs
from mithril_nb.cost.difference import Difference
from mithril_nb.cost.lines import ByLine
from mithril_nb.cost.memory.use import MemoryUse
from mithril_nb.display import renderer
from mithril_nb.viz.bundles import Bundle
from mithril_nb.viz.costs.beside import beside, pair_of
from mithril_nb.viz.costs.drawing import Drawing
from mithril_nb.viz.costs.memory.timeline import memory_timeline
from mithril_nb.viz.costs.numbers import Numbers
from mithril_nb.viz.costs.overlay.overlay import overlay_of
from mithril_nb.viz.costs.roofline.roofline import roofline
from mithril_nb.viz.costs.tables.lines import lines_html, lines_text
from mithril_nb.viz.costs.tables.table import cost_html
from mithril_nb.viz.costs.tables.text import cost_text
from mithril_nb.viz.costs.treemap import treemap
from mithril_nb.viz.renderers.pictures import drawing_bundle


@renderer(Cost, Costs)
def _cost(cost: Cost | Costs) -> Bundle:
    data = cost.to_dict()
    return {"text/plain": cost_text(data), "text/html": cost_html(data)}


@renderer(Cost, Costs, kind="exact text")
def _exact_text(cost: Cost | Costs) -> str:
    return cost_text(cost.to_dict(rows=False), is_exact=True)


@renderer(Cost, kind="treemap")
def _treemap(cost: Cost, field: str, width: int) -> Drawing:
    return treemap(cost.to_dict(rows=False), field, width)


@renderer(Cost, kind="roofline")
def _roofline(cost: Cost, peaks: Any, width: int) -> Drawing:
    data = cost.to_dict(rows=False)
    if peaks is None and not data.get("machine"):
        peaks = machines.known_machine(cost.device)
    return roofline(data, peaks, width)


@renderer(Cost, kind="overlay")
def _overlay(cost: Cost, graph: Any, field: str, expanded: Collection[str]) -> Drawing:
    return overlay_of(cost.to_dict(rows=False), graph, field, expanded)


@renderer(ByLine)
def _by_line(found: ByLine) -> Bundle:
    data = found.to_dict()
    return {"text/plain": lines_text(data), "text/html": lines_html(data)}


@renderer(Comparison)
def _comparison(found: Comparison) -> Bundle:
    tables = tuple(Numbers(title, rows) for title, rows in found.tables.items())
    return drawing_bundle(Drawing(found.beside().svg, str(found), tables, found.notes))


@renderer(Comparison, kind="beside")
def _beside(found: Comparison, field: str, width: int) -> Drawing:
    return beside(pair_of(found.to_dict(), field), width)


@renderer(Difference)
def _difference(found: Difference) -> Bundle:
    return {"text/plain": str(found)}


@renderer(MemoryUse)
def _memory(use: MemoryUse) -> Bundle:
    return drawing_bundle(memory_timeline(use.to_dict()))
