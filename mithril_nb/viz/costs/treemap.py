"""Draw a treemap: the area of each cell is the cost of a block.

Blocks that follow each other and differ only in a number share a cell if their costs are equal.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from mithril_nb.display import UNATTRIBUTED_LABEL
from mithril_nb.viz.costs.blocks import (
    LEAST_LISTED,
    Branch,
    hue_or_grey,
    hues_of,
    label_of,
    path_text,
    share_table,
    tree_of,
)
from mithril_nb.viz.costs.canvas import FOOT, HEAD_H, LARGE, MARGIN, NO_HUE, NORMAL, CostPage
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
from mithril_nb.viz.costs.names import BlockNames
from mithril_nb.viz.svg import Rect
from mithril_nb.viz.text import listed, one_line, text_width, times
from mithril_nb.viz.units import percent

# Smallest area in px². Smaller blocks inside a block are merged.
_SMALLEST = 24.0
_OWN, _PROGRAM = " (self)", "program"
_PAD = 6
# Gap in px at each side of a cell, which separates it from its neighbours.
_GAP = 0.7
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
class TreemapCell:
    """A rectangle of the treemap.

    It shows a block, the cost of a block without the blocks inside, several small blocks, or the unattributed costs.
    """

    rect: Rect
    # Path of the block. For several small blocks, the path of the block around them, or `""` if there is none. `None`
    # for unattributed costs.
    path: str | None
    # Names of the blocks around the block that have the same colour, from the outside in, and then its name
    names: tuple[str, ...]
    value: float
    tooltip: str
    repeat: int = 1
    hue: int = NO_HUE
    tint: int = 0
    # True if `value` is a lower bound
    is_least: bool = False
    # Lines of text in the cell; `()` if there is no room
    labels: tuple[Label, ...] = ()

    @property
    def tone(self) -> str:
        """The colour of the cell as a tone, see `canvas`."""
        return f"tint{self.hue}.{self.tint}" if self.path is not None else "ground"


def treemap(data: Data, field: str = "flops", width: int = 720) -> Drawing:
    """Draw a treemap of the cost of each block.

    Args:
        data: The costs: `Cost.to_dict()`.
        field: Name of the cost that determines the areas, one of `BLOCK_FIELDS`.
        width: Width in px; values below 240 become 240.
    """
    kind, data = field_of(field, BLOCK_FIELDS), replace_undrawable(data)
    return Drawing(_svg(data, kind, validate_width(width, 240, "cost.treemap")), _text(data, kind))


def cells_of(data: Data, field: str, within: Rect) -> list[TreemapCell]:
    """Return cells with labels that fill a rectangle, with areas proportional to the costs in `field`."""
    kind, hues = field_of(field, BLOCK_FIELDS), hues_of(data)
    tree, lost = tree_of(data, field), _lost(data, kind)
    total = tree.value + lost.value
    if total <= 0:
        return []
    least = _SMALLEST / within.area * total
    cells: list[TreemapCell] = []

    def divide(branch: Branch, within: Rect, names: tuple[str, ...], *others: Branch) -> None:
        parts = [(child.value, child) for child in branch.inside if child.value >= least]
        small = [child for child in branch.inside if 0 < child.value < least]
        if branch.own:
            parts.append((branch.own, branch))
        parts += [(other.value, other) for other in others if other.value]
        if small:
            # A single small block keeps its name.
            merged = Branch("", "", 0, tuple(small)) if len(small) > 1 else small[0]
            parts.append((merged.value, merged))
        parts.sort(key=lambda part: -part[0])
        rects = squarify([value for value, _ in parts], within)
        for at, ((value, part), rect) in enumerate(zip(parts, rects, strict=True)):
            if part is lost:
                tooltip = "not attributed to a block"
                cells.append(TreemapCell(rect, None, (UNATTRIBUTED_LABEL,), value, tooltip, is_least=part.is_least))
                continue
            path, is_least, repeat = part.path, part.is_least, part.repeat
            # The names of the blocks around a block that have the same colour belong to its name.
            is_in_hue = hue_or_grey(path.rpartition("/")[0], hues) != NO_HUE
            inner = (*names, part.label) if is_in_hue else (part.label,)
            tooltip = path_text(path)
            if part is branch:  # its own cost
                inner = (*names[:-1], f"{branch.label or _PROGRAM}{_OWN}") if branch.inside else names or (_PROGRAM,)
                tooltip = (tooltip or _PROGRAM) + (", without the blocks inside" if branch.inside else "")
                is_least = branch.is_bound
            elif not part.label:
                path, repeat, inner = branch.path, 1, (*names, f"{len(part.inside)} small")
                tooltip = ", ".join(child.label for child in part.inside[:8]) + (" …" if len(part.inside) > 8 else "")
            elif part.inside and value >= least:
                divide(part, rect, inner)
                continue
            hue = hue_or_grey(path, hues)
            # Neighbours of one hue differ in their tint.
            cells.append(TreemapCell(rect, path, inner, value, tooltip, repeat, hue, at % _TINTS, is_least))

    divide(tree, within, (), lost)
    names = BlockNames(cell.names for cell in cells)
    return [_labelled(cell, kind, total, names) for cell in cells]


def _lost(data: Data, kind: Field) -> Branch:
    figures = data["unattributed"]
    return Branch("", UNATTRIBUTED_LABEL, figures.get(kind.name) or 0, is_bound=is_bound(figures, kind.name))


def _labelled(cell: TreemapCell, kind: Field, total: float, names: BlockNames) -> TreemapCell:
    rect = cell.rect
    # Edges are rounded, not sizes, so that there is no gap between neighbours.
    left, top, right, bottom = (round(edge, 1) for edge in (rect.x, rect.y, rect.right, rect.bottom))
    rect = Rect(left, top, round(right - left, 1), round(bottom - top, 1))
    cell = replace(cell, rect=rect)
    room = rect.w - 2 * _PAD
    size = LARGE if rect.w > 150 and rect.h > 70 else NORMAL
    name = names.fitting(cell.names, cell.repeat, size, room)
    if not name or rect.h < size + 7:
        return cell
    rows = [Label(rect.x + _PAD, rect.y + _PAD + size - 2, name, size, bold=True)]
    value, share = at_least(kind.short(cell.value), cell.is_least), percent(cell.value / total)
    both = f"{value} · {share}"
    for text in [both] if text_width(both, NORMAL) <= room else [value, share]:
        at = rows[-1].y + NORMAL + 4
        if text_width(text, NORMAL) <= room and at + 5 <= rect.bottom:
            rows.append(Label(rect.x + _PAD, at, text, NORMAL))
    beside = rect.x + _PAD + rows[0].width + 10
    for text in (both, share):
        if len(rows) == 1 and beside + text_width(text, NORMAL) <= rect.right - _PAD:
            rows.append(Label(beside, rows[0].y, text, NORMAL))
    return replace(cell, labels=tuple(rows))


def _svg(data: Data, kind: Field, width: int) -> str:
    page = CostPage(data, kind, f"{kind.title} by block", width)
    height = round(max(180, min(400, width * 0.5)))
    within = Rect(MARGIN, HEAD_H, width - 2 * MARGIN, height)
    cells, hues = cells_of(data, kind.name, within), hues_of(data)
    if not cells:
        return page.explain(reason_of(data, kind))
    total = sum(cell.value for cell in cells)
    by_entry = defaultdict[str, list[TreemapCell]](list)  # of the legend
    for cell in cells:
        by_entry[_entry(cell, hues)].append(cell)
    entries = [
        (name, max(group, key=lambda cell: cell.value), sum(cell.value for cell in group))
        for name, group in by_entry.items()
    ]
    entries.sort(key=lambda entry: -entry[2])
    # The loss and the optimizer have no hue: without patterns, both would be the same grey.
    greys = [name for name, cell, _ in entries if cell.hue == NO_HUE and cell.path is not None]
    patterns = {name: at for at, name in enumerate(greys, 1)}  # from 1, because the last hue is a plain grey
    for cell in cells:
        _draw(page, cell, kind, total, patterns.get(_entry(cell, hues), 0))
    page.y = within.bottom + FOOT
    labels = {name: f"{name} {percent(value / total)}" for name, _, value in entries}
    if any(not cell.labels or len(cell.names) > 1 for cell in cells):
        page.legend(
            [("" if cell.path is None else cell.tone, labels[name]) for name, cell, _ in entries],
            {labels[name]: pattern for name, pattern in patterns.items()},
        )
    for text in _missing(data, kind):
        page.note(text)
    largest = ", ".join(list(labels.values())[:8])
    return page.svg(f"{kind.title} of {len(cells)} parts; the largest blocks are {largest}.")


def _draw(page: CostPage, cell: TreemapCell, kind: Field, total: float, pattern: int) -> None:
    rect, tone = cell.rect, cell.tone
    exact = at_least(kind.exact(cell.value), cell.is_least)
    page.open(f"{times(cell.tooltip, cell.repeat)}\n{exact}, {percent(cell.value / total)}", "cell", cell.path or "")
    # A cell of less than three gaps would vanish between them.
    gap_x, gap_y = (_GAP if side > 3 * _GAP else 0.0 for side in (rect.w, rect.h))
    area = rect.x + gap_x, rect.y + gap_y, rect.w - 2 * gap_x, rect.h - 2 * gap_y
    page.rect(*area, tone)
    page.striped(*area, pattern)
    if cell.path is None:
        page.hatched(rect.x + 1, rect.y + 1, rect.w - 2, rect.h - 2, "line")
    for label in cell.labels:
        halo = cell.path is None
        page.text(label.x, label.y, label.text, f"on {tone}", size=label.size, bold=label.bold, halo=halo)
    page.close()


def _entry(cell: TreemapCell, hues: Mapping[str, int]) -> str:
    if cell.path is None:
        return UNATTRIBUTED_LABEL
    own = cell.path
    while own and own not in hues:
        own = own.rpartition("/")[0]
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

    rows: list[tuple[str, str, float]] = []
    hidden = 0
    for branch, depth in _deep(tree, -1):
        if depth >= 0 and branch.value < LEAST_LISTED * total:
            hidden += branch.own is not None
        elif depth >= 0:
            name = "  " * depth + times(branch.label, branch.repeat)
            rows.append((name, at_least(kind.short(branch.value), branch.is_least), branch.value))
    if lost.value:
        rows.append((lost.label, at_least(kind.short(lost.value), lost.is_least), lost.value))
    end = ("total", whole_text(data, kind), "100 %", "")
    return "\n".join((head, *share_table(kind.title, rows, total, hidden, end), *_missing(data, kind)))


def _deep(branch: Branch, depth: int) -> Iterator[tuple[Branch, int]]:
    yield branch, depth
    parts = [*branch.inside]
    if parts and branch.own:
        parts.append(Branch(branch.path, "(self)", branch.own, is_bound=branch.is_bound))
    for part in sorted(parts, key=lambda part: -part.value):
        yield from _deep(part, depth + 1)


def squarify(values: Sequence[float], within: Rect) -> list[Rect]:
    """Divide a rectangle into one rectangle for each value, the largest first, with areas proportional to the values.

    The algorithm is that of Bruls, Huizing and van Wijk, "Squarified Treemaps" (2000). It fills the rectangle with rows
    along the shorter side. A value is added to a row if the rectangles in the row become more square.
    """
    rects: list[Rect] = []
    rest = [*values]
    while rest:
        scale, side = within.area / sum(rest), min(within.w, within.h)
        count = 1
        while count < len(rest) and _worst(rest[: count + 1], scale, side) <= _worst(rest[:count], scale, side):
            count += 1
        row, rest = rest[:count], rest[count:]
        total = sum(row)
        share = total / (total + sum(rest))
        upright = within.w >= within.h
        side, depth = (within.h, within.w * share) if upright else (within.w, within.h * share)
        at = 0.0
        for value in row[:-1]:
            part = side * value / total
            rects.append(_part_of(within, upright, at, part, depth))
            at += part
        # The last part takes what is left, so that rounding errors leave no gap.
        rects.append(_part_of(within, upright, at, side - at, depth))
        if upright:
            within = Rect(within.x + depth, within.y, within.w - depth, within.h)
        else:
            within = Rect(within.x, within.y + depth, within.w, within.h - depth)
    return rects


def _part_of(within: Rect, upright: bool, at: float, part: float, depth: float) -> Rect:
    if upright:
        return Rect(within.x, within.y + at, depth, part)
    return Rect(within.x + at, within.y, part, depth)


def _worst(row: Sequence[float], scale: float, side: float) -> float:
    total = sum(row) * scale
    if not total or not side:
        return float("inf")
    return max(side * side * max(row) * scale / total**2, total**2 / (side * side * min(row) * scale))
