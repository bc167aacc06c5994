"""Logical graphs and blocks as text, for terminals, tests and screen readers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mithril_nb.display import columns
from mithril_nb.graph.paths import join_path
from mithril_nb.graph.records import BOUNDARY, Block, Endpoint, LogicalGraph
from mithril_nb.viz.diagrams.labels import PLAIN, NodeAnnotation
from mithril_nb.viz.text.escape import one_line
from mithril_nb.viz.text.units import percent


def graph_text(
    graph: LogicalGraph,
    annotations: Mapping[str, NodeAnnotation] | None = None,
    edge_shapes: Mapping[str, str] | None = None,
) -> str:
    """Return a graph as an indented list of blocks with their sources and their output shapes.

    Examples:
        >>> print(graph_text(LogicalGraph()))
        an empty graph: no blocks yet
    """
    if not graph.nodes:
        return "an empty graph: no blocks yet"
    notes, shapes = annotations or {}, edge_shapes or {}
    rows: list[tuple[str, ...]] = []
    for port in graph.inputs:
        rows.append((one_line(port.name), "input", "", "", one_line(shapes.get(port.name, "")), ""))
    rows.extend(_rows(graph, "", "", notes))
    for port in graph.outputs:
        source = graph.source_of.get(Endpoint(BOUNDARY, port.name))
        rows.append((one_line(port.name), "output", "", _from([(None, source)]), "", ""))
    return columns(rows, {5})


def block_text(block: Block) -> str:
    """Return a block as the call that creates it.

    Examples:
        >>> block_text(Block("Linear", (("dimension", 10),), (), (), op="linear"))
        'Linear(dimension=10)'
    """
    return f"{one_line(block.kind)}({', '.join(f'{name}={value!r}' for name, value in block.attributes)})"


def _rows(
    graph: LogicalGraph, prefix: str, indent: str, notes: Mapping[str, NodeAnnotation]
) -> Iterator[tuple[str, ...]]:
    for node in graph.nodes:
        path = join_path(prefix, node.name)
        note = notes.get(path, PLAIN)
        wired = [
            (port.name, graph.source_of.get(Endpoint(node.name, port.name)))
            for port in node.block.inputs
            if port.role == "data" or Endpoint(node.name, port.name) in graph.source_of
        ]
        share = "" if note.share is None else percent(note.share)
        sources = _from([(name if len(wired) > 1 else None, source) for name, source in wired])
        yield (
            f"{indent}{one_line(node.name)}",
            one_line(node.block.kind),
            one_line(note.label),
            sources,
            one_line(note.shape),
            share,
        )
        if node.block.graph is not None:
            yield from _rows(node.block.graph, path, indent + "  ", notes)


def _from(wired: list[tuple[str | None, Endpoint | None]]) -> str:
    texts = []
    for name, source in wired:
        text = "(nothing)" if source is None else one_line(source.node or source.port)
        texts.append(f"{one_line(name)}={text}" if name else text)
    return f"<- {', '.join(texts)}" if texts else ""
