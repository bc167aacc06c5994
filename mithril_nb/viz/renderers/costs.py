"""Notebook display and pictures of costs, profiles, what-if questions, comparisons and retraces."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from mithril_nb.analysis.compare import Comparison, StageComparison
from mithril_nb.analysis.measure import machines
from mithril_nb.analysis.measure.profiling import Profile
from mithril_nb.analysis.retraces.recorder import FunctionReport, Watch, Watched, WatchReport
from mithril_nb.analysis.whatif.change import Change
from mithril_nb.analysis.whatif.sweeps import Sweep
from mithril_nb.cost.comparison import CostComparison, Difference
from mithril_nb.cost.costs import ByLine, Cost
from mithril_nb.cost.counting import Costs
from mithril_nb.cost.memory.use import MemoryUse
from mithril_nb.display import renderer
from mithril_nb.viz.bundles import Bundle
from mithril_nb.viz.costs.beside import beside, change, pair_of
from mithril_nb.viz.costs.drawing import Drawing, Numbers
from mithril_nb.viz.costs.memory_timeline import memory_timeline
from mithril_nb.viz.costs.overlay import overlay_of
from mithril_nb.viz.costs.profile import profile_html, profile_text
from mithril_nb.viz.costs.roofline import roofline
from mithril_nb.viz.costs.sweep import sweep
from mithril_nb.viz.costs.tables.lines import lines_html, lines_text
from mithril_nb.viz.costs.tables.table import cost_html, cost_text
from mithril_nb.viz.costs.treemap import treemap
from mithril_nb.viz.pages.comparison import comparison_html, comparison_page, comparison_text
from mithril_nb.viz.pages.retraces import retraces_html, retraces_text
from mithril_nb.viz.renderers.graphs import drawing_bundle


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
def _overlay(cost: Cost, graph: Any, field: str, expanded: Collection[str] | None, own: bool) -> Drawing:
    return overlay_of(cost.to_dict(), graph, field, expanded, own=own)


@renderer(ByLine)
def _by_line(found: ByLine) -> Bundle:
    data = found.to_dict()
    return {"text/plain": lines_text(data), "text/html": lines_html(data)}


@renderer(CostComparison)
def _comparison(found: CostComparison) -> Bundle:
    tables = tuple(Numbers(title, rows) for title, rows in found.tables.items())
    return drawing_bundle(Drawing(found.beside().svg, str(found), tables, found.notes))


@renderer(CostComparison, kind="beside")
def _beside(found: CostComparison, field: str, width: int) -> Drawing:
    return beside(pair_of(found.to_dict(), field), width)


@renderer(Difference)
def _difference(found: Difference) -> Bundle:
    return {"text/plain": str(found)}


@renderer(MemoryUse)
def _memory(use: MemoryUse) -> Bundle:
    return drawing_bundle(memory_timeline(use.to_dict()))


@renderer(Change)
def _change(found: Change) -> Bundle:
    return drawing_bundle(change(found.to_dict()))


@renderer(Sweep)
def _sweep(found: Sweep) -> Bundle:
    return drawing_bundle(sweep(found.to_dict()))


@renderer(Comparison)
def _compared(found: Comparison) -> Bundle:
    return {"text/plain": comparison_text(found), "text/html": comparison_html(found)}


@renderer(StageComparison)
def _stage_compared(found: StageComparison) -> Bundle:
    return {"text/plain": "\n".join(found.diff_lines()) or found.summary}


renderer(Comparison, kind="page")(comparison_page)


@renderer(Profile)
def _profile(found: Profile) -> Bundle:
    return {"text/plain": profile_text(found), "text/html": profile_html(found)}


@renderer(FunctionReport, WatchReport)
def _report(report: FunctionReport | WatchReport) -> Bundle:
    return {"text/plain": retraces_text(report), "text/html": retraces_html(report)}


@renderer(Watch, Watched)
def _watched(watched: Watch | Watched) -> Bundle:
    return _report(watched.report())
