"""One diagram from a graph, its inferred shapes and its costs; and graphs and blocks as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from mithril_nb.display import columns
from mithril_nb.errors import Diagnostic, MithrilError
from mithril_nb.graph.paths import join_path
from mithril_nb.graph.records import BOUNDARY, Block, Edge, Endpoint, LogicalGraph
from mithril_nb.graph.spec import TensorSpec
from mithril_nb.viz.diagrams.labels import PLAIN, Annotations, NodeAnnotation, annotate
from mithril_nb.viz.diagrams.logical import model_layout
from mithril_nb.viz.diagrams.scene import Scene
from mithril_nb.viz.text import one_line
from mithril_nb.viz.units import percent

MOST_UNFOLDED = 24
"""Larger graphs draw runs of equal blocks as one box, so that a picture can be read at a glance."""


@dataclass(frozen=True)
class Picture:
    """A laid-out graph with its labels.

    Attributes:
        graph: The graph.
        diagram: Its layout.
        annotations: The labels of its boxes and wires.
        problems: Problems found by shape inference; `problem` indices in the diagram point into them.
    """

    graph: LogicalGraph
    diagram: Scene
    annotations: Annotations
    problems: tuple[Diagnostic, ...]


def picture(
    graph: LogicalGraph,
    inputs: Mapping[str, TensorSpec] | None = None,
    shares: Mapping[str, float] | None = None,
    expanded: Collection[str] = frozenset(),
    fold: bool | None = None,
) -> Picture:
    """Infer a graph's shapes and lay it out.

    Args:
        graph: The graph.
        inputs: Specs of its inputs; missing specs are inferred where possible.
        shares: Share of the cost of blocks, by path.
        expanded: Paths of the groups that are drawn open.
        fold: Whether equal blocks in a row are drawn as one; by default if there are more than 24 blocks.

    Returns:
        The picture. If nothing can be inferred from a broken graph, the reason is among its problems.

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
    drawn, nodes = graph, dict(notes.nodes)
    if (len(graph.nodes) > MOST_UNFOLDED if fold is None else fold) and not found:
        drawn, chains = fold_chains(graph)
        for chain in chains.values():
            paths = [join_path("", name) for name in chain]
            known = [share for path in paths if (share := nodes[path].share) is not None]
            nodes[paths[0]] = replace(nodes[paths[0]], repeat=len(chain), share=sum(known) if known else None)
    diagram = model_layout(
        drawn,
        annotations=nodes,
        edge_shapes=notes.edge_shapes,
        expanded=expanded,
        edge_problems=notes.edge_problems,
    )
    return Picture(graph, diagram, notes, found)


def fold_chains(graph: LogicalGraph) -> tuple[LogicalGraph, dict[str, tuple[str, ...]]]:
    """Replace each chain of equal blocks by its first block.

    A chain is folded only if each block feeds only the next one, and the next one reads nothing else. Then the folded
    picture loses no connection.

    Args:
        graph: The graph; only its top level is folded.

    Returns:
        The smaller graph, and for each first block the names of all blocks in its chain, itself included.
    """
    reads: dict[str, list[Endpoint]] = {node.name: [] for node in graph.nodes}
    readers: Counter[str] = Counter()
    for edge in graph.edges:
        if edge.target.node != BOUNDARY:
            reads[edge.target.node].append(edge.source)
        readers[edge.source.node] += 1
    before: dict[str, str] = {}
    for node in graph.nodes:
        if len(reads[node.name]) != 1:
            continue
        source = reads[node.name][0].node
        if source != BOUNDARY and readers[source] == 1 and graph.by_name[source].block == node.block:
            before[node.name] = source
    chains: dict[str, list[str]] = {}
    after = {source: name for name, source in before.items()}
    for node in graph.nodes:
        if node.name in after and node.name not in before:
            chain = [node.name]
            while chain[-1] in after:
                chain.append(after[chain[-1]])
            chains[node.name] = chain
    first_of = {name: first for first, chain in chains.items() for name in chain}
    last_of = {chain[-1]: first for first, chain in chains.items()}
    dropped = {name for name, first in first_of.items() if name != first}
    edges = []
    for edge in graph.edges:
        if edge.target.node in dropped:
            continue
        source = edge.source
        if source.node in last_of:
            source = Endpoint(last_of[source.node], source.port)
        edges.append(Edge(source, edge.target))
    smaller = replace(
        graph, nodes=tuple(node for node in graph.nodes if node.name not in dropped), edges=tuple(edges), labels=()
    )
    return smaller, {first: tuple(chain) for first, chain in chains.items()}


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
