"""Notebook display and pictures of costs, profiles, what-if questions, comparisons and retraces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mithril_nb.analysis.compare import Comparison, DeviceComparison, StageComparison
from mithril_nb.analysis.measure.profiling import Profile
from mithril_nb.analysis.retraces.recorder import FunctionReport, Watch, Watched, WatchReport
from mithril_nb.analysis.whatif.change import Change
from mithril_nb.analysis.whatif.sweeps import Sweep
from mithril_nb.cost.comparison import CostComparison, Difference
from mithril_nb.cost.costs import ByLine, Cost, Slowest
from mithril_nb.cost.counting import Costs
from mithril_nb.cost.memory.use import MemoryUse
from mithril_nb.cost.mesh import MeshUse
from mithril_nb.display import renderer
from mithril_nb.hardware import Device, Devices, machines
from mithril_nb.viz.bundles import Bundle
from mithril_nb.viz.costs import devices as on_devices
from mithril_nb.viz.costs.beside import beside, change, pair_of
from mithril_nb.viz.costs.devices import devices_html, devices_text
from mithril_nb.viz.costs.drawing import Drawing, NumberTable
from mithril_nb.viz.costs.memory import memory_timeline
from mithril_nb.viz.costs.mesh import mesh_html, mesh_text
from mithril_nb.viz.costs.overlays import overlay_of
from mithril_nb.viz.costs.profile import profile_html, profile_text
from mithril_nb.viz.costs.roofline import roofline
from mithril_nb.viz.costs.sweep import sweep
from mithril_nb.viz.costs.tables.lines import lines_html, lines_text
from mithril_nb.viz.costs.tables.slowest import slowest_html, slowest_text
from mithril_nb.viz.costs.tables.table import cost_html, cost_text
from mithril_nb.viz.costs.treemap import treemap
from mithril_nb.viz.pages.comparison import comparison_html, comparison_page, comparison_text
from mithril_nb.viz.pages.retraces import retraces_html, retraces_text
from mithril_nb.viz.renderers.graphs import drawing_bundle


def _bundle(text: Callable[[Any], str], html: Callable[[Any], str], value: Any) -> Bundle:
    return {"text/plain": text(value), "text/html": html(value)}


renderer(Cost, Costs)(lambda cost: _bundle(cost_text, cost_html, cost.to_dict()))
renderer(Cost, Costs, kind="exact text")(lambda cost: cost_text(cost.to_dict(rows=False), is_exact=True))
renderer(Cost, kind="treemap")(lambda cost, field, width: treemap(cost.to_dict(rows=False), field, width))
renderer(Cost, kind="overlay")(
    lambda cost, graph, field, expanded, own: overlay_of(cost.to_dict(), graph, field, expanded, own=own)
)


def peaks_of(device: Any) -> Any:
    """Return the known peaks of a device for a roofline; `None` if they are not measured."""
    if not isinstance(device, Device):
        return machines.known_machine(device)
    # Programs in 8 bits or less are rare; with their peak, the others would seem slow.
    rates = {dtype: rate for dtype, rate in device.flops_per_s.items() if "8" not in dtype and "float4" not in dtype}
    return {**device.to_dict(), "flops_per_s": rates or dict(device.flops_per_s)}


@renderer(Cost, kind="roofline")
def _roofline(cost: Cost, peaks: Any, width: int) -> Drawing:
    data = cost.to_dict(rows=False)
    if peaks is None and not data.get("machine"):
        peaks = peaks_of(cost.device)
    return roofline(data, peaks, width)


@renderer(CostComparison)
def _comparison(comparison: CostComparison) -> Bundle:
    tables = tuple(NumberTable(title, rows) for title, rows in comparison.tables.items())
    return drawing_bundle(Drawing(comparison.beside().svg, str(comparison), tables, comparison.notes))


renderer(CostComparison, kind="beside")(
    lambda comparison, field, width: beside(pair_of(comparison.to_dict(), field), width)
)
renderer(Slowest)(lambda slowest: _bundle(slowest_text, slowest_html, slowest.to_dict()))
renderer(ByLine)(lambda lines: _bundle(lines_text, lines_html, lines.to_dict()))
renderer(Devices)(lambda devices: _bundle(devices_text, devices_html, devices))
renderer(DeviceComparison)(
    lambda comparison: _bundle(on_devices.comparison_text, on_devices.comparison_html, comparison)
)
renderer(DeviceComparison, kind="page")(on_devices.comparison_page)
renderer(Difference)(lambda difference: {"text/plain": str(difference)})
renderer(MemoryUse)(lambda use: drawing_bundle(memory_timeline(use.to_dict())))
renderer(MeshUse)(lambda use: _bundle(mesh_text, mesh_html, use))
renderer(Change)(lambda changed: drawing_bundle(change(changed.to_dict())))
renderer(Sweep)(lambda swept: drawing_bundle(sweep(swept.to_dict())))
renderer(Comparison)(lambda comparison: _bundle(comparison_text, comparison_html, comparison))
renderer(Comparison, kind="page")(comparison_page)
renderer(StageComparison)(lambda stage: {"text/plain": "\n".join(stage.diff_lines()) or stage.summary})
renderer(Profile)(lambda profile: _bundle(profile_text, profile_html, profile))
renderer(FunctionReport, WatchReport)(lambda report: _bundle(retraces_text, retraces_html, report))
renderer(Watch, Watched)(lambda watched: _bundle(retraces_text, retraces_html, watched.report()))
