"""Boxes and wires of a graph with costs: tones by share of the total, and titles placed away from wires."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from mithril_nb.viz.costs.canvas.svg_canvas import NORMAL, SMALL, SvgCanvas
from mithril_nb.viz.costs.fields import Field, at_least
from mithril_nb.viz.diagrams.labels import LEFT, NAME_SIZE, RIGHT
from mithril_nb.viz.diagrams.scene import SceneEdge, SceneNode
from mithril_nb.viz.diagrams.svg import edge_path, edge_points
from mithril_nb.viz.diagrams.svg_nodes import strip_path
from mithril_nb.viz.palette import HUES
from mithril_nb.viz.svg import Point, arrow
from mithril_nb.viz.text import elide, one_line, text_width, times
from mithril_nb.viz.units import percent

STEPS = (0.01, 0.03, 0.1, 0.3, 0.6)
"""Shares of the total at which the next tone begins."""
_INSET, _SHORTEST = 8, 28
"""Distance of a frame's title from its edge, and least room for its name, in px."""
_TITLE, _CLEAR = (5, 22), 4
"""Vertical range of a frame's title, and its distance from a wire, in px."""


@dataclass(frozen=True)
class Box:
    """A node of a scene with its cost.

    Attributes:
        node: The node; its share is its share of the total, and its path is `""` if it has no known cost.
        kind: Kind of the block, or `""`.
        is_block: True if it is a block rather than an input or output.
        together: Cost of all nodes of its block, if this node's part is unknown.
        is_least: True if its cost is a lower bound.
    """

    node: SceneNode
    kind: str
    is_block: bool
    together: float | None = None
    is_least: bool = False

    def bounded(self, written: Callable[[float | None], str], value: float | None) -> str:
        """Format its cost, marked as a lower bound if it is one."""
        return at_least(written(value), self.is_least and bool(value))

    def value(self, kind: Field, total: float | None) -> float | None:
        """Return its cost; rounding restores whole numbers exactly from their shares."""
        if self.node.share is None or total is None:
            return None
        return self.node.share * total if kind.name == "time_s" else round(self.node.share * total)

    def shown(self, kind: Field, total: float | None) -> str:
        """Format its cost as shown in the box; for calls of a function only their sum may be known."""
        value = self.value(kind, total)
        if value is None and self.together is not None:
            return f"Σ {self.bounded(kind.short, self.together)}"
        return "unknown" if value is None else self.bounded(kind.short, value)


def _across(
    points: Sequence[Point], left: float, top: float, right: float, bottom: float
) -> Iterator[tuple[float, float]]:
    """Yield the horizontal intervals in which a line crosses a rectangle."""
    for (x0, y0), (x1, y1) in pairwise(points):
        low, high = max(min(y0, y1), top), min(max(y0, y1), bottom)
        if low > high:
            continue
        ends = [x0, x1] if y0 == y1 else [x0 + (x1 - x0) * (at - y0) / (y1 - y0) for at in (low, high)]
        if min(ends) <= right and max(ends) >= left:
            yield min(ends), max(ends)


def draw(sheet: SvgCanvas, boxes: Sequence[Box], edges: Sequence[SceneEdge], kind: Field, total: float | None) -> None:
    """Draw boxes and edges: frames at the bottom, titles on top.

    Args:
        sheet: The sheet to draw on.
        boxes: The boxes.
        edges: The edges.
        kind: Field to show.
        total: Total of the field; `None` if unknown.
    """
    frames = [box for box in boxes if box.node.expanded]
    lines = [edge_points(edge) for edge in edges]
    for box in frames:
        _frame(sheet, box, kind, total)
    for edge in edges:
        _edge(sheet, edge)
    for box in boxes:
        if not box.node.expanded:
            _node(sheet, box, kind, total)
    for box in frames:
        _title(sheet, box, kind, total, lines)


def level_of(share: float) -> int:
    """Return the tone level for a share of the total.

    Examples:
        >>> level_of(0.004), level_of(0.03), level_of(1.0)
        (0, 2, 5)
    """
    return sum(share >= step for step in STEPS)


def _tooltip(box: Box, kind: Field, total: float | None) -> str:
    name = times(f"{one_line(box.kind)} {one_line(box.node.name)}".strip(), box.node.repeat)
    parts = [name, *(one_line(part) for part in (box.node.label, box.node.shape) if part)]
    if box.is_block:
        value = box.value(kind, total)
        share = "" if box.node.share is None else f", {percent(box.node.share)}"
        if value is None and box.together is not None:
            together = box.bounded(kind.exact, box.together)
            parts.append(f"{kind.title} of all calls together: {together}; of this call: unknown")
        else:
            parts.append(f"{kind.title}: {box.bounded(kind.exact, value)}{share}")
    return "\n".join(parts)


def _node(sheet: SvgCanvas, box: Box, kind: Field, total: float | None) -> None:
    rect = box.node
    sheet.open(_tooltip(box, kind, total), "node", box.node.path or None)
    value = box.value(kind, total)
    tone = "surface" if not box.is_block or box.node.share is None else f"heat{level_of(box.node.share)}"
    corner = 4.0 if box.is_block else min(rect.h / 2, 17.0)
    dash = "4 3" if box.is_block and box.node.share is None else ""
    for off in (4, 2) if box.node.repeat > 1 else ():  # a stack of boxes marks a repeated node
        sheet.rect(rect.x + off, rect.y - off, rect.w - off, rect.h, tone, stroke="line", rx=corner)
    sheet.rect(rect.x, rect.y, rect.w, rect.h, tone, stroke="wire" if dash else "line", rx=corner, dash=dash)
    ink = f"on {tone}"
    left, right = rect.x + LEFT, rect.x + rect.w - RIGHT
    name = times(one_line(box.node.name), box.node.repeat)
    if not box.is_block:
        shape = one_line(box.node.shape)
        both = f"{name} {shape}".strip()
        if rect.h < 34 or not shape:
            sheet.text(rect.x + rect.w / 2, rect.y + rect.h / 2 + 4, both, ink, anchor="middle",
                       room=rect.w - 20)  # fmt: skip
        else:
            sheet.text(rect.x + rect.w / 2, rect.y + 14.5, name, ink, bold=True, anchor="middle",
                       room=rect.w - 20)  # fmt: skip
            sheet.text(rect.x + rect.w / 2, rect.y + 27, shape, ink, size=SMALL, anchor="middle", room=rect.w - 20)
        sheet.close()
        return
    sheet.path(strip_path(rect), fill=f"hue{rect.hue % HUES}", stroke="ground")
    upper = (one_line(box.kind), one_line(box.node.label)) if box.kind else ("", "")
    lower = (name, one_line(box.node.shape or ("" if box.kind else box.node.label)))
    shown = box.shown(kind, total)
    rows = [(*upper, NORMAL, False)] if box.kind else []
    rows += [
        (*lower, NAME_SIZE, True),
        (shown, percent(box.node.share) if value is not None else "", NORMAL, False),
    ]
    step = rect.h / (len(rows) + 0.35)
    for at, (one, other, size, bold) in enumerate(rows):
        y = rect.y + step * (at + 0.85)
        _row(sheet, left, right, y, one, other, ink, size, bold)
    sheet.close()


def _row(
    sheet: SvgCanvas, left: float, right: float, y: float, one: str, other: str, ink: str, size: float, bold: bool
) -> None:
    """Write two texts into one row.

    If they do not both fit, the second is shortened in a bold row, and left out otherwise.
    """
    room = right - left
    first = text_width(one, size, bold=bold)
    if other and first + 8 + text_width(other, SMALL) > room:
        other = elide(other, SMALL, max(room - first - 8, room * 0.35)) if bold else ""
    spare = room - (text_width(other, SMALL) + 8 if other else 0)
    sheet.text(left, y, one, ink, bold=bold, room=spare)
    if len(other) > 1:
        sheet.text(right, y, other, ink, size=SMALL, anchor="end")


def _frame(sheet: SvgCanvas, box: Box, kind: Field, total: float | None) -> None:
    sheet.open(_tooltip(box, kind, total), "frame", box.node.path or None)
    sheet.rect(box.node.x, box.node.y, box.node.w, box.node.h, "ground", stroke=f"hue{box.node.hue % HUES}", rx=6)
    sheet.close()


def _title(sheet: SvgCanvas, box: Box, kind: Field, total: float | None, lines: Sequence[Sequence[Point]]) -> None:
    """Write the name and the cost of a frame between wires, or over the wires if they do not fit."""
    shown = box.shown(kind, total) if box.is_block else ""
    both = shown if box.value(kind, total) is None else f"{shown} · {percent(box.node.share)}"
    whole, y = times(one_line(box.node.name), box.node.repeat), box.node.y + 17
    place = None
    for figure in dict.fromkeys((both, shown)):  # without room for the share, only the tooltip has it
        place = place or _places(box.node, (whole, figure), lines)
    if place is None:
        figure = shown
        spare = box.node.w - 2 * _INSET - (_INSET + text_width(figure, NORMAL) if figure else 0)
        whole = elide(whole, NAME_SIZE, max(spare, _SHORTEST), bold=True)
        left = box.node.x + _INSET
        place = figure, left, left + _INSET + text_width(whole, NAME_SIZE, bold=True)
    figure, left, right = place
    sheet.open(_tooltip(box, kind, total), "frame", box.node.path or None)
    sheet.text(left, y, whole, size=NAME_SIZE, bold=True, halo=True)
    if figure:
        sheet.text(right, y, figure, "muted", halo=True, room=box.node.x + box.node.w - right - 2)
    sheet.close()


def _places(
    rect: SceneNode, texts: tuple[str, str], lines: Sequence[Sequence[Point]]
) -> tuple[str, float, float] | None:
    """Return the cost of a frame, and the positions of name and cost; `None` if they do not fit between wires."""
    name, figure = texts
    widths = text_width(name, NAME_SIZE, bold=True), text_width(figure, NORMAL)
    free = _free(rect, lines)
    for at, (left, right) in enumerate(free):
        if left + widths[0] > right:
            continue
        beside = left + widths[0] + _INSET
        if not figure or beside + widths[1] <= right:
            return figure, left, beside
        for begin, end in reversed(free[at + 1 :]):
            if begin + widths[1] <= end:
                return figure, left, end - widths[1]
    return None


def _free(rect: SceneNode, lines: Sequence[Sequence[Point]]) -> list[tuple[float, float]]:
    """Return the horizontal intervals of a frame's title that no wire crosses, from left to right."""
    left, right = rect.x + _INSET, rect.x + rect.w - _INSET
    top, bottom = (rect.y + at for at in _TITLE)
    found: list[tuple[float, float]] = []
    for begin, end in sorted(span for line in lines for span in _across(line, left, top, right, bottom)):
        found.append((left, begin - _CLEAR))
        left = max(left, end + _CLEAR)
    return [(begin, end) for begin, end in (*found, (left, right)) if end > begin]


def _edge(sheet: SvgCanvas, edge: SceneEdge) -> None:
    sheet.open(f"{edge.label} {edge.shape}", "edge")
    sheet.path(edge_path(edge), stroke="wire", width=1.5)
    if edge.is_end:
        sheet.path(arrow(*edge.points[-2:]), fill="wire")
    sheet.close()
