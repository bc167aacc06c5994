"""Draw two costs of the same blocks side by side: before and after a change."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mithril_nb.display import UNATTRIBUTED_LABEL
from mithril_nb.figures import FIGURES, LOCAL, MEASURED
from mithril_nb.viz.costs.blocks import hue_or_grey, path_text, strip_numbers
from mithril_nb.viz.costs.canvas import FOOT, MARGIN, NO_HUE, NORMAL, CostPage, hidden_notes
from mithril_nb.viz.costs.drawing import Drawing, NumberTable, replace_undrawable, validate_width
from mithril_nb.viz.costs.fields import BLOCK_FIELDS, FIELDS, Field, at_least, field_of, is_bound
from mithril_nb.viz.palette import hues_of_blocks
from mithril_nb.viz.svg import Rect
from mithril_nb.viz.text import one_line, text_width, times
from mithril_nb.viz.units import three_figures

# Two costs as data.
#
# `before` and `after` are the labels of the two sides, such as `"lowered"` and `"compiled"`. `field` is the name of
# the cost, such as `"flops"`. `blocks` is a list of dicts with `block`, `before` and `after`; `total` has `before`
# and `after`. `program`, `notes` and `hues` are optional.
#
# `total` and each entry of `blocks` may have `bounds`, a list of the sides that are lower bounds. The change between
# the sides is then unknown.
Pair = Mapping[str, Any]
_SIDES = ("before", "after")
_MOST_ROWS = 20
_NARROW = 560
_BAR_H = 8


@dataclass(frozen=True)
class PairRow:
    """A row of the picture: the cost of one or several blocks before and after a change. An unknown cost is `None`."""

    # Path of the block. For several equal blocks, the path of the first; for unattributed costs `""`; for the total
    # and for a sum of small blocks `None`.
    path: str | None
    name: str
    before: float | None
    after: float | None
    # Contains `"before"` or `"after"` if that cost is a lower bound
    bounds: frozenset[str] = frozenset()

    @classmethod
    def sum_of(cls, rows: Sequence[PairRow], path: str | None, name: str) -> PairRow:
        """Return a row with the sum of each side, which is unknown if a part is."""
        parts = ([getattr(row, side) for row in rows] for side in _SIDES)
        before, after = (None if None in values else sum(values) for values in parts)
        return cls(path, name, before, after, frozenset().union(*(row.bounds for row in rows)))

    def texts(self, form: Callable[[float | None], str]) -> tuple[str, str, str]:
        """Return the costs before and after as texts, and the change. A lower bound starts with `"≥"`."""
        before, after = (at_least(form(getattr(self, side)), side in self.bounds) for side in _SIDES)
        return before, after, "unknown" if self.bounds else change_text(self.before, self.after)

    @property
    def most(self) -> float:
        """The larger of the two costs; an unknown cost counts as 0."""
        return max(self.before or 0, self.after or 0)


def beside(pair: Pair, width: int = 720) -> Drawing:
    """Draw the costs of each block before and after a change, side by side."""
    kind, pair = field_of(str(pair["field"])), replace_undrawable(pair)
    rows, total = rows_of(pair), pair["total"]
    totals = PairRow(None, "total", total["before"], total["after"], frozenset(total.get("bounds") or ()))
    labels = tuple(one_line(str(pair[side])) for side in _SIDES)
    program = f"{one_line(str(pair['program']))}: " if pair.get("program") else ""
    table = [("block", *labels, "change"), *((row.name, *row.texts(kind.short)) for row in (*rows, totals))]
    numbers = NumberTable(f"{program}{kind.title} by block: {', '.join(labels)}", table)
    notes = tuple(one_line(str(note)) for note in pair.get("notes") or ())
    text = "\n".join((numbers.title, numbers.text, *notes))
    width = validate_width(width, 320, "comparison.beside")
    return Drawing(_svg(pair, kind, rows, totals, labels, width), text, (numbers,), hidden_notes(notes, width))


def pair_of(comparison: Mapping[str, Any], field: str) -> Pair:
    """Return one kind of cost from a comparison, `CostComparison.to_dict()`, as data for `beside`."""
    kind = field_of(field, BLOCK_FIELDS)

    def of(change: Mapping[str, Any]) -> dict[str, Any]:
        costs = {side: change[side].get(field) for side in _SIDES}
        return {**costs, "bounds": [side for side in _SIDES if is_bound(change[side], kind.name)]}

    first, second = (str(comparison[side]) for side in _SIDES)
    program = first.rpartition(": ")[0]
    if program and program == second.rpartition(": ")[0]:  # both sides have the same program: show its name once
        first, second = first.removeprefix(f"{program}: "), second.removeprefix(f"{program}: ")
    blocks = [{"block": path, **of(change)} for path, change in comparison["by_block"].items()]
    return {
        "program": program if first != comparison["before"] else "",
        "before": first,
        "after": second,
        "field": field,
        "blocks": [*blocks, {"block": "", **of(comparison["unattributed"])}],
        "total": of(comparison["total"]),
    }


def rows_of(pair: Pair) -> list[PairRow]:
    """Return the rows, largest first. Blocks that cost 0 before and after the change are left out.

    Blocks share a row if they have the same costs, and the same path without numbers (see `strip_numbers`):
    `block_0/mlp`, `block_1/mlp`. If there are more than 20 rows, one row shows the sum of those after the 20th.
    """
    groups = defaultdict[object, list[PairRow]](list)
    for part in pair["blocks"]:
        row = PairRow(str(part["block"]), "", part["before"], part["after"], frozenset(part.get("bounds") or ()))
        if not row.before == row.after == 0:
            groups[strip_numbers(str(row.path)), row.before, row.after, row.bounds].append(row)
    rows = []
    for group in groups.values():
        path = group[0].path
        rows.append(PairRow.sum_of(group, path, times(path_text(path) if path else UNATTRIBUTED_LABEL, len(group))))
    rows.sort(key=lambda row: -row.most)
    rest = rows[_MOST_ROWS:]
    if len(rest) > 1:
        rest = [PairRow.sum_of(rest, None, f"{len(rest)} smaller")]
    return rows[:_MOST_ROWS] + rest


def change_text(before: float | None, after: float | None) -> str:
    """Format a change: in percent, or as a factor from ×10 on.

    Examples:
        >>> [change_text(*two) for two in ((4, 1), (4, 5), (4, 4), (0, 4), (4, 0), (1, 30), (None, 4))]
        ['−75.0 %', '+25.0 %', 'same', 'new', 'gone', '×30.0', 'unknown']
    """
    if before is None or after is None:
        return "unknown"
    if before == after:
        return "same"
    if not before or not after:
        return "gone" if before else "new"
    ratio = after / before
    if ratio >= 10:
        return f"×{three_figures(ratio)}" if ratio < 999.5 else f"×{ratio:.3g}"
    share = 100 * (after - before) / before
    # A minus sign, which is as wide as the plus; a hyphen is not.
    sign = "+" if share > 0 else "−"
    # A smaller change would be shown as 0.0 %, as if both sides were equal.
    return f"{sign}{abs(share):.1f} %" if abs(share) >= 0.05 else f"{sign}< 0.1 %"


def _svg(pair: Pair, kind: Field, rows: Sequence[PairRow], totals: PairRow, labels: Sequence[str], width: int) -> str:
    data = {"program": pair.get("program"), "source": " and ".join(labels)}
    page = CostPage(data, None, f"{kind.title} by block", width)
    notes = [str(note) for note in pair.get("notes") or ()]
    # The total is not drawn as a bar: the bars of blocks would be short beside it.
    largest = max((row.most for row in rows), default=0)
    if not largest:
        reason = f"No block has {kind.title} above 0, before or after." if rows else "There is no block to compare."
        if any(row.before is None or row.after is None for row in rows):
            reason = f"{kind.title}: unknown. {' '.join(notes) or 'Neither side reports it.'}"
        return page.explain(reason)
    x = float(MARGIN)
    for at, label in enumerate(labels):
        _bar(page, Rect(x, page.y, 22, _BAR_H), NO_HUE, solid=at == 1)
        page.text(x + 28, page.y + 8, label, "muted", room=width / 2 - 40)
        x += min(width / 2 - 10, 28 + text_width(label, NORMAL) + 18)
    page.y += 22
    texts = [row.texts(kind.short) for row in (*rows, totals)]
    columns = [max(text_width(text, NORMAL, bold=True) for text in column) for column in zip(*texts, strict=True)]
    numbers_w = sum(columns) + 2 * 14

    def numbers(y: float, row: PairRow, *, bold: bool = False) -> None:
        before, after, change = row.texts(kind.short)
        right = width - MARGIN
        page.text(right, y, change, "muted" if change in ("same", "unknown") else "ink", anchor="end", bold=bold)
        page.text(right - columns[2] - 14, y, after, anchor="end", bold=bold)
        page.text(right - columns[2] - columns[1] - 28, y, before, "muted", anchor="end", bold=bold)

    hues = pair["hues"] if "hues" in pair else hues_of_blocks(str(block["block"]) for block in pair["blocks"])
    for row in rows:
        before, after, change = row.texts(kind.exact)
        page.open(f"{row.name}\nbefore {before}\nafter {after}\n{change}", "pair", row.path or None)
        if width < _NARROW:  # name and numbers go above the bars
            base, names, top, height = page.y + 11, width - 2 * MARGIN - numbers_w - 8, page.y + 16, 42
            left, length = float(MARGIN), width - 2.0 * MARGIN
        else:
            base, names, top, height = page.y + 14, width * 0.26, page.y + 1, 26
            left = MARGIN + names + 10
            length = max(0.0, width - MARGIN - numbers_w - 12 - left)
        numbers(base, row)
        page.text(MARGIN, base, row.name, room=names)
        hue = NO_HUE if row.path is None else hue_or_grey(row.path, hues)
        for at, value in enumerate((row.before, row.after)):
            y = top + at * (_BAR_H + 1)
            if value is None:
                page.text(left, y + 8, "unknown", "muted", size=9)
            else:
                _bar(page, Rect(left, y, length * value / largest, _BAR_H), hue, solid=at == 1)
        page.close()
        page.y += height
    page.line([(MARGIN, page.y + 2), (width - MARGIN, page.y + 2)], "muted")
    page.y += 18
    page.text(MARGIN, page.y, "total", bold=True)
    numbers(page.y, totals, bold=True)
    page.y += FOOT
    for note in notes:
        page.note(note)
    before, after, change = totals.texts(kind.short)
    return page.svg(f"{kind.title} of {len(rows)} parts, {data['source']}: total {before} and {after}, {change}.")


# Solid for the cost after the change, pale with an edge for the cost before it.


def _bar(page: CostPage, rect: Rect, hue: int, *, solid: bool) -> None:
    if solid:
        page.rect(rect.x, rect.y, rect.w, rect.h, f"hue{hue}")
    elif rect.w >= 1:
        page.rect(rect.x + 0.5, rect.y + 0.5, max(0.5, rect.w - 1), rect.h - 1, f"tint{hue}.3", stroke=f"hue{hue}")


# The costs of a program before and after other settings, as data: the result of `Change.to_dict()`.
Changed = Mapping[str, Any]
_COUNTED = (*LOCAL, "params")
_TABLE = (*_COUNTED, "peak_bytes", *MEASURED)


def change(changed: Changed) -> Drawing:
    """Draw the FLOPs of each block before and after a change of settings, such as of the batch size.

    The text of the drawing starts with a table of the program's total costs.
    """
    changed = replace_undrawable(changed)
    peaks = changed.get("peak_bytes") or {"before": {}, "after": {}}
    first, second, program = (one_line(str(changed[name])) for name in (*_SIDES, "program"))
    rows = [("", first, second, "change")]
    for name in _TABLE:
        totals = [changed["total"][side] for side in _SIDES]
        before, after = (total.get(name) for total in totals)
        if name == "peak_bytes":
            before, after = (peaks[side].get("bytes") for side in _SIDES)
        if (name in _COUNTED and name in totals[0]) or before is not None or after is not None:
            bounds = frozenset(side for side, total in zip(_SIDES, totals, strict=True) if is_bound(total, name))
            row = PairRow(None, FIELDS[name].title, before, after, bounds)
            rows.append((row.name, *row.texts(FIELDS[name].short)))
    summary = NumberTable(f"{program}: {first} -> {second} ({changed['way']})", rows)
    sides = peaks.values()
    reasons = dict.fromkeys(str(side["reason"]) for side in sides if side.get("bytes") is None and side.get("reason"))
    of_peak = [reason if reason.startswith("peak_bytes") else f"peak_bytes: {reason}" for reason in reasons]
    if any(side.get("source") == "analytic" for side in sides):
        of_peak = ["peak_bytes: estimated from the equations; change.compiled shows XLA's own value"]
    notes = (*_unchanged(changed, peaks), *(changed.get("notes") or ()), *of_peak)
    drawing = beside({**pair_of(changed, "flops"), "program": str(changed["program"]), "notes": notes})
    text = f"{summary.title}\n{summary.text}\n\n{drawing.text}"
    return Drawing(drawing.svg, text, (summary, *drawing.tables), drawing.notes)


def _unchanged(changed: Changed, peaks: Mapping[str, Any]) -> Iterable[str]:
    changes = (changed["total"], changed["unattributed"], *changed["by_block"].values(), peaks)
    total = changed["total"]["before"]
    is_unknown = total.get("flops") is None or any(FIGURES[key].unknown_in(total) for key in _COUNTED)
    if is_unknown or any(part["before"] != part["after"] for part in changes):
        return ()
    note = "nothing changes: every number here is the same before and after"
    backward = (changed.get("by_role") or {}).get("backward", {"before": {}})["before"]
    if "remat" in changed.get("settings", {}) and backward.get("flops") == backward.get("bytes_accessed") == 0:
        note += "; remat acts on the backward pass, and this program has none"
    return (note,)
