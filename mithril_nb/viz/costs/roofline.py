"""Draw the roofline of a machine, with a point for each block.

The position of a point is its FLOPs per byte, and the FLOP/s that it reached. If its time was not measured, the mark is
hollow and shows the attainable FLOP/s.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

from mithril_nb.display import AT_LEAST, columns
from mithril_nb.figures import MEASURED
from mithril_nb.viz.costs.blocks import hue_or_grey, hues_of, path_text, strip_numbers
from mithril_nb.viz.costs.canvas import (
    FOOT,
    HEAD_H,
    MARGIN,
    NORMAL,
    SMALL,
    CostPage,
    Scale,
    decades,
    mark,
    tick_text,
)
from mithril_nb.viz.costs.drawing import Drawing, option_error, replace_undrawable, validate_width
from mithril_nb.viz.costs.fields import Data, at_least, is_bound, notes_of
from mithril_nb.viz.costs.names import BlockNames, PointNames
from mithril_nb.viz.svg import Point, Rect
from mithril_nb.viz.text import listed, one_line, text_width, times
from mithril_nb.viz.units import percent, si, three_figures

NO_PEAKS = "No roof: the peak rates of this machine are unknown. Run ml.machine() to measure them, then draw again."
NOT_MEASURED = "Hollow marks show attainable rates: the times of these blocks are not measured."
_LEFT, _BOTTOM = 62, 40
_MOST_LABELS, _MOST_TRIED = 15, 200
_MOST_ROWS = 16
_ROW_H = 20
# Positions for the label of the slanted roof, as shares of its width. A distance from points, in px, that suffices.
_PARTS, _SPARE = (0.4, 0.25, 0.6, 0.75, 0.15), 90
MOVED = "Some costs are unknown. The exact point is further right for ≥, further left for ≤, and on either side for ≈."
WHOLE = "whole program"


@dataclass(frozen=True)
class Peaks:
    """The peak rates of a machine; `None` if unknown. `slower` are dtypes with smaller rates than `dtype`."""

    flops_per_s: float | None
    bytes_per_s: float | None
    slower: tuple[tuple[str, float], ...] = ()
    source: str = ""
    dtype: str = ""

    @classmethod
    def of(cls, peaks: Mapping[str, Any]) -> Peaks | None:
        """Return the peaks from data; `None` if both rates are unknown."""
        rate = peaks.get("flops_per_s")
        rates = dict(rate) if isinstance(rate, Mapping) else {"": rate}
        # The fastest dtype is the roof. The others are dashed lines below it.
        ranked = sorted(((value, name) for name, value in rates.items() if value), reverse=True)
        (rate, name), *rest = ranked or [(None, "")]
        slower = tuple((name, value) for value, name in rest)
        roof = cls(rate, peaks.get("bytes_per_s"), slower, str(peaks.get("source") or ""), str(name))
        return roof if rate or roof.bytes_per_s else None

    def at(self, intensity: float) -> float:
        """Return the attainable FLOP/s at some FLOPs per byte."""
        memory = math.inf if self.bytes_per_s is None else self.bytes_per_s * intensity
        return memory if self.flops_per_s is None else min(memory, self.flops_per_s)

    def limit(self, intensity: float) -> str:
        """Return what limits the rate: `"memory"` or `"arithmetic"`."""
        attainable = self.at(intensity)
        return "memory" if self.flops_per_s is None or attainable < self.flops_per_s else "arithmetic"


def _validate_peaks(value: Any) -> Mapping[str, Any]:
    def is_rate(rate: Any) -> bool:
        return isinstance(rate, Real) and not isinstance(rate, bool) and 0 < float(rate) < math.inf

    data = value.to_dict() if hasattr(value, "to_dict") and not isinstance(value, type) else value
    peaks: Mapping[str, Any] = data if isinstance(data, Mapping) else {}
    flops, size = peaks.get("flops_per_s"), peaks.get("bytes_per_s")
    rates = [*flops.values()] if isinstance(flops, Mapping) else [flops]
    is_valid = all(rate is None or is_rate(rate) for rate in (*rates, size))
    strange = peaks.keys() - {"flops_per_s", "bytes_per_s", "source"}
    if isinstance(data, Mapping) and is_valid and not (strange and (flops is None or size is None)):
        return peaks
    needs = "flops_per_s and bytes_per_s as numbers above 0, or the result of ml.machine()"
    raise option_error("cost.roofline", "peaks", value, needs)


@dataclass(frozen=True)
class Spot:
    """A point: a block, several equal blocks, or the whole program."""

    # Path of the block; `""` for the whole program
    path: str
    repeat: int
    # FLOPs of one block
    flops: float
    # FLOPs per byte
    intensity: float
    # Reached FLOP/s; `None` if the time was neither measured nor predicted
    rate: float | None
    # Share of the roof, if it was computed when the time was measured
    reached: float | None = None
    # Which of `flops` and `bytes_accessed` are lower bounds
    unknown: frozenset[str] = frozenset()

    @property
    def bound(self) -> str:
        """Sign before the FLOPs per byte: `≥` if some FLOPs are unknown, `≤` if some bytes are, `≈` for both."""
        return {"flops": AT_LEAST, "bytes_accessed": "≤ "}.get("".join(self.unknown), "≈ " if self.unknown else "")

    @property
    def name(self) -> str:
        """The path of the block, and the number of blocks if there are several."""
        return times(WHOLE if not self.path else path_text(self.path), self.repeat)

    @property
    def names(self) -> tuple[str, ...]:
        """The names in the path of the block."""
        return tuple(path_text(self.path).split(" / ")) if self.path else (WHOLE,)

    def of_roof(self, peaks: Peaks) -> float | None:
        """Return the measured share of the roof; `None` if not measured."""
        if self.rate is None or self.reached is not None:
            return self.reached
        return self.rate / peaks.at(self.intensity)

    def attainable(self, peaks: Peaks) -> str:
        """Format the attainable FLOP/s."""
        is_flat = self.bound == AT_LEAST and peaks.limit(self.intensity) == "arithmetic"
        return f"{'' if is_flat else self.bound}{si(peaks.at(self.intensity), 'FLOP/s')}"

    def limit(self, peaks: Peaks) -> str:
        """Return what limits the FLOP/s: `"memory"` or `"arithmetic"`; `"unknown"` if this depends on unknown costs."""
        kind = peaks.limit(self.intensity)
        return kind if self.bound in ("", {"memory": "≤ ", "arithmetic": AT_LEAST}[kind]) else "unknown"

    def achieved(self, peaks: Peaks | None) -> tuple[str, str]:
        """Format the measured FLOP/s and its share of the roof. They are lower bounds if some costs are unknown."""
        if self.rate is None:
            return "not measured", ""
        share = "" if peaks is None else at_least(percent(self.of_roof(peaks)), bool(self.unknown))
        return at_least(si(self.rate, "FLOP/s"), "flops" in self.unknown), share

    def height(self, peaks: Peaks) -> float:
        """Return the FLOP/s at which the point is drawn: the measured rate, else the attainable rate."""
        return peaks.at(self.intensity) if self.rate is None else self.rate

    @property
    def text(self) -> str:
        """The FLOPs per byte as text."""
        return f"{self.bound}{_flops_per_byte(self.intensity)}"


def explain_above(shares: Iterable[tuple[float | None, str | None]], platform: str = "") -> tuple[str, ...]:
    """Return notes that explain why blocks are above the roof.

    Args:
        shares: The share of the roof of each block, and what limits the block.
        platform: The platform of a device whose times are predicted; `""` if they are measured.
    """
    # Up to 1.0005, `percent` shows 100.0 %.
    above = {limit for share, limit in shares if share is not None and share >= 1.0005}
    if platform == "tpu":
        memory = "the bytes include those of arrays in VMEM, S(1) in the HLO; the roof is the bandwidth of HBM"
        arithmetic = "the time is the compiler's own estimate"
    else:
        memory = "part of the data came from cache, which is faster than main memory"
        arithmetic = "the roof is the measured rate of a large matmul, which other programs may have slowed down"
    reasons = [memory] * ("memory" in above) + [arithmetic] * bool(above - {"memory"})
    return tuple(f"above 100 % of the roof: {why}" for why in reasons)


def spots_of(data: Data) -> tuple[list[Spot], list[str]]:
    """Return the points, most expensive first, and notes on what is not drawn. Equal blocks share a point."""
    rates = data.get("rates") or {}
    groups: dict[object, list[str]] = {}
    for path, figures in data["by_block"].items():
        costs = (figures.get(name) for name in ("flops", "bytes_accessed", *MEASURED))
        groups.setdefault((strip_numbers(path), *costs, bounds_of(figures)), []).append(path)
    spots: list[Spot] = []
    idle: list[str] = []
    unknown: list[str] = []
    blocks = [(path, 1 + len(others), data["by_block"][path], rates.get(path)) for path, *others in groups.values()]
    for path, repeat, figures, rate in [*blocks, ("", 1, data["total"], data.get("rate"))]:
        flops, size = figures.get("flops"), figures.get("bytes_accessed")
        time = figures.get("time_s") or figures.get("predicted_s")
        if flops and size:
            reached, share = flops / time if time else None, (rate or {}).get("roofline")
            spots.append(Spot(path, repeat, flops, flops / size, reached, share, bounds_of(figures)))
        elif path:
            (unknown if flops is None or size is None else idle).append(times(path_text(path), repeat))
    spots.sort(key=lambda spot: (spot.path != "", -spot.flops * spot.repeat))
    missing = [MOVED] if any(spot.unknown for spot in spots) else []
    if unknown or missing:
        missing += dict.fromkeys((*notes_of(data, "flops"), *notes_of(data, "bytes_accessed")))
    missing += [f"unknown FLOPs or bytes, not drawn: {listed(unknown, 5)}"] if unknown else []
    missing += [f"no FLOPs, not drawn: {listed(idle, 5)}"] if idle else []
    return spots, missing


def bounds_of(figures: Mapping[str, Any]) -> frozenset[str]:
    """Return which of FLOPs and bytes are lower bounds."""
    return frozenset(name for name in ("flops", "bytes_accessed") if is_bound(figures, name))


def _flops_per_byte(value: float) -> str:
    return f"{three_figures(value) if value < 999.5 else si(value)} FLOP/B"


def roofline(data: Data, peaks: Any = None, width: int = 720) -> Drawing:
    """Draw the roofline of a machine, with a point for each block.

    Args:
        data: The costs: `Cost.to_dict()`.
        peaks: The peak rates, as the result of `ml.machine()` or as its data. Default: those in `data`.
        width: Width in px; values below 320 become 320.
    """
    rates = {} if peaks is None else _validate_peaks(peaks)
    data, width = replace_undrawable(data), validate_width(width, 320, "cost.roofline")
    roof = Peaks.of(replace_undrawable(rates or data.get("machine") or {}))
    spots, missing = spots_of(data)
    shares = ((spot.of_roof(roof), roof.limit(spot.intensity)) for spot in spots if roof)
    above = explain_above(shares, str(rates.get("platform") or ""))
    nothing = " ".join(("No block has both FLOPs and bytes, so there is nothing to plot.", *missing))
    title = "FLOP/s against FLOP per byte" if roof else "FLOPs per byte"
    head = f"{one_line(str(data['program']))}, {data['source']}: {title}"
    page = CostPage(data, None, "Roofline" if roof else "FLOPs per byte", width)
    if not spots:
        return Drawing(page.explain(nothing), f"{head}\n{nothing}")
    about = NO_PEAKS if roof is None else _roof_text(roof)
    text = "\n".join((head, about, _table(spots, roof), *above, *missing))
    page.y = HEAD_H + (_rows(page, data, spots) if roof is None else _plot(page, data, spots, roof))
    notes = [about, *([NOT_MEASURED] if roof and any(spot.rate is None for spot in spots) else []), *above, *missing]
    for note in notes:
        page.note(note)
    points = f"{len(spots)} points by FLOPs per byte"
    return Drawing(page.svg(f"{about} {points}." if roof is None else f"{about}. {points} and FLOP/s."), text)


def _plot(page: CostPage, data: Data, spots: Sequence[Spot], roof: Peaks) -> float:
    height = round(min(380, max(260, page.width * 0.5)))
    area = Rect(_LEFT, HEAD_H + 14, page.width - _LEFT - MARGIN - 6, height - _BOTTOM - 14)
    # The picture always has the ridge, and a part of both roofs beside it.
    ridge = [roof.flops_per_s / roof.bytes_per_s] if roof.flops_per_s and roof.bytes_per_s else []
    intensities = [*(spot.intensity for spot in spots), *(at * part for at in ridge for part in (0.5, 4))]
    x = decades(intensities, area.x, area.right)
    top = roof.flops_per_s or roof.at(x.high)
    # Above the roof, its label needs room.
    y = decades([*(spot.height(roof) for spot in spots), top * 1.6], area.bottom, area.y)
    _columns(page, area, x, 8, 15)
    for value in y.ticks(8):
        page.level(area, y.at(value), tick_text(value))
    page.text(area.x + area.w / 2, area.bottom + 31, "FLOP per byte", "muted", anchor="middle")
    page.text(MARGIN, area.y - 8, "FLOP/s", "muted")
    if roof.bytes_per_s is None:
        ends = [x.low, x.high]
    else:
        low = max(x.low, y.low / roof.bytes_per_s)
        ends = [low, *(value for value in ridge if low < value < x.high), x.high]
    line = [(x.at(value), y.at(min(roof.at(value), y.high))) for value in ends]
    page.line(line, "ink", width=2)
    hues = hues_of(data)
    positions = {spot.path: (x.at(spot.intensity), y.at(spot.height(roof))) for spot in spots}
    occupied = [*_roof_labels(page, roof, x, y, area, line, [*positions.values()])]
    # The mark of the whole program is drawn last.
    for spot in sorted(reversed(spots), key=lambda spot: not spot.path):
        reached, share = spot.achieved(roof)
        measured = "not measured" if spot.rate is None else f"reached {reached}, {share} of the roof"
        tooltip = (
            f"{spot.name}: {spot.text}", f"attainable {spot.attainable(roof)}", measured,
            f"limited by {spot.limit(roof)}",
        )  # fmt: skip
        _mark(page, spot, "\n".join(tooltip), positions[spot.path], hues, hollow=spot.rate is None)
    unique = {(round(px, 1), round(py, 1)) for px, py in positions.values()}
    names, labels = BlockNames(spot.names for spot in spots), PointNames(page, area, sorted(unique), occupied, [line])
    count = 0
    for spot in spots[:_MOST_TRIED]:  # the most expensive first
        count += labels.write(positions[spot.path], names.brief(spot.names), spot.repeat, bold=not spot.path)
        if count == _MOST_LABELS:
            break
    return height


def _columns(page: CostPage, area: Rect, x: Scale, most: int, below: float) -> None:
    for value in x.ticks(most):
        at = x.at(value)
        page.line([(at, area.y), (at, area.bottom)], "track")
        page.text(at, area.bottom + below, tick_text(value), "muted", size=SMALL, anchor="middle")


def _mark(
    page: CostPage, spot: Spot, tooltip: str, at: Point, hues: Mapping[str, int], *, hollow: bool = False,
    sizes: tuple[float, float] = (6.5, 4.5),
) -> None:  # fmt: skip
    page.open(tooltip, "point", spot.path or None)
    hue = hue_or_grey(spot.path, hues)
    shape, tone, r = (hue, f"hue{hue}", sizes[1]) if spot.path else (3, "ink", sizes[0])
    mark(page, shape, *at, tone, hollow=hollow, r=r)
    page.close()


def _roof_labels(
    page: CostPage, roof: Peaks, x: Scale, y: Scale, area: Rect, line: Sequence[Point], points: Sequence[Point]
) -> Iterator[Rect]:
    right = area.right
    if roof.flops_per_s is not None:
        text = f"{roof.dtype} {si(roof.flops_per_s, 'FLOP/s')}" if roof.slower else si(roof.flops_per_s, "FLOP/s")
        at, width = y.at(roof.flops_per_s), text_width(text, NORMAL)
        page.text(right - 4, at - 6, text, anchor="end", halo=True)
        yield Rect(right - 4 - width, at - 18, width, 17)
        for name, rate in roof.slower:
            low = y.at(rate)
            # A roof below the picture, or too close to the one above for a label, is left out.
            if low > y.start or low - at < 18:
                continue
            left = x.low if roof.bytes_per_s is None else min(max(x.low, rate / roof.bytes_per_s), x.high)
            page.line([(x.at(left), low), (right, low)], "ink", dash="5 3")
            label = f"{name} {si(rate, 'FLOP/s')}".strip()
            page.text(right - 4, low - 5, label, "muted", anchor="end", halo=True)
            yield Rect(right - 4 - text_width(label, NORMAL), low - 17, text_width(label, NORMAL), 17)
            at = low
    text = si(roof.bytes_per_s, "B/s")
    (x0, y0), (x1, y1) = line[0], line[1]
    if roof.bytes_per_s is not None and math.hypot(x1 - x0, y1 - y0) > text_width(text, NORMAL) + 30:
        turn = math.degrees(math.atan2(y1 - y0, x1 - x0))
        # The label goes far away from points, because their names need room.
        spare = {part: min((abs(px - x0 - part * (x1 - x0)) for px, _ in points), default=0) for part in _PARTS}
        part = max(_PARTS, key=lambda share: min(spare[share], _SPARE))
        mx, my = x0 + part * (x1 - x0), y0 + part * (y1 - y0)
        off = math.radians(turn - 90)
        page.text(mx + 7 * math.cos(off), my + 7 * math.sin(off), text, anchor="middle", halo=True, turn=turn)
        reach = text_width(text, NORMAL) / 2
        dx, dy = reach * math.cos(math.radians(turn)), abs(reach * math.sin(math.radians(turn)))
        yield Rect(mx - dx - 12, my - dy - 14, 2 * dx + 12, 2 * dy + 14)


def _rows(page: CostPage, data: Data, spots: Sequence[Spot]) -> float:
    # Without a roof there is no second axis: each point has its own row.
    listed, hues = spots[:_MOST_ROWS], hues_of(data)
    unique, most = BlockNames(spot.names for spot in spots), page.width * 0.34
    labels = []
    for spot in listed:
        texts = [times(name, spot.repeat) for name in unique.brief(spot.names)]
        fitting = (text for text in texts if text_width(text, NORMAL, bold=not spot.path) <= most)
        labels.append(next(fitting, texts[-1]))
    names = min(most, max(text_width(name, NORMAL, bold=True) for name in labels) + 4)
    area = Rect(MARGIN + names + 10, HEAD_H, page.width - 2 * MARGIN - names - 96, _ROW_H * len(listed))
    scale = decades([spot.intensity for spot in listed], area.x, area.right)
    _columns(page, area, scale, 6, 14)
    page.text(area.x + area.w / 2, area.bottom + 30, "FLOP per byte", "muted", anchor="middle")
    for row, spot in enumerate(listed):
        y, at = area.y + _ROW_H * (row + 0.5), scale.at(spot.intensity)
        page.text(MARGIN + names, y + 4, labels[row], room=names, anchor="end", bold=not spot.path)
        page.line([(area.x, y), (at, y)], "line")
        tooltip = f"{spot.name}: {spot.bound}{spot.intensity:.6g} FLOP/B"
        _mark(page, spot, tooltip, (at, y), hues, sizes=(5, 5))
        page.text(page.width - MARGIN, y + 4, spot.text, anchor="end")
    if rest := len(spots) - len(listed):
        page.text(MARGIN, area.bottom + 30, f"and {rest} more", "muted")
    return area.h + 36 + FOOT


def _roof_text(roof: Peaks) -> str:
    parts = [si(roof.flops_per_s, "FLOP/s")] if roof.flops_per_s else []
    parts += [si(roof.bytes_per_s, "B/s")] if roof.bytes_per_s else []
    text = f"roof: {' and '.join(parts)}" + (f" ({one_line(roof.source)})" if roof.source else "")
    if roof.flops_per_s and roof.bytes_per_s:
        text += f", which meet at {_flops_per_byte(roof.flops_per_s / roof.bytes_per_s)}"
    return text


def _table(spots: Sequence[Spot], roof: Peaks | None) -> str:
    rows: list[tuple[str, ...]] = [("block", "FLOP/B", "attainable", "reached", "of the roof", "limited by")]
    if roof is None:
        rows = [("block", "FLOP/B", "", "reached" if any(spot.rate for spot in spots) else "", "", "")]
    for spot in spots:
        figures = ("", "" if spot.rate is None else spot.achieved(roof)[0], "", "")
        if roof is not None:
            figures = (spot.attainable(roof), *spot.achieved(roof), spot.limit(roof))
        rows.append((spot.name, spot.text.removesuffix(" FLOP/B"), *figures))
    return columns(rows, right={1, 2, 3, 4})
