"""Edits of the annotations of connections: name, shape, dtype, trainability, and model outputs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mithril_nb.errors import ConnectionError, NameTakenError, listed, short_repr, similar
from mithril_nb.graph.boundary import infer_boundary, is_array, made_edges
from mithril_nb.graph.paths import checked_name, component, parameter_name
from mithril_nb.graph.records import ADD_BLOCK, BOUNDARY, Edge, Endpoint, LogicalGraph, Note


def find(graph: LogicalGraph, text: object) -> Endpoint:
    """Return the endpoint that a name refers to.

    The name is that of a graph input, of an output that the user has named, of a graph output, or `"block.port"`. A
    graph output refers to the output of a block that it returns. An input of a block refers to the endpoint that feeds
    it; without one, as for a parameter, it refers to itself.

    Raises:
        ConnectionError: No endpoint has this name.

    Examples:
        >>> from mithril_nb.models import Linear, Model
        >>> find((Model() | Linear(3)(output="y")).graph, "y")
        Endpoint(node='linear_0', port='output')
        >>> find((Model() | Linear(3)(input="x")).graph, "linear_0.input")
        Endpoint(node='', port='x')
    """
    end = Endpoint.parse(text if isinstance(text, str) else "")
    if end.node:
        if end.node in graph.by_name and end.port in _ports(graph, end.node):
            return end if _is_output(graph, end) else graph.source_of.get(end, end)
    else:
        labels = dict(graph.labels)
        if end.port in labels:
            return labels[end.port]
        if end in graph.source_of:
            return graph.source_of[end]
        if any(port.name == end.port for port in graph.inputs):
            return end
    names = [*dict(graph.labels), *(port.name for port in (*graph.inputs, *graph.outputs))]
    names += [f"{node.name}.{port}" for node in graph.nodes for port in _ports(graph, node.name)]
    near = similar(str(text), names)
    raise ConnectionError(
        f"the model has no connection {short_repr(text)}.",
        (("names", listed(dict.fromkeys(names))),),
        repr(near[0]) if near else f"{names[0]!r}  # or another of these names" if names else ADD_BLOCK,
    )


def annotate(graph: LogicalGraph, end: Endpoint, **changes: Any) -> LogicalGraph:
    """Add annotations to an endpoint, such as `shape=` or `is_trainable=`; see `Note`.

    If the endpoint is a graph input with a generated name, such as `"input"`, the name becomes permanent: new blocks do
    not change it any more.
    """
    labels = dict(graph.labels)
    named: tuple[str, ...] = ()
    if end.node == BOUNDARY and any(port.name == end.port for port in graph.inputs):
        named = (end.port,)
        labels[end.port] = end
    notes = {**graph.note_at, end: replace(graph.note_at.get(end, Note()), **changes)}
    return infer_boundary(graph.nodes, made_edges(graph, named), labels, notes)


def annotate_array(graph: LogicalGraph, name: str, is_trainable: bool) -> LogicalGraph:
    """Set whether training changes the parameter `name`, such as `"mlp_0.linear_1.weight"`, of a block at any depth."""
    end = Endpoint(BOUNDARY, name)
    # A parameter of a block is trainable by default and needs no note; an input of the model needs one.
    trainable = None if is_trainable and is_array(end) else is_trainable
    note = replace(graph.note_at.get(end, Note()), is_trainable=trainable)
    return infer_boundary(graph.nodes, made_edges(graph), dict(graph.labels), {**graph.note_at, end: note})


def label(graph: LogicalGraph, end: Endpoint, name: str) -> LogicalGraph:
    """Name or rename an input or an output, or name a parameter of a block.

    Raises:
        NameTakenError: Another endpoint has the name.
        ConnectionError: The name is not valid.
    """
    name = checked_name(name)
    labels = dict(graph.labels)
    holder = labels.get(name)
    inputs = {port.name for port in graph.inputs}
    if (holder is not None and holder != end) or (name in inputs and end != Endpoint(BOUNDARY, name)):
        raise NameTakenError(
            f"cannot give '{end}' the name {name!r}: '{holder or Endpoint(BOUNDARY, name)}' already has it.",
            (("names", listed(dict.fromkeys([*labels, *inputs]))),),
            f"{name + '_2'!r}",
            block=end.node,
            port=end.port,
        )
    if end.node == BOUNDARY:
        new = Endpoint(BOUNDARY, name)
        edges = [
            Edge(new if edge.source == end else edge.source, edge.target) for edge in made_edges(graph, (end.port,))
        ]
        labels = {label: endpoint for label, endpoint in labels.items() if endpoint != end}
        labels[name] = new
        notes = {new if endpoint == end else endpoint: note for endpoint, note in graph.notes}
        return infer_boundary(graph.nodes, edges, labels, notes)
    if not _is_output(graph, end):
        # The note of the parameter moves to the new graph input.
        new, old = Endpoint(BOUNDARY, name), Endpoint(BOUNDARY, parameter_name(component(end.node), end.port))
        notes = {new if endpoint in (old, end) else endpoint: note for endpoint, note in graph.notes}
        return infer_boundary(graph.nodes, [*made_edges(graph), Edge(new, end)], {**labels, name: new}, notes)
    labels = {label: endpoint for label, endpoint in labels.items() if endpoint != end}
    labels[name] = end
    return infer_boundary(graph.nodes, made_edges(graph), labels, graph.note_at)


def expose(graph: LogicalGraph, end: Endpoint) -> LogicalGraph:
    """Make an output of a block an output of the graph, even if a block reads it.

    Raises:
        ConnectionError: The endpoint is an input, or a parameter.
    """
    if end.node != BOUNDARY and _is_output(graph, end):
        return annotate(graph, end, is_exposed=True)
    raise ConnectionError(
        f"cannot expose '{end}': it is {'a parameter' if end.node else 'an input'} of the model, not an output.",
        (("outputs of blocks", listed(f"'{source}'" for source in _outputs(graph))),),
        f'model |= Buffer()(input="{end}", output="y")' if not end.node else f'pm.randomize_params()["{end}"]',
        block=end.node,
        port=end.port,
    )


def merge(graph: LogicalGraph, first: Endpoint, second: Endpoint) -> LogicalGraph:
    """Merge two connections: all blocks that read one of them then read the same endpoint.

    An input of the graph merged with an output of a block becomes that output. A parameter of a block merged with an
    input or an output becomes that input or output. Two parameters become one named parameter.

    Raises:
        ConnectionError: Both are outputs of blocks, or both are the same.
        CycleError: The merge would create a cycle.
    """
    if _is_open(graph, first) and not _is_open(graph, second):
        first, second = second, first
    if _is_open(graph, first) and first != second:
        name = f"{first.node}_{first.port}"
        graph, first = label(graph, first, name), Endpoint(BOUNDARY, name)
    if _is_open(graph, second) and first != second:
        labels = {**dict(graph.labels), **({} if first.node else {first.port: first})}
        named = () if first.node else (first.port,)
        return infer_boundary(graph.nodes, [*made_edges(graph, named), Edge(first, second)], labels, graph.note_at)
    if first.node == BOUNDARY and second.node != BOUNDARY:
        first, second = second, first
    if second.node != BOUNDARY or first == second:
        raise ConnectionError(
            f"cannot merge '{first}' and '{second}'.",
            (("because", "they are the same" if first == second else "two blocks would feed one connection"),),
            "merge an input of the model with an output of a block, or with another input.",
        )
    named = tuple(end.port for end in (first, second) if end.node == BOUNDARY)
    edges = [Edge(first, edge.target) if edge.source == second else edge for edge in made_edges(graph, named)]
    labels = {name: end for name, end in graph.labels if end != second}
    if first.node == BOUNDARY:
        labels[first.port] = first
    notes = {end: note for end, note in graph.notes if end != second}
    return infer_boundary(graph.nodes, edges, labels, notes)


def _outputs(graph: LogicalGraph) -> list[Endpoint]:
    return [Endpoint(node.name, port.name) for node in graph.nodes for port in node.block.outputs]


def _is_output(graph: LogicalGraph, end: Endpoint) -> bool:
    return any(port.name == end.port for port in graph.by_name[end.node].block.outputs)


def _is_open(graph: LogicalGraph, end: Endpoint) -> bool:
    """Return whether an endpoint that `find` has returned is an input port of a block that nothing feeds."""
    return end.node != BOUNDARY and not _is_output(graph, end)


def _ports(graph: LogicalGraph, node: str) -> list[str]:
    block = graph.by_name[node].block
    return [port.name for port in (*block.outputs, *block.inputs)]
