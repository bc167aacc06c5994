"""Layout of a logical graph: each level in rows read like text, with ports on the sides of the boxes.

Each level of the graph is laid out separately, from the inside out. An expanded group is one large box on the level
around it, so opening a group moves other boxes only as far as it needs room.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from mithril_nb.graph.paths import join_path
from mithril_nb.graph.records import BOUNDARY, Endpoint, LogicalGraph, Node
from mithril_nb.viz.diagrams.labels import (
    NARROWEST,
    PAD,
    PILL_H,
    PLAIN,
    NodeAnnotation,
    node_height,
    node_width,
    pill_width,
    ports_at,
    title_width,
)
from mithril_nb.viz.diagrams.rows import End, Net, Part, Way, arrange_lines
from mithril_nb.viz.diagrams.scene import Level, Scene, SceneEdge, SceneNode, ScenePort, end_text
from mithril_nb.viz.palette import HUES
from mithril_nb.viz.svg import Point
from mithril_nb.viz.text import times

MARGIN = 12
_PAD = 10
_TITLE_H = 26
_NOTHING = {":": Part(24, 16, {}, {})}
"""Room in a group without blocks, where wires lead from its inputs to its outputs."""
_WIDE = 200
"""Blocks up to this width are drawn equally wide, so that rows of blocks form columns."""


def layout(
    graph: LogicalGraph,
    *,
    annotations: Mapping[str, NodeAnnotation] | None = None,
    edge_shapes: Mapping[str, str] | None = None,
    expanded: Collection[str] = frozenset(),
    moved: Mapping[str, Point] | None = None,
    edge_problems: Mapping[tuple[str, str], int] | None = None,
) -> Scene:
    """Lay out a graph in rows from left to right.

    Args:
        graph: The graph.
        annotations: Labels of blocks, by path.
        edge_shapes: Shapes on edges, by source: `"linear_0.output"`, or `"input"` for a model input. A block with one
            output and a shape in its annotation needs no entry.
        expanded: Paths of the groups that are drawn open.
        moved: Top left corners of blocks that the user has moved, by path, relative to the frame of their group (see
            `Scene.within`).
        edge_problems: Index into the list of problems, by `(source, target)` of the connection.

    Returns:
        The scene; equal arguments give equal scenes on every machine.

    Raises:
        ValueError: An edge of the graph ends at a block that is not in the graph.

    Examples:
        >>> from mithril_nb.graph.records import Block, Edge, Endpoint, LogicalGraph, Node, Port
        >>> relu = Block("Relu", (), (Port("input"),), (Port("output"),), op="relu")
        >>> into = Edge(Endpoint("", "x"), Endpoint("relu_0", "input"))
        >>> out = Edge(Endpoint("relu_0", "output"), Endpoint("", "y"))
        >>> graph = LogicalGraph((Node("relu_0", relu),), (into, out), (Port("x"),), (Port("y"),))
        >>> [(node.name, node.x, node.y) for node in layout(graph).nodes]
        [('x', 28, 29), ('relu_0', 136, 18), ('y', 36, 86)]
    """
    plan = _Plan(annotations or {}, edge_shapes or {}, frozenset(expanded), moved or {}, edge_problems or {})
    level = plan.level(graph, "", {})
    return Scene(
        "logical graph",
        level.w + 2 * MARGIN,
        level.h + 2 * MARGIN,
        tuple(level.shifted_nodes(MARGIN, MARGIN)),
        tuple(level.shifted_edges(MARGIN, MARGIN)),
    )


@dataclass(frozen=True)
class _Item:
    """A box to place on a level: its node, its size and ports, and its inner level if it is open."""

    node: SceneNode
    part: Part
    inner: Level | None = None


@dataclass(frozen=True)
class _Plan:
    annotations: Mapping[str, NodeAnnotation]
    edge_shapes: Mapping[str, str]
    expanded: frozenset[str]
    moved: Mapping[str, Point]
    edge_problems: Mapping[tuple[str, str], int]

    def level(self, graph: LogicalGraph, prefix: str, given: Mapping[str, str]) -> Level:
        """Lay out one level; `given` holds the shapes at its boundary."""
        shapes = self._shapes(graph, prefix, given)
        items = self._items(graph, prefix, shapes)
        ends = [self._ends(edge.source, edge.target, items, prefix) for edge in graph.edges]
        nets: dict[tuple[str, str], list[End]] = {}
        if prefix:
            nets = {("", port.name): [] for port in graph.inputs}
        for tail, source, head in ends:
            nets.setdefault((tail, source), []).append(head)
        placed = arrange_lines(
            {key: item.part for key, item in items.items()} or _NOTHING,
            [Net(tail, source, tuple(heads)) for (tail, source), heads in nets.items()],
            [port.name for port in graph.outputs if prefix and Endpoint(BOUNDARY, port.name) not in graph.source_of],
        )
        corners = {key: corner for key, corner in placed.corners.items() if key in items}
        dx, dy = (_PAD, _TITLE_H) if prefix else (MARGIN, MARGIN)
        moved = {key for key, item in items.items() if item.node.path and item.node.path in self.moved}
        for key in moved:
            x, y = self.moved[items[key].node.path]
            corners[key] = max(0, round(x) - dx), max(0, round(y) - dy)
        level = Level(
            max((placed.w, *(corners[key][0] + item.part.w for key, item in items.items()))),
            max((placed.h, *(corners[key][1] + item.part.h for key, item in items.items()))),
            ins=dict(placed.ins),
            outs=dict(placed.outs),
        )
        for key, (x, y) in corners.items():  # in reading order
            level.nodes.append(replace(items[key].node, x=round(x), y=round(y)))
            if (inner := items[key].inner) is not None:
                level.nodes += inner.shifted_nodes(x, y)
        for edge, way in zip(graph.edges, ends, strict=True):
            tail, source, (head, port) = way
            points, is_curve = placed.routes[way], False
            if tail in moved or head in moved:
                start = _at(corners[tail], items[tail].part.w, items[tail].part.outs[source]) if tail else points[0]
                end = _at(corners[head], 0, items[head].part.ins[port]) if head else (level.w, points[-1][1])
                points, is_curve = curve(start, end), True
            ids = end_text(edge.source, prefix), end_text(edge.target, prefix)
            shape = shapes.get(edge.source, "")
            level.edges.append(SceneEdge(*ids, points, is_curve, shape, self.edge_problems.get(ids)))
        for key, item in items.items():
            if item.inner is not None:
                level.edges += item.inner.shifted_edges(*corners[key])
        return level

    def _shapes(self, graph: LogicalGraph, prefix: str, given: Mapping[str, str]) -> dict[Endpoint, str]:
        shapes = {Endpoint(BOUNDARY, port.name): given.get(port.name, "") for port in graph.inputs}
        for node in graph.nodes:
            note = self.annotations.get(join_path(prefix, node.name), PLAIN)
            if len(node.block.outputs) == 1:
                shapes[Endpoint(node.name, node.block.outputs[0].name)] = note.shape
        for source in {edge.source for edge in graph.edges}:
            known = self.edge_shapes.get(end_text(source, prefix), "")
            if known:
                shapes[source] = known
        return shapes

    def _items(self, graph: LogicalGraph, prefix: str, shapes: Mapping[Endpoint, str]) -> dict[str, _Item]:
        """Return the boxes by key: the path of a block; a port of a group is on its frame and has no box."""
        ends = {edge.source for edge in graph.edges} | {edge.target for edge in graph.edges}
        items: dict[str, _Item] = {}
        for port in () if prefix else graph.inputs:
            items[_pill_key("input", port.name)] = _pill("input", port.name, shapes[Endpoint(BOUNDARY, port.name)])
        for at, node in enumerate(graph.nodes):
            path = join_path(prefix, node.name)
            items[path] = self._block(node, path, at, _used_ports(node, ends), shapes, graph)
        closed = {key: item for key, item in items.items() if item.node.path and item.inner is None}
        usual = max((item.node.w for item in closed.values() if item.node.w <= _WIDE), default=0)
        items |= {key: _widened(item.node, usual) for key, item in closed.items() if item.node.w < usual}
        for port in () if prefix else graph.outputs:
            source = graph.source_of.get(Endpoint(BOUNDARY, port.name))
            items[_pill_key("output", port.name)] = _pill("output", port.name, shapes.get(source, "") if source else "")
        return items

    def _block(
        self,
        node: Node,
        path: str,
        at: int,
        used: tuple[list[str], list[str]],
        shapes: Mapping[Endpoint, str],
        graph: LogicalGraph,
    ) -> _Item:
        note = self.annotations.get(path, PLAIN)
        top = self.annotations.get(path.partition("/")[0], PLAIN)
        hue = note.hue if note.hue is not None else top.hue
        block = node.block
        plain = SceneNode(
            path, node.name, block.kind, hue=at % HUES if hue is None else hue, path=path,
            parent=path.rpartition("/")[0], group=block.graph is not None, label=note.label, shape=note.shape,
            repeat=note.repeat, share=note.share, problem=note.problem,
        )  # fmt: skip
        inputs, outputs = used
        if block.graph is None or path not in self.expanded:
            kind = times(block.kind, note.repeat)
            w = node_width(node.name, kind, note.label, note.shape)
            h = node_height(max(len(inputs), len(outputs)))
            return _item(replace(plain, w=w, h=h, inputs=ports_at(inputs, 0, h), outputs=ports_at(outputs, w, h)))
        sources = {port: graph.source_of.get(Endpoint(node.name, port)) for port in inputs}
        given = {port: shapes.get(source, "") for port, source in sources.items() if source is not None}
        level = self.level(block.graph, path, given)
        own = {node.path for node in level.nodes if self.annotations.get(node.path, PLAIN).hue is None}
        level.nodes = [replace(node, hue=plain.hue) if node.path in own else node for node in level.nodes]
        return _frame(replace(plain, expanded=True), level)

    def _ends(self, source: Endpoint, target: Endpoint, items: Mapping[str, _Item], prefix: str) -> Way:
        """Return the ends of an edge for `rows`; the name of a source is the name of its port."""
        tail, head = (
            join_path(prefix, end.node) if end.node != BOUNDARY else "" if prefix else _pill_key(kind, end.port)
            for kind, end in (("input", source), ("output", target))
        )
        for key, kind, end in ((tail, "input", source), (head, "output", target)):
            if key and key not in items:
                what, name = (kind, end.port) if end.node == BOUNDARY else ("block", end.node)
                raise ValueError(f"the graph has no {what} {name!r}, where the edge at {str(end)!r} ends.")
        return tail, source.port, (head, target.port)


def _used_ports(node: Node, ends: set[Endpoint]) -> tuple[list[str], list[str]]:
    """Return the ports to draw: data ports, and params with a connection."""
    inputs = [port.name for port in node.block.inputs if port.role == "data" or Endpoint(node.name, port.name) in ends]
    return inputs, [port.name for port in node.block.outputs]


def _pill_key(kind: str, name: str) -> str:
    return f"{kind}:{name}"  # no path of a block contains a colon


def _pill(kind: str, name: str, shape: str) -> _Item:
    w, h = pill_width(name, shape), PILL_H
    is_input = kind == "input"
    port = ports_at([name], w if is_input else 0, h)
    inputs, outputs = ((), port) if is_input else (port, ())
    return _item(
        SceneNode(_pill_key(kind, name), name, kind, 0, 0, w, h, HUES - 1, shape=shape, inputs=inputs, outputs=outputs)
    )


def _item(node: SceneNode, inner: Level | None = None) -> _Item:
    ins, outs = ({port.name: port.y for port in ports} for ports in (node.inputs, node.outputs))
    return _Item(node, Part(node.w, node.h, ins, outs, node.kind == "input" and not node.path), inner)


def _widened(node: SceneNode, w: float) -> _Item:
    outputs = tuple(replace(port, x=w) for port in node.outputs)
    return _item(replace(node, w=w, outputs=outputs))


def _frame(node: SceneNode, level: Level) -> _Item:
    """Return an expanded group: a frame that fits its title and content, with ports where the content has them."""
    w = round(max(level.w + 2 * _PAD, title_width(node.name, node.kind) + 2 * PAD, NARROWEST))
    h = round(level.h + _TITLE_H + _PAD)
    inputs = tuple(ScenePort(name, 0, y + _TITLE_H) for name, y in level.ins.items())
    outputs = tuple(ScenePort(name, w, y + _TITLE_H) for name, y in level.outs.items())
    inner = Level(level.w, level.h, level.shifted_nodes(_PAD, _TITLE_H))
    for edge in level.shifted_edges(_PAD, _TITLE_H):
        points = list(edge.points)
        # A path contains no dot, so an edge from or to `path.` ends at a port of the frame itself.
        is_first, is_last = edge.source.startswith(f"{node.path}."), edge.target.startswith(f"{node.path}.")
        if edge.is_curve and (is_first or is_last):
            points = [
                *curve((0, points[0][1]) if is_first else points[0], (w, points[-1][1]) if is_last else points[-1])
            ]
        if is_first:
            points[0] = (0, points[0][1])
        if is_last:
            points[-1] = (w, points[-1][1])
        inner.edges.append(replace(edge, points=tuple(points)))
    return _item(replace(node, w=w, h=h, inputs=inputs, outputs=outputs), inner)


def _at(corner: Point, dx: float, dy: float) -> Point:
    return corner[0] + dx, corner[1] + dy


def curve(start: Point, end: Point) -> tuple[Point, Point, Point, Point]:
    """Return a curve that leaves `start` to the right and reaches `end` from the left.

    Examples:
        >>> curve((0, 0), (60, 50))
        ((0, 0), (30.0, 0), (30.0, 50), (60, 50))
    """
    reach = max(24.0, abs(end[0] - start[0]) / 2)  # as the front end draws it while a block is dragged
    return (start, (round(start[0] + reach, 1), start[1]), (round(end[0] - reach, 1), end[1]), end)
