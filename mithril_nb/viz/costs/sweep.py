"""Draw costs over one or two settings: a panel for each cost, with a line for each value of the second setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mithril_nb.viz.costs.canvas.axes import Scale, mark, scale_of, tick_text
from mithril_nb.viz.costs.canvas.svg_canvas import HEAD_H, MARGIN, NORMAL, SMALL, Page, hidden_notes
from mithril_nb.viz.costs.drawing import Drawing, Numbers, replace_undrawable
from mithril_nb.viz.costs.fields import Field, at_least, field_of
from mithril_nb.viz.palette import HUES
from mithril_nb.viz.svg import Rect, line_path
from mithril_nb.viz.text import elide, listed, one_line, text_width
from mithril_nb.viz.units import seconds

Swept = Mapping[str, Any]
"""A sweep as data.

`settings` maps the names of one or two settings to lists of values. `fields` is a list of names of costs. Each entry of
`points` has its `settings` (a value by name) and each of the costs; `None` is unknown. An entry may also have `reasons`
(by cost, why it is unknown) and `at_least` (a list of the costs that are lower bounds). `program`, `source` and `notes`
are optional.
"""

_DASHES = ("", "6 3", "2 3", "8 3 2 3", "1 2", "10 4", "4 2 1 2 1 2", "3 5")
_PANEL_H = 218
_NARROW = 560
_LONG = 100_000
_BEYOND = 20.0
"""How far in px the label of a value may extend beyond the end of the axis."""
_MINUTE_S = 59
_LEFT, _TOP, _BOTTOM = 66, 24, 40


@dataclass(frozen=True)
class Line:
    """A line in the plot of a cost over the first setting. Each value of the second setting has a line.

    Attributes:
        label: The value of the second setting; `""` without a second setting.
        points: Pairs of an index into the values of the first setting, and the cost. An unknown cost is `None`.
        least: The indices of the costs that are lower bounds.
    """

    label: str
    points: tuple[tuple[int, float | None], ...]
    least: frozenset[int] = frozenset()


def sweep(swept: Swept, width: int = 720) -> Drawing:
    """Draw costs over one or two settings, with a small plot for each cost.

    Args:
        swept: The costs for each combination of settings, in the form that `Swept` documents.
        width: Width in px; values below 320 become 320.

    Raises:
        UnknownOptionError: A cost in `fields` does not exist.

    Examples:
        >>> points = [{"settings": {"batch": size}, "flops": 1000 * size} for size in (8, 16)]
        >>> print(sweep({"settings": {"batch": [8, 16]}, "fields": ["flops"], "points": points}))
        costs by batch
        batch       FLOPs
            8  8.00 kFLOP
           16  16.0 kFLOP
    """
    swept = replace_undrawable(swept)
    fields = [field_of(str(name)) for name in swept["fields"]]
    numbers = _numbers(swept, fields)
    idle = [kind.title for kind in fields if (known := _known(swept, kind)) and not any(known)]
    notes = (
        *((f"{', '.join(idle)}: 0 at all settings",) if idle else ()),
        *unknowns_of(swept, fields),
        *_bounds_of(swept, fields),
        *(one_line(str(note)) for note in swept.get("notes") or ()),
    )
    text = "\n".join((numbers.title, numbers.text, *notes))
    width = max(320, width)
    return Drawing(_svg(swept, fields, notes, width), text, (numbers,), hidden_notes(notes, width))


def lines_of(swept: Swept, field: str) -> list[Line]:
    """Return the lines of a panel, one for each value of the second setting."""
    names = list(swept["settings"])
    first = list(swept["settings"][names[0]])
    # Lines run from left to right, even if the values are not sorted.
    rank = {place: at for at, place in enumerate(_order(first))}
    others = list(swept["settings"][names[1]]) if len(names) > 1 else [None]
    found: list[Line] = []
    for other in others:
        points: dict[int, float | None] = {}
        least: set[int] = set()
        for point in swept["points"]:
            of = point["settings"]
            if (len(names) == 1 or of[names[1]] == other) and of[names[0]] in first:
                points[first.index(of[names[0]])] = point.get(field)
                least |= {first.index(of[names[0]])} if field in (point.get("at_least") or ()) else set()
        label = "" if len(names) == 1 else one_line(str(other))
        found.append(Line(label, tuple(sorted(points.items(), key=lambda one: rank[one[0]])), frozenset(least)))
    return found


def unknowns_of(swept: Swept, fields: Sequence[Field]) -> list[str]:
    """Return a note for each reason why costs are unknown, with the names of the costs and the settings."""
    groups: dict[tuple[str, str], list[str]] = {}
    for point in swept["points"]:
        reasons: dict[str, list[str]] = {}
        for kind in fields:
            if point.get(kind.name) is None:
                why = str((point.get("reasons") or {}).get(kind.name) or "no reason given")
                reasons.setdefault(why, []).append(kind.title)
        where = one_line(", ".join(f"{name}={value}" for name, value in point["settings"].items()))
        for why, titles in reasons.items():
            groups.setdefault((", ".join(titles), why), []).append(where)
    lines: list[str] = []
    for (title, why), places in groups.items():
        everywhere = len(places) == len(swept["points"])
        at = "" if everywhere else f" at {listed(places, 4, '; ')}"
        lines.append(f"{title} unknown{at}: {one_line(why)}")
    return lines


def _bounds_of(swept: Swept, fields: Sequence[Field]) -> list[str]:
    """Return a note that names the costs that are lower bounds; `[]` if there are none."""
    at_least = {name for point in swept["points"] for name in point.get("at_least") or ()}
    titles = [kind.title for kind in fields if kind.name in at_least]
    return [f"{', '.join(titles)}: lower bounds, because some costs of the program are unknown"] if titles else []


def _known(swept: Swept, kind: Field) -> list[float]:
    return [value for point in swept["points"] if (value := point.get(kind.name)) is not None]


def _svg(swept: Swept, fields: Sequence[Field], notes: Sequence[str], width: int) -> str:
    names = [one_line(str(name)) for name in swept["settings"]]
    page = Page(swept, None, f"Costs by {' and '.join(names)}", width)
    known = [kind for kind in fields if any(_known(swept, kind))]
    if not known:
        reason = " ".join(notes) or "There are no points."
        page.plate(Rect(MARGIN, HEAD_H, width - 2 * MARGIN, 96), reason)
        return page.svg(reason)
    across = 1 if width < _NARROW or len(known) == 1 else 2
    panel_w = (width - 2 * MARGIN - 16 * (across - 1)) / across
    for place, kind in enumerate(known):
        left = MARGIN + (place % across) * (panel_w + 16)
        top = HEAD_H + (place // across) * (_PANEL_H + 8)
        _panel(page, swept, kind, Rect(left, top, panel_w, _PANEL_H))
    page.y = HEAD_H + -(-len(known) // across) * (_PANEL_H + 8)
    for text in notes:
        page.note(text)
    return page.svg(f"{', '.join(kind.title for kind in known)} at {len(swept['points'])} settings.")


def _panel(page: Page, swept: Swept, kind: Field, within: Rect) -> None:
    sheet = page.sheet
    lines = lines_of(swept, kind.name)
    names = list(swept["settings"])
    labels = [line.label for line in lines] if len(names) > 1 else []
    head = one_line(str(names[1])) if labels else ""
    right = min(within.w * 0.3, max((text_width(text, NORMAL) for text in (head, *labels)), default=0) + 10)
    area = Rect(within.x + _LEFT, within.y + _TOP, within.w - _LEFT - right - 6, within.h - _TOP - _BOTTOM)
    y = scale_of([v for line in lines for _, v in line.points if v is not None], area.y + area.h, area.y)
    sheet.text(within.x, within.y + 12, kind.title, bold=True)
    if y.is_log:
        sheet.text(within.x + text_width(kind.title, NORMAL, bold=True) + 6, within.y + 12, "logarithmic", "muted")
    for value in y.ticks(5):
        at = y.at(value)
        sheet.line([(area.x, at), (area.x + area.w, at)], "track")
        text = _tick(kind, value)
        size = SMALL if text_width(text, SMALL) <= _LEFT - 8 else SMALL * (_LEFT - 8) / text_width(text, SMALL)
        sheet.text(area.x - 6, at + 3.5, text, "muted", size=size, anchor="end")
    places = _places(page, swept["settings"][names[0]], area)
    sheet.text(area.x + area.w / 2, area.y + area.h + 31, names[0], "muted", anchor="middle", room=area.w)
    gaps: set[int] = set()
    for at, line in enumerate(lines):
        _line(page, line, at, places, y, kind, one_line(names[0]), swept["settings"][names[0]])
        gaps |= {place for place, value in line.points if value is None}
    for place in sorted(gaps):  # a "?" at the bottom marks a missing number
        sheet.text(places[place], area.y + area.h - 4, "?", "muted", bold=True, anchor="middle", halo=True)
    sheet.text(area.x + area.w + 11, within.y + 12, head, "muted", room=right - 4)
    _end_labels(page, lines, labels, y, area, right)


def _tick(kind: Field, value: float) -> str:
    if kind.name != "time_s":
        text, unit = tick_text(value), kind.short(0).partition(" ")[2]
        return f"{text}{unit}" if text[-1].isalpha() else f"{text} {unit}".rstrip()
    return seconds(value) if value < _MINUTE_S else f"{tick_text(value)} s".replace(" k s", " ks")


def _places(page: Page, values: Sequence[Any], area: Rect) -> list[float]:
    """Draw the axis of the first setting, and return the position of each value in px."""
    sheet, foot = page.sheet, area.y + area.h
    sheet.line([(area.x, foot), (area.x + area.w, foot)], "line")
    inset = 10.0
    start, end = area.x + inset, area.x + area.w - inset
    if _are_numbers(values) and len(set(values)) > 1:
        is_log = min(values) > 0 and max(values) / min(values) > 100
        scale = Scale(min(values), max(values), start, end, is_log)
        places = [scale.at(value) for value in values]
        texts = [f"{value:g}" if value < _LONG else tick_text(value) for value in values]
    else:
        step = (end - start) / max(1, len(values) - 1)
        places = [(start + end) / 2] if len(values) == 1 else [start + step * at for at in range(len(values))]
        # The first and last label may extend slightly beyond the axis.
        room = [min(step - 6, 2 * (min(place - area.x, area.x + area.w - place) + _BEYOND)) for place in places]
        texts = [elide(one_line(str(value)), SMALL, max(most, 24)) for value, most in zip(values, room, strict=True)]
    free = float("-inf")
    order = sorted(range(len(values)), key=places.__getitem__)
    for at in order:
        half = text_width(texts[at], SMALL) / 2
        sheet.line([(places[at], foot), (places[at], foot + 4)], "line")
        if places[at] - half > free + 4:
            sheet.text(places[at], foot + 15, texts[at], "muted", size=SMALL, anchor="middle")
            free = places[at] + half
    return places


def _order(values: Sequence[Any]) -> list[int]:
    places = range(len(values))
    return sorted(places, key=values.__getitem__) if _are_numbers(values) else list(places)


def _are_numbers(values: Sequence[Any]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def _line(
    page: Page, line: Line, at: int, places: Sequence[float], y: Scale, kind: Field, setting: str, values: Sequence[Any]
) -> None:
    hue, dash = at % HUES, _DASHES[at % len(_DASHES)]
    pieces: list[list[tuple[float, float]]] = [[]]
    for place, value in line.points:
        if value is None:
            pieces.append([])
        else:
            pieces[-1].append((places[place], y.at(value)))
    d = "".join(line_path(piece) for piece in pieces if len(piece) > 1)
    if d and _are_numbers(values):  # a line between two names would have no meaning
        page.sheet.path(d, stroke=f"hue{hue}", width=1.8, dash=dash)
    for place, value in line.points:
        if value is not None:
            where = f"{setting}={one_line(str(values[place]))}" + (f", {line.label}" if line.label else "")
            page.sheet.open(f"{where}\n{at_least(kind.exact(value), place in line.least)}", "point")
            mark(page.sheet, at, places[place], y.at(value), f"hue{hue}", r=4)
            page.sheet.close()


def _end_labels(page: Page, lines: Sequence[Line], labels: Sequence[str], y: Scale, area: Rect, right: float) -> None:
    """Write the label of each line beside its right end. Labels that would overlap are moved apart."""
    ends: list[tuple[float, int]] = []
    for at in range(len(labels)):
        known = [(place, value) for place, value in lines[at].points if value is not None]
        if known:
            ends.append((y.at(known[-1][1]), at))
    ends.sort()
    tops: list[float] = []
    for want, _ in ends:
        tops.append(max(want, tops[-1] + 13) if tops else max(want, area.y))
    over = max(0.0, tops[-1] - (area.y + area.h)) if tops else 0.0
    for place in range(len(tops) - 1, -1, -1):
        limit = tops[place + 1] - 13 if place + 1 < len(tops) else tops[place] - over
        tops[place] = min(tops[place], limit)
    for (_, at), top in zip(ends, tops, strict=True):
        x = area.x + area.w + 2
        mark(page.sheet, at, x + 2, top, f"hue{at % HUES}", r=3)
        page.sheet.text(x + 9, top + 4, labels[at], room=right - 4)


def _cell(point: Mapping[str, Any], kind: Field) -> str:
    return at_least(kind.short(point.get(kind.name)), kind.name in (point.get("at_least") or ()))


def _numbers(swept: Swept, fields: Sequence[Field]) -> Numbers:
    names = list(swept["settings"])
    about = ", ".join(one_line(str(swept[key])) for key in ("program", "source") if swept.get(key))
    rows: list[tuple[str, ...]] = [(*map(one_line, names), *(kind.title for kind in fields))]
    for point in swept["points"]:
        values = (one_line(str(point["settings"][name])) for name in names)
        rows.append((*values, *(_cell(point, kind) for kind in fields)))
    return Numbers(f"{f'{about}: ' if about else ''}costs by {' and '.join(map(one_line, names))}", rows)
