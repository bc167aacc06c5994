"""Edits of a logical graph: pure functions that take a graph and give a new one.

`Model`'s operators and the workbench's commands are both made of these. After every edit the graph is *closed*: a data
input that nothing feeds becomes an input of the graph, an output that nothing reads becomes an output of the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from mithril_nb.errors import ConnectionError, CycleError, NameTakenError, UnknownBlockError
from mithril_nb.graph.order import path_between, run_order
from mithril_nb.graph.records import BOUNDARY, Block, Edge, Endpoint, LogicalGraph, Node, Port

INPUT, OUTPUT = "input", "output"
"""Names of the boundary ports of a chain that nobody named."""

Edit = Callable[[LogicalGraph], LogicalGraph]


def add(
    graph: LogicalGraph,
    block: Block,
    *,
    name: str = "",
    connections: Mapping[str, str] | None = None,
    after: Endpoint | None = None,
) -> tuple[LogicalGraph, str]:
    """Add a block.

    Args:
        graph: The graph to add to.
        block: What to add.
        name: Its name there; by default its kind and a number, as in `linear_0`.
        connections: Names by port. For an input: a name that was given to an output or a graph input before, or
            `"block.port"`, or a new name for a graph input. For an output: the name to give to it; if a graph input has
            that name, the output takes its place.
        after: Where the first data input that `connections` leaves open gets its data from; by default from nowhere.

    Returns:
        The new graph, and the name of the block in it.

    Raises:
        NameTakenError: The graph has a block or an output of that name.
        ConnectionError: `connections` names a port that the block does not have.
        CycleError: The connections would close a cycle.

    Examples:
        >>> relu = Block("Relu", (), (Port("input"),), (Port("output"),), op="relu")
        >>> graph, name = add(LogicalGraph(), relu)
        >>> name, graph.inputs, graph.outputs
        ('relu_0', (Port(name='input', role='data'),), (Port(name='output', role='data'),))
    """
    connections = dict(connections or {})
    name = name or free_name(graph, block.kind)
    if name in graph.by_name:
        raise NameTakenError(
            f"cannot add {block.kind} as {name!r}: the model has a block of that name.",
            (("blocks", ", ".join(repr(node.name) for node in graph.nodes)),),
            f"name={free_name(graph, block.kind)!r}, or leave the name out.",
            block=name,
        )
    inputs = {port.name: port for port in block.inputs}
    outputs = {port.name for port in block.outputs}
    for port in connections:
        if port not in inputs and port not in outputs:
            raise ConnectionError(
                f"{block.kind} {name!r} has no port {port!r}.",
                (("inputs", ", ".join(inputs) or "none"), ("outputs", ", ".join(outputs) or "none")),
                f"{block.kind}(...)({next(iter(inputs), 'output')}={connections[port]!r})",
                block=name,
                port=port,
            )

    edges = _inner_edges(graph)
    labels = dict(graph.labels)
    for port in block.inputs:
        if port.name in connections:
            source = _named_source(graph, labels, connections[port.name])
            if source.node == BOUNDARY:
                labels.setdefault(source.port, source)
            edges.append(Edge(source, Endpoint(name, port.name)))
        elif after is not None and port.role == "data":
            edges.append(Edge(after, Endpoint(name, port.name)))
            after = None
    nodes = (*graph.nodes, Node(name, block))
    for port in block.outputs:
        label = connections.get(port.name)
        if label is None:
            continue
        source = Endpoint(name, port.name)
        taken = labels.get(label)
        if taken is not None and taken.node != BOUNDARY:
            raise NameTakenError(
                f"cannot name the output {str(source)!r} {label!r}: {str(taken)!r} has that name.",
                (("names", ", ".join(repr(known) for known in labels)),),
                f"{block.kind}(...)({port.name}={label + '_2'!r})",
                block=name,
                port=port.name,
            )
        if taken is not None or any(edge.source == Endpoint(BOUNDARY, label) for edge in edges):
            for edge in edges:
                if edge.source == Endpoint(BOUNDARY, label):
                    _refuse_cycle(replace(graph, nodes=nodes, edges=tuple(edges)), source, edge.target)
            edges = [Edge(source, e.target) if e.source == Endpoint(BOUNDARY, label) else e for e in edges]
        labels[label] = source
    return _closed(nodes, edges, labels), name


def remove(graph: LogicalGraph, names: Collection[str], *, bridge: bool = False) -> LogicalGraph:
    """Remove blocks, and the connections that end at them.

    Args:
        graph: The graph to change.
        names: Names of the blocks.
        bridge: Whether what fed the first data input of a removed block shall feed what read its first output.

    Raises:
        UnknownBlockError: There is no block of such a name.
    """
    for name in names:
        node_of(graph, name)
    edges = _inner_edges(graph)
    labels = {label: source for label, source in graph.labels if source.node not in names}
    if bridge:
        for name in names:
            block = graph.by_name[name].block
            first = next((port.name for port in block.inputs if port.role == "data"), None)
            feeding = next((edge.source for edge in edges if edge.target == Endpoint(name, first or "")), None)
            if feeding is None or not block.outputs:
                continue
            given = Endpoint(name, block.outputs[0].name)
            edges = [Edge(feeding, edge.target) if edge.source == given else edge for edge in edges]
    edges = [edge for edge in edges if edge.source.node not in names and edge.target.node not in names]
    return _closed(tuple(node for node in graph.nodes if node.name not in names), edges, labels)


def connect(graph: LogicalGraph, source: Endpoint, target: Endpoint) -> LogicalGraph:
    """Connect an output, or a graph input, to an input; what fed that input before is let go.

    Raises:
        UnknownBlockError: No block of that name.
        ConnectionError: No port of that name.
        CycleError: It would close a cycle.
    """
    _check_port(graph, source, "outputs")
    _check_port(graph, target, "inputs")
    _refuse_cycle(graph, source, target)
    edges = [edge for edge in _inner_edges(graph) if edge.target != target]
    edges.append(Edge(source, target))
    labels = dict(graph.labels)
    if source.node == BOUNDARY:
        labels.setdefault(source.port, source)
    return _closed(graph.nodes, edges, labels)


def disconnect(graph: LogicalGraph, source: Endpoint, target: Endpoint) -> LogicalGraph:
    """Take a connection away; the input becomes an input of the graph.

    Raises:
        ConnectionError: There is no such connection.
    """
    edge = Edge(source, target)
    if edge not in graph.edges:
        raise ConnectionError(
            f"there is no connection '{edge}'.",
            (("connections", ", ".join(str(known) for known in graph.edges) or "none"),),
            "disconnect one of these.",
            block=target.node,
            port=target.port,
        )
    return _closed(graph.nodes, [kept for kept in _inner_edges(graph) if kept != edge], dict(graph.labels))


def rename(graph: LogicalGraph, old: str, new: str) -> LogicalGraph:
    """Give a block another name.

    Raises:
        UnknownBlockError: No block `old`.
        NameTakenError: `new` is empty or taken.
    """
    node_of(graph, old)
    if new == old:
        return graph
    if not new or new in graph.by_name:
        raise NameTakenError(
            f"cannot rename block {old!r} to {new!r}: " + ("a name is needed." if not new else "that name is taken."),
            (("blocks", ", ".join(repr(node.name) for node in graph.nodes)),),
            f"{free_name(graph, graph.by_name[old].block.kind)!r}",
            block=old,
        )

    def moved(end: Endpoint) -> Endpoint:
        return Endpoint(new, end.port) if end.node == old else end

    return _closed(
        tuple(Node(new, node.block) if node.name == old else node for node in graph.nodes),
        [Edge(moved(edge.source), moved(edge.target)) for edge in _inner_edges(graph)],
        {label: moved(source) for label, source in graph.labels},
    )


def swap(graph: LogicalGraph, name: str, block: Block) -> LogicalGraph:
    """Put another block in a block's place; connections to ports that it has too are kept.

    Raises:
        UnknownBlockError: No block of that name.
    """
    node_of(graph, name)
    inputs, outputs = {port.name for port in block.inputs}, {port.name for port in block.outputs}
    edges = [
        edge
        for edge in _inner_edges(graph)
        if (edge.source.node != name or edge.source.port in outputs)
        and (edge.target.node != name or edge.target.port in inputs)
    ]
    labels = {label: end for label, end in graph.labels if end.node != name or end.port in outputs}
    return _closed(tuple(Node(name, block) if node.name == name else node for node in graph.nodes), edges, labels)


def inside(graph: LogicalGraph, names: tuple[str, ...], edit: Edit) -> LogicalGraph:
    """Apply an edit to the graph of the composite block at a path, and rebuild what is around it.

    A composite that was made from attributes (an MLP of given sizes) becomes a plain model: they would no longer be true.

    Args:
        graph: The outermost graph.
        names: Names down to the composite; `()` for `graph` itself.
        edit: The edit.

    Raises:
        UnknownBlockError: No composite block there.
    """
    if not names:
        return edit(graph)
    block = node_of(graph, names[0]).block
    if block.graph is None:
        raise UnknownBlockError(
            f"block {names[0]!r} has nothing inside: {block.kind} is an op.", block=names[0], advice="edit it as a whole."
        )
    return swap(graph, names[0], composite(inside(block.graph, names[1:], edit)))


def composite(graph: LogicalGraph, kind: str = "Model", attributes: tuple = ()) -> Block:
    """Return the block that a graph is, seen from outside."""
    return Block(kind, attributes, graph.inputs, graph.outputs, graph=graph)


def alone(block: Block) -> LogicalGraph:
    """Return a graph of one block whose ports are all the graph's own, params included.

    So the parameters of a model of one Linear are `weight` and `bias`.
    """
    if block.graph is not None:
        return block.graph
    name = free_name(LogicalGraph(), block.kind).removesuffix("_0")
    ports = (*block.inputs, *block.outputs)
    return add(LogicalGraph(), block, name=name, connections={port.name: port.name for port in ports})[0]


def node_of(graph: LogicalGraph, name: str) -> Node:
    """Return the node of that name.

    Raises:
        UnknownBlockError: There is none.
    """
    node = graph.by_name.get(name)
    if node is None:
        raise UnknownBlockError(
            f"the model has no block {name!r}.",
            (("blocks", ", ".join(repr(known) for known in graph.by_name) or "none"),),
            "one of these names.",
        )
    return node


def free_name(graph: LogicalGraph, kind: str) -> str:
    """Return the name that a block of this kind gets by default: `linear_0`, then `linear_1`, ..."""
    stem = "".join(f"_{char.lower()}" if _starts_word(kind, i) else char.lower() for i, char in enumerate(kind))
    number = sum(node.block.kind == kind for node in graph.nodes)
    while f"{stem}_{number}" in graph.by_name:
        number += 1
    return f"{stem}_{number}"


def _starts_word(kind: str, index: int) -> bool:
    return index > 0 and kind[index].isupper() and not kind[index - 1].isupper()


def _inner_edges(graph: LogicalGraph) -> list[Edge]:
    """The edges that a person made: all but those that closing the graph added."""
    named = {source for _, source in graph.labels}
    return [
        edge
        for edge in graph.edges
        if edge.target.node != BOUNDARY and (edge.source.node != BOUNDARY or edge.source in named)
    ]


def _named_source(graph: LogicalGraph, labels: Mapping[str, Endpoint], text: str) -> Endpoint:
    """Where the data of a connection name comes from; a new name is a new graph input."""
    if text in labels:
        return labels[text]
    for edge in graph.edges:
        if str(edge.source) == text or (edge.target == Endpoint(BOUNDARY, text)):
            return edge.source
    end = Endpoint.parse(text)
    if end.node in graph.by_name and end.port in {out.name for out in graph.by_name[end.node].block.outputs}:
        return end
    return Endpoint(BOUNDARY, text)


def _check_port(graph: LogicalGraph, end: Endpoint, side: str) -> None:
    if end.node == BOUNDARY:
        return
    block = node_of(graph, end.node).block
    ports = block.outputs if side == "outputs" else block.inputs
    if end.port not in {port.name for port in ports}:
        raise ConnectionError(
            f"block {end.node!r} has no port {end.port!r} among its {side}.",
            ((side, ", ".join(port.name for port in ports) or "none"),),
            f"'{end.node}.{ports[0].name}'" if ports else "another block.",
            block=end.node,
            port=end.port,
        )


def _refuse_cycle(graph: LogicalGraph, source: Endpoint, target: Endpoint) -> None:
    if source.node == BOUNDARY or target.node == BOUNDARY:
        return
    way = path_between(graph, target.node, source.node)
    if way is not None:
        raise CycleError(
            f"connecting '{source}' to '{target}' closes a cycle.",
            (("cycle", " -> ".join((*way, target.node))),),
            f"connect '{target}' to a model input, or to a block before it.",
            block=target.node,
            port=target.port,
            edge=(str(source), str(target)),
        )


def _closed(nodes: tuple[Node, ...], edges: Iterable[Edge], labels: Mapping[str, Endpoint]) -> LogicalGraph:
    """Give every open data input a graph input and every unread output a graph output.

    Depends on structure alone, not on the way that led there: nodes stand in an order that runs, edges in the order of
    the ports they feed, labels by name. So equal models are equal values.
    """
    edges = list(edges)
    nodes = run_order(LogicalGraph(nodes, tuple(edges)))
    place = {
        Endpoint(node.name, port.name): (index, number)
        for index, node in enumerate(nodes)
        for number, port in enumerate(node.block.inputs)
    }
    edges.sort(key=lambda edge: place[edge.target])
    labels = dict(sorted(labels.items()))
    fed = {edge.target for edge in edges}
    read = {edge.source for edge in edges}
    roles = {Endpoint(node.name, port.name): port.role for node in nodes for port in node.block.inputs}

    inputs: dict[str, Port] = {}
    for edge in edges:
        if edge.source.node == BOUNDARY:
            role = roles[edge.target]
            known = inputs.get(edge.source.port)
            inputs[edge.source.port] = Port(edge.source.port, "data" if known and known.role == "data" else role)
    opened = [end for end, role in roles.items() if role == "data" and end not in fed]
    for index, end in enumerate(opened):
        plain = INPUT if index == 0 and INPUT not in inputs and INPUT not in labels else f"{end.node}_{end.port}"
        port = _unused(plain, inputs.keys() | labels.keys())
        inputs[port] = Port(port)
        edges.append(Edge(Endpoint(BOUNDARY, port), end))

    kept = {label: end for label, end in labels.items() if end.node != BOUNDARY or end in read}
    label_of = {end: label for label, end in kept.items() if end.node != BOUNDARY}
    unread = [
        end for node in nodes for out in node.block.outputs if (end := Endpoint(node.name, out.name)) not in read
    ]
    plain_ends = [end for end in unread if end not in label_of]
    outputs: list[Port] = []
    for end in unread:
        port = label_of.get(end)
        if port is None:
            last = end == plain_ends[-1] and OUTPUT not in kept
            port = OUTPUT if last else _unused(f"{end.node}_{end.port}", kept.keys())
        outputs.append(Port(port))
        edges.append(Edge(end, Endpoint(BOUNDARY, port)))
    return LogicalGraph(nodes, tuple(edges), tuple(inputs.values()), tuple(outputs), tuple(kept.items()))


def _unused(name: str, taken: Collection[str]) -> str:
    number, free = 2, name
    while free in taken:
        free, number = f"{name}_{number}", number + 1
    return free
