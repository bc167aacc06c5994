"""Layout of a logical graph: each level in ranks from top to bottom, with ports and curves.

Each level of the graph is laid out separately, from the inside out. An expanded group is one large box on the level
around it, so opening a group moves other boxes only as far as it needs room.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from mithril_nb.graph.paths import join_path
from mithril_nb.graph.records import BOUNDARY, Endpoint, LogicalGraph, Node
from mithril_nb.viz.diagrams.labels import (
    HEADER_H,
    NARROWEST,
    NODE_H,
    PAD,
    PILL_H,
    PLAIN,
    NodeAnnotation,
    node_width,
    pill_width,
    ports_at,
    title_width,
)
from mithril_nb.viz.diagrams.ranks import Box, Link, Pin, arrange, curve
from mithril_nb.viz.diagrams.scene import Level, Scene, SceneEdge, SceneNode, ScenePort, end_text
from mithril_nb.viz.palette import HUES
from mithril_nb.viz.svg import Point
from mithril_nb.viz.text import times

MARGIN = 12
_TITLE_H = 22
_PIN_W, _PIN_H = 8, 2


def layout(
    graph: LogicalGraph,
    *,
    annotations: Mapping[str, NodeAnnotation] | None = None,
    edge_shapes: Mapping[str, str] | None = None,
    expanded: Collection[str] = frozenset(),
    moved: Mapping[str, Point] | None = None,
    edge_problems: Mapping[tuple[str, str], int] | None = None,
) -> Scene:
    """Lay out a graph from top to bottom.

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
        >>> [(node.name, node.y) for node in layout(graph).nodes]
        [('x', 12), ('relu_0', 80), ('y', 170)]
    """
    plan = _Plan(annotations or {}, edge_shapes or {}, frozenset(expanded), moved or {}, edge_problems or {})
    level, _ = plan.level(graph, "", {})
    edges = level.shifted_edges(MARGIN, MARGIN)
    return Scene(
        "logical graph",
        level.w + 2 * MARGIN,
        level.h + 2 * MARGIN,
        tuple(level.shifted_nodes(MARGIN, MARGIN)),
        tuple(replace(edge, points=tuple((round(x, 1), round(y, 1)) for x, y in edge.points)) for edge in edges),
    )


@dataclass
class _Item:
    """A box to place on a level: its node, its size and its inner level."""

    node: SceneNode | None
    box: Box
    tops: dict[str, int]
    bottoms: dict[str, int]
    inner: Level | None = None


@dataclass(frozen=True)
class _Plan:
    annotations: Mapping[str, NodeAnnotation]
    edge_shapes: Mapping[str, str]
    expanded: frozenset[str]
    moved: Mapping[str, Point]
    edge_problems: Mapping[tuple[str, str], int]

    def level(
        self, graph: LogicalGraph, prefix: str, given: Mapping[str, str], title: float = 0
    ) -> tuple[Level, Point]:
        """Lay out one level and return it with the position of its `(0, 0)` in the frame or picture around it.

        `given` holds the shapes at its boundary, `title` the width that its title needs.
        """
        shapes = self._shapes(graph, prefix, given)
        items = self._items(graph, prefix, shapes)
        index = {key: at for at, key in enumerate(items)}
        parts = list(items.values())
        links = [self._link(edge.source, edge.target, items, index) for edge in graph.edges]
        placed = arrange([item.box for item in parts], links)
        corners = list(placed.corners)
        origin = (MARGIN, MARGIN)
        if prefix:
            tops = [corners[at][0] for (what, _), at in index.items() if what == "input"]
            # No wire may cross the title: the content moves right until its first port clears the title.
            spare = max(0, round(title - min(tops, default=title) - PAD))
            origin = (PAD + spare, _TITLE_H if tops else HEADER_H)
        touched = set()
        for key, at in index.items():
            path = join_path(prefix, key[1])
            if key[0] == "block" and path in self.moved:
                x, y = self.moved[path]
                corners[at] = (max(0, round(x) - origin[0]), max(0, round(y) - origin[1]))
                touched.add(at)
        w = max((x + item.box.w for (x, _), item in zip(corners, parts, strict=True)), default=0.0)
        h = max((y + item.box.h for (_, y), item in zip(corners, parts, strict=True)), default=0.0)
        level = Level(max(w, placed.w), max(h, placed.h))
        for key, at in index.items():
            item, (x, y) = parts[at], corners[at]
            if item.node is None:
                if key[0] == "output" and y + item.box.h < level.h and touched:
                    corners[at] = x, y = x, level.h - item.box.h
                    touched.add(at)
                side = level.ins if key[0] == "input" else level.outs
                side[key[1]] = x + _PIN_W / 2
            else:
                level.nodes.append(replace(item.node, x=x, y=y))
            if item.inner is not None:
                level.nodes += item.inner.shifted_nodes(x, y)
        for edge, link, points in zip(graph.edges, links, placed.curves, strict=True):
            if link.tail in touched or link.head in touched:
                tail, head = parts[link.tail].box, parts[link.head].box
                (x0, y0), (x1, y1) = corners[link.tail], corners[link.head]
                points = curve((x0 + tail.bottoms[link.out], y0 + tail.h), (x1 + head.tops[link.into], y1))
            source, target = end_text(edge.source, prefix), end_text(edge.target, prefix)
            problem = self.edge_problems.get((source, target))
            level.edges.append(SceneEdge(source, target, points, True, shapes.get(edge.source, ""), problem))
        for item, (x, y) in zip(parts, corners, strict=True):
            if item.inner is not None:
                level.edges += item.inner.shifted_edges(x, y)
        return level, origin

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

    def _items(self, graph: LogicalGraph, prefix: str, shapes: Mapping[Endpoint, str]) -> dict[tuple[str, str], _Item]:
        ends = {edge.source for edge in graph.edges} | {edge.target for edge in graph.edges}
        items: dict[tuple[str, str], _Item] = {}
        for port in graph.inputs:
            shape = shapes.get(Endpoint(BOUNDARY, port.name), "")
            items["input", port.name] = _pin("top") if prefix else _pill("input", port.name, shape)
        for at, node in enumerate(graph.nodes):
            path = join_path(prefix, node.name)
            used = _used_ports(node, ends)
            items["block", node.name] = self._block(node, path, at, used, shapes, graph)
        for port in graph.outputs:
            source = graph.source_of.get(Endpoint(BOUNDARY, port.name))
            shape = shapes.get(source, "") if source else ""
            items["output", port.name] = _pin("bottom") if prefix else _pill("output", port.name, shape)
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
        if block.graph is None or path not in self.expanded:
            inputs, outputs = used
            kind = times(block.kind, note.repeat)
            w = node_width(node.name, kind, note.label, note.shape, max(len(inputs), len(outputs)))
            tops, bottoms = ports_at(inputs, w, 0), ports_at(outputs, w, NODE_H)
            return _item(replace(plain, w=w, h=NODE_H, inputs=tops, outputs=bottoms))
        sources = {port: graph.source_of.get(Endpoint(node.name, port)) for port in used[0]}
        given = {port: shapes.get(source, "") for port, source in sources.items() if source is not None}
        title = title_width(node.name, block.kind) + PAD
        level, origin = self.level(block.graph, path, given, title)
        own = {node.path for node in level.nodes if self.annotations.get(node.path, PLAIN).hue is None}
        level.nodes = [replace(node, hue=plain.hue) if node.path in own else node for node in level.nodes]
        return _frame(replace(plain, expanded=True), level, origin, title)

    def _link(
        self,
        source: Endpoint,
        target: Endpoint,
        items: Mapping[tuple[str, str], _Item],
        index: Mapping[tuple[str, str], int],
    ) -> Link:
        tail = ("input", source.port) if source.node == BOUNDARY else ("block", source.node)
        head = ("output", target.port) if target.node == BOUNDARY else ("block", target.node)
        for key, end in ((tail, source), (head, target)):
            if key not in index:
                raise ValueError(f"the graph has no {key[0]} {key[1]!r}, where the edge at {str(end)!r} ends.")
        out = 0 if source.node == BOUNDARY else items[tail].bottoms[source.port]
        into = 0 if target.node == BOUNDARY else items[head].tops[target.port]
        return Link(index[tail], out, index[head], into)


def _used_ports(node: Node, ends: set[Endpoint]) -> tuple[list[str], list[str]]:
    """Return the ports to draw: data ports, and params with a connection."""
    inputs = [port.name for port in node.block.inputs if port.role == "data" or Endpoint(node.name, port.name) in ends]
    return inputs, [port.name for port in node.block.outputs]


def _pin(pin: Pin) -> _Item:
    box = Box(_PIN_W, _PIN_H, (_PIN_W / 2,), (_PIN_W / 2,), pin)
    return _Item(None, box, {}, {})


def _pill(kind: str, name: str, shape: str) -> _Item:
    w, h = pill_width(name, shape), PILL_H
    port = ports_at([name], w, h if kind == "input" else 0)
    inputs, outputs = ((), port) if kind == "input" else (port, ())
    # No path of a block contains a colon, so the key is unique.
    node = SceneNode(f"{kind}:{name}", name, kind, 0, 0, w, h, HUES - 1, shape=shape, inputs=inputs, outputs=outputs)
    # Graphviz may receive unused ports. A pill has one on either side, so that a link always finds index 0.
    return replace(_item(node), box=Box(w, h, (w / 2,), (w / 2,)))


def _item(node: SceneNode, inner: Level | None = None) -> _Item:
    sides: list[tuple[dict[str, int], tuple[float, ...]]] = []
    for ports in (node.inputs, node.outputs):
        ordered = sorted(ports, key=lambda port: port.x)
        sides.append(({port.name: at for at, port in enumerate(ordered)}, tuple(port.x for port in ordered)))
    (tops, top_x), (bottoms, bottom_x) = sides
    return _Item(node, Box(node.w, node.h, top_x, bottom_x), tops, bottoms, inner)


def _frame(node: SceneNode, level: Level, origin: Point, title: float) -> _Item:
    """Return an expanded group: a frame that fits its title and content, with ports where the content has them."""
    dx, top = origin
    w = round(max(level.w + 2 * dx, title + PAD, NARROWEST))
    h = round(top + level.h + (_PIN_H if level.outs else PAD))
    inputs = tuple(ScenePort(name, x + dx, 0) for name, x in level.ins.items())
    outputs = tuple(ScenePort(name, x + dx, h) for name, x in level.outs.items())
    inner = Level(level.w, level.h, level.shifted_nodes(dx, top))
    for edge in level.shifted_edges(dx, top):
        points = list(edge.points)
        if edge.source.startswith(f"{node.path}."):  # a path contains no dot, so this is a port of the frame itself
            points = [*_straight((points[0][0], 0), points[0]), *points[1:]]
        if edge.target.startswith(f"{node.path}."):
            points = [*points[:-1], *_straight(points[-1], (points[-1][0], h))]
        inner.edges.append(replace(edge, points=tuple(points)))
    return _item(replace(node, w=w, h=h, inputs=inputs, outputs=outputs), inner)


def _straight(start: Point, end: Point) -> tuple[Point, Point, Point, Point]:
    third = (end[1] - start[1]) / 3
    return (start, (start[0], round(start[1] + third, 1)), (end[0], round(end[1] - third, 1)), end)
