"""A graph with what each of its blocks costs: the dearer the darker, or in the dark the brighter, with the number."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from mithril_nb.errors import UnknownOptionError
from mithril_nb.graph.records import LogicalGraph
from mithril_nb.graph.spec import TensorSpec
from mithril_nb.viz import sizes
from mithril_nb.viz.costs.blocks import path_text, times
from mithril_nb.viz.costs.drawable import drawable
from mithril_nb.viz.costs.drawing import Drawing
from mithril_nb.viz.costs.fields import OF_KNOWN, Data, Field, at_least, field_of, is_bound, notes_of, reason_of
from mithril_nb.viz.costs.page import FOOT, HEAD_H, Page
from mithril_nb.viz.costs.sheet import NORMAL, SMALL, Sheet, number
from mithril_nb.viz.costs.shown_on import graph_of, opened_in
from mithril_nb.viz.costs.squares import Rect
from mithril_nb.viz.escape import one_line
from mithril_nb.viz.palette import HUES
from mithril_nb.viz.picture import picture
from mithril_nb.viz.records import DiagramNode, Point
from mithril_nb.viz.svg import arrow, curve_path
from mithril_nb.viz.text import columns
from mithril_nb.viz.textwidth import elided, text_width
from mithril_nb.viz.units import percent

if TYPE_CHECKING:
    from mithril_nb.stages.graph.stage_graph import StageGraph
    from mithril_nb.viz.stage_diagram import StageBox

FIELDS = ("flops", "bytes_accessed", "params", "time_s", "transcendentals")
_CALL = 'cost.overlay(inspection, "{}")'
STEPS = (0.01, 0.03, 0.1, 0.3, 0.6)
"""Shares of the whole at which the next tone begins."""
_STEP_TEXTS = ("< 1 %", "1–3 %", "3–10 %", "10–30 %", "30–60 %", "≥ 60 %")
_NARROWEST = 450
_INSET, _SHORTEST = 8, 28
"""How far from its edge the head of a frame is written, and how much room its name has at least, in px."""
_MOST_ALIKE = 8
"""More blocks than these at the top, and equal ones in a row are drawn as one."""


@dataclass(frozen=True)
class Box:
    """A node of a graph, where it is drawn.

    Attributes:
        rect: Where.
        path: Path of its block; `""` if it is none, or costs nothing of its own that is known.
        kind: What kind of block it is, or `""`.
        name: Its name.
        about: What else to know of it.
        shape: What it gives.
        hue: Index of its hue.
        share: Its share of the whole; `None` if unknown.
        repeat: How many equal blocks it stands for.
        is_frame: Whether what is inside is drawn.
        is_block: Whether it is a block, and no input or output.
        together: What all nodes of its block cost, if nobody knows how much of it is this one's.
        is_least: Whether what it costs is a lower bound.
    """

    rect: Rect
    path: str
    kind: str
    name: str
    about: str
    shape: str
    hue: int
    share: float | None
    repeat: int
    is_frame: bool
    is_block: bool
    together: float | None = None
    is_least: bool = False

    def told(self, written: Callable[[float | None], str], value: float | None) -> str:
        """Return what it costs in words, as a lower bound if it is one."""
        return at_least(written(value), self.is_least and bool(value))


@dataclass(frozen=True)
class Wire:
    """Data on its way: a path and its last two points, between which the arrow stands."""

    d: str
    end: tuple[Point, Point] | None
    told: str


def overlay_of(data: Data, target: Any, field: str = "flops", expanded: Collection[str] = ()) -> Drawing:
    """Return what `overlay` or `stage_overlay` draw, whichever is for this graph.

    Args:
        data: The costs.
        target: A logical graph, a model that has one, a stage's graph, or an inspection, of which it is that of the
            jaxpr.
        field: What is shown, one of `FIELDS`.
        expanded: Which groups to open.

    Raises:
        UnknownOptionError: There is no such field, these are not the costs of this graph, or it is no graph.
        UnknownBlockError: It has no such group.
    """
    graph = graph_of(target, str(data["program"]))
    opened = opened_in(graph, expanded)
    if isinstance(graph, LogicalGraph):
        return overlay(data, graph, field, getattr(target, "input_specs", None), opened)
    return stage_overlay(data, graph, field, opened or None)


def overlay(
    data: Data,
    graph: LogicalGraph,
    field: str = "flops",
    inputs: Mapping[str, TensorSpec] | None = None,
    expanded: Collection[str] = frozenset(),
) -> Drawing:
    """Return a logical graph with the cost of each block.

    Args:
        data: The costs, as `Cost.to_dict()` gives them.
        graph: The graph of the model that they are of.
        field: What is shown, one of `FIELDS`.
        inputs: Specs of the graph's inputs.
        expanded: Paths of the groups whose insides are drawn.

    Raises:
        UnknownOptionError: There is no such field, or these are not the costs of this graph.
    """
    kind, data = field_of(field, FIELDS, _CALL), drawable(data)
    values = inclusive(data, field)
    paths = [path for path, _ in graph.walk()]
    _check_blocks(data, values, paths)
    shares = _shares(data, kind, values)
    of_graph = {path: share for path, share in shares.items() if path in paths}
    made = picture(graph, inputs, of_graph, expanded, fold=not expanded and len(graph.nodes) > _MOST_ALIKE)
    least = _bounds(data, kind)
    boxes = [_box(node, node.path in least) for node in made.diagram.nodes]
    wires = [_curve(edge.points, f"{edge.id} {edge.shape}") for edge in made.diagram.edges]
    inside = sum(values.get(node.name) or 0 for node in graph.nodes)
    return _drawing(data, kind, boxes, wires, (made.diagram.width, made.diagram.height), inside)


def stage_overlay(
    data: Data, graph: StageGraph, field: str = "flops", opened: Collection[str] | None = None
) -> Drawing:
    """Return the graph of a stage with the cost of each block.

    Args:
        data: The costs, as `Cost.to_dict()` gives them.
        graph: The graph, as `Inspection.graph` gives it.
        field: What is shown, one of `FIELDS`.
        opened: Keys of the nodes whose insides are drawn; default: the dearest, as far as there is room.

    Raises:
        UnknownOptionError: There is no such field, or these are not the costs of this graph.
    """
    from mithril_nb.viz.stage_diagram import stage_layout  # imports JAX, which is there if there is such a graph
    from mithril_nb.viz.stage_diagram_svg import rounded_path

    kind, data = field_of(field, FIELDS, _CALL), drawable(data)
    values = inclusive(data, field)
    blocks = (node.block for node in graph.nodes.values() if node.kind == "block" and node.block)
    _check_blocks(data, values, dict.fromkeys(blocks))
    least = _bounds(data, kind)
    diagram = stage_layout(graph, opened=opened, shares=_shares(data, kind, values))

    def share_of(box: StageBox) -> float | None:
        # A block without costs has none of its own: what stands in it is of other blocks.
        is_idle = box.node.kind == "block" and box.node.block not in values
        return 0.0 if is_idle else box.share

    boxes = [
        Box(
            Rect(box.x, box.y, box.w, box.h), box.node.block if box.node.kind == "block" else "", "", box.node.name,
            box.node.note, box.node.shape, box.hue, share_of(box), box.node.repeat, box.opened,
            box.node.kind == "block",
            values.get(box.node.block) if share_of(box) is None and box.node.kind == "block" else None,
            box.node.kind == "block" and box.node.block in least,
        )
        for box in diagram.boxes
    ]  # fmt: skip
    wires = [
        Wire(
            rounded_path(wire.points),
            (wire.points[-2], wire.points[-1]) if wire.is_end else None,
            f"{wire.source} → {wire.target} {wire.shape}",
        )
        for wire in diagram.wires
    ]
    tops = {path.partition("/")[0] for path in graph.nodes if path}
    inside = sum(value or 0 for path, value in values.items() if path in tops)
    return _drawing(data, kind, boxes, wires, (diagram.width, diagram.height), inside)


def inclusive(data: Data, field: str) -> dict[str, float | None]:
    """Return what each block costs with the blocks inside it; `None` if nothing of it is known.

    Examples:
        >>> inclusive({"by_block": {"a/b": {"flops": 2}, "a/c": {"flops": 3}, "d": {"flops": None}}}, "flops")
        {'a': 5, 'a/b': 2, 'a/c': 3, 'd': None}
    """
    found: dict[str, float | None] = {}
    for path, figures in data["by_block"].items():
        value = figures.get(field)
        for above in accumulate(path.split("/"), lambda one, name: f"{one}/{name}"):
            before = found.setdefault(above, None)
            if value is not None:
                found[above] = (before or 0) + value
    return found


def _bounds(data: Data, kind: Field) -> set[str]:
    """Return the paths of blocks within which something is unknown."""
    return {
        above
        for path, figures in data["by_block"].items()
        if figures.get(kind.name) is None or is_bound(figures, kind.name)
        for above in accumulate(path.split("/"), lambda one, name: f"{one}/{name}")
    }


def level_of(share: float) -> int:
    """Return which tone of the scale a share of the whole has.

    Examples:
        >>> level_of(0.004), level_of(0.03), level_of(1.0)
        (0, 2, 5)
    """
    return sum(share >= step for step in STEPS)


def _shares(data: Data, kind: Field, values: Mapping[str, float | None]) -> dict[str, float]:
    total = data["total"].get(kind.name)
    return {path: value / total for path, value in values.items() if value is not None} if total else {}


def _check_blocks(data: Data, values: Mapping[str, float | None], paths: Collection[str]) -> None:
    """Raise if both name blocks, and none in common."""
    if not paths or not values or values.keys() & set(paths):
        return
    raise UnknownOptionError(
        f"the costs of {data['program']!r} name no block of this graph.",
        (("costs", _few(values)), ("graph", _few(paths))),
        "inspection.cost().overlay(inspection)",
    )


def _few(paths: Collection[str]) -> str:
    names = [path_text(path) for path in paths]
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "") if names else "none"


def _box(node: DiagramNode, is_least: bool) -> Box:
    return Box(
        Rect(node.x, node.y, node.w, node.h), node.path, node.kind if node.path else "", node.name, node.label,
        node.shape, node.hue % HUES, node.share, node.repeat, node.expanded, bool(node.path),
        is_least=is_least,
    )  # fmt: skip


def _curve(points: tuple[Point, ...], told: str) -> Wire:
    return Wire(curve_path(points), (points[-2], points[-1]), told)


def _drawing(
    data: Data, kind: Field, boxes: list[Box], wires: list[Wire], size: tuple[float, float], inside: float
) -> Drawing:
    total = data["total"].get(kind.name)
    outside = None if total is None or kind.name == "time_s" else total - inside
    return Drawing(_svg(data, kind, boxes, wires, size, outside), _text(data, kind, boxes, outside))


def _svg(
    data: Data, kind: Field, boxes: list[Box], wires: list[Wire], size: tuple[float, float], outside: float | None
) -> str:
    width = max(_NARROWEST, round(size[0]))
    page = Page(data, kind, f"{kind.title} by block", width)
    total = data["total"].get(kind.name)
    page.sheet.shift((width - size[0]) / 2, HEAD_H - 4)
    for box in boxes:
        if box.is_frame:
            _frame(page.sheet, box, kind, total)
    for wire in wires:
        _wire(page.sheet, wire)
    for box in boxes:
        if not box.is_frame:
            _node(page.sheet, box, kind, total)
    page.sheet.close()
    page.y = HEAD_H + size[1] + FOOT
    page.sheet.text(8, page.y + 10, "share of the whole", "muted")
    page.y += 17
    page.legend([(f"heat{at}", text) for at, text in enumerate(_STEP_TEXTS)])
    for note in _notes(data, kind, boxes, outside):
        page.note(note)
    dear = sorted((box for box in boxes if box.share and not box.is_frame), key=lambda box: -(box.share or 0))
    told = ", ".join(f"{one_line(box.name)} {percent(box.share)}" for box in dear[:6])
    return page.svg(f"{kind.title} of {sum(box.is_block for box in boxes)} blocks; most have {told or 'none'}.")


def _notes(data: Data, kind: Field, boxes: list[Box], outside: float | None) -> list[str]:
    total = data["total"].get(kind.name)
    if not total:
        return [reason_of(data, kind)]
    found = [f"not of this graph: {kind.short(outside)}, {percent(outside / total)}"] if outside else []
    if any(box.share is None and box.together is not None for box in boxes):
        found.append("Σ: what all calls of a function cost together; how much of it one of them costs is not known")
    if is_bound(data["total"], kind.name):
        found.append(OF_KNOWN)
    return [*found, *notes_of(data, kind.name)]


def _value(box: Box, kind: Field, total: float | None) -> float | None:
    """Return what a box costs: whole numbers come back exactly from their shares."""
    if box.share is None or total is None:
        return None
    return box.share * total if kind.name == "time_s" else round(box.share * total)


def _shown(box: Box, kind: Field, value: float | None) -> str:
    """Return the number as it stands in a box: of calls of one function only their sum may be known."""
    if value is None and box.together is not None:
        return f"Σ {box.told(kind.short, box.together)}"
    return "unknown" if value is None else box.told(kind.short, value)


def _told(box: Box, kind: Field, total: float | None) -> str:
    name = times(f"{one_line(box.kind)} {one_line(box.name)}".strip(), box.repeat)
    parts = [name, *(one_line(part) for part in (box.about, box.shape) if part)]
    if box.is_block:
        value = _value(box, kind, total)
        share = "" if box.share is None else f", {percent(box.share)}"
        if value is None and box.together is not None:
            together = box.told(kind.exact, box.together)
            parts.append(f"{kind.title} of all calls together: {together}; of this one unknown")
        else:
            parts.append(f"{kind.title}: {box.told(kind.exact, value)}{share}")
    return "\n".join(parts)


def _node(sheet: Sheet, box: Box, kind: Field, total: float | None) -> None:
    rect = box.rect
    sheet.open(_told(box, kind, total), "node", box.path or None)
    value = _value(box, kind, total)
    tone = "surface" if not box.is_block or box.share is None else f"heat{level_of(box.share)}"
    corner = 4.0 if box.is_block else min(rect.h / 2, 17.0)
    dash = "4 3" if box.is_block and box.share is None else ""
    for off in (4, 2) if box.repeat > 1 else ():  # a pile says that it stands for more than one
        sheet.rect(rect.x + off, rect.y - off, rect.w - off, rect.h, tone, stroke="line", rx=corner)
    sheet.rect(rect.x, rect.y, rect.w, rect.h, tone, stroke="wire" if dash else "line", rx=corner, dash=dash)
    ink = f"on {tone}"
    left, right = rect.x + sizes.LEFT, rect.x + rect.w - sizes.RIGHT
    name = times(one_line(box.name), box.repeat)
    if not box.is_block:
        shape = one_line(box.shape)
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
    sheet.path(
        f"M{number(rect.x + 6)} {number(rect.y)}h-2a4 4 0 0 0 -4 4v{number(rect.h - 8)}a4 4 0 0 0 4 4h2z",
        fill=f"hue{box.hue}",
        stroke="ground",
    )
    upper = (one_line(box.kind), one_line(box.about)) if box.kind else ("", "")
    lower = (name, one_line(box.shape or ("" if box.kind else box.about)))
    shown = _shown(box, kind, value)
    rows = [(*upper, NORMAL, False)] if box.kind else []
    rows += [(*lower, sizes.NAME_SIZE, True), (shown, percent(box.share) if value is not None else "", NORMAL, False)]
    step = rect.h / (len(rows) + 0.35)
    for at, (one, other, size, bold) in enumerate(rows):
        y = rect.y + step * (at + 0.85)
        _row(sheet, left, right, y, one, other, ink, size, bold)
    sheet.close()


def _row(
    sheet: Sheet, left: float, right: float, y: float, one: str, other: str, ink: str, size: float, bold: bool
) -> None:
    """Write two texts into one row; the second only if the first keeps most of the room."""
    room = right - left
    first = text_width(one, size, bold=bold)
    if other and first + 8 + text_width(other, SMALL) > room:
        other = elided(other, SMALL, max(room - first - 8, room * 0.35)) if bold else ""
    spare = room - (text_width(other, SMALL) + 8 if other else 0)
    sheet.text(left, y, one, ink, bold=bold, room=spare)
    if len(other) > 1:
        sheet.text(right, y, other, ink, size=SMALL, anchor="end")


def _frame(sheet: Sheet, box: Box, kind: Field, total: float | None) -> None:
    rect = box.rect
    sheet.open(_told(box, kind, total), "frame", box.path or None)
    sheet.rect(rect.x, rect.y, rect.w, rect.h, "ground", stroke=f"hue{box.hue}", rx=6)
    value = _value(box, kind, total)
    shown = "" if not box.is_block else _shown(box, kind, value)
    both = shown if value is None else f"{shown} · {percent(box.share)}"
    whole = times(one_line(box.name), box.repeat)
    room = rect.w - 2 * _INSET
    if shown and text_width(whole, sizes.NAME_SIZE, bold=True) + _INSET + text_width(both, NORMAL) > room:
        both = shown  # the figure stays, and its share is told by whoever points at it
    least = _INSET + text_width(both, NORMAL) if both else 0
    name = elided(whole, sizes.NAME_SIZE, max(room - least, _SHORTEST), bold=True)
    sheet.text(rect.x + _INSET, rect.y + 17, name, size=sizes.NAME_SIZE, bold=True, halo=True)
    used = 2 * _INSET + text_width(name, sizes.NAME_SIZE, bold=True)
    if both:
        sheet.text(rect.x + used, rect.y + 17, both, "muted", halo=True, room=rect.w - used - 2)
    sheet.close()


def _wire(sheet: Sheet, wire: Wire) -> None:
    sheet.open(wire.told, "edge")
    sheet.path(wire.d, stroke="wire", width=1.5)
    if wire.end is not None:
        (x0, y0), (x1, y1) = wire.end
        sheet.path(arrow(x0, y0, x1, y1), fill="wire")
    sheet.close()


def _text(data: Data, kind: Field, boxes: list[Box], outside: float | None) -> str:
    total = data["total"].get(kind.name)
    head = f"{one_line(str(data['program']))}: {kind.title} by block of its graph, {data['source']}"
    rows: list[tuple[str, ...]] = [("block", "", kind.title, "share")]
    for box in boxes:
        if box.is_block:
            share = "" if box.share is None else percent(box.share)
            name = times(path_text(box.path) if box.path else one_line(box.name), box.repeat)
            rows.append((name, one_line(box.kind), _shown(box, kind, _value(box, kind, total)), share))
    return "\n".join((head, columns(rows, right=frozenset({2, 3})), *_notes(data, kind, boxes, outside)))
