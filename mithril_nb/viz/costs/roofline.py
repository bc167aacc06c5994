"""Roofline plot: FLOP/s of each block over its FLOPs per byte, below the roof of the machine.

Below the slanted part of the roof, memory bandwidth limits the FLOP/s; below the flat part, arithmetic does. The plot
is that of Williams, Waterman and Patterson, "Roofline" (2009).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mithril_nb.display import columns
from mithril_nb.viz.costs.blocks import hue_or_grey, hues_of
from mithril_nb.viz.costs.canvas.axes import Scale, decades, mark, tick_text
from mithril_nb.viz.costs.canvas.names import Names, PointNames
from mithril_nb.viz.costs.canvas.svg_canvas import FOOT, HEAD_H, MARGIN, NORMAL, SMALL, Page
from mithril_nb.viz.costs.drawing import Drawing, replace_undrawable, validate_width
from mithril_nb.viz.costs.fields import Data
from mithril_nb.viz.costs.roofline_points import (
    Peaks,
    Spot,
    explain_above,
    flops_per_byte,
    intensity_text,
    spots_of,
    validate_peaks,
)
from mithril_nb.viz.svg import Rect
from mithril_nb.viz.text import one_line, text_width, times
from mithril_nb.viz.units import si

NO_PEAKS = "No roof: the peak rates of this machine are unknown. Run ml.machine() to measure them, then draw again."
NOT_MEASURED = "Hollow marks show attainable rates: the times of these blocks are not measured."
_LEFT, _BOTTOM = 62, 40
_MOST_LABELS, _MOST_TRIED = 15, 200
_MOST_ROWS = 16
_ROW_H = 20
_PARTS, _SPARE = (0.4, 0.25, 0.6, 0.75, 0.15), 90
"""Positions for the label of the slanted roof, as shares of its width. A distance from points, in px, that suffices."""


def roofline(data: Data, peaks: Any = None, width: int = 720) -> Drawing:
    """Draw the roofline of a machine, and each block as a point.

    Args:
        data: The costs, as returned by `Cost.to_dict()`. A block with `time_s` is drawn at its measured rate, other
            blocks at the attainable rate.
        peaks: Peak rates of the machine: a `Machine`; or a mapping with `flops_per_s` (a number, or numbers by dtype),
            `bytes_per_s` and `source`. Default: `machine` in the data. Without peak rates, the picture only shows FLOPs
            per byte.
        width: Width in px; values below 320 become 320.

    Raises:
        UnknownOptionError: `validate_peaks` rejects the peaks, or the width is not a number above 0 and at most 10,000.

    Examples:
        >>> costs = {"flops": 4000, "bytes_accessed": 1000, "time_s": 2e-6}
        >>> data = {"program": "f", "source": "measured", "by_block": {"a": costs}, "total": costs, "notes": []}
        >>> print(roofline(data, {"flops_per_s": 1e10, "bytes_per_s": 1e9, "source": "given"}))
        f, measured: FLOP/s against FLOP per byte
        roof: 10.0 GFLOP/s and 1.00 GB/s (given), which meet at 10.0 FLOP/B
        block          FLOP/B   attainable      reached  of the roof  limited by
        whole program    4.00  4.00 GFLOP/s  2.00 GFLOP/s       50.0 %  memory
        a                4.00  4.00 GFLOP/s  2.00 GFLOP/s       50.0 %  memory
    """
    given = {} if peaks is None else validate_peaks(peaks)
    data, width = replace_undrawable(data), validate_width(width, 320, "cost.roofline")
    roof = Peaks.of(replace_undrawable(given or data.get("machine") or {}))
    spots, missing = spots_of(data)
    return Drawing(_svg(data, spots, missing, roof, width), _text(data, spots, missing, roof))


def _svg(data: Data, spots: Sequence[Spot], missing: Sequence[str], roof: Peaks | None, width: int) -> str:
    page = Page(data, None, "Roofline" if roof else "FLOPs per byte", width)
    if not spots:
        page.plate(Rect(MARGIN, HEAD_H, width - 2 * MARGIN, 96), _nothing(missing))
        return page.svg(_nothing(missing))
    if roof is None:
        page.y = HEAD_H + _rows(page, data, spots)
        page.note(NO_PEAKS)
        about = f"{NO_PEAKS} {len(spots)} points by FLOPs per byte."
    else:
        page.y = HEAD_H + _plot(page, data, spots, roof)
        page.note(_roof_text(roof))
        if any(spot.rate is None for spot in spots):
            page.note(NOT_MEASURED)
        for text in _above(spots, roof):
            page.note(text)
        about = f"{_roof_text(roof)}. {len(spots)} points by FLOPs per byte and FLOP/s."
    for text in missing:
        page.note(text)
    return page.svg(about)


def _above(spots: Sequence[Spot], roof: Peaks) -> tuple[str, ...]:
    return explain_above((spot.of_roof(roof), roof.limit(spot.intensity)) for spot in spots)


def _nothing(missing: Sequence[str]) -> str:
    return " ".join(("No block has both FLOPs and bytes, so there is nothing to plot.", *missing))


def _plot(page: Page, data: Data, spots: Sequence[Spot], roof: Peaks) -> float:
    """Draw the axes, the roof and the points; return the height of the plot in px."""
    sheet, height = page.sheet, round(min(380, max(260, page.width * 0.5)))
    area = Rect(_LEFT, HEAD_H + 14, page.width - _LEFT - MARGIN - 6, height - _BOTTOM - 14)
    ridge = [roof.flops_per_s / roof.bytes_per_s] if roof.flops_per_s and roof.bytes_per_s else []
    x = decades([*(spot.intensity for spot in spots), *(ridge[0] * part for part in (0.5, 4) if ridge)],
                area.x, area.x + area.w)  # fmt: skip
    top = roof.flops_per_s or roof.at(x.high)
    y = decades([*(spot.height(roof) for spot in spots), top * 1.6], area.y + area.h, area.y)
    _grid(page, area, x, y)
    line = _roof_line(roof, x, y)
    sheet.line(line, "ink", width=2)
    hues = hues_of(data)
    order = [*spots[1:], spots[0]] if not spots[0].path else [*spots]
    places = {spot.path: (x.at(spot.intensity), y.at(spot.height(roof))) for spot in order}
    taken = [*_roof_labels(page, roof, x, y, area, [*places.values()])]
    for spot in reversed(order[:-1] if not order[-1].path else order):
        _mark(page, spot, places[spot.path], hues, roof)
    if not order[-1].path:
        _mark(page, order[-1], places[""], hues, roof)
    names, points = Names(spot.names for spot in spots), {(round(px, 1), round(py, 1)) for px, py in places.values()}
    written = PointNames(sheet, area, sorted(points), taken, [line])
    count = 0
    for spot in spots[:_MOST_TRIED]:  # the most expensive first
        count += written.write(places[spot.path], names.brief(spot.names), spot.repeat, bold=not spot.path)
        if count == _MOST_LABELS:
            break
    return height


def _grid(page: Page, area: Rect, x: Scale, y: Scale) -> None:
    sheet = page.sheet
    for value in x.ticks(8):
        at = x.at(value)
        sheet.line([(at, area.y), (at, area.y + area.h)], "track")
        sheet.text(at, area.y + area.h + 15, tick_text(value), "muted", size=SMALL, anchor="middle")
    for value in y.ticks(8):
        at = y.at(value)
        sheet.line([(area.x, at), (area.x + area.w, at)], "track")
        sheet.text(area.x - 6, at + 3.5, tick_text(value), "muted", size=SMALL, anchor="end")
    sheet.text(area.x + area.w / 2, area.y + area.h + 31, "FLOP per byte", "muted", anchor="middle")
    sheet.text(MARGIN, area.y - 8, "FLOP/s", "muted")


def _roof_line(roof: Peaks, x: Scale, y: Scale) -> list[tuple[float, float]]:
    """Return the corners of the roof inside the plot."""
    if roof.bytes_per_s is None:
        ends = [x.low, x.high]
    else:
        low = max(x.low, y.low / roof.bytes_per_s)
        ridge = [roof.flops_per_s / roof.bytes_per_s] if roof.flops_per_s else []
        ends = [low, *(value for value in ridge if low < value < x.high), x.high]
    return [(x.at(value), y.at(min(roof.at(value), y.high))) for value in ends]


def _roof_labels(
    page: Page, roof: Peaks, x: Scale, y: Scale, area: Rect, points: Sequence[tuple[float, float]]
) -> Iterator[Rect]:
    if roof.flops_per_s is not None:
        text = f"{roof.dtype} {si(roof.flops_per_s, 'FLOP/s')}" if roof.slower else si(roof.flops_per_s, "FLOP/s")
        at, width = y.at(roof.flops_per_s), text_width(text, NORMAL)
        page.sheet.text(area.x + area.w - 4, at - 6, text, anchor="end", halo=True)
        yield Rect(area.x + area.w - 4 - width, at - 18, width, 17)
        for name, rate in roof.slower:
            low = y.at(rate)
            if low > y.start or low - at < 18:
                continue
            left = x.low if roof.bytes_per_s is None else min(max(x.low, rate / roof.bytes_per_s), x.high)
            page.sheet.line([(x.at(left), low), (area.x + area.w, low)], "ink", dash="5 3")
            label = f"{name} {si(rate, 'FLOP/s')}".strip()
            page.sheet.text(area.x + area.w - 4, low - 5, label, "muted", anchor="end", halo=True)
            yield Rect(area.x + area.w - 4 - text_width(label, NORMAL), low - 17, text_width(label, NORMAL), 17)
            at = low
    if roof.bytes_per_s is not None:
        line = _roof_line(roof, x, y)
        (x0, y0), (x1, y1) = line[0], line[1]
        text = si(roof.bytes_per_s, "B/s")
        if math.hypot(x1 - x0, y1 - y0) > text_width(text, NORMAL) + 30:
            turn = math.degrees(math.atan2(y1 - y0, x1 - x0))
            # The label goes far away from points, because their names need room.
            spare = {part: min((abs(px - x0 - part * (x1 - x0)) for px, _ in points), default=0) for part in _PARTS}
            part = max(_PARTS, key=lambda one: min(spare[one], _SPARE))
            mx, my = x0 + part * (x1 - x0), y0 + part * (y1 - y0)
            off = math.radians(turn - 90)
            page.sheet.text(mx + 7 * math.cos(off), my + 7 * math.sin(off), text, anchor="middle", halo=True, turn=turn)
            reach = text_width(text, NORMAL) / 2
            dx, dy = reach * math.cos(math.radians(turn)), abs(reach * math.sin(math.radians(turn)))
            yield Rect(mx - dx - 12, my - dy - 14, 2 * dx + 12, 2 * dy + 14)


def _mark(page: Page, spot: Spot, at: tuple[float, float], hues: Mapping[str, int], roof: Peaks) -> None:
    page.sheet.open(_tooltip(spot, roof), "point", spot.path or None)
    hue = hue_or_grey(spot.path, hues)
    if not spot.path:
        mark(page.sheet, 3, *at, "ink", hollow=spot.rate is None, r=6.5)
    else:
        mark(page.sheet, hue, *at, f"hue{hue}", hollow=spot.rate is None)
    page.sheet.close()


def _tooltip(spot: Spot, roof: Peaks) -> str:
    reached, share = spot.achieved(roof)
    measured = "not measured" if spot.rate is None else f"reached {reached}, {share} of the roof"
    return "\n".join(
        (
            f"{spot.name}: {intensity_text(spot)}", f"attainable {spot.attainable(roof)}", measured,
            f"limited by {spot.limit(roof)}",
        )
    )  # fmt: skip


def _rows(page: Page, data: Data, spots: Sequence[Spot]) -> float:
    """Draw a row for each point, with a mark at its FLOPs per byte; return the height of all rows in px."""
    shown, hues, sheet = spots[:_MOST_ROWS], hues_of(data), page.sheet
    every, most = Names(spot.names for spot in spots), page.width * 0.34
    labels = [_fitting(every.brief(spot.names), spot, most) for spot in shown]
    names = min(most, max(text_width(name, NORMAL, bold=True) for name in labels) + 4)
    area = Rect(MARGIN + names + 10, HEAD_H, page.width - 2 * MARGIN - names - 96, _ROW_H * len(shown))
    scale = decades([spot.intensity for spot in shown], area.x, area.x + area.w)
    for value in scale.ticks(6):
        at = scale.at(value)
        sheet.line([(at, area.y), (at, area.y + area.h)], "track")
        sheet.text(at, area.y + area.h + 14, tick_text(value), "muted", size=SMALL, anchor="middle")
    sheet.text(area.x + area.w / 2, area.y + area.h + 30, "FLOP per byte", "muted", anchor="middle")
    for row, spot in enumerate(shown):
        y = area.y + _ROW_H * (row + 0.5)
        hue = hue_or_grey(spot.path, hues)
        sheet.text(MARGIN + names, y + 4, labels[row], room=names, anchor="end", bold=not spot.path)
        at = scale.at(spot.intensity)
        sheet.line([(area.x, y), (at, y)], "line")
        sheet.open(f"{spot.name}: {spot.bound}{spot.intensity:.6g} FLOP/B", "point", spot.path or None)
        mark(sheet, hue if spot.path else 3, at, y, f"hue{hue}" if spot.path else "ink", r=5)
        sheet.close()
        sheet.text(page.width - MARGIN, y + 4, intensity_text(spot), anchor="end")
    rest = len(spots) - len(shown)
    if rest:
        sheet.text(MARGIN, area.y + area.h + 30, f"and {rest} more", "muted")
    return area.h + 36 + FOOT


def _fitting(names: Sequence[str], spot: Spot, room: float) -> str:
    """Return the first name that fits into `room` px, else the last one."""
    written = [times(name, spot.repeat) for name in names]
    return next((one for one in written if text_width(one, NORMAL, bold=not spot.path) <= room), written[-1])


def _roof_text(roof: Peaks) -> str:
    parts = [si(roof.flops_per_s, "FLOP/s")] if roof.flops_per_s else []
    parts += [si(roof.bytes_per_s, "B/s")] if roof.bytes_per_s else []
    text = f"roof: {' and '.join(parts)}"
    text += f" ({one_line(roof.source)})" if roof.source else ""
    if roof.flops_per_s and roof.bytes_per_s:
        text += f", which meet at {flops_per_byte(roof.flops_per_s / roof.bytes_per_s)}"
    return text


def _text(data: Data, spots: Sequence[Spot], missing: Sequence[str], roof: Peaks | None) -> str:
    what = "FLOP/s against FLOP per byte" if roof else "FLOPs per byte"
    lines = [f"{one_line(str(data['program']))}, {data['source']}: {what}"]
    if not spots:
        return "\n".join((*lines, _nothing(missing)))
    lines.append(_roof_text(roof) if roof else NO_PEAKS)
    rows: list[tuple[str, ...]] = [("block", "FLOP/B", "attainable", "reached", "of the roof", "limited by")]
    for spot in spots:
        row = [spot.name, intensity_text(spot).removesuffix(" FLOP/B")]
        if roof is None:
            row += ["", "" if spot.rate is None else spot.achieved(roof)[0], "", ""]
        else:
            row += [spot.attainable(roof), *spot.achieved(roof), spot.limit(roof)]
        rows.append(tuple(row))
    above = _above(spots, roof) if roof else ()
    if roof is None:
        rows[0] = ("block", "FLOP/B", "", "reached" if any(spot.rate for spot in spots) else "", "", "")
    return "\n".join((*lines, columns(rows, right={1, 2, 3, 4}), *above, *missing))
