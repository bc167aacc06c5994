"""Treemap of costs: each block is an area proportional to its cost. It contains the areas of the blocks inside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from mithril_nb.display import UNATTRIBUTED_LABEL, columns
from mithril_nb.viz.costs.blocks import Branch, hue_or_grey, hues_of, label_of, path_text, tree_of
from mithril_nb.viz.costs.canvas.names import Names
from mithril_nb.viz.costs.canvas.svg_canvas import FOOT, HEAD_H, LARGE, MARGIN, NO_HUE, NORMAL, Page, SvgCanvas
from mithril_nb.viz.costs.drawing import Drawing, replace_undrawable, validate_width
from mithril_nb.viz.costs.fields import (
    BLOCK_FIELDS,
    OF_KNOWN,
    Data,
    Field,
    at_least,
    field_of,
    is_bound,
    notes_of,
    reason_of,
    whole_text,
)  # fmt: skip
from mithril_nb.viz.svg import Rect
from mithril_nb.viz.text import listed, one_line, text_width, times
from mithril_nb.viz.units import percent

_SMALLEST = 24.0
"""Smallest area in px². Smaller blocks inside a block are merged."""
_LEAST_LISTED = 0.001
_OWN, _PROGRAM = " (self)", "program"
_PAD = 6
_GAP = 0.7
"""Gap in px at each side of a cell, which separates it from its neighbours."""
_TINTS = 4


@dataclass(frozen=True)
class Label:
    """A line of text in a cell. It starts at `x`; `y` is its base line."""

    x: float
    y: float
    text: str
    size: float
    bold: bool = False

    @property
    def width(self) -> float:
        """Width in px in a wide font."""
        return text_width(self.text, self.size, bold=self.bold)


@dataclass(frozen=True)
class Cell:
    """An area of the treemap.

    It shows a block, the cost of a block without the blocks inside, several small blocks, or the unattributed costs.

    Attributes:
        rect: Position and size.
        path: Path of the block. For several small blocks, the path of the block around them, or `""` if there is none.
            `None` for unattributed costs.
        names: Names of the blocks around the block that have the same colour, from the outside in, and then its name.
        value: Cost.
        repeat: Number of equal blocks in the cell.
        hue: Index of the colour in the palette.
        tint: Index of the shade of this colour.
        tooltip: Name in the tooltip.
        is_least: True if `value` is a lower bound.
        labels: Lines of text in the cell; `()` if there is no room.
    """

    rect: Rect
    path: str | None
    names: tuple[str, ...]
    value: float
    repeat: int
    hue: int
    tint: int
    tooltip: str
    is_least: bool = False
    labels: tuple[Label, ...] = ()

    @property
    def tone(self) -> str:
        """The colour of the cell as a tone, see `canvas.svg_canvas`."""
        return f"tint{self.hue}.{self.tint}" if self.path is not None else "ground"


def treemap(data: Data, field: str = "flops", width: int = 720) -> Drawing:
    """Draw a treemap of the cost of each block.

    Args:
        data: The costs, as returned by `Cost.to_dict()`.
        field: Name of the cost that determines the areas, one of `BLOCK_FIELDS`.
        width: Width in px; values below 240 become 240.

    Raises:
        UnknownOptionError: `field` is not one of `BLOCK_FIELDS`, or the width is not a number above 0 and at most
            10,000.

    Examples:
        >>> costs = {"flops": 750}
        >>> data = {"program": "f", "source": "analytic", "by_block": {"a": costs, "b": {"flops": 250}},
        ...         "unattributed": {"flops": 0}, "total": {"flops": 1000}, "notes": []}
        >>> print(treemap(data))
        f: FLOPs by block, analytic
        block       FLOPs   share
        a        750 FLOP  75.0 %  ███████████████
        b        250 FLOP  25.0 %  █████
        total  1.00 kFLOP   100 %
    """
    kind, data = field_of(field, BLOCK_FIELDS, 'cost.treemap("{}")'), replace_undrawable(data)
    return Drawing(_svg(data, kind, validate_width(width, 240, "cost.treemap")), _text(data, kind))


def cells_of(data: Data, field: str, within: Rect) -> list[Cell]:
    """Return cells with labels that fill a rectangle, with areas proportional to the costs in `field`."""
    kind, hues = field_of(field, BLOCK_FIELDS), hues_of(data)
    tree, lost = tree_of(data, field), _lost(data, kind)
    total = tree.value + lost.value
    if total <= 0:
        return []
    cells: list[Cell] = []
    _divide(cells, tree, within, (), hues, _SMALLEST / within.area * total, lost)
    names = Names(cell.names for cell in cells)
    return [_labelled(_rounded(cell), kind, total, names) for cell in cells]


def _divide(
    cells: list[Cell], branch: Branch, within: Rect, names: tuple[str, ...], hues: Mapping[str, int], least: float,
    lost: Branch | None = None,
) -> None:  # fmt: skip
    parts = [(one.value, one) for one in branch.inside if one.value >= least]
    small = [one for one in branch.inside if 0 < one.value < least]
    if branch.own:
        parts.append((branch.own, branch))
    if lost is not None and lost.value:
        parts.append((lost.value, lost))
    if small:
        of_small = Branch("", "", 0, tuple(small))
        parts.append((of_small.value, small[0] if len(small) == 1 else of_small))
    parts.sort(key=lambda part: -part[0])
    rects = squarify([value for value, _ in parts], within)
    for place, ((value, one), rect) in enumerate(zip(parts, rects, strict=True)):
        if one is lost:
            cells.append(
                Cell(rect, None, (UNATTRIBUTED_LABEL,), value, 1, NO_HUE, 0, "not attributed to a block", one.is_least)
            )
            continue
        if one is branch:  # its own cost
            alone = names if not branch.inside else (*names[:-1], f"{branch.label or _PROGRAM}{_OWN}")
            tooltip = (path_text(one.path) or _PROGRAM) + (", without the blocks inside" if branch.inside else "")
            cell = _cell(rect, one, alone or (_PROGRAM,), value, hues, place, tooltip)
            cells.append(replace(cell, is_least=one.is_bound))
        elif not one.label:
            tooltip = ", ".join(part.label for part in one.inside[:8]) + (" …" if len(one.inside) > 8 else "")
            of = hue_or_grey(branch.path, hues)
            few = (*names, f"{len(one.inside)} small")
            cells.append(Cell(rect, branch.path, few, value, 1, of, place % _TINTS, tooltip, one.is_least))
        elif one.inside and value >= least:
            _divide(cells, one, rect, _names(names, one, hues), hues, least)
        else:
            cells.append(_cell(rect, one, _names(names, one, hues), value, hues, place, path_text(one.path)))


def _names(above: tuple[str, ...], branch: Branch, hues: Mapping[str, int]) -> tuple[str, ...]:
    """Return the name of a block, after the names of the blocks around it that have the same colour."""
    within_hue = hue_or_grey(branch.path.rpartition("/")[0], hues) != NO_HUE
    return (*above, branch.label) if within_hue else (branch.label,)


def _cell(
    rect: Rect, branch: Branch, names: tuple[str, ...], value: float, hues: Mapping[str, int], place: int, tooltip: str
) -> Cell:
    hue = hue_or_grey(branch.path, hues)
    return Cell(rect, branch.path, names, value, branch.repeat, hue, place % _TINTS, tooltip, branch.is_least)


def _lost(data: Data, kind: Field) -> Branch:
    """Return the unattributed costs as a branch."""
    figures = data["unattributed"]
    return Branch("", UNATTRIBUTED_LABEL, figures.get(kind.name) or 0, is_bound=is_bound(figures, kind.name))


def _rounded(cell: Cell) -> Cell:
    """Return the cell with its edges rounded to 0.1 px, so that there is no gap between neighbours."""
    left, top = round(cell.rect.x, 1), round(cell.rect.y, 1)
    right, bottom = round(cell.rect.x + cell.rect.w, 1), round(cell.rect.y + cell.rect.h, 1)
    rect = Rect(left, top, round(right - left, 1), round(bottom - top, 1))
    return replace(cell, rect=rect)


def _labelled(cell: Cell, kind: Field, total: float, names: Names) -> Cell:
    rect = cell.rect
    room = rect.w - 2 * _PAD
    size = LARGE if rect.w > 150 and rect.h > 70 else NORMAL
    name = names.fitting(cell.names, cell.repeat, size, room)
    if not name or rect.h < size + 7:
        return cell
    rows = [Label(rect.x + _PAD, rect.y + _PAD + size - 2, name, size, bold=True)]
    value, share = at_least(kind.short(cell.value), cell.is_least), percent(cell.value / total)
    both = f"{value} · {share}"
    below = [both] if text_width(both, NORMAL) <= room else [value, share]
    for text in below:
        at = rows[-1].y + NORMAL + 4
        if text_width(text, NORMAL) <= room and at + 5 <= rect.y + rect.h:
            rows.append(Label(rect.x + _PAD, at, text, NORMAL))
    beside = rect.x + _PAD + rows[0].width + 10
    for text in (both, share) if len(rows) == 1 else ():
        if beside + text_width(text, NORMAL) <= rect.x + rect.w - _PAD:
            rows.append(Label(beside, rows[0].y, text, NORMAL))
            break
    return replace(cell, labels=tuple(rows))


def _svg(data: Data, kind: Field, width: int) -> str:
    page = Page(data, kind, f"{kind.title} by block", width)
    height = round(max(180, min(400, width * 0.5)))
    within = Rect(MARGIN, HEAD_H, width - 2 * MARGIN, height)
    cells = cells_of(data, kind.name, within)
    if not cells:
        page.plate(within, reason_of(data, kind))
        return page.svg(reason_of(data, kind))
    total, hues = sum(cell.value for cell in cells), hues_of(data)
    groups = _groups(cells, hues)
    greys = [name for name, cell, _ in groups if cell.hue == NO_HUE and cell.path is not None]
    patterns = {name: place for place, name in enumerate(greys, 1)}  # from 1, because the last hue is a plain grey
    for cell in cells:
        _draw(page.sheet, cell, kind, total, patterns.get(_group(cell, hues), 0))
    page.y = within.y + within.h + FOOT
    if any(not cell.labels or len(cell.names) > 1 for cell in cells):
        labels = {name: f"{name} {percent(value / total)}" for name, _, value in groups}
        page.legend(
            [("" if cell.path is None else cell.tone, labels[name]) for name, cell, _ in groups],
            {labels[name]: pattern for name, pattern in patterns.items()},
        )
    for text in _missing(data, kind):
        page.note(text)
    first = ", ".join(f"{name} {percent(value / total)}" for name, _, value in groups[:8])
    return page.svg(f"{kind.title} of {len(cells)} parts; the largest blocks are {first}.")


def _draw(sheet: SvgCanvas, cell: Cell, kind: Field, total: float, pattern: int) -> None:
    rect = cell.rect
    tone = cell.tone
    exact = at_least(kind.exact(cell.value), cell.is_least)
    about = f"{times(cell.tooltip, cell.repeat)}\n{exact}, {percent(cell.value / total)}"
    sheet.open(about, "cell", cell.path or "")
    gap_x, gap_y = (_GAP if side > 3 * _GAP else 0.0 for side in (rect.w, rect.h))
    sheet.rect(rect.x + gap_x, rect.y + gap_y, rect.w - 2 * gap_x, rect.h - 2 * gap_y, tone)
    sheet.striped(rect.x + gap_x, rect.y + gap_y, rect.w - 2 * gap_x, rect.h - 2 * gap_y, pattern)
    if cell.path is None:
        sheet.hatched(rect.x + 1, rect.y + 1, rect.w - 2, rect.h - 2, "line")
    for label in cell.labels:
        sheet.text(
            label.x, label.y, label.text, f"on {tone}", size=label.size, bold=label.bold, halo=cell.path is None
        )  # fmt: skip
    sheet.close()


def _groups(cells: Sequence[Cell], hues: Mapping[str, int]) -> list[tuple[str, Cell, float]]:
    """Return the entries of the legend, most expensive first: name, largest cell and cost."""
    found: dict[str, list[Cell]] = {}
    for cell in cells:
        found.setdefault(_group(cell, hues), []).append(cell)
    groups = [(name, max(of, key=lambda one: one.value), sum(one.value for one in of)) for name, of in found.items()]
    return sorted(groups, key=lambda group: -group[2])


def _group(cell: Cell, hues: Mapping[str, int]) -> str:
    """Return the name of the legend entry for a cell."""
    own = cell.path
    while own and own not in hues:
        own = own.rpartition("/")[0]
    if cell.path is None:
        return UNATTRIBUTED_LABEL
    return cell.names[0].removesuffix(_OWN) if own else label_of(cell.path) or "other blocks"


def _missing(data: Data, kind: Field) -> Iterator[str]:
    if is_bound(data["total"], kind.name):
        yield OF_KNOWN
    unknown = [path_text(path) for path, figures in data["by_block"].items() if figures.get(kind.name) is None]
    if unknown:
        yield f"unknown, not drawn: {listed(unknown, 6)}"
    yield from notes_of(data, kind.name)


def _text(data: Data, kind: Field) -> str:
    head = f"{one_line(str(data['program']))}: {kind.title} by block, {data['source']}"
    tree, lost = tree_of(data, kind.name), _lost(data, kind)
    total = tree.value + lost.value
    if total <= 0:
        return f"{head}\n{reason_of(data, kind)}"
    rows: list[tuple[str, ...]] = [("block", kind.title, "share", "")]
    hidden = 0
    for branch, depth in _deep(tree, -1):
        if depth < 0:
            continue
        if branch.value < _LEAST_LISTED * total:
            hidden += branch.own is not None
            continue
        rows.append(("  " * depth + times(branch.label, branch.repeat), *_figures(branch, kind, total)))
    if lost.value:
        rows.append((UNATTRIBUTED_LABEL, *_figures(lost, kind, total)))
    rows.append(("total", whole_text(data, kind), "100 %", ""))
    lines = [head, columns(rows, right={1, 2})]
    if hidden:
        lines.append(
            f"not listed: {hidden} {'block' if hidden == 1 else 'blocks'} with less than {percent(_LEAST_LISTED)}"
        )
    return "\n".join((*lines, *_missing(data, kind)))


def _figures(branch: Branch, kind: Field, total: float) -> tuple[str, str, str]:
    share = branch.value / total
    return at_least(kind.short(branch.value), branch.is_least), percent(share), "█" * round(20 * share)


def _deep(branch: Branch, depth: int) -> Iterator[tuple[Branch, int]]:
    yield branch, depth
    parts = [*branch.inside]
    if parts and branch.own:
        parts.append(Branch(branch.path, "(self)", branch.own, is_bound=branch.is_bound))
    for one in sorted(parts, key=lambda part: -part.value):
        yield from _deep(one, depth + 1)


def squarify(values: Sequence[float], within: Rect) -> list[Rect]:
    """Divide a rectangle into one rectangle for each value, with areas proportional to the values.

    The algorithm is that of Bruls, Huizing and van Wijk, "Squarified Treemaps" (2000). It fills the rectangle with rows
    along the shorter side. A value is added to a row if the rectangles in the row become more square.

    Args:
        values: Numbers above 0, the largest first.
        within: The rectangle to divide.

    Examples:
        >>> squarify([2, 1, 1], Rect(0, 0, 4, 2))
        [Rect(x=0, y=0.0, w=2.0, h=2.0), Rect(x=2.0, y=0.0, w=2.0, h=1.0), Rect(x=2.0, y=1.0, w=2.0, h=1.0)]
    """
    found: list[Rect] = []
    left = within
    rest = [*values]
    while rest:
        scale = left.area / sum(rest)
        side = min(left.w, left.h)
        count = 1
        while count < len(rest) and _worst(rest[: count + 1], scale, side) <= _worst(rest[:count], scale, side):
            count += 1
        row, rest = rest[:count], rest[count:]
        rects, left = _cells_of_row(row, left, sum(row) / (sum(row) + sum(rest)))
        found += rects
    return found


def _worst(row: Sequence[float], scale: float, side: float) -> float:
    """Return the largest ratio of the longer to the shorter side of the rectangles in a row."""
    total = sum(row) * scale
    if not total or not side:
        return float("inf")
    return max(side * side * max(row) * scale / total**2, total**2 / (side * side * min(row) * scale))


def _cells_of_row(row: Sequence[float], within: Rect, share: float) -> tuple[list[Rect], Rect]:
    """Place a row along the shorter side of a rectangle. Return the rectangles of the row, and the remaining rectangle.

    The row takes `share` of the area.
    """
    upright = within.w >= within.h
    side, length = (within.h, within.w) if upright else (within.w, within.h)
    total = sum(row)
    depth = length * share
    rects, at = [], 0.0
    for place, value in enumerate(row):
        part = side - at if place == len(row) - 1 else side * value / total
        if upright:
            rects.append(Rect(within.x, within.y + at, depth, part))
        else:
            rects.append(Rect(within.x + at, within.y, part, depth))
        at += part
    if upright:
        return rects, Rect(within.x + depth, within.y, within.w - depth, within.h)
    return rects, Rect(within.x, within.y + depth, within.w, within.h - depth)
