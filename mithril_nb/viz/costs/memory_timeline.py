"""Picture of memory use over time: a layer for each block, on top of each other, and a mark at the peak."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence

from mithril_nb.viz.costs.canvas.svg_canvas import FOOT, HEAD_H, MARGIN, NO_HUE, NORMAL, SMALL, Page
from mithril_nb.viz.costs.drawing import Drawing
from mithril_nb.viz.costs.fields import FIELDS
from mithril_nb.viz.costs.memory_layers import KINDS, Data, Layer, layers_of, memory_text, peak_text
from mithril_nb.viz.svg import Rect, number
from mithril_nb.viz.text import one_line, text_width
from mithril_nb.viz.units import exact, nbytes, percent

_AXIS_W = 58
_AXIS_H = 30
_TOP = 22
"""Height in px above the layers, for the label of the peak."""
_COLUMN = 2.5
"""Smallest width in px of a drawn position. If positions are closer, only the one with the most memory is drawn."""


def memory_timeline(data: Data, width: int = 720, opened: Collection[str] = ()) -> Drawing:
    """Draw the memory use of a program over time.

    Args:
        data: Memory use, as returned by `MemoryUse.to_dict()`.
        width: Width in px; values below 320 become 320.
        opened: Paths of blocks to open. The blocks inside them have a layer each.

    Examples:
        >>> life = {"id": "x", "kind": "arguments", "block": "net", "size_bytes": 8, "first": 0, "last": 1}
        >>> data = {"program": "f", "source": "compiled", "peak_bytes": 8, "peak_at": 0, "filled_bytes": 8,
        ...         "timeline": [{"id": "x", "bytes": 8}, {"id": "sin", "bytes": 8}], "at_peak": {"net": 8},
        ...         "kinds": {"arguments": 8}, "lives": [life], "blocks": ["net"], "xla": None, "notes": []}
        >>> memory_timeline(data).svg[:4]
        '<svg'
    """
    return Drawing(_svg(data, max(320, width), opened), memory_text(data))


def _svg(data: Data, width: int, opened: Collection[str]) -> str:
    about = {
        "program": data["program"],
        "source": data["source"],
        "total": {"peak_bytes": data["peak_bytes"]},
        "notes": data["notes"],
    }
    page = Page(about, FIELDS["peak_bytes"], "peak memory", width)
    height = round(max(190, min(300, width * 0.4)))
    if not data["timeline"] or not data["peak_bytes"]:
        reason = " ".join(data["notes"]) or "This program holds no memory."
        page.plate(Rect(MARGIN, HEAD_H, width - 2 * MARGIN, height), reason)
        known = [f"{kind} {nbytes(size)}" for kind, size in data["kinds"].items() if size]
        page.note(", ".join(known))
        return page.svg(peak_text(data))
    layers, places = layers_of(data, int((width - 2 * MARGIN - _AXIS_W) / _COLUMN), opened)
    height += 14 * max(0, len(layers) - 8)
    plot = Rect(MARGIN + _AXIS_W, HEAD_H + _TOP, width - 2 * MARGIN - _AXIS_W, height)
    ticks = _ticks(data["peak_bytes"])
    top = ticks[-1]
    _axes(page, plot, ticks, len(data["timeline"]))
    nearest = min(range(len(places)), key=lambda at: abs(places[at] - data["peak_at"]))
    _steps(page, plot, top, layers, places, nearest)
    _peak(page, plot, top, data, (nearest + 0.5) * plot.w / len(places))
    page.y = plot.y + plot.h + _AXIS_H + FOOT
    held = sorted((one for one in layers if one.at_peak), key=lambda one: -one.at_peak)
    page.legend([(_tone(one), f"{one.name} {nbytes(one.at_peak)}") for one in held])
    page.note(_kinds(data))
    for note in data["notes"]:
        page.note(note)
    first = ", ".join(f"{one.name} {percent(one.at_peak / data['peak_bytes'])}" for one in held[:8])
    return page.svg(f"{peak_text(data)}; held by {first}.")


def _kinds(data: Data) -> str:
    sizes = [f"{KINDS[kind]} {nbytes(size)}" for kind, size in data["kinds"].items() if size]
    return f"at the peak: {', '.join(sizes)}"


def _tone(layer: Layer) -> str:
    if layer.hue is None:
        return ""
    return f"tint{layer.hue}.{layer.tint}" if layer.block != "" else f"tint{NO_HUE}.2"


def _axes(page: Page, plot: Rect, ticks: Sequence[float], places: int) -> None:
    sheet = page.sheet
    for value in ticks:
        y = plot.y + plot.h * (1 - value / ticks[-1])
        sheet.line([(plot.x, y), (plot.x + plot.w, y)], "track" if value else "line")
        sheet.text(plot.x - 6, y + 4, nbytes(value), "muted", size=SMALL, anchor="end")
    base = plot.y + plot.h + 14
    sheet.text(plot.x, base, "1", "muted", size=SMALL)
    sheet.text(plot.x + plot.w, base, exact(places), "muted", size=SMALL, anchor="end")
    about = "position in execution order; loop bodies appear once"
    sheet.text(plot.x + plot.w / 2, base + 12, about, "muted", size=SMALL, anchor="middle", room=plot.w)


def _steps(page: Page, plot: Rect, top: float, layers: Sequence[Layer], places: Sequence[int], peak: int) -> None:
    """Draw each layer down to the axis, top layer first. Each layer covers the lower part of the layer drawn before."""
    sums = [[0] * len(places)]
    for layer in layers:
        sums.append([below + own for below, own in zip(sums[-1], layer.bytes, strict=True)])
    column = plot.w / len(places)
    for layer, above in reversed(list(zip(layers, sums[1:], strict=True))):
        if not any(layer.bytes):
            continue
        most = max(layer.bytes)
        tooltip = f"{layer.name}\nat the peak {nbytes(layer.at_peak)}, at most {nbytes(most)}"
        page.sheet.open(tooltip, "layer", layer.block)
        path = _outline(plot, [plot.h * value / top for value in above], column)
        page.sheet.path(path, fill=_tone(layer) or "ground", stroke="ground")
        if layer.hue is None:
            lowest = min(above)
            y = plot.y + plot.h * (1 - lowest / top)
            page.sheet.hatched(plot.x, y, plot.w, plot.y + plot.h - y, "line", 6)
        page.sheet.close()
    for layer, below in zip(layers, sums, strict=False):
        _label(page, plot, top, layer, below, column, peak)


def _outline(plot: Rect, heights: Sequence[float], column: float) -> str:
    base = plot.y + plot.h
    parts = [f"M{number(plot.x)} {number(base)}"]
    drawn = number(base)
    for place, height in enumerate(heights):
        y = number(base - height)
        if y != drawn:
            parts.append(f"H{number(plot.x + place * column)}V{y}")
            drawn = y
    parts.append(f"H{number(plot.x + plot.w)}V{number(base)}Z")
    return "".join(parts).replace(f"H{number(plot.x)}V", "V", 1)


def _label(page: Page, plot: Rect, top: float, layer: Layer, below: Sequence[int], column: float, peak: int) -> None:
    """Write the name of a layer into it, where the layer is thickest; nothing if it is too thin.

    If possible, the name does not cover the vertical line that marks the peak.
    """
    wide = text_width(layer.name, SMALL)
    span = int(-(-(wide + 8) // column))
    starts = range(0, len(below) - span + 1, max(1, span // 4))
    beside = [start for start in starts if not start <= peak < start + span]
    for allowed in (beside, starts):
        best = _roomiest(plot, top, layer, below, span, allowed)
        if best is not None:
            start, middle = best
            tone = f"on {_tone(layer)}" if layer.hue is not None else "muted"
            x, y = plot.x + (start + span / 2) * column, plot.y + plot.h - middle + SMALL * 0.36
            page.sheet.text(x, y, layer.name, tone, size=SMALL, anchor="middle", halo=layer.hue is None)
            return


def _roomiest(
    plot: Rect, top: float, layer: Layer, below: Sequence[int], span: int, starts: Iterable[int]
) -> tuple[int, float] | None:
    """Return where a text of `span` columns fits best into a layer: its first column, and the height of its middle.

    `starts` are the possible first columns. `None` if the layer is too thin for a text at all of them.
    """
    best: tuple[float, int, float] | None = None
    for start in starts:
        low = max(below[start : start + span])
        high = min(below[at] + layer.bytes[at] for at in range(start, start + span))
        room = plot.h * (high - low) / top
        if best is None or room > best[0]:
            best = room, start, plot.h * (low + high) / 2 / top
    return None if best is None or best[0] < SMALL + 2 else best[1:]


def _peak(page: Page, plot: Rect, top: float, data: Data, at: float) -> None:
    x = plot.x + at
    y = plot.y + plot.h * (1 - data["peak_bytes"] / top)
    page.sheet.line([(x, y), (x, plot.y + plot.h)], "ink", dash="3 3")
    page.sheet.path(f"M{number(x)} {number(y - 1)}l-5 -8h10z", fill="ink")
    name = one_line(data["timeline"][data["peak_at"]]["id"])
    kind = "equation " if data["source"] == "analytic" else ""
    text = f"peak at {kind}{name}" if name else "peak"
    half = text_width(text, NORMAL) / 2
    middle = min(max(x, plot.x + half), plot.x + plot.w - half)
    page.sheet.text(middle, y - 13, text, size=NORMAL, anchor="middle", room=plot.w, halo=True)


def _ticks(value: float) -> list[float]:
    """Return the numbers on the axis: at most eight, from 0 to a round number that is at least `value`.

    Examples:
        >>> _ticks(5.9e9)[-1], _ticks(3584), _ticks(8)
        (6000000000.0, [0.0, 1000.0, 2000.0, 3000.0, 4000.0], [0.0, 2.0, 4.0, 6.0, 8.0])
    """
    step = 10.0 ** math.floor(math.log10(max(value, 10))) / 10
    step = next(step * one for one in (1, 2, 5, 10, 20) if step * one * 7 >= value)
    return [step * at for at in range(max(2, math.ceil(value / step) + 1))]
