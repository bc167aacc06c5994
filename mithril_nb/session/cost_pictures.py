"""Pictures of costs for a page: in the hues that it shows blocks in, each with its twin in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mithril_nb.cost import Cost
from mithril_nb.cost.memory.use import memory_of
from mithril_nb.measure import machine
from mithril_nb.stages import Inspection
from mithril_nb.viz.costs.beside import beside
from mithril_nb.viz.costs.drawing import Drawing
from mithril_nb.viz.costs.roofline import roofline
from mithril_nb.viz.costs.treemap import treemap

Hues = Mapping[str, int]
Draw = Callable[[Inspection, Sequence[Cost], str, int, Hues], Drawing]


def draw_beside(before: Cost, after: Cost, figure: str, width: int, hues: Hues, names: tuple[str, str]) -> Drawing:
    """Draw two costs beside each other, block by block.

    Args:
        before: The costs before.
        after: The costs after.
        figure: Which figure of them.
        width: Width in px.
        hues: Hue of each block that has one of its own, by path.
        names: What the two are called.
    """
    first, second = before.by_block, after.by_block
    blocks = [
        {"block": path, "before": _of(first.get(path), figure), "after": _of(second.get(path), figure)}
        for path in dict.fromkeys((*first, *second))
    ]
    lost = {"block": "", "before": _of(before.unattributed, figure), "after": _of(after.unattributed, figure)}
    total = {"before": _of(before.total, figure), "after": _of(after.total, figure)}
    told = dict(zip(("before", "after"), names, strict=True))
    return beside({**told, "field": figure, "blocks": [*blocks, lost], "total": total, "hues": dict(hues)}, width)


def _of(figures: Any, name: str) -> Any:
    """A figure of a block; one that does not occur costs nothing."""
    return 0 if figures is None else getattr(figures, name)


def _treemap(inspection: Inspection, costs: Sequence[Cost], figure: str, width: int, hues: Hues) -> Drawing:
    return treemap(_data(costs[0], hues), figure, width)


def _roofline(inspection: Inspection, costs: Sequence[Cost], figure: str, width: int, hues: Hues) -> Drawing:
    data = _data(costs[0], hues)
    if "peaks" in data:  # it was measured, and so was what the machine could do
        return roofline(data, data["peaks"], width)
    here = machine()
    return roofline(data, {**here.peaks(), "source": here.source}, width)


def _memory(inspection: Inspection, costs: Sequence[Cost], figure: str, width: int, hues: Hues) -> Drawing:
    from mithril_nb.viz.costs.memory_timeline import memory_timeline

    source = "analytic" if costs[0].source == "analytic" else "compiled"
    return memory_timeline({**memory_of(inspection, source).to_dict(), "hues": dict(hues)}, width)


def _beside(inspection: Inspection, costs: Sequence[Cost], figure: str, width: int, hues: Hues) -> Drawing:
    before, after = costs
    return draw_beside(before, after, figure, width, hues, (before.source, after.source))


def _data(cost: Cost, hues: Hues) -> dict[str, Any]:
    return {**cost.to_dict(rows=False), "hues": dict(hues)}


PICTURES: Mapping[str, Draw] = {
    "treemap": _treemap,
    "roofline": _roofline,
    "memory": _memory,
    "beside": _beside,
}
"""What draws each picture: of a program, its costs by one or two ways of counting, a figure, a width in px, hues."""
