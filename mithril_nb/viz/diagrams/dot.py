"""A logical graph as DOT, the language of Graphviz."""

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
) -> graphviz.Digraph:
    """Return the graph as DOT: blocks as boxes, groups as clusters, shapes on the edges.

    A DOT node has a letter and a number as its identifier: `i1` is an input, `o2` an output, `b3` a block, and
    `cluster_g4` a group. The name of the block is its label.

    Args:
        graph: The graph.
        annotations: Labels of blocks, by path.
        edge_shapes: Shape of the data on an edge, by source such as `"linear_0.output"`; `"input"` is a model input.

    Returns:
        A `graphviz.Digraph`; `source` is the DOT text. Drawing the graph needs the `dot` program.

    Examples:
        >>> print(to_dot(LogicalGraph()).source.splitlines()[0])
        digraph model {
    """
    dot = graphviz.Digraph("model")
    dot.attr(rankdir="TB", fontname="sans-serif")
    dot.attr(
        "node", shape="box", style="rounded,filled", fillcolor=LIGHT.surface, color=LIGHT.line, fontname="sans-serif"
    )
    dot.attr("edge", color=LIGHT.wire, fontname="sans-serif", fontsize="10")
    _Writer(annotations or {}, edge_shapes or {}).level(dot, graph, "", {}, None)
    return dot


class _Writer:
    """Writes DOT, first the blocks of the model, then those inside each group."""

    def __init__(self, annotations: Mapping[str, NodeAnnotation], edge_shapes: Mapping[str, str]):
        self.annotations = annotations
        self.edge_shapes = edge_shapes
        self.count = 0

    def level(
        self, dot: graphviz.Digraph, graph: LogicalGraph, prefix: str, boundary: dict[str, str], hue: int | None
    ) -> None:
        """Write the content of a model or group, including the groups inside it.

        Args:
            dot: The DOT graph to write to.
            graph: The content of the model or group.
            prefix: Path of the group; `""` for the model.
            boundary: For each port of the model or group, the identifier of its DOT node is added, under a key such as
                `"input x"`.
            hue: Index of the group's colour; `None` for the model.
        """
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
            own = at % HUES if hue is None else hue
            colour = LIGHT.hues[own]
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
    """Return a DOT label with one line for each non-empty text. Characters that are special in DOT are escaped."""
    return "\\n".join(graphviz.escape(one_line(text)) for text in texts if text)
