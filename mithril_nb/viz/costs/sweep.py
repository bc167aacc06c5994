"""Draw costs at different values of one or two settings, such as batch sizes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mithril_nb.viz.costs.canvas import (
    HEAD_H,
    MARGIN,
    NORMAL,
    SMALL,
    CostPage,
    Scale,
    hidden_notes,
    mark,
    scale_of,
    tick_text,
)
from mithril_nb.viz.costs.drawing import Drawing, NumberTable, replace_undrawable
from mithril_nb.viz.costs.fields import Field, at_least, field_of
from mithril_nb.viz.palette import HUES
from mithril_nb.viz.svg import Rect, line_path
from mithril_nb.viz.text import elide, listed, one_line, text_width
from mithril_nb.viz.units import seconds

# A sweep as data.
#
# `settings` maps the names of one or two settings to lists of values. `fields` is a list of names of costs. Each
# entry of `points` has its `settings` (a value by name) and each of the costs; `None` is unknown. An entry may also
# have `reasons` (by cost, why it is unknown) and `at_least` (a list of the costs that are lower bounds). `program`,
# `source` and `notes` are optional.
Swept = Mapping[str, Any]
_DASHES = ("", "6 3", "2 3", "8 3 2 3", "1 2", "10 4", "4 2 1 2 1 2", "3 5")
_PANEL_H = 218
_NARROW = 560
_LONG = 100_000
# How far in px the label of a value may extend beyond the end of the axis.
_BEYOND = 20.0
_MINUTE_S = 59
_LEFT, _TOP, _BOTTOM = 66, 24, 40


@dataclass(frozen=True)
class SweepLine:
    """A line of a panel: a value of the second setting, and the cost by index of the first setting's value."""

    label: str
    points: tuple[tuple[int, float | None], ...]
    least: frozenset[int] = frozenset()


def sweep(swept: Swept, width: int = 720) -> Drawing:
    """Draw the costs of a sweep, one panel for each cost."""
    swept = replace_undrawable(swept)
    fields = [field_of(str(name)) for name in swept["fields"]]
    numbers_of = {
        kind: [point[kind.name] for point in swept["points"] if point.get(kind.name) is not None] for kind in fields
    }
    # A panel with a line at 0 would show no more than a note.
    idle = [kind.title for kind, values in numbers_of.items() if values and not any(values)]
    bounds = {name for point in swept["points"] for name in point.get("at_least") or ()}
    bound_titles = [kind.title for kind in fields if kind.name in bounds]
    notes = [f"{', '.join(idle)}: 0 at all settings"] if idle else []
    notes += unknowns_of(swept, fields)
    if bound_titles:
        notes.append(f"{', '.join(bound_titles)}: lower bounds, because some costs of the program are unknown")
    notes += [one_line(str(note)) for note in swept.get("notes") or ()]
    names = [one_line(str(name)) for name in swept["settings"]]
    about = ", ".join(one_line(str(swept[key])) for key in ("program", "source") if swept.get(key))
    rows: list[tuple[str, ...]] = [(*names, *(kind.title for kind in fields))]
    for point in swept["points"]:
        values = (one_line(str(point["settings"][name])) for name in swept["settings"])
        least = point.get("at_least") or ()
        costs = (at_least(kind.short(point.get(kind.name)), kind.name in least) for kind in fields)
        rows.append((*values, *costs))
    title = f"by {' and '.join(names)}"
    numbers = NumberTable(f"{about}: costs {title}" if about else f"costs {title}", rows)
    text = "\n".join((numbers.title, numbers.text, *notes))
    width = max(320, width)
    page = CostPage(swept, None, f"Costs {title}", width)
    drawn = [kind for kind in fields if any(numbers_of[kind])]
    if not drawn:
        reason = " ".join(notes) or "There are no points."
        svg = page.explain(reason)
    else:
        across = 1 if width < _NARROW or len(drawn) == 1 else 2
        panel_w = (width - 2 * MARGIN - 16 * (across - 1)) / across
        for at, kind in enumerate(drawn):
            row, column = divmod(at, across)
            corner = MARGIN + column * (panel_w + 16), HEAD_H + row * (_PANEL_H + 8)
            _panel(page, swept, kind, Rect(*corner, panel_w, _PANEL_H))
        page.y = HEAD_H + -(-len(drawn) // across) * (_PANEL_H + 8)
        for note in notes:
            page.note(note)
        svg = page.svg(f"{', '.join(kind.title for kind in drawn)} at {len(swept['points'])} settings.")
    return Drawing(svg, text, (numbers,), hidden_notes(notes, width))


def lines_of(swept: Swept, field: str) -> list[SweepLine]:
    """Return the lines of a panel: one for each value of the second setting."""
    names = list(swept["settings"])
    first = list(swept["settings"][names[0]])
    # Lines run from left to right, even if the values are not sorted.
    order = sorted(range(len(first)), key=first.__getitem__) if _are_numbers(first) else range(len(first))
    rank = {index: at for at, index in enumerate(order)}
    lines: list[SweepLine] = []
    for other in swept["settings"][names[1]] if len(names) > 1 else [None]:
        points: dict[int, float | None] = {}
        least: set[int] = set()
        for point in swept["points"]:
            settings = point["settings"]
            if (len(names) == 1 or settings[names[1]] == other) and settings[names[0]] in first:
                index = first.index(settings[names[0]])
                points[index] = point.get(field)
                least |= {index} if field in (point.get("at_least") or ()) else set()
        label = "" if len(names) == 1 else one_line(str(other))
        ordered = sorted(points.items(), key=lambda point: rank[point[0]])
        lines.append(SweepLine(label, tuple(ordered), frozenset(least)))
    return lines


def unknowns_of(swept: Swept, fields: Sequence[Field]) -> list[str]:
    """Return a note for each reason why costs are unknown, with the settings."""
    groups = defaultdict[tuple[str, str], list[str]](list)
    for point in swept["points"]:
        reasons = defaultdict[str, list[str]](list)
        for kind in fields:
            if point.get(kind.name) is None:
                reasons[str((point.get("reasons") or {}).get(kind.name) or "no reason given")].append(kind.title)
        where = one_line(", ".join(f"{name}={value}" for name, value in point["settings"].items()))
        for why, titles in reasons.items():
            groups[", ".join(titles), why].append(where)
    count = len(swept["points"])
    notes: list[str] = []
    for (title, why), settings in groups.items():
        at = "" if len(settings) == count else f" at {listed(settings, 4, '; ')}"
        notes.append(f"{title} unknown{at}: {one_line(why)}")
    return notes


def _panel(page: CostPage, swept: Swept, kind: Field, within: Rect) -> None:
    lines = lines_of(swept, kind.name)
    names, values = list(swept["settings"]), next(iter(swept["settings"].values()))
    labels = [line.label for line in lines] if len(names) > 1 else []
    head = one_line(str(names[1])) if labels else ""
    right = min(within.w * 0.3, max((text_width(text, NORMAL) for text in (head, *labels)), default=0) + 10)
    area = Rect(within.x + _LEFT, within.y + _TOP, within.w - _LEFT - right - 6, within.h - _TOP - _BOTTOM)
    y = scale_of([v for line in lines for _, v in line.points if v is not None], area.bottom, area.y)
    page.text(within.x, within.y + 12, kind.title, bold=True)
    if y.is_log:
        page.text(within.x + text_width(kind.title, NORMAL, bold=True) + 6, within.y + 12, "logarithmic", "muted")
    for value in y.ticks(5):
        text = _tick(kind, value)
        # A number that is too wide is written smaller, because an elided number would be wrong.
        size = SMALL if text_width(text, SMALL) <= _LEFT - 8 else SMALL * (_LEFT - 8) / text_width(text, SMALL)
        page.level(area, y.at(value), text, size=size)
    positions = _x_axis(page, values, area)
    page.text(area.x + area.w / 2, area.bottom + 31, names[0], "muted", anchor="middle", room=area.w)
    for at, line in enumerate(lines):
        _line(page, line, at, positions, y, kind, one_line(names[0]), values)
    unknown = {index for line in lines for index, value in line.points if value is None}
    for index in sorted(unknown):
        page.text(positions[index], area.bottom - 4, "?", "muted", bold=True, anchor="middle", halo=True)
    page.text(area.right + 11, within.y + 12, head, "muted", room=right - 4)
    if labels:
        _end_labels(page, lines, y, area, right)


def _tick(kind: Field, value: float) -> str:
    if kind.name != "time_s":
        text, unit = tick_text(value), kind.short(0).partition(" ")[2]
        return f"{text}{unit}" if text[-1].isalpha() else f"{text} {unit}".rstrip()
    # `seconds` shows minutes and hours, which are no round numbers on a decimal axis.
    return seconds(value) if value < _MINUTE_S else f"{tick_text(value)} s".replace(" k s", " ks")


# Draws the axis of the first setting, and returns the position of each value.
def _x_axis(page: CostPage, values: Sequence[Any], area: Rect) -> list[float]:
    foot = area.bottom
    page.line([(area.x, foot), (area.right, foot)], "line")
    start, end = area.x + 10.0, area.right - 10.0
    if _are_numbers(values) and len(set(values)) > 1:
        is_log = min(values) > 0 and max(values) / min(values) > 100
        scale = Scale(min(values), max(values), start, end, is_log)
        positions = [scale.at(value) for value in values]
        texts = [f"{value:g}" if value < _LONG else tick_text(value) for value in values]
    else:
        step = (end - start) / max(1, len(values) - 1)
        positions = [(start + end) / 2] if len(values) == 1 else [start + step * at for at in range(len(values))]
        # The first and last label may extend slightly beyond the axis.
        room = [min(step - 6, 2 * (min(x - area.x, area.right - x) + _BEYOND)) for x in positions]
        texts = [elide(one_line(str(value)), SMALL, max(most, 24)) for value, most in zip(values, room, strict=True)]
    free = float("-inf")
    for x, text in sorted(zip(positions, texts, strict=True), key=lambda tick: tick[0]):
        half = text_width(text, SMALL) / 2
        page.line([(x, foot), (x, foot + 4)], "line")
        if x - half > free + 4:
            page.text(x, foot + 15, text, "muted", size=SMALL, anchor="middle")
            free = x + half
    return positions


def _are_numbers(values: Sequence[Any]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def _line(
    page: CostPage, line: SweepLine, at: int, positions: Sequence[float], y: Scale, kind: Field, setting: str,
    values: Sequence[Any],
) -> None:  # fmt: skip
    hue = f"hue{at % HUES}"
    pieces: list[list[tuple[float, float]]] = [[]]
    for index, value in line.points:
        if value is None:
            # A line across an unknown cost would invent it.
            pieces.append([])
        else:
            pieces[-1].append((positions[index], y.at(value)))
    d = "".join(line_path(piece) for piece in pieces if len(piece) > 1)
    if d and _are_numbers(values):  # a line between two names would have no meaning
        page.path(d, stroke=hue, width=1.8, dash=_DASHES[at % len(_DASHES)])
    for index, value in line.points:
        if value is not None:
            where = f"{setting}={one_line(str(values[index]))}" + (f", {line.label}" if line.label else "")
            page.open(f"{where}\n{at_least(kind.exact(value), index in line.least)}", "point")
            mark(page, at, positions[index], y.at(value), hue, r=4)
            page.close()


# Labels at the right ends of the lines. Labels that would overlap are moved apart.
def _end_labels(page: CostPage, lines: Sequence[SweepLine], y: Scale, area: Rect, right: float) -> None:
    ends: list[tuple[float, int]] = []
    for at, line in enumerate(lines):
        numbers = [value for _, value in line.points if value is not None]
        if numbers:
            ends.append((y.at(numbers[-1]), at))
    ends.sort()
    tops: list[float] = []
    for top, _ in ends:
        tops.append(max(top, tops[-1] + 13 if tops else area.y))
    # The labels moved down first; those below the plot push the others up.
    limit = tops[-1] - max(0.0, tops[-1] - area.bottom) if tops else 0.0
    for at in reversed(range(len(tops))):
        tops[at] = limit = min(tops[at], limit)
        limit -= 13
    for (_, at), top in zip(ends, tops, strict=True):
        x = area.right + 2
        mark(page, at, x + 2, top, f"hue{at % HUES}", r=3)
        page.text(x + 9, top + 4, lines[at].label, room=right - 4)
