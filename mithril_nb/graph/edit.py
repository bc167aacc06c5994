"""Edits of a logical graph: pure functions that take a graph and return a new one.

`Model`'s operators and the workbench's commands are built from these edits. Every edit infers the inputs and outputs of
the new graph, see `mithril_nb.graph.boundary`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from mithril_nb.errors import (
    ConnectionError,
    CycleError,
    NameTakenError,
    NestingError,
)
from mithril_nb.graph.boundary import infer_boundary, is_array, made_edges
from mithril_nb.graph.check import path_between
from mithril_nb.graph.paths import check_length, checked_name, component
from mithril_nb.graph.records import BOUNDARY, Block, Edge, Endpoint, LogicalGraph, Node, Value, free_name, node_of

DEEPEST = 50
"""Maximum nesting depth of a model, so that neither a walk over it nor a trace exhausts Python's stack."""

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
        block: The block to add.
        name: Name of the block in the graph. Default: its kind and a number, as in `linear_0`.
        connections: A dict from the names of ports to text. For an input, the text is the source to connect: the name
            of a graph input or of an output, or `"block.port"`; an unknown name creates a graph input. For an output,
            the text is its new name. If a graph input has this name, the output replaces the graph input.
        after: The endpoint to connect to the first data input that `connections` omits. By default, this input becomes
            a graph input.

    Returns:
        The new graph, and the name of the block in it.

    Raises:
        NameTakenError: The graph has a block or an output with that name.
        NestingError: The block is nested too deep.
        ConnectionError: `connections` names a port that does not exist, or an invalid name.
        UnknownBlockError: `connections` names a block that does not exist.
        CycleError: The connections would create a cycle.

    Examples:
        >>> from mithril_nb.graph.records import Port
        >>> relu = Block("Relu", (), (Port("input"),), (Port("output"),), op="relu")
        >>> graph, name = add(LogicalGraph(), relu)
        >>> name, graph.inputs, graph.outputs
        ('relu_0', (Port(name='input', role='data'),), (Port(name='output', role='data'),))
    """
    connections = dict(connections or {})
    name = name or free_name(graph, block.kind)
    check_new(block, name, connections, graph.by_name, lambda: free_name(graph, block.kind))
    inputs = {port.name for port in block.inputs}
    sources = {port: _named_source(graph, text, port) for port, text in connections.items() if port in inputs}
    names = {port: _output_name(text) for port, text in connections.items() if port not in inputs}
    edges = made_edges(graph, {end.port for end in sources.values() if end.node == BOUNDARY})
    labels = dict(graph.labels)
    for port in block.inputs:
        source = sources.get(port.name)
        if source is None and after is not None and port.role == "data":
            source, after = after, None
        if source is not None:
            edges.append(Edge(source, Endpoint(name, port.name)))
            if source.node == BOUNDARY:
                labels[source.port] = source
    nodes = (*graph.nodes, Node(name, block))
    for port in block.outputs:
        label = names.get(port.name)
        if label is None:
            continue
        source = Endpoint(name, port.name)
        holder = labels.get(label)
        if holder is not None and holder.node != BOUNDARY:
            raise NameTakenError(
                f"cannot give output {str(source)!r} the name {label!r}: {str(holder)!r} already has it.",
                (("names", ", ".join(repr(used) for used in labels)),),
                f"{constructor_call(block)}({port.name}={label + '_2'!r})",
                block=component(name),
                port=port.name,
            )
        replaced = Endpoint(BOUNDARY, label)
        for edge in edges:
            if edge.source == replaced:
                _check_no_cycle(replace(graph, nodes=nodes, edges=tuple(edges)), source, edge.target)
        edges = [Edge(source, edge.target) if edge.source == replaced else edge for edge in edges]
        labels[label] = source
    return infer_boundary(nodes, edges, labels, graph.note_at), name


def check_new(
    block: Block,
    name: str,
    connections: Mapping[str, str],
    nodes: Mapping[str, Node],
    free: Callable[[], str],
) -> None:
    """Raise if a block cannot be added to existing nodes. `free` returns an unused name, for the message.

    Raises:
        NameTakenError: A node has that name, or the name is too long.
        NestingError: The block is nested too deep.
        ConnectionError: `connections` names a port that does not exist.
    """
    check_length(name, NameTakenError)
    if name in nodes:
        raise NameTakenError(
            f"cannot add {block.kind} as {name!r}: the model has a block with that name.",
            (("blocks", ", ".join(repr(used) for used in nodes)),),
            f"name={free()!r}",
            block=component(name),
        )
    if block.graph is not None and block.graph.depth >= DEEPEST:
        raise NestingError(
            f"cannot add {name!r}: models would be nested {block.graph.depth + 1} levels deep.",
            (("at most", f"{DEEPEST} levels"),),
            f"Repeat(body, count={DEEPEST})  # runs body several times without nesting",
            block=component(name),
        )
    inputs = {port.name: port for port in block.inputs}
    outputs = {port.name for port in block.outputs}
    for port in connections:
        if port not in inputs and port not in outputs:
            raise ConnectionError(
                f"{block.kind} {name!r} has no port {port!r}.",
                (("inputs", ", ".join(inputs) or "none"), ("outputs", ", ".join(outputs) or "none")),
                f"{constructor_call(block)}({next(iter(inputs), 'output')}={connections[port]!r})",
                block=component(name),
                port=port,
            )


def remove(graph: LogicalGraph, names: Collection[str], *, bridge: bool = False) -> LogicalGraph:
    """Remove blocks, and the connections from and to them.

    Args:
        graph: The graph to change.
        names: Names of the blocks.
        bridge: If true, connect the source of the first data input of a removed block to the readers of its first
            output.

    Raises:
        UnknownBlockError: A name is not the name of a block.
    """
    for name in names:
        node_of(graph, name)
    edges = made_edges(graph)
    labels = {label: source for label, source in graph.labels if source.node not in names}
    if bridge:
        for name in names:
            block = graph.by_name[name].block
            first = next((port.name for port in block.inputs if port.role == "data"), None)
            feeding = next((edge.source for edge in edges if edge.target == Endpoint(name, first or "")), None)
            if feeding is None or not block.outputs:
                continue
            output = Endpoint(name, block.outputs[0].name)
            edges = [Edge(feeding, edge.target) if edge.source == output else edge for edge in edges]
    edges = [edge for edge in edges if edge.source.node not in names and edge.target.node not in names]
    return infer_boundary(tuple(node for node in graph.nodes if node.name not in names), edges, labels, graph.note_at)


def connect(graph: LogicalGraph, source: Endpoint, target: Endpoint) -> LogicalGraph:
    """Connect an output or a graph input to an input of a block, and remove the previous connection of that input.

    If the node of `source` is `""`, its port is the name of a graph input, or the name that the user gave to an output.
    An unknown name creates a graph input.

    Raises:
        UnknownBlockError: The block of `source` or `target` does not exist.
        ConnectionError: The port of `source` or `target` does not exist, `target` is not an input of a block, or the
            name of the new graph input is not valid.
        CycleError: The connection would create a cycle.
    """
    if source.node == BOUNDARY and all(port.name != source.port for port in graph.inputs):
        source = _named_source(graph, str(source), "source")
    _check_port(graph, source, "outputs", "source")
    _check_port(graph, target, "inputs", "target")
    _check_no_cycle(graph, source, target)
    if target.node == BOUNDARY:
        free = (end for end in _inputs(graph) if not source.node or path_between(graph, end.node, source.node) is None)
        open_input = next(free, None)
        raise ConnectionError(
            f"cannot connect '{source}' to '{target}', which is not an input of a block.",
            (
                ("inputs of blocks", ", ".join(f"'{end}'" for end in _inputs(graph)) or "none"),
                ("model outputs", "need no connection: an output that no block reads is an output of the model"),
            ),
            f"target='{open_input}'" if open_input else f'model |= Buffer()(input="{source}", output="{target.port}")',
            port=target.port,
            edge=(str(source), str(target)),
        )
    named = () if source.node else (source.port,)
    edges = [edge for edge in made_edges(graph, named) if edge.target != target]
    edges.append(Edge(source, target))
    labels = dict(graph.labels)
    if source.node == BOUNDARY:
        labels[source.port] = source
    return infer_boundary(graph.nodes, edges, labels, graph.note_at)


def disconnect(graph: LogicalGraph, source: Endpoint, target: Endpoint) -> LogicalGraph:
    """Remove a connection. If its target is a data input of a block, this becomes an input of the graph.

    Raises:
        ConnectionError: No such connection exists.
    """
    edge = Edge(source, target)
    if edge not in graph.edges:
        near = max(graph.edges, key=lambda other: 2 * (other.target == target) + (other.source == source), default=None)
        raise ConnectionError(
            f"there is no connection '{edge}'.",
            (("connections", ", ".join(str(other) for other in graph.edges) or "none"),),
            f"source='{near.source}', target='{near.target}'" if near else "connect two blocks first.",
            block=component(target.node),
            port=target.port,
        )
    return infer_boundary(
        graph.nodes, [other for other in made_edges(graph) if other != edge], dict(graph.labels), graph.note_at
    )


def rename(graph: LogicalGraph, old: str, name: str) -> LogicalGraph:
    """Rename a block.

    Raises:
        UnknownBlockError: No block is named `old`.
        NameTakenError: `name` is empty, taken or too long.
    """
    node_of(graph, old)
    check_length(name, NameTakenError)
    if name == old:
        return graph
    if not name or name in graph.by_name:
        raise NameTakenError(
            f"cannot rename block {old!r} to {name!r}: " + ("a name is needed." if not name else "that name is taken."),
            (("blocks", ", ".join(repr(node.name) for node in graph.nodes)),),
            f"name={free_name(graph, graph.by_name[old].block.kind)!r}",
            block=component(old),
        )

    def moved(end: Endpoint) -> Endpoint:
        return Endpoint(name, end.port) if end.node == old else end

    nodes = tuple(Node(name, node.block) if node.name == old else node for node in graph.nodes)
    return with_names(graph, nodes, moved, moved, (component(old), component(name)))


def with_names(
    graph: LogicalGraph,
    nodes: tuple[Node, ...],
    source: Callable[[Endpoint], Endpoint],
    target: Callable[[Endpoint], Endpoint],
    array: tuple[str, str],
) -> LogicalGraph:
    """Rebuild a graph with renamed blocks, and keep its connections, labels and notes.

    Args:
        graph: The graph before.
        nodes: The blocks, with their new names.
        source: A function from the old endpoint of an output to the new one.
        target: A function from the old endpoint of an input to the new one.
        array: The old and the new start of the names of parameters, such as `("linear_0", "head")`.
    """

    def noted(end: Endpoint) -> Endpoint:
        if is_array(end) and end.port.startswith(f"{array[0]}."):
            return Endpoint(BOUNDARY, array[1] + end.port.removeprefix(array[0]))
        return target(end) if source(end) == end else source(end)

    return infer_boundary(
        nodes,
        [Edge(source(edge.source), target(edge.target)) for edge in made_edges(graph)],
        {label: source(end) for label, end in graph.labels},
        {noted(end): note for end, note in graph.notes},
    )


def swap(graph: LogicalGraph, name: str, block: Block) -> LogicalGraph:
    """Replace a block. Connections to its ports are kept if the new block has a port of the same name.

    Raises:
        UnknownBlockError: No block has that name.
    """
    node_of(graph, name)
    inputs, outputs = {port.name for port in block.inputs}, {port.name for port in block.outputs}
    edges = [
        edge
        for edge in made_edges(graph)
        if (edge.source.node != name or edge.source.port in outputs)
        and (edge.target.node != name or edge.target.port in inputs)
    ]
    labels = {label: end for label, end in graph.labels if end.node != name or end.port in outputs}
    nodes = tuple(Node(name, block) if node.name == name else node for node in graph.nodes)
    return infer_boundary(nodes, edges, labels, graph.note_at)


def composite(graph: LogicalGraph, kind: str = "Model", attributes: tuple[tuple[str, Value], ...] = ()) -> Block:
    """Return a composite block that contains the graph."""
    return Block(kind, attributes, graph.inputs, graph.outputs, graph=graph)


def alone(block: Block) -> LogicalGraph:
    """Return a graph that contains only this block, and whose inputs, parameters and outputs have its names.

    For example, the parameters of the graph of a Linear are `weight` and `bias`, not `linear.weight` and
    `linear.bias`. For a composite block, return the graph inside it.
    """
    if block.graph is not None and block.is_composite:
        return block.graph
    name = free_name(LogicalGraph(), block.kind).removesuffix("_0")
    # An option port stays unconnected, so it keeps the value of its attribute.
    ports = (*(port for port in block.inputs if port.role != "option"), *block.outputs)
    return add(LogicalGraph(), block, name=name, connections={port.name: port.name for port in ports})[0]


def constructor_call(block: Block) -> str:
    """Return code that constructs a block; `"block"` if the code is too long, or the block contains other blocks.

    An MLP contains other blocks too, but its arguments describe them, so its code is returned.

    Examples:
        >>> constructor_call(Block("Linear", (("dimension", 3),), (), (), op="linear"))
        'Linear(dimension=3)'
    """
    if block.graph is not None and not block.attributes:
        return "block"
    text = f"{block.kind}({', '.join(f'{key}={value!r}' for key, value in block.attributes)})"
    return text if len(text) <= 80 else "block"


def _named_source(graph: LogicalGraph, text: str, argument: str) -> Endpoint:
    """Return the output or graph input that a connection name refers to. An unknown name is a new graph input."""
    end = Endpoint.parse(text)
    if end.node == BOUNDARY:
        end = dict(graph.labels).get(end.port) or graph.source_of.get(end) or Endpoint(BOUNDARY, checked_name(end.port))
    _check_port(graph, end, "outputs", argument)
    return end


def _inputs(graph: LogicalGraph) -> list[Endpoint]:
    return [Endpoint(node.name, port.name) for node in graph.nodes for port in node.block.inputs if port.role == "data"]


def _output_name(text: str) -> str:
    end = Endpoint.parse(text)
    return checked_name(text if end.node else end.port)


def _check_port(graph: LogicalGraph, end: Endpoint, side: str, argument: str) -> None:
    """Raise if the block has no port `end.port`. The advice sets `argument` to a port that the block has."""
    if end.node == BOUNDARY:
        return
    block = node_of(graph, end.node).block
    ports = block.outputs if side == "outputs" else block.inputs
    if end.port not in {port.name for port in ports}:
        raise ConnectionError(
            f"block {end.node!r} has no port {end.port!r} among its {side}.",
            ((side, ", ".join(port.name for port in ports) or "none"),),
            f"{argument}='{Endpoint(end.node, ports[0].name)}'" if ports else f"use a block with {side}.",
            block=component(end.node),
            port=end.port,
        )


def _check_no_cycle(graph: LogicalGraph, source: Endpoint, target: Endpoint) -> None:
    if source.node == BOUNDARY or target.node == BOUNDARY:
        return
    path = path_between(graph, target.node, source.node)
    if path is not None:
        raise CycleError(
            f"connecting '{source}' to '{target}' closes a cycle.",
            (("cycle", " -> ".join(component(name) for name in (*path, target.node))),),
            f"connect '{target}' to a model input, or to a block before it.",
            block=component(target.node),
            port=target.port,
            edge=(str(source), str(target)),
        )
