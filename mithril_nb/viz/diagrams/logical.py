"""The logical graph of a model as a nested graph with labels, and its layout."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from mithril_nb.graph.paths import join_path
from mithril_nb.graph.records import BOUNDARY, Endpoint, LogicalGraph, Node
from mithril_nb.stages.graph.stage_graph import MOST
from mithril_nb.viz.diagrams.labels import (
    NARROWEST,
    PAD,
    PILL_H,
    PLAIN,
    NodeAnnotation,
    node_height,
    node_width,
    pill_width,
    title_width,
)
from mithril_nb.viz.diagrams.layout import fits_first_view, layout
from mithril_nb.viz.diagrams.nested import ROOT, Box, Flow, NestedGraph
from mithril_nb.viz.diagrams.repeats import Run, repeated_runs
from mithril_nb.viz.diagrams.scene import Scene, end_text
from mithril_nb.viz.palette import HUES
from mithril_nb.viz.svg import Point
from mithril_nb.viz.text import times


def model_layout(
    graph: LogicalGraph,
    *,
    annotations: Mapping[str, NodeAnnotation] | None = None,
    edge_shapes: Mapping[str, str] | None = None,
    expanded: Collection[str] = frozenset(),
    moved: Mapping[str, Point] | None = None,
    edge_problems: Mapping[tuple[str, str], int] | None = None,
    fold: bool | Collection[str] = False,
) -> Scene:
    """Lay out a model in rows from left to right.

    Args:
        graph: The graph.
        annotations: Labels of blocks, by path.
        edge_shapes: Shape of the data on an edge, by source such as `"linear_0.output"`; `"input"` is a model input. A
            missing shape is taken from the annotation of the block, if the block has one output.
        expanded: Paths of the groups to draw open.
        moved: Top left corners of the blocks that the user has moved, by path, relative to the group around the block.
        edge_problems: Index into the problems of the graph, by `(source, target)` of the edge.
        fold: True to draw repeated parts as one box with ×N, which can be opened. A collection of keys from
            `repeat_keys` draws only these repeated parts in this way.

    Returns:
        The scene; equal arguments give equal scenes on every machine.

    Raises:
        ValueError: An edge starts or ends at a block or port that the graph does not have.

    Examples:
        >>> from mithril_nb.graph.records import Block, Edge, Endpoint, LogicalGraph, Node, Port
        >>> relu = Block("Relu", (), (Port("input"),), (Port("output"),), op="relu")
        >>> into = Edge(Endpoint("", "x"), Endpoint("relu_0", "input"))
        >>> out = Edge(Endpoint("relu_0", "output"), Endpoint("", "y"))
        >>> graph = LogicalGraph((Node("relu_0", relu),), (into, out), (Port("x"),), (Port("y"),))
        >>> [(node.name, node.x, node.y) for node in model_layout(graph).nodes]
        [('x', 28.0, 29.0), ('relu_0', 136.0, 18.0), ('y', 308.0, 29.0)]
    """
    return layout(model_graph(graph, annotations, edge_shapes, edge_problems, fold), expanded, moved)


def model_graph(
    graph: LogicalGraph,
    annotations: Mapping[str, NodeAnnotation] | None = None,
    edge_shapes: Mapping[str, str] | None = None,
    edge_problems: Mapping[tuple[str, str], int] | None = None,
    fold: bool | Collection[str] = False,
) -> NestedGraph:
    """Return a model as a nested graph. The arguments are those of `model_layout`."""
    build = _Build(annotations or {}, edge_shapes or {}, edge_problems or {}, fold)
    build.level(graph, "", {}, 0)
    return NestedGraph(
        "logical graph", tuple(build.boxes), tuple(build.flows), tuple(build.shapes), idle=tuple(build.idle)
    )


def first_view(graph: NestedGraph, marks: Mapping[str, str] | None = None) -> frozenset[str]:
    """Return the keys of the groups to open in the first picture of a model.

    Groups with a problem are opened first, then the most expensive ones; if no cost is known, those with the most
    blocks. The picture shows at most 25 nodes and must be readable without zooming. The box of a repeated part is
    opened only if one of its blocks has a problem.

    Args:
        graph: The model, with repeated parts drawn as one box.
        marks: `"added"`, `"removed"` or `"changed"` for nodes that differ from another model, by key. If there are any,
            only groups around these nodes are opened, and the picture may be too large to be readable without zooming.
    """
    marked = {key for one in marks or {} if one in graph.by_key for key in graph.above(one)[1:]}
    opened: set[str] = set()
    waiting = list(graph.children.get(ROOT, []))
    count = len(waiting)

    def may_open(box: Box) -> bool:
        if marks:
            return box.key in marked and marks.get(box.key) == "changed"
        inside = graph.children[box.key]
        shows_more = len(inside) > 1 or inside[0].is_group
        return shows_more and (box.problem is not None or box.key != repeat_key(box.blocks[0] if box.blocks else ""))

    while waiting:
        waiting = [box for box in waiting if graph.children.get(box.key) and may_open(box)]
        waiting.sort(key=lambda box: (box.problem is None, -(box.share or 0), -len(graph.children[box.key])))
        if not waiting:
            break
        box = waiting.pop(0)
        inside = graph.children[box.key]
        if count + len(inside) <= MOST and (marks or fits_first_view(graph, {*opened, box.key})):
            opened.add(box.key)
            count += len(inside)
            waiting += inside
    return frozenset(opened)


@dataclass
class _Build:
    annotations: Mapping[str, NodeAnnotation]
    edge_shapes: Mapping[str, str]
    edge_problems: Mapping[tuple[str, str], int]
    fold: bool | Collection[str]
    boxes: list[Box] = field(default_factory=list)
    flows: list[Flow] = field(default_factory=list)
    shapes: dict[str, int] = field(default_factory=dict)
    idle: list[tuple[str, str]] = field(default_factory=list)

    def level(self, graph: LogicalGraph, prefix: str, given: Mapping[str, str], hue: int) -> None:
        """Add the boxes inside a model or group, and the data flows between them.

        Args:
            graph: The content of the model or group.
            prefix: Path of the group; `""` for the model.
            given: Known shapes of the data that enters the group, by name of the input.
            hue: Index of the group's colour; ignored for the model.
        """
        shapes = self._shapes(graph, prefix, given)
        ends = {edge.source for edge in graph.edges} | {edge.target for edge in graph.edges}
        for port in () if prefix else graph.inputs:
            self.boxes.append(_pill("input", port.name, shapes[Endpoint(BOUNDARY, port.name)]))
        runs = {run.start: run for run in repeated_runs(graph.nodes)} if self.fold else {}
        around, last = prefix, 0
        for at, node in enumerate(graph.nodes):
            if at >= last:
                around = prefix
                if at in runs and self._is_folded(join_path(prefix, node.name)):
                    last = runs[at].end
                    around = self._repeat(graph, prefix, runs[at], hue)
            self._block(node, prefix, around, at, _used_ports(node, ends), shapes, graph, hue)
        for port in graph.outputs:
            source = graph.source_of.get(Endpoint(BOUNDARY, port.name))
            if not prefix:
                self.boxes.append(_pill("output", port.name, shapes.get(source, "") if source else ""))
            elif source is None:
                self.idle.append((prefix, port.name))
        for edge in graph.edges:
            self.flows.append(self._flow(edge.source, edge.target, graph, prefix, shapes))

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

    def _is_folded(self, path: str) -> bool:
        return self.fold is True or (not isinstance(self.fold, bool) and repeat_key(path) in self.fold)

    def _repeat(self, graph: LogicalGraph, prefix: str, run: Run, around: int) -> str:
        """Add the box of a repeated part, and return its key."""
        members = graph.nodes[run.start : run.end]
        paths = [join_path(prefix, node.name) for node in members]
        notes = [self.annotations.get(path, PLAIN) for path in paths]
        first, last = members[0], members[run.period - 1]
        is_one = run.period == 1
        name = first.name if is_one else f"{first.name} … {last.name}"
        kind = first.block.kind if is_one else "repeat"
        label, shape = notes[0].label if is_one else "", notes[-1].shape
        shares = [note.share for note in notes if note.share is not None]
        key = repeat_key(paths[0])
        title_w = max(title_width(f"{name} ×{run.count}", kind) + 2 * PAD, NARROWEST)
        hue = around if prefix else run.start % HUES
        self.boxes.append(
            Box(
                key, name, kind, node_width(name, times(kind, run.count), label, shape), node_height(1), round(title_w),
                prefix, is_group=True, hue=hue, label=label, shape=shape, repeat=run.count,
                share=min(1.0, sum(shares)) if shares else None,
                problem=next((note.problem for note in notes if note.problem is not None), None), blocks=tuple(paths),
            )
        )  # fmt: skip
        return key

    def _block(
        self,
        node: Node,
        prefix: str,
        parent: str,
        at: int,
        used: tuple[Sequence[str], Sequence[str]],
        shapes: Mapping[Endpoint, str],
        graph: LogicalGraph,
        around: int,
    ) -> None:
        path = join_path(prefix, node.name)
        note = self.annotations.get(path, PLAIN)
        hue = around if prefix else at % HUES
        block = node.block
        inputs, outputs = used
        box = Box(
            path, node.name, block.kind, node_width(node.name, block.kind, note.label, note.shape),
            node_height(max(len(inputs), len(outputs))), parent=parent, hue=hue, path=path, label=note.label,
            shape=note.shape, share=note.share, problem=note.problem, inputs=tuple(inputs), outputs=tuple(outputs),
        )  # fmt: skip
        if block.graph is None:
            self.boxes.append(box)
            return
        title_w = max(title_width(node.name, block.kind) + 2 * PAD, NARROWEST)
        self.boxes.append(replace(box, is_group=True, title_w=round(title_w)))
        sources = {port: graph.source_of.get(Endpoint(node.name, port)) for port in inputs}
        given = {port: shapes.get(source, "") for port, source in sources.items() if source is not None}
        self.level(block.graph, path, given, hue)

    def _flow(
        self, source: Endpoint, target: Endpoint, graph: LogicalGraph, prefix: str, shapes: Mapping[Endpoint, str]
    ) -> Flow:
        tail, head = (
            join_path(prefix, end.node) if end.node != BOUNDARY else prefix or f"{kind}:{end.port}"
            for kind, end in (("input", source), ("output", target))
        )
        for kind, end, ports in (("input", source, graph.inputs), ("output", target, graph.outputs)):
            is_there = end.node in graph.by_name if end.node != BOUNDARY else end.port in {port.name for port in ports}
            if not is_there:
                what, name = (kind, end.port) if end.node == BOUNDARY else ("block", end.node)
                raise ValueError(f"the graph has an edge at {str(end)!r}, but no {what} {name!r}.")
        shape = shapes.get(source, "")
        known = (self.shapes.setdefault(shape, len(self.shapes)),) if shape else ()
        ends = end_text(source, prefix), end_text(target, prefix)
        return Flow(tail, head, source.port, target.port, (), known, self.edge_problems.get(ends))


def repeat_key(path: str) -> str:
    """Return the key of the box of a repeated part from the path of its first block."""
    return f"repeat:{path}"  # no path of a block contains a colon


def repeat_keys(graph: LogicalGraph, prefix: str = "") -> Iterator[str]:
    """Yield the keys of the boxes that `model_layout` can draw for repeated parts."""
    for run in repeated_runs(graph.nodes):
        yield repeat_key(join_path(prefix, graph.nodes[run.start].name))
    for node in graph.nodes:
        if node.block.graph is not None:
            yield from repeat_keys(node.block.graph, join_path(prefix, node.name))


def _used_ports(node: Node, ends: set[Endpoint]) -> tuple[list[str], list[str]]:
    """Return the names of the inputs and outputs to draw. Parameters are drawn only if they are connected."""
    inputs = [port.name for port in node.block.inputs if port.role == "data" or Endpoint(node.name, port.name) in ends]
    return inputs, [port.name for port in node.block.outputs]


def _pill(kind: str, name: str, shape: str) -> Box:
    inputs, outputs = ((), (name,)) if kind == "input" else ((name,), ())
    return Box(
        f"{kind}:{name}", name, kind, pill_width(name, shape), PILL_H, hue=HUES - 1, shape=shape, inputs=inputs,
        outputs=outputs,
    )  # fmt: skip
