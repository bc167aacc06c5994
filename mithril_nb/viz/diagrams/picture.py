"""The picture of a logical graph with inferred shapes and costs. Also graphs and blocks as plain text."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from mithril_nb.display import columns
from mithril_nb.errors import Diagnostic, MithrilError
from mithril_nb.graph.paths import join_path
from mithril_nb.graph.records import BOUNDARY, Block, Endpoint, LogicalGraph
from mithril_nb.graph.spec import TensorSpec
from mithril_nb.viz.diagrams.labels import PLAIN, Annotations, NodeAnnotation, annotate
from mithril_nb.viz.diagrams.layout import layout
from mithril_nb.viz.diagrams.logical import first_view, model_graph
from mithril_nb.viz.diagrams.nested import NestedGraph
from mithril_nb.viz.diagrams.scene import Scene
from mithril_nb.viz.text import one_line
from mithril_nb.viz.units import percent


@dataclass(frozen=True)
class Picture:
    """A graph with positions and labels.

    Attributes:
        graph: The graph.
        diagram: The positions of boxes and wires.
        annotations: The labels of boxes and wires.
        problems: Problems found by shape inference. The boxes and wires in `diagram` refer to them by index.
    """

    graph: LogicalGraph
    diagram: Scene
    annotations: Annotations
    problems: tuple[Diagnostic, ...]


def picture(
    graph: LogicalGraph,
    inputs: Mapping[str, TensorSpec] | None = None,
    shares: Mapping[str, float] | None = None,
    expanded: Collection[str] | None = None,
    fold: bool = True,
    marks: Mapping[str, str] | None = None,
) -> Picture:
    """Infer the shapes of a graph and lay it out.

    Args:
        graph: The graph.
        inputs: Specs of the inputs of the graph. Missing specs are inferred if possible.
        shares: Shares of the cost, 0 to 1, by path of the block.
        expanded: Paths of the groups to draw open. Default: the result of `first_view`.
        fold: If true, a repeated part is drawn as one box with ×N, unless a block inside it is in `expanded`.
        marks: `"added"`, `"removed"` or `"changed"` for nodes that differ from another graph, by key, for `first_view`.

    Returns:
        The picture. If the graph has an error that stops shape inference, `problems` contains it.

    Examples:
        >>> from mithril_nb.models import Linear, Model
        >>> graph = (Model() + Linear(10)).graph
        >>> [node.shape for node in picture(graph, {"input": TensorSpec((32, 64))}).diagram.nodes]
        ['(32, 64)', '(32, 10)', '(32, 10)']
    """
    from mithril_nb.models.shape_inference.infer import infer

    specs, given, found = None, inputs, ()
    try:
        inference = infer(graph, inputs or {})
    except MithrilError as error:
        found = error.diagnostics
    else:
        specs, given = inference.blocks, inference.inputs
        if inputs:  # without inputs, missing shapes are not errors yet
            found = inference.problems
    notes = annotate(graph, specs, given, shares, found)
    nested = model_graph(graph, notes.nodes, notes.edge_shapes, notes.edge_problems, fold)
    opened = first_view(nested, marks) if expanded is None else _with_repeats(nested, expanded)
    return Picture(graph, layout(nested, opened), notes, found)


def _with_repeats(graph: NestedGraph, expanded: Collection[str]) -> set[str]:
    """Return the keys in `expanded`, and the keys of the repeated parts around them."""
    known = [key for key in expanded if key in graph.by_key]
    return {key for one in known for key in graph.above(one) if key == one or (key and not graph.by_key[key].path)}


def graph_text(
    graph: LogicalGraph,
    annotations: Mapping[str, NodeAnnotation] | None = None,
    edge_shapes: Mapping[str, str] | None = None,
) -> str:
    """Return a graph as an indented list of inputs, blocks and outputs, with sources and shapes.

    Args:
        graph: The graph.
        annotations: Labels of blocks, by path.
        edge_shapes: Shapes of the inputs of the graph, by name.

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
