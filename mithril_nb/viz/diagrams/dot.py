"""A logical graph as readable DOT, for the `graphviz` package and for other tools."""

from __future__ import annotations

from collections.abc import Mapping

import graphviz

from mithril_nb.graph.paths import join_path
from mithril_nb.graph.records import BOUNDARY, LogicalGraph
from mithril_nb.viz.diagrams.labels import PLAIN, NodeAnnotation
from mithril_nb.viz.diagrams.scene import end_text
from mithril_nb.viz.palette import HUES, LIGHT
from mithril_nb.viz.text import one_line


def to_dot(
    graph: LogicalGraph,
    annotations: Mapping[str, NodeAnnotation] | None = None,
    edge_shapes: Mapping[str, str] | None = None,
    name: str = "model",
) -> graphviz.Digraph:
    """Return the graph as DOT: blocks as boxes, groups as clusters, shapes on the edges.

    Names are labels, never identifiers; the identifiers are numbers in the order of the blocks.

    Args:
        graph: The graph.
        annotations: Labels of blocks, by path.
        edge_shapes: Shapes on edges, by source.
        name: Name of the DOT graph.

    Returns:
        A `graphviz.Digraph`; `source` is its text. Only drawing it needs the `dot` program.

    Examples:
        >>> print(to_dot(LogicalGraph()).source.splitlines()[0])
        digraph model {
    """
    dot = graphviz.Digraph(name)
    dot.attr(rankdir="TB", fontname="sans-serif")
    dot.attr(
        "node", shape="box", style="rounded,filled", fillcolor=LIGHT.surface, color=LIGHT.line, fontname="sans-serif"
    )
    dot.attr("edge", color=LIGHT.wire, fontname="sans-serif", fontsize="10")
    _Writer(annotations or {}, edge_shapes or {}).level(dot, graph, "", {}, None)
    return dot


class _Writer:
    """Writes DOT level by level. It keeps the DOT node of each end of an edge."""

    def __init__(self, annotations: Mapping[str, NodeAnnotation], edge_shapes: Mapping[str, str]):
        self.annotations = annotations
        self.edge_shapes = edge_shapes
        self.count = 0

    def level(
        self, dot: graphviz.Digraph, graph: LogicalGraph, prefix: str, boundary: dict[str, str], hue: int | None
    ) -> None:
        """Write one level and store the DOT node of each port of its boundary in `boundary`."""
        into: dict[tuple[str, str], str] = {}  # (node, port) -> DOT node that receives its data
        out: dict[tuple[str, str], str] = {}
        for side, ports in (("input", graph.inputs), ("output", graph.outputs)):
            for port in ports:
                node = self.fresh(side[0])
                dot.node(node, label=_label(port.name, side if not prefix else ""), shape="ellipse")
                boundary[f"{side} {port.name}"] = node
                (out if side == "input" else into)[BOUNDARY, port.name] = node
        for at, node in enumerate(graph.nodes):
            path = join_path(prefix, node.name)
            note = self.annotations.get(path, PLAIN)
            own = hue if hue is not None else (at % HUES if note.hue is None else note.hue)
            colour = LIGHT.hues[own % HUES]
            if node.block.graph is None:
                name = self.fresh("b")
                dot.node(name, label=_label(node.name, node.block.kind, note.label, note.shape), color=colour)
                for port in node.block.inputs:
                    into[node.name, port.name] = name
                for port in node.block.outputs:
                    out[node.name, port.name] = name
                continue
            cluster = graphviz.Digraph(f"cluster_{self.fresh('g')}")
            cluster.attr(label=_label(node.name, node.block.kind, note.label), color=colour, style="rounded")
            inside: dict[str, str] = {}
            self.level(cluster, node.block.graph, path, inside, own)
            dot.subgraph(cluster)
            for port in node.block.graph.inputs:
                into[node.name, port.name] = inside[f"input {port.name}"]
            for port in node.block.graph.outputs:
                out[node.name, port.name] = inside[f"output {port.name}"]
        for edge in graph.edges:
            tail, head = out[edge.source.node, edge.source.port], into[edge.target.node, edge.target.port]
            shape = self.edge_shapes.get(end_text(edge.source, prefix), "")
            dot.edge(tail, head, **({"label": graphviz.escape(one_line(shape))} if shape else {}))

    def fresh(self, letter: str) -> str:
        """Return a new identifier."""
        self.count += 1
        return f"{letter}{self.count}"


def _label(*texts: str) -> str:
    """Return texts as lines of a DOT label; `escape` keeps backslashes and `<` literal."""
    return "\\n".join(graphviz.escape(one_line(text)) for text in texts if text)
