"""Infer the inputs and outputs of a graph, its boundary, from the blocks, their connections and the user's names.

A data input that is not connected becomes a graph input. An output that no block reads becomes a graph output.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from mithril_nb.graph.check import run_order
from mithril_nb.graph.paths import name_of
from mithril_nb.graph.records import BOUNDARY, Edge, Endpoint, LogicalGraph, Node, Note, Port, PortRole

INPUT, OUTPUT = "input", "output"
"""Default names of the first graph input and the last graph output."""


def infer_boundary(
    nodes: tuple[Node, ...],
    edges: Iterable[Edge],
    labels: Mapping[str, Endpoint],
    notes: Mapping[Endpoint, Note] | None = None,
) -> LogicalGraph:
    """Return the graph of some blocks, with the inferred inputs and outputs.

    A data input that is not connected becomes a graph input. An output that no block reads becomes a graph output, and
    so does an output whose note has `is_exposed`.

    Nodes are in topological order (independent nodes as they were added), edges are sorted by target, and labels and
    notes by name. So two graphs are equal if their blocks were added in the same order, even if other edits were made
    and undone between.
    """
    edges, notes = list(edges), notes or {}
    nodes = run_order(LogicalGraph(nodes, tuple(edges)))
    roles: dict[Endpoint, PortRole] = {
        Endpoint(node.name, port.name): port.role for node in nodes for port in node.block.inputs
    }
    # Edges are compared by target, so that the order of edits does not show in the graph.
    position = {end: number for number, end in enumerate(roles)}
    # A target that does not exist raises here; `check_parts` reports it where graphs come from a file.
    edges.sort(key=lambda edge: position[edge.target])
    fed = {edge.target for edge in edges}
    read = {edge.source for edge in edges}
    # Drop the names of inputs that no block reads first: generated names may then use them.
    used_labels = {label: end for label, end in sorted(labels.items()) if end.node != BOUNDARY or end in read}

    inputs: dict[str, Port] = {}
    for edge in edges:
        if edge.source.node == BOUNDARY:
            existing, role = inputs.get(edge.source.port), _boundary_role(roles[edge.target], notes.get(edge.source))
            # A parameter stays a parameter when other blocks read it too, as with tied weights and penalties.
            if existing is None or existing.role == "data":
                inputs[edge.source.port] = Port(edge.source.port, role)
    # Parameters and options need no connection.
    opened = [end for end, role in roles.items() if role == "data" and end not in fed]
    free = FreeNames(inputs.keys() | used_labels.keys())
    for index, end in enumerate(opened):
        # The first input is called "input", so that chains have the same name whatever their first block is.
        plain = INPUT if index == 0 and INPUT not in inputs and INPUT not in used_labels else automatic_name(end)
        name = free.take(plain)
        source = Endpoint(BOUNDARY, name)
        inputs[name] = Port(name, _boundary_role("data", notes.get(source)))
        edges.append(Edge(source, end))

    label_of = {end: label for label, end in used_labels.items() if end.node != BOUNDARY}
    exposed = {end for end, note in notes.items() if note.is_exposed}
    gives = [Endpoint(node.name, out.name) for node in nodes for out in node.block.outputs]
    unread = [end for end in gives if end not in read or end in exposed]
    plain_ends = [end for end in unread if end not in label_of]
    outputs: list[Port] = []
    free = FreeNames({*used_labels, OUTPUT})
    for end in unread:
        name = label_of.get(end)
        if name is None:
            # The last output is mostly the result, and others are by-products such as states.
            last = end == plain_ends[-1] and OUTPUT not in used_labels
            name = OUTPUT if last else free.take(automatic_name(end))
        outputs.append(Port(name))
        edges.append(Edge(end, Endpoint(BOUNDARY, name)))
    graph = LogicalGraph(nodes, tuple(edges), tuple(inputs.values()), tuple(outputs), tuple(used_labels.items()))
    # Notes of removed blocks, and of parameters that now read another array, are dropped.
    present = {*roles, *gives, *(Endpoint(BOUNDARY, name) for name in inputs)}
    noted = sorted(
        (end, note)
        for end, note in notes.items()
        if note != Note() and (end in present or (is_array(end) and _has_array(graph, end.port.split("."))))
    )
    return _ordered(replace(graph, notes=tuple(noted))) if noted else graph


def _ordered(graph: LogicalGraph) -> LogicalGraph:
    """Return the graph with its inputs and outputs in the order of their notes, which are counted from 0."""
    placed = [(bool(end.node), note.order, end) for end, note in graph.notes if note.order is not None]
    if not placed:
        return graph
    first = sum(not is_output for is_output, *_ in placed)
    ranks = {end: at - first * is_output for at, (is_output, _, end) in enumerate(sorted(placed))}
    return replace(
        graph,
        inputs=tuple(sorted(graph.inputs, key=lambda port: ranks.get(Endpoint(BOUNDARY, port.name), len(ranks)))),
        outputs=tuple(
            sorted(
                graph.outputs,
                key=lambda port: ranks.get(graph.source_of[Endpoint(BOUNDARY, port.name)], len(ranks)),
            )
        ),
        notes=tuple((end, replace(note, order=ranks.get(end))) for end, note in graph.notes),
    )


def _has_array(graph: LogicalGraph, names: list[str]) -> bool:
    name, *inner = names
    node = graph.by_name.get(name_of(name))
    if not inner:
        return any(port.name == name_of(name) and port.role in ("param", "state") for port in graph.inputs)
    if node is None or (len(inner) == 1 and Endpoint(node.name, name_of(inner[0])) in graph.source_of):
        return False
    if node.block.graph is not None:
        return _has_array(node.block.graph, inner)
    return len(inner) == 1 and any(port.name == name_of(inner[0]) for port in node.block.inputs)


def automatic_name(end: Endpoint) -> str:
    """Return the default name of a graph input or output, built from the node and port that it represents.

    Dots in names of blocks become underscores, because a dot separates a block from its port.

    Examples:
        >>> automatic_name(Endpoint("linear_0", "input")), automatic_name(Endpoint("v1.5", "input"))
        ('linear_0_input', 'v1_5_input')
    """
    return f"{end.node}_{end.port}".replace(".", "_")


def is_array(end: Endpoint) -> bool:
    """Return whether an endpoint is a parameter of a block at any depth, such as `"mlp_0.linear_1.weight"`."""
    return end.node == BOUNDARY and "." in end.port


def _boundary_role(role: PortRole, note: Note | None) -> PortRole:
    """Return the role of a graph input, given the role of the port that it feeds and the user's note on the input."""
    # An option of a block can read any input, but is no parameter by itself.
    if role in ("data", "option"):
        return "param" if note and note.is_trainable else "data"
    return role


def made_edges(graph: LogicalGraph, named: Collection[str] = ()) -> list[Edge]:
    """Return the edges that the user created, without the edges that `infer_boundary` added.

    The added edges lead to graph outputs, or come from graph inputs with generated names. Edges from the graph inputs
    `named` are returned too, because the caller makes their generated names permanent.
    """
    # Names that the user gave. Generated ones are inferred again, and may then differ.
    permanent = {source for _, source in graph.labels} | {Endpoint(BOUNDARY, name) for name in named}
    return [
        edge
        for edge in graph.edges
        if edge.target.node != BOUNDARY and (edge.source.node != BOUNDARY or edge.source in permanent)
    ]


class FreeNames:
    """Generates unused names by appending a number.

    Args:
        used: The names in use.

    Examples:
        >>> free = FreeNames(["x"])
        >>> free.take("x"), free.take("x"), free.take("y")
        ('x_2', 'x_3', 'y')
    """

    def __init__(self, used: Iterable[str] = ()):
        self.used = set(used)
        self.numbers: dict[str, int] = {}

    def take(self, name: str) -> str:
        """Return the name, or the name with the smallest free number, and mark the result as used."""
        # The last number is remembered: 10,000 equal names would need quadratic time.
        number, free = self.numbers.get(name, 2), name
        while free in self.used:
            free, number = f"{name}_{number}", number + 1
        self.numbers[name] = number
        self.used.add(free)
        return free
