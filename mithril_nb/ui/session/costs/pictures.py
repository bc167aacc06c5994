"""Pictures of costs for a front end, in the hues of its blocks, each with the same data as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mithril_nb.analysis.measure import machine
from mithril_nb.cost import Cost
from mithril_nb.cost.memory.use import memory_of
from mithril_nb.inspection import Inspection
from mithril_nb.viz.costs.beside import beside, pair_of
from mithril_nb.viz.costs.drawing import Drawing
from mithril_nb.viz.costs.roofline import roofline
from mithril_nb.viz.costs.treemap import treemap

Hues = Mapping[str, int]


@dataclass(frozen=True)
class Look:
    """Drawing options of a picture.

    Attributes:
        figure: Figure of the costs to show.
        width: Width in px.
        hues: Hue of each block that has its own, by path.
        opened: Paths of further blocks to draw as their parts.
    """

    figure: str
    width: int
    hues: Hues
    opened: Sequence[str] = ()


Draw = Callable[[Inspection, Sequence[Cost], Look], Drawing]


def draw_beside(before: Cost, after: Cost, look: Look, names: tuple[str, str]) -> Drawing:
    """Draw two costs side by side, block by block.

    Args:
        before: The costs before.
        after: The costs after.
        look: Drawing options.
        names: Labels of the two.
    """
    pair = pair_of(before.compare(after).to_dict(), look.figure)
    labels = {"program": "", "before": names[0], "after": names[1], "hues": dict(look.hues)}
    return beside({**pair, **labels}, look.width)


def _treemap(inspection: Inspection, costs: Sequence[Cost], look: Look) -> Drawing:
    return treemap(_data(costs[0], look.hues), look.figure, look.width)


def _roofline(inspection: Inspection, costs: Sequence[Cost], look: Look) -> Drawing:
    data = _data(costs[0], look.hues)
    if "peaks" in data:  # measured costs include the measured peaks of the machine
        return roofline(data, data["peaks"], look.width)
    here = machine(device=inspection.device)
    return roofline(data, {**here.peaks(), "source": here.source}, look.width)


def _memory(inspection: Inspection, costs: Sequence[Cost], look: Look) -> Drawing:
    from mithril_nb.viz.costs.memory_timeline import memory_timeline

    source = "analytic" if costs[0].source == "analytic" else "compiled"
    data = {**memory_of(inspection, source).to_dict(), "hues": dict(look.hues)}
    return memory_timeline(data, look.width, look.opened)


def _beside(inspection: Inspection, costs: Sequence[Cost], look: Look) -> Drawing:
    before, after = costs
    return draw_beside(before, after, look, (before.source, after.source))


def _data(cost: Cost, hues: Hues) -> dict[str, Any]:
    return {**cost.to_dict(rows=False), "hues": dict(hues)}


PICTURES: Mapping[str, Draw] = {
    "treemap": _treemap,
    "roofline": _roofline,
    "memory": _memory,
    "beside": _beside,
}
"""Drawing functions by name. They take a program and its costs from one or two sources."""
