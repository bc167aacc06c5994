"""Layout of a nested graph: positions for boxes and wires, in rows that are read like text.

The graph has levels: the top level, and one inside each group. A group is a box that contains others. The content of an
open group is laid out first; the group is then one large box on the level around it. Opening a group thus moves other
boxes only as far as necessary.

The front end contains the same algorithm, in its folder `layout`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from mithril_nb.viz.diagrams.labels import ports_at
from mithril_nb.viz.diagrams.nested import ROOT, Box, NestedGraph, Piece, end_id
from mithril_nb.viz.diagrams.rows import End, Net, Part, Way, arrange_lines
from mithril_nb.viz.diagrams.scene import Level, Scene, SceneEdge, SceneNode, ScenePort
from mithril_nb.viz.svg import Point

MARGIN = 12
PAD = 10
TITLE_H = 28
_EMPTY = {":": Part(24, 16, {}, {})}
"""Placed inside a group without boxes, so that wires through the group have room."""
_WIDE = 208
"""Boxes of a level that are at most this wide, in px, get the same width. Rows of boxes then form columns."""
FIRST_VIEW = (900, 520)
"""Width and height in px that the first picture may have."""


def layout(graph: NestedGraph, opened: Collection[str] = (), moved: Mapping[str, Point] | None = None) -> Scene:
    """Return a nested graph with positions. Equal arguments give equal scenes on every machine.

    Args:
        graph: The graph.
        opened: Keys of the groups to draw open.
        moved: Top left corners of the boxes that the user has moved, by key, relative to the group around the box.
    """
    shown = graph.shown_groups(opened)
    bundles = graph.bundles(shown)
    plan = _Plan(graph, shown, graph.pieces(bundles), graph.returned(bundles), moved or {})
    level = plan.level(ROOT)
    return Scene(
        graph.title,
        level.w + 2 * MARGIN,
        level.h + 2 * MARGIN,
        tuple(level.shifted_nodes(MARGIN, MARGIN)),
        tuple(level.shifted_edges(MARGIN, MARGIN)),
        graph.is_model,
        graph.roles,
    )


def fits_first_view(graph: NestedGraph, opened: Collection[str], scale: float = 1) -> bool:
    """Return whether the graph with these open groups fits into `FIRST_VIEW` if it is drawn at this scale."""
    scene = layout(graph, opened)
    return scene.width * scale <= FIRST_VIEW[0] and scene.height * scale <= FIRST_VIEW[1]


@dataclass(frozen=True)
class _Item:
    """A box of a level. If it is open, `inner` is the level inside it."""

    node: SceneNode
    part: Part
    inner: Level | None = None


@dataclass(frozen=True)
class _Plan:
    graph: NestedGraph
    shown: frozenset[str]
    pieces: Mapping[str, list[Piece]]
    returned: frozenset[tuple[str, str, bool]]
    moved: Mapping[str, Point]

    def level(self, key: str) -> Level:
        """Lay out the level inside a group."""
        boxes = self.graph.children.get(key, [])
        closed = [box.w for box in boxes if box.key not in self.shown and box.w <= _WIDE and not _is_pill(box)]
        usual = max(closed, default=0)
        items = {box.key: self._item(box, usual) for box in boxes}
        pieces = self.pieces.get(key, [])
        nets: dict[tuple[str, str], dict[End, list[Piece]]] = {}
        group = self.graph.by_key.get(key)
        for port in group.inputs if group else ():
            nets["", port] = {}
        for piece in pieces:
            nets.setdefault((piece.tail, piece.source), {}).setdefault((piece.head, piece.port), []).append(piece)
        placed = arrange_lines(
            {name: item.part for name, item in items.items()} or _EMPTY,
            [Net(tail, source, tuple(heads)) for (tail, source), heads in nets.items()],
            self.graph.idle_ports.get(key, ()),
        )
        corners = {name: corner for name, corner in placed.corners.items() if name in items}
        moved = self._move(corners, key)
        level = Level(
            max((placed.w, *(corners[name][0] + item.part.w for name, item in items.items()))),
            max((placed.h, *(corners[name][1] + item.part.h for name, item in items.items()))),
            ins=dict(placed.ins),
            outs=dict(placed.outs),
        )
        for name, (x, y) in corners.items():  # in reading order
            level.nodes.append(replace(items[name].node, x=x, y=y))
            if (inner := items[name].inner) is not None:
                level.nodes += inner.shifted_nodes(x, y)
        for (tail, source), heads in nets.items():
            for (head, port), wires in heads.items():
                points, is_curve = placed.routes[tail, source, (head, port)], False
                if tail in moved or head in moved:
                    points, is_curve = self._curve((tail, source, (head, port)), points, corners, items, level), True
                level.edges.append(self._edge(wires, head or key, points, is_curve))
                level.borders.append((not tail, not head))
        for name, item in items.items():
            if item.inner is not None:
                level.edges += item.inner.shifted_edges(*corners[name])
        return level

    def _move(self, corners: dict[str, Point], key: str) -> set[str]:
        """Replace the corners of boxes that the user has moved, and return their keys."""
        moved = {name for name in corners if name in self.moved}
        dx, dy = (PAD, TITLE_H) if key else (MARGIN, MARGIN)
        for name in moved:
            x, y = self.moved[name]
            corners[name] = max(0, round(x) - dx), max(0, round(y) - dy)
        return moved

    def _curve(
        self,
        way: Way,
        points: tuple[Point, ...],
        corners: Mapping[str, Point],
        items: Mapping[str, _Item],
        level: Level,
    ) -> tuple[Point, ...]:
        tail, source, (head, port) = way
        start, end = points[0], (level.w, points[-1][1])
        if tail:
            part = items[tail].part
            start = corners[tail][0] + part.w, corners[tail][1] + part.outs.get(source, part.h / 2)
        if head:
            part = items[head].part
            end = corners[head][0], corners[head][1] + part.ins.get(port, part.h / 2)
        return curve(start, end)

    def _edge(self, wires: list[Piece], end: str, points: tuple[Point, ...], is_curve: bool) -> SceneEdge:
        bundles = [wire.bundle for wire in wires]
        first = bundles[0]
        is_forward = any(0 in bundle.roles or not bundle.roles for bundle in bundles)
        return SceneEdge(
            end_id(first.source, first.out),
            end_id(first.target, first.into) if len(wires) == 1 else end,
            points,
            is_curve,
            self.graph.shape_text(first.shapes),
            first.problem,
            is_backward=not is_forward,
            returns=any((one.source, one.target, bool(one.loop)) in self.returned for one in bundles),
            is_end=end == first.target,
            is_carried=bool(first.loop),
        )

    def _item(self, box: Box, usual: float) -> _Item:
        is_open = box.key in self.shown
        node = SceneNode(
            box.key, box.name, box.kind, hue=box.hue, path=box.path, parent=box.parent,
            group=box.is_group, expanded=is_open, label=box.label, shape=box.shape,
            repeat=box.repeat, share=box.share, problem=box.problem, counts=box.counts, blocks=box.blocks,
            equations=box.equations,
        )  # fmt: skip
        if is_open:
            return _frame(node, self.level(box.key), box.title_w)
        w = max(box.w, usual) if box.w <= _WIDE and not _is_pill(box) else box.w
        inputs, outputs = ports_at(box.inputs, 0, box.h), ports_at(box.outputs, w, box.h)
        node = replace(node, w=w, h=box.h, inputs=inputs, outputs=outputs)
        ins, outs = ({port.name: port.y for port in ports} for ports in (inputs, outputs))
        return _Item(node, Part(w, box.h, ins, outs, box.kind == "input"))


def _is_pill(box: Box) -> bool:
    return box.kind in ("input", "output") and not box.path


def _frame(node: SceneNode, inner: Level, title_w: float) -> _Item:
    """Return an open group: a frame with a title around the level inside, with a port wherever a wire crosses it."""
    w = max(inner.w + 2 * PAD, title_w)
    h = inner.h + TITLE_H + PAD
    ins, outs = ({name: y + TITLE_H for name, y in ends.items()} for ends in (inner.ins, inner.outs))
    level = Level(inner.w, inner.h, inner.shifted_nodes(PAD, TITLE_H))
    shifted = inner.shifted_edges(PAD, TITLE_H)
    for at, edge in enumerate(shifted):
        starts, ends = inner.borders[at] if at < len(inner.borders) else (False, False)
        start = (0, edge.points[0][1]) if starts else edge.points[0]
        end = (w, edge.points[-1][1]) if ends else edge.points[-1]
        points = curve(start, end) if edge.is_curve and (starts or ends) else (start, *edge.points[1:-1], end)
        level.edges.append(replace(edge, points=points))
    inputs = tuple(ScenePort(name, 0, y) for name, y in ins.items()) if node.path else ()
    outputs = tuple(ScenePort(name, w, y) for name, y in outs.items()) if node.path else ()
    return _Item(replace(node, w=w, h=h, inputs=inputs, outputs=outputs), Part(w, h, ins, outs), level)


def curve(start: Point, end: Point) -> tuple[Point, Point, Point, Point]:
    """Return the four points of a Bézier curve that leaves `start` to the right and reaches `end` from the left.

    Examples:
        >>> curve((0, 0), (60, 50))
        ((0, 0), (30.0, 0), (30.0, 50), (60, 50))
    """
    reach = max(24.0, abs(end[0] - start[0]) / 2)  # as the front end draws it while a block is dragged
    return (start, (start[0] + reach, start[1]), (end[0] - reach, end[1]), end)
