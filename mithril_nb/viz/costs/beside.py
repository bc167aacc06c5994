"""Draw two costs of the same blocks side by side: before and after a change."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mithril_nb.display import UNATTRIBUTED_LABEL
from mithril_nb.figures import MEASURED, OF_XLA
from mithril_nb.viz.costs.blocks import hue_or_grey, path_text, strip_numbers
from mithril_nb.viz.costs.canvas.svg_canvas import FOOT, HEAD_H, MARGIN, NO_HUE, NORMAL, Page, SvgCanvas, hidden_notes
from mithril_nb.viz.costs.drawing import Drawing, Numbers, replace_undrawable, validate_width
from mithril_nb.viz.costs.fields import BLOCK_FIELDS, FIELDS, Field, at_least, field_of, is_bound
from mithril_nb.viz.palette import hues_of_blocks
from mithril_nb.viz.svg import Rect
from mithril_nb.viz.text import one_line, text_width, times
from mithril_nb.viz.units import three_figures

Pair = Mapping[str, Any]
"""Two costs as data.

`before` and `after` are the labels of the two sides, such as `"lowered"` and `"compiled"`. `field` is the name of the
cost, such as `"flops"`. `blocks` is a list of dicts with `block`, `before` and `after`; `total` has `before` and
`after`. `program`, `notes` and `hues` are optional.

`total` and each entry of `blocks` may have `bounds`, a list of the sides that are lower bounds. The change between the
sides is then unknown.
"""

_MOST_ROWS = 20
_NARROW = 560
_BAR_H = 8


@dataclass(frozen=True)
class Row:
    """A row of the picture: the cost of one or several blocks before and after a change. An unknown cost is `None`.

    Attributes:
        path: Path of the block. For several equal blocks, the path of the first; for unattributed costs `""`; for the
            total and for a sum of small blocks `None`.
        name: Name of the row.
        before: Cost before the change.
        after: Cost after the change.
        bounds: Contains `"before"` or `"after"` if that cost is a lower bound.
    """

    path: str | None
    name: str
    before: float | None
    after: float | None
    bounds: frozenset[str] = frozenset()

    @property
    def change(self) -> str:
        """The change as text, such as `"+25.0 %"`; `"unknown"` if a side is unknown or a lower bound."""
        return "unknown" if self.bounds else change_text(self.before, self.after)

    def format_sides(self, written: Callable[[float | None], str]) -> tuple[str, str]:
        """Format both costs with `written`. A lower bound starts with `"≥"`."""
        return (
            at_least(written(self.before), "before" in self.bounds),
            at_least(written(self.after), "after" in self.bounds),
        )

    def cells(self, field: Field) -> tuple[str, str, str, str]:
        """Return four texts: the name, the cost before, the cost after, and the change."""
        return (self.name, *self.format_sides(field.short), self.change)

    @property
    def most(self) -> float:
        """The larger of the two costs; an unknown cost counts as 0."""
        return max(self.before or 0, self.after or 0)


def beside(pair: Pair, width: int = 720) -> Drawing:
    """Draw the costs of each block before and after a change, side by side.

    Args:
        pair: The costs as data, in the form that `Pair` documents.
        width: Width in px; values below 320 become 320.

    Raises:
        UnknownOptionError: `field` in the data is not the name of a cost, or the width is not a number above 0 and at
            most 10,000.

    Examples:
        >>> blocks = [{"block": "a", "before": 4000, "after": 1000}, {"block": "b", "before": 0, "after": 500}]
        >>> pair = {"before": "lowered", "after": "compiled", "field": "flops"}
        >>> print(beside({**pair, "blocks": blocks, "total": {"before": 4000, "after": 1500}}))
        FLOPs by block: lowered, compiled
        block    lowered    compiled   change
        a      4.00 kFLOP  1.00 kFLOP  −75.0 %
        b          0 FLOP    500 FLOP      new
        total  4.00 kFLOP  1.50 kFLOP  −62.5 %
    """
    kind, pair = field_of(str(pair["field"])), replace_undrawable(pair)
    rows = rows_of(pair)
    numbers = _numbers(pair, kind, rows)
    notes = tuple(one_line(str(note)) for note in pair.get("notes") or ())
    text = "\n".join((numbers.title, numbers.text, *notes))
    width = validate_width(width, 320, "comparison.beside")
    return Drawing(_svg(pair, kind, rows, width), text, (numbers,), hidden_notes(notes, width))


def pair_of(comparison: Mapping[str, Any], field: str) -> Pair:
    """Return one kind of cost from a comparison as data for `beside`.

    Args:
        comparison: The comparison as data: `CostComparison.to_dict()`.
        field: Name of the cost, such as `"flops"`.

    Raises:
        UnknownOptionError: `field` is not the name of a cost.
    """
    kind = field_of(field, BLOCK_FIELDS, 'comparison.beside("{}")')

    def of(change: Mapping[str, Any]) -> dict[str, Any]:
        before, after = change["before"], change["after"]
        return {
            "before": before.get(kind.name),
            "after": after.get(kind.name),
            "bounds": [side for side in ("before", "after") if is_bound(change[side], kind.name)],
        }

    first, second = str(comparison["before"]), str(comparison["after"])
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


def rows_of(pair: Pair) -> list[Row]:
    """Return the rows, largest first. Blocks that cost 0 before and after the change are left out.

    Blocks share a row if they have the same costs, and the same path without numbers (see `strip_numbers`):
    `block_0/mlp`, `block_1/mlp`. If there are more than 20 rows, one row shows the sum of those after the 20th.
    """
    groups: dict[object, list[Mapping[str, Any]]] = {}
    for one in pair["blocks"]:
        if one["before"] == one["after"] == 0:
            continue
        key = strip_numbers(str(one["block"])), one["before"], one["after"], _bounds([one])
        groups.setdefault(key, []).append(one)
    rows = [
        Row(str(ones[0]["block"]), times(_name(str(ones[0]["block"])), len(ones)), *_sums(ones), _bounds(ones))
        for ones in groups.values()
    ]
    rows.sort(key=lambda row: -row.most)
    shown, rest = rows[:_MOST_ROWS], rows[_MOST_ROWS:]
    if len(rest) > 1:
        each = [vars(row) for row in rest]
        rest = [Row(None, f"{len(rest)} smaller", *_sums(each), _bounds(each))]
    return shown + rest


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
    if after / before >= 10:
        return f"×{three_figures(after / before)}" if after / before < 999.5 else f"×{after / before:.3g}"
    share = 100 * (after - before) / before
    sign = "+" if share > 0 else "−"
    return f"{sign}{abs(share):.1f} %" if abs(share) >= 0.05 else f"{sign}< 0.1 %"


def _name(path: str) -> str:
    return path_text(path) if path else UNATTRIBUTED_LABEL


def _sums(ones: Sequence[Mapping[str, Any]]) -> tuple[float | None, float | None]:
    """Return the sum of each side; `None` for a side on which a cost is unknown."""
    before, after = ([one[side] for one in ones] for side in ("before", "after"))
    return (None if None in before else sum(before)), (None if None in after else sum(after))


def _bounds(ones: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    """Return `"before"` or `"after"` for each side on which a cost is a lower bound."""
    return frozenset(side for one in ones for side in one.get("bounds") or ())


def _labels(pair: Pair) -> tuple[str, str]:
    return one_line(str(pair["before"])), one_line(str(pair["after"]))


def _svg(pair: Pair, kind: Field, rows: Sequence[Row], width: int) -> str:
    first, second = _labels(pair)
    page = Page(
        {"program": pair.get("program"), "source": f"{first} and {second}"}, None, f"{kind.title} by block", width
    )
    largest = max((row.most for row in rows), default=0)
    if not largest:
        reason = "There is no block to compare." if not rows else f"No block has {kind.title} above 0, before or after."
        if any(row.before is None or row.after is None for row in rows):
            notes = " ".join(map(str, pair.get("notes") or ()))
            reason = f"{kind.title}: unknown. {notes or 'Neither side reports it.'}"
        page.plate(Rect(MARGIN, HEAD_H, width - 2 * MARGIN, 96), reason)
        return page.svg(reason)
    _legend(page, first, second)
    numbers = _Numbers([*rows, _total(pair)], kind)
    hues = pair["hues"] if "hues" in pair else hues_of_blocks(str(one["block"]) for one in pair["blocks"])
    for row in rows:
        _row(page, row, kind, numbers, largest, NO_HUE if row.path is None else hue_or_grey(row.path, hues))
    page.sheet.line([(MARGIN, page.y + 2), (width - MARGIN, page.y + 2)], "muted")
    page.y += 18
    page.sheet.text(MARGIN, page.y, "total", bold=True)
    numbers.draw(page.sheet, width - MARGIN, page.y, _total(pair), bold=True)
    page.y += FOOT
    for note in pair.get("notes") or ():
        page.note(str(note))
    total = _total(pair)
    before, after = total.format_sides(kind.short)
    about = f"{kind.title} of {len(rows)} parts, {first} and {second}: total {before} and {after}, {total.change}."
    return page.svg(about)


def _total(pair: Pair) -> Row:
    total = pair["total"]
    return Row(None, "total", total["before"], total["after"], _bounds([total]))


def _legend(page: Page, first: str, second: str) -> None:
    x = float(MARGIN)
    for place, label in enumerate((first, second)):
        _bar(page.sheet, Rect(x, page.y, 22, _BAR_H), NO_HUE, solid=place == 1)
        page.sheet.text(x + 28, page.y + 8, label, "muted", room=page.width / 2 - 40)
        x += min(page.width / 2 - 10, 28 + text_width(label, NORMAL) + 18)
    page.y += 22


def _bar(sheet: SvgCanvas, rect: Rect, hue: int, *, solid: bool) -> None:
    """Draw a bar: `solid` for the cost after the change, pale with an edge for the cost before it."""
    if solid:
        sheet.rect(rect.x, rect.y, rect.w, rect.h, f"hue{hue}")
    elif rect.w >= 1:
        sheet.rect(rect.x + 0.5, rect.y + 0.5, max(0.5, rect.w - 1), rect.h - 1, f"tint{hue}.3", stroke=f"hue{hue}")


def _row(page: Page, row: Row, kind: Field, numbers: _Numbers, largest: float, hue: int) -> None:
    sheet, width = page.sheet, page.width
    before, after = row.format_sides(kind.exact)
    sheet.open(f"{row.name}\nbefore {before}\nafter {after}\n{row.change}", "pair", row.path or None)
    if width < _NARROW:  # name and numbers go above the bars
        numbers.draw(sheet, width - MARGIN, page.y + 11, row)
        sheet.text(MARGIN, page.y + 11, row.name, room=width - 2 * MARGIN - numbers.width - 8)
        left, top, length, height = float(MARGIN), page.y + 16, width - 2.0 * MARGIN, 42
    else:
        names = width * 0.26
        numbers.draw(sheet, width - MARGIN, page.y + 14, row)
        sheet.text(MARGIN, page.y + 14, row.name, room=names)
        left, top, height = MARGIN + names + 10, page.y + 1, 26
        length = max(0.0, width - MARGIN - numbers.width - 12 - left)
    for place, value in enumerate((row.before, row.after)):
        at = top + place * (_BAR_H + 1)
        if value is None:
            sheet.text(left, at + 8, "unknown", "muted", size=9)
        else:
            _bar(sheet, Rect(left, at, length * value / largest, _BAR_H), hue, solid=place == 1)
    sheet.close()
    page.y += height


class _Numbers:
    """The columns of numbers at the right edge of the picture: before, after, change."""

    def __init__(self, rows: Sequence[Row], kind: Field):
        self._kind = kind
        texts = [row.cells(kind)[1:] for row in rows]
        self._widths = [max(text_width(text[at], NORMAL, bold=True) for text in texts) for at in range(3)]
        self.width = sum(self._widths) + 2 * 14

    def draw(self, sheet: SvgCanvas, right: float, y: float, row: Row, *, bold: bool = False) -> None:
        """Write the numbers of a row, aligned to the right."""
        _, before, after, change = row.cells(self._kind)
        last, middle = self._widths[2], self._widths[1]
        sheet.text(right, y, change, "muted" if change in ("same", "unknown") else "ink", anchor="end", bold=bold)
        sheet.text(right - last - 14, y, after, anchor="end", bold=bold)
        sheet.text(right - last - middle - 28, y, before, "muted", anchor="end", bold=bold)


def _numbers(pair: Pair, kind: Field, rows: Sequence[Row]) -> Numbers:
    first, second = _labels(pair)
    program = f"{one_line(str(pair['program']))}: " if pair.get("program") else ""
    table = [("block", first, second, "change"), *(row.cells(kind) for row in (*rows, _total(pair)))]
    return Numbers(f"{program}{kind.title} by block: {first}, {second}", table)


Changed = Mapping[str, Any]
"""The costs of a program before and after other settings, as data: the result of `Change.to_dict()`."""
_COUNTED = (*OF_XLA, "params")
_TABLE = (*_COUNTED, "peak_bytes", *MEASURED)


def change(changed: Changed) -> Drawing:
    r"""Draw the FLOPs of each block before and after a change of settings, such as of the batch size.

    The text of the drawing starts with a table of the program's total costs.

    Args:
        changed: The costs as data: the result of `Change.to_dict()`.

    Examples:
        >>> total = {"before": {"flops": 4000}, "after": {"flops": 8000}}
        >>> data = {"program": "step", "before": "batch=8", "after": "batch=16", "way": "formula", "total": total}
        >>> drawing = change({**data, "by_block": {"linear": total}, "unattributed": {"before": {}, "after": {}}})
        >>> print(drawing.text.partition("\n\n")[0])
        step: batch=8 -> batch=16 (formula)
                 batch=8    batch=16    change
        FLOPs  4.00 kFLOP  8.00 kFLOP  +100.0 %
    """
    changed = replace_undrawable(changed)
    notes = (*_unchanged(changed), *(changed.get("notes") or ()), *_of_peak(changed))
    pair = {**pair_of(changed, "flops"), "program": str(changed["program"]), "notes": notes}
    drawing, whole = beside(pair), _whole(changed)
    return Drawing(
        drawing.svg, f"{whole.title}\n{whole.text}\n\n{drawing.text}", (whole, *drawing.tables), drawing.notes
    )


def _unchanged(changed: Changed) -> tuple[str, ...]:
    """Return a note if all costs are known and equal on both sides."""
    figures = (changed["total"], changed["unattributed"], *changed["by_block"].values())
    peaks = changed.get("peak_bytes") or {"before": {}, "after": {}}
    is_same = all(one["before"] == one["after"] for one in (*figures, peaks))
    total = changed["total"]["before"]
    if not is_same or total.get("flops") is None or total.get("unknown") or total.get("unknown_bytes"):
        return ()
    found = "nothing changes: every number here is the same before and after"
    backward = (changed.get("by_role") or {}).get("backward", {"before": {}})["before"]
    if "remat" in changed.get("settings", {}) and backward.get("flops") == backward.get("bytes_accessed") == 0:
        found += "; remat acts on the backward pass, and this program has none"
    return (found,)


def _whole(changed: Changed) -> Numbers:
    first, second, program = (one_line(str(changed[name])) for name in ("before", "after", "program"))
    rows = [("", first, second, "change")]
    fields = [FIELDS[name] for name in _TABLE if _has_row(changed, name)]
    rows += [_total_row(changed, field).cells(field) for field in fields]
    return Numbers(f"{program}: {first} -> {second} ({changed['way']})", rows)


def _total_row(changed: Changed, field: Field) -> Row:
    bounds = frozenset(side for side in ("before", "after") if is_bound(changed["total"][side], field.name))
    return Row(None, field.title, *_pair(changed, field.name), bounds)


def _of_peak(changed: Changed) -> tuple[str, ...]:
    """Return notes on the peak memory: that it is an estimate, or why it is unknown."""
    sides = (changed.get("peak_bytes") or {}).values()
    if any(side.get("source") == "analytic" for side in sides):
        return ("peak_bytes: estimated from the equations; change.compiled shows XLA's own value",)
    reasons = dict.fromkeys(str(side["reason"]) for side in sides if side.get("bytes") is None and side.get("reason"))
    return tuple(one if one.startswith("peak_bytes") else f"peak_bytes: {one}" for one in reasons)


def _has_row(changed: Changed, name: str) -> bool:
    """Return whether the table has a row for a field: if its cost is known, or is a count, such as of FLOPs."""
    is_counted = name in _COUNTED and name in changed["total"]["before"]
    return is_counted or any(value is not None for value in _pair(changed, name))


def _pair(changed: Changed, name: str) -> tuple[Any, Any]:
    if name == "peak_bytes":
        peaks = changed.get("peak_bytes") or {"before": {}, "after": {}}
        return peaks["before"].get("bytes"), peaks["after"].get("bytes")
    return changed["total"]["before"].get(name), changed["total"]["after"].get(name)
