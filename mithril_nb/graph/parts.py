"""Parts of a graph: copy blocks out of it, add those of another graph, group blocks in one, and dissolve a group."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import replace
from itertools import count

from mithril_nb.errors import UnknownBlockError, listed
from mithril_nb.graph.boundary import INPUT, FreeNames, automatic_name, infer_boundary, is_array, made_edges
from mithril_nb.graph.edit import composite, inner_graph
from mithril_nb.graph.paths import check_length, component, name_of
from mithril_nb.graph.records import BOUNDARY, Block, Edge, Endpoint, LogicalGraph, Node, Note, Port, node_of


def part_of(graph: LogicalGraph, names: Collection[str]) -> LogicalGraph:
    """Return the graph of some blocks of a graph. Connections with other blocks become inputs and outputs.

    Examples:
        >>> from mithril_nb.models import Linear, Model, Relu
        >>> part = part_of((Model() + Linear(3) + Relu() + Linear(2)).graph, ["relu_0", "linear_1"])
        >>> sorted(str(edge) for edge in part.edges)
        ['input -> relu_0.input', 'linear_1.output -> output', 'relu_0.output -> linear_1.input']
    """
    nodes = _chosen(graph, names)
    names = {node.name for node in nodes}
    edges = [edge for edge in made_edges(graph) if edge.target.node in names and edge.source.node in {BOUNDARY, *names}]
    labels = {label: end for label, end in graph.labels if end.node in {BOUNDARY, *names}}
    notes = {end: note for end, note in graph.notes if not is_array(end) or _owner(end) in names}
    return infer_boundary(nodes, edges, labels, notes)


def include(graph: LogicalGraph, part: LogicalGraph) -> tuple[LogicalGraph, tuple[str, ...]]:
    """Add the blocks of another graph with their connections, and return the new graph and the names of the blocks.

    Names that the graph has already get the next free number, such as `linear_2` for `linear_0`.
    """
    names = _unused_names(part, graph.by_name)
    free = FreeNames({*dict(graph.labels), *(port.name for port in (*graph.inputs, *graph.outputs))})
    labels = {label: free.take(label) for label, _ in part.labels}

    def moved(end: Endpoint) -> Endpoint:
        return Endpoint(BOUNDARY, labels.get(end.port, end.port)) if end.node == BOUNDARY else _in(names, end)

    added = tuple(Node(names[node.name], node.block) for node in part.nodes)
    edges = [Edge(moved(edge.source), moved(edge.target)) for edge in made_edges(part)]
    notes = {_in(names, end) if is_array(end) else moved(end): note for end, note in part.notes}
    merged = infer_boundary(
        (*graph.nodes, *added),
        [*made_edges(graph), *edges],
        {**dict(graph.labels), **{labels[label]: moved(end) for label, end in part.labels}},
        {**graph.note_at, **notes},
    )
    return merged, tuple(node.name for node in added)


def group(graph: LogicalGraph, names: Collection[str], name: str) -> LogicalGraph:
    """Replace blocks by one composite block that contains them. Its ports are what other blocks feed and read.

    Raises:
        CycleError: Data leaves the blocks and returns to them through a block that is not among them.
    """
    nodes = _chosen(graph, names)
    names = {node.name for node in nodes}
    roles = {Endpoint(node.name, port.name): port.role for node in nodes for port in node.block.inputs}
    own_edges = made_edges(graph)
    inner = [edge for edge in own_edges if edge.source.node in names and edge.target.node in names]
    entering: dict[Endpoint, list[Endpoint]] = {}
    for edge in own_edges:
        if edge.target.node in names and edge.source.node not in names:
            entering.setdefault(edge.source, []).append(edge.target)
    labels = {label: end for label, end in graph.labels if end.node in names}
    free = FreeNames(labels)
    for targets in entering.values():
        # An open data input becomes a port by itself; several targets of one port, and parameters, need its name.
        if len(targets) > 1 or roles[targets[0]] != "data":
            port = free.take(INPUT if len(entering) == 1 else automatic_name(targets[0]))
            labels[port] = Endpoint(BOUNDARY, port)
            inner += [Edge(labels[port], target) for target in targets]
    read_inside = {edge.source for edge in inner}
    leaving = {edge.source for edge in graph.edges if edge.source.node in names and edge.target.node not in names}
    notes = {end: note for end, note in graph.notes if end.node in names}
    notes |= {end: replace(notes.get(end, Note()), is_exposed=True) for end in leaving & read_inside}
    inside = infer_boundary(nodes, inner, labels, notes)
    ports = {source: Endpoint(name, port) for (node, port), source in inside.source_of.items() if node == BOUNDARY}
    ports |= {target: Endpoint(name, source.port) for target, source in inside.source_of.items() if not source.node}

    def outer(end: Endpoint) -> Endpoint:
        return ports.get(end, end)

    at = next(index for index, node in enumerate(graph.nodes) if node.name in names)
    others = [node for node in graph.nodes if node.name not in names]
    before = sum(node.name not in names for node in graph.nodes[:at])
    outer_edges = (edge for edge in own_edges if not {edge.source.node, edge.target.node} <= names)
    noted = {_in({}, end, name) if is_array(end) and _owner(end) in names else end: n for end, n in graph.notes}
    exposed = {ports[end]: Note(is_exposed=True) for end in leaving if graph.note_at.get(end, Note()).is_exposed}
    return infer_boundary(
        (*others[:before], Node(name, composite(inside)), *others[before:]),
        dict.fromkeys(Edge(outer(edge.source), outer(edge.target)) for edge in outer_edges),
        {label: outer(end) for label, end in graph.labels if end.node not in names or end in ports},
        {end: note for end, note in noted.items() if end.node not in names} | exposed,
    )


def ungroup(graph: LogicalGraph, name: str) -> tuple[LogicalGraph, tuple[str, ...]]:
    """Replace a composite block by the blocks inside it, and return the new graph and their names.

    Raises:
        UnknownBlockError: The block has nothing inside.
    """
    inside = inner_graph(graph, name)
    names = _unused_names(inside, {*graph.by_name} - {name})
    labels = {label: end for label, end in graph.labels if end.node != name}
    own_edges = made_edges(graph)
    feeds = {edge.target.port: edge.source for edge in own_edges if edge.target.node == name}
    free = FreeNames({*labels, *(port.name for port in graph.inputs)})
    for port, times in Counter(edge.source.port for edge in inside.edges if not edge.source.node).items():
        if times > 1 and port not in feeds:  # an input that nothing feeds, and that several blocks share
            generated = graph.source_of.get(Endpoint(name, port))
            feeds[port] = generated or Endpoint(BOUNDARY, free.take(f"{name}_{port}"))
            labels[feeds[port].port] = feeds[port]
    gives = {port: _in(names, source) for (node, port), source in inside.source_of.items() if node == BOUNDARY}
    edges: list[Edge] = []
    for source, target in (edge for edge in inside.edges if edge.target.node):
        feed = _in(names, source) if source.node else feeds.get(source.port)
        if feed is not None:
            edges.append(Edge(feed, _in(names, target)))
    for source, target in (edge for edge in own_edges if edge.target.node != name):
        edges.append(Edge(gives[source.port] if source.node == name else source, target))
    labels |= {label: gives[end.port] for label, end in graph.labels if end.node == name}
    own = {*gives.values(), *labels.values()}
    for label, end in inside.labels:
        if end.node and _in(names, end) not in own and label not in labels:
            labels[label] = _in(names, end)
    notes = {_in(names, end): note for end, note in inside.notes if end.node or is_array(end)}
    for end, note in graph.notes:
        inner_name, _, rest = end.port.partition(".")[2].partition(".")
        is_inside = is_array(end) and _owner(end) == name and name_of(inner_name) in names
        if end.node != name:
            notes[Endpoint(BOUNDARY, f"{component(names[name_of(inner_name)])}.{rest}") if is_inside else end] = note
    for port, end in gives.items():
        outer, note = Endpoint(name, port), notes.get(end, Note())
        is_output = any(not target.node for target in graph.targets_of.get(outer, ()))
        is_exposed = note.is_exposed or graph.note_at.get(outer, Note()).is_exposed
        notes[end] = replace(note, is_exposed=is_output and is_exposed)
    added = [Node(names[node.name], node.block) for node in inside.nodes]
    nodes = [part for node in graph.nodes for part in (added if node.name == name else [node])]
    return infer_boundary(tuple(nodes), edges, labels, notes), tuple(node.name for node in added)


def replace_block(
    graph: LogicalGraph, name: str, block: Block, notes: Iterable[tuple[Endpoint, Note]] = ()
) -> LogicalGraph:
    """Replace a block, and keep its connections: to ports of the same name, then to data ports in their order.

    `notes` are those of the new block's parameters.
    """
    before = node_of(graph, name).block
    inputs = _matched(before.inputs, block.inputs)
    outputs = _matched(before.outputs, block.outputs)

    def moved(end: Endpoint, ports: Mapping[str, str]) -> Endpoint | None:
        if end.node != name:
            return end
        return Endpoint(name, ports[end.port]) if end.port in ports else None

    ends = ((moved(edge.source, outputs), moved(edge.target, inputs)) for edge in made_edges(graph))
    labels = ((label, moved(end, outputs)) for label, end in graph.labels)
    return infer_boundary(
        tuple(Node(name, block) if node.name == name else node for node in graph.nodes),
        [Edge(source, target) for source, target in ends if source and target],
        {label: end for label, end in labels if end},
        {**graph.note_at, **dict(notes)},
    )


def unused_name(name: str, used: Container[str]) -> str:
    """Return a name, or with the next free number if it is used.

    Examples:
        >>> unused_name("linear_0", {"linear_0", "linear_1"}), unused_name("head", {"head"})
        ('linear_2', 'head_1')
    """
    match = re.fullmatch(r"(.*?)(?:_([0-9]+))?", name, re.DOTALL)
    assert match is not None
    stem, number = match.groups()
    numbered = (f"{stem}_{next_number}" for next_number in count(int(number or 0) + 1))
    free = name if name not in used else next(other for other in numbered if other not in used)
    check_length(free)
    return free


def _unused_names(graph: LogicalGraph, used: Iterable[str]) -> dict[str, str]:
    names: dict[str, str] = {}
    taken = {*used}
    for node in graph.nodes:
        names[node.name] = unused_name(node.name, taken)
        taken.add(names[node.name])
    return names


def _chosen(graph: LogicalGraph, names: Collection[str]) -> tuple[Node, ...]:
    for name in names:
        node_of(graph, name)
    if not names:
        blocks = listed(repr(node.name) for node in graph.nodes)
        raise UnknownBlockError("no block is chosen.", (("blocks", blocks or "none"),), "select a block first.")
    return tuple(node for node in graph.nodes if node.name in names)


def _owner(array: Endpoint) -> str:
    return name_of(array.port.partition(".")[0])


def _in(names: Mapping[str, str], end: Endpoint, group: str = "") -> Endpoint:
    """Return an endpoint or a parameter of a block after the renaming `names`, and inside of `group` if it is given."""
    if end.node:
        return Endpoint(names.get(end.node, end.node), end.port)
    owner = component(names.get(_owner(end), _owner(end)))
    return Endpoint(BOUNDARY, ".".join(filter(None, (component(group), owner, end.port.partition(".")[2]))))


def _matched(before: tuple[Port, ...], after: tuple[Port, ...]) -> dict[str, str]:
    same = {port.name for port in before} & {port.name for port in after}
    left, right = (
        [port.name for port in ports if port.role == "data" and port.name not in same] for ports in (before, after)
    )
    return {name: name for name in same} | dict(zip(left, right, strict=False))
