"""The graph of a model as DOT text for Graphviz."""

from __future__ import annotations

from itertools import count

import graphviz

from mithril_nb.graph.paths import join_path
from mithril_nb.graph.records import BOUNDARY, LogicalGraph
from mithril_nb.viz.diagrams.nested import NestedGraph
from mithril_nb.viz.palette import HUES, LIGHT
from mithril_nb.viz.text import one_line


def to_dot(graph: LogicalGraph, nested: NestedGraph) -> graphviz.Digraph:
    """Return the graph of a model as a `graphviz.Digraph`.

    A DOT node has a letter and a number as its identifier: `i1` is an input, `o2` an output, `b3` a block, and
    `cluster_g4` a group. The name of the block is its label.
    """
    # Names cannot be identifiers: Graphviz reads what follows a colon as a port.
    numbers = count(1)
    shapes = {(flow.source, flow.out): nested.shape_text(flow.shapes) for flow in nested.flows}

    def fill(
        dot: graphviz.Digraph, graph: LogicalGraph, prefix: str, hue: int | None
    ) -> tuple[dict[str, str], dict[str, str]]:
        # (node, port) -> the DOT node that receives its data, or computes it
        into: dict[tuple[str, str], str] = {}
        out: dict[tuple[str, str], str] = {}
        ends: dict[str, dict[str, str]] = {"input": {}, "output": {}}
        # In DOT, a cluster cannot be the end of an edge, so each port of a group is a node.
        for side, ports in (("input", graph.inputs), ("output", graph.outputs)):
            for port in ports:
                name = f"{side[0]}{next(numbers)}"
                dot.node(name, label=_label(port.name, side if not prefix else ""), shape="ellipse")
                ends[side][port.name] = (out if side == "input" else into)[BOUNDARY, port.name] = name
        for at, node in enumerate(graph.nodes):
            path, block = join_path(prefix, node.name), node.block
            box = nested.by_key[path]
            own = at % HUES if hue is None else hue
            if block.graph is None:
                name = f"b{next(numbers)}"
                label = _label(node.name, block.kind, box.label, box.shape)
                dot.node(name, label=label, color=LIGHT.hues[own])
                into |= {(node.name, port.name): name for port in block.inputs}
                out |= {(node.name, port.name): name for port in block.outputs}
                continue
            cluster = graphviz.Digraph(f"cluster_g{next(numbers)}")
            cluster.attr(label=_label(node.name, block.kind, box.label), color=LIGHT.hues[own], style="rounded")
            inputs, outputs = fill(cluster, block.graph, path, own)
            dot.subgraph(cluster)
            into |= {(node.name, port): name for port, name in inputs.items()}
            out |= {(node.name, port): name for port, name in outputs.items()}
        for edge in graph.edges:
            tail, head = out[edge.source.node, edge.source.port], into[edge.target.node, edge.target.port]
            source = join_path(prefix, edge.source.node) if edge.source.node else prefix or f"input:{edge.source.port}"
            shape = shapes[source, edge.source.port]
            dot.edge(tail, head, **({"label": graphviz.escape(one_line(shape))} if shape else {}))
        return ends["input"], ends["output"]

    dot = graphviz.Digraph("model")
    dot.attr(rankdir="TB", fontname="sans-serif")
    dot.attr(
        "node", shape="box", style="rounded,filled", fillcolor=LIGHT.surface, color=LIGHT.line, fontname="sans-serif"
    )
    dot.attr("edge", color=LIGHT.wire, fontname="sans-serif", fontsize="10")
    fill(dot, graph, "", None)
    return dot


def _label(*texts: str) -> str:
    # Graphviz reads `\n` as a line break, and would replace `\N` in a name by the id of the node.
    return "\\n".join(graphviz.escape(one_line(text)) for text in texts if text)
