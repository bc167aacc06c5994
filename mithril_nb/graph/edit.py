"""Edits of a logical graph: pure functions that take a graph and return a new one.

`Model`'s operators and the workbench's commands are built from these edits. Every edit infers the inputs and outputs of
the new graph, see `mithril_nb.graph.boundary`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from typing import Any

from mithril_nb.errors import (
    ConnectionError,
    CycleError,
    MithrilError,
    NameTakenError,
    NestingError,
    UnknownBlockError,
    listed,
    short_repr,
    similar,
)
from mithril_nb.graph.boundary import (
    INPUT,
    OUTPUT,
    FreeNames,
    automatic_name,
    infer_boundary,
    is_array,
    made_edges,
)
from mithril_nb.graph.check import path_between
from mithril_nb.graph.paths import check_length, checked_name, component, next_name, parameter_name
from mithril_nb.graph.records import (
    ADD_BLOCK,
    BOUNDARY,
    Block,
    Edge,
    Endpoint,
    LogicalGraph,
    Node,
    Note,
    Value,
    free_name,
    node_of,
)


def find(graph: LogicalGraph, text: object) -> Endpoint:
    """Return the endpoint that a name refers to.

    The name is that of a graph input, of an output that the user has named, of a graph output, or `"block.port"`. A
    graph output refers to the output of a block that it returns. An input of a block refers to the endpoint that feeds
    it; without one, as for a parameter, it refers to itself.

    Examples:
        >>> from mithril_nb.models import Linear, Model
        >>> find((Model() | Linear(3)(output="y")).graph, "y")
        Endpoint(node='linear_0', port='output')
        >>> find((Model() | Linear(3)(input="x")).graph, "linear_0.input")
        Endpoint(node='', port='x')
    """
    # Other values get the error below, which lists the names.
    end = Endpoint.parse(text if isinstance(text, str) else "")
    if end.node:
        if end.node in graph.by_name and end.port in _ports(graph, end.node):
            # The user sees one connection where the graph has two ends, so both refer to the source.
            return end if _is_output(graph, end) else graph.source_of.get(end, end)
    else:
        labels = dict(graph.labels)
        if end.port in labels:
            return labels[end.port]
        # The name of a graph output that the user did not give, such as "output".
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


def _rebuilt(
    graph: LogicalGraph,
    *,
    nodes: tuple[Node, ...] | None = None,
    edges: list[Edge] | None = None,
    labels: Mapping[str, Endpoint] | None = None,
    notes: Mapping[Endpoint, Note] | None = None,
) -> LogicalGraph:
    return infer_boundary(
        graph.nodes if nodes is None else nodes,
        made_edges(graph) if edges is None else edges,
        dict(graph.labels) if labels is None else labels,
        graph.note_at if notes is None else notes,
    )


def annotate(graph: LogicalGraph, end: Endpoint, **changes: Any) -> LogicalGraph:
    """Add annotations to an endpoint, such as `shape=` or `is_trainable=`; see `Note`.

    If the endpoint is a graph input with a generated name, such as `"input"`, the name becomes permanent: new blocks do
    not change it any more.
    """
    labels = dict(graph.labels)
    named: tuple[str, ...] = ()
    # Otherwise the note would move to another input as soon as a block is added before this one.
    if end.node == BOUNDARY and any(port.name == end.port for port in graph.inputs):
        named = (end.port,)
        labels[end.port] = end
    notes = {**graph.note_at, end: replace(graph.note_at.get(end, Note()), **changes)}
    return _rebuilt(graph, edges=made_edges(graph, named), labels=labels, notes=notes)


def annotate_array(graph: LogicalGraph, name: str, is_trainable: bool) -> LogicalGraph:
    """Set whether training changes the parameter `name`, such as `"mlp_0.linear_1.weight"`, of a block at any depth."""
    end = Endpoint(BOUNDARY, name)
    # A parameter of a block is trainable by default and needs no note; an input of the model needs one.
    trainable = None if is_trainable and is_array(end) else is_trainable
    note = replace(graph.note_at.get(end, Note()), is_trainable=trainable)
    return _rebuilt(graph, notes={**graph.note_at, end: note})


def label(graph: LogicalGraph, end: Endpoint, name: str) -> LogicalGraph:
    """Name or rename an input or an output, or name a parameter of a block."""
    name = checked_name(name)
    labels = dict(graph.labels)
    holder = labels.get(name)
    inputs = [port.name for port in graph.inputs]
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
            # With `end.port`, because a generated name has no edge that the user made.
            Edge(new if edge.source == end else edge.source, edge.target)
            for edge in made_edges(graph, (end.port,))
        ]
        labels = {label: endpoint for label, endpoint in labels.items() if endpoint != end} | {name: new}
        notes = {new if endpoint == end else endpoint: note for endpoint, note in graph.notes}
        return _rebuilt(graph, edges=edges, labels=labels, notes=notes)
    if not _is_output(graph, end):
        # The note of the parameter moves to the new graph input.
        new, old = Endpoint(BOUNDARY, name), Endpoint(BOUNDARY, parameter_name(component(end.node), end.port))
        notes = {new if endpoint in (old, end) else endpoint: note for endpoint, note in graph.notes}
        edges = [*made_edges(graph), Edge(new, end)]
        return _rebuilt(graph, edges=edges, labels={**labels, name: new}, notes=notes)
    labels = {label: endpoint for label, endpoint in labels.items() if endpoint != end} | {name: end}
    return _rebuilt(graph, labels=labels)


def expose(graph: LogicalGraph, end: Endpoint) -> LogicalGraph:
    """Make an output of a block an output of the graph, even if a block reads it."""
    if end.node != BOUNDARY and _is_output(graph, end):
        return annotate(graph, end, is_exposed=True)
    raise ConnectionError(
        f"cannot expose '{end}': it is {'a parameter' if end.node else 'an input'} of the model, not an output.",
        (("outputs of blocks", listed(f"'{Endpoint(n.name, p.name)}'" for n in graph.nodes for p in n.block.outputs)),),
        f'model |= Buffer()(input="{end}", output="y")' if not end.node else f'pm.randomize_params()["{end}"]',
        block=end.node,
        port=end.port,
    )


def feed_output(graph: LogicalGraph, source: Endpoint, name: str) -> LogicalGraph:
    """Let the output `name` of the graph be an output of a block, which may be read by blocks."""
    output = Endpoint(BOUNDARY, name)
    other = next((end.port for end in graph.targets_of.get(source, ()) if end.node == BOUNDARY), None)
    if other == name:
        return graph
    if other is not None:
        raise ConnectionError(
            f"cannot connect '{source}' to the output {name!r}: it is the output {other!r} already.",
            (("outputs", listed(repr(port.name) for port in graph.outputs)),),
            f'model |= Buffer()(input="{source}", output="y")  # one more output with the same values',
            block=source.node,
            port=source.port,
            edge=(str(source), name),
        )
    before, note_of = graph.source_of[output], graph.note_at
    labels = {label: end for label, end in graph.labels if end not in (before, source)} | {name: source}
    notes = {**note_of, before: replace(note_of.get(before, Note()), is_exposed=False)}
    return expose(_rebuilt(graph, labels=labels, notes=notes), source)


def merge(graph: LogicalGraph, first: Endpoint, second: Endpoint) -> LogicalGraph:
    """Merge two connections: all blocks that read one of them then read the same endpoint.

    An input of the graph merged with an output of a block becomes that output. A parameter of a block merged with an
    input or an output becomes that input or output. Two parameters become one named parameter.
    """
    # An input or an output exists already; a parameter that is not connected must be given to it.
    if _is_open(graph, first) and not _is_open(graph, second):
        first, second = second, first
    if _is_open(graph, first) and first != second:
        # Two parameters: the first becomes a named input, which both blocks then read.
        name = f"{first.node}_{first.port}"
        graph, first = label(graph, first, name), Endpoint(BOUNDARY, name)
    if _is_open(graph, second) and first != second:
        labels = {**dict(graph.labels), **({} if first.node else {first.port: first})}
        named = () if first.node else (first.port,)
        return _rebuilt(graph, edges=[*made_edges(graph, named), Edge(first, second)], labels=labels)
    # The output stays, because an input can be replaced by it and not the other way round.
    if first.node == BOUNDARY and second.node != BOUNDARY:
        first, second = second, first
    # An input reads one source, so two outputs cannot be merged.
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
    return _rebuilt(graph, edges=edges, labels=labels, notes=notes)


def _is_output(graph: LogicalGraph, end: Endpoint) -> bool:
    return any(port.name == end.port for port in graph.by_name[end.node].block.outputs)


def _is_open(graph: LogicalGraph, end: Endpoint) -> bool:
    return end.node != BOUNDARY and not _is_output(graph, end)


def _ports(graph: LogicalGraph, node: str) -> list[str]:
    block = graph.by_name[node].block
    return [port.name for port in (*block.outputs, *block.inputs)]


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

    Examples:
        >>> from mithril_nb.graph.records import Port
        >>> relu = Block("Relu", (), (Port("input"),), (Port("output"),), op="relu")
        >>> graph, name = add(LogicalGraph(), relu)
        >>> name, graph.inputs, graph.outputs
        ('relu_0', (Port(name='input', role='data'),), (Port(name='output', role='data'),))
    """
    draft = Draft(graph)
    name = draft.add(block, name=name, connections=connections, after=after)
    return draft.graph(), name


def remove(graph: LogicalGraph, names: Collection[str], *, bridge: bool = False) -> LogicalGraph:
    """Remove blocks, and the connections from and to them.

    Args:
        graph: The graph to change.
        names: Names of the blocks.
        bridge: If true, connect the source of the first data input of a removed block to the readers of its first
            output.
    """
    for name in names:
        # Raises for an unknown name before anything changes.
        node_of(graph, name)
    edges = made_edges(graph)
    labels = {label: source for label, source in graph.labels if source.node not in names}
    if bridge:
        for name in names:
            block = graph.by_name[name].block
            first = next((port.name for port in block.inputs if port.role == "data"), None)
            # In the edges so far: a removed block may follow another removed block.
            feeding = next((edge.source for edge in edges if edge.target == Endpoint(name, first or "")), None)
            if feeding is None or not block.outputs:
                continue
            output = Endpoint(name, block.outputs[0].name)
            edges = [Edge(feeding, edge.target) if edge.source == output else edge for edge in edges]
    edges = [edge for edge in edges if edge.source.node not in names and edge.target.node not in names]
    nodes = tuple(node for node in graph.nodes if node.name not in names)
    return _rebuilt(graph, nodes=nodes, edges=edges, labels=labels)


def connect(graph: LogicalGraph, source: Endpoint, target: Endpoint) -> LogicalGraph:
    """Connect an output or a graph input to an input of a block, and remove the previous connection of that input.

    If the node of `source` is `""`, its port is the name of a graph input, or the name that the user gave to an output.
    An unknown name creates a graph input.
    """
    # The name may be that of an output, which other blocks can read too.
    if source.node == BOUNDARY and all(port.name != source.port for port in graph.inputs):
        end = Endpoint.parse(str(source))
        source = (
            dict(graph.labels).get(end.port) or graph.source_of.get(end) or Endpoint(BOUNDARY, checked_name(end.port))
        )
    for end in (source, target):
        if end.node != BOUNDARY:
            node_of(graph, end.node)
    _check_port(graph.by_name, source, "outputs", "source")
    _check_port(graph.by_name, target, "inputs", "target")
    # Before the boundary is inferred, whose error would not name the two ports.
    _check_no_cycle(graph, source, target)
    if target.node == BOUNDARY:
        inputs = (Endpoint(n.name, p.name) for n in graph.nodes for p in n.block.inputs if p.role == "data")
        raise ConnectionError(
            f"cannot connect '{source}' to '{target}', which is not an input of a block.",
            (("inputs of blocks", ", ".join(f"'{end}'" for end in inputs) or "none"),),
            "connect to one of these inputs. An output that no block reads is an output of the model.",
            port=target.port,
            edge=(str(source), str(target)),
        )
    named = () if source.node else (source.port,)
    # An input has one source.
    edges = [edge for edge in made_edges(graph, named) if edge.target != target]
    edges.append(Edge(source, target))
    return _rebuilt(graph, edges=edges, labels={**dict(graph.labels), **{port: source for port in named}})


def disconnect(graph: LogicalGraph, source: Endpoint, target: Endpoint) -> LogicalGraph:
    """Remove a connection. If its target is a data input of a block, this becomes an input of the graph."""
    edge = Edge(source, target)
    if edge not in graph.edges:
        raise ConnectionError(
            f"there is no connection '{edge}'.",
            (("connections", ", ".join(str(other) for other in graph.edges) or "none"),),
            "disconnect one of these connections.",
            block=component(target.node),
            port=target.port,
        )
    return _rebuilt(graph, edges=[other for other in made_edges(graph) if other != edge])


def named_parameter(graph: LogicalGraph, end: Endpoint) -> tuple[LogicalGraph, Endpoint]:
    """Return what the parameter port of a block reads, after giving its own parameter a name if it reads none."""
    if (source := graph.source_of.get(end)) is not None:
        return graph, source
    name = FreeNames({*dict(graph.labels), *(port.name for port in graph.inputs)}).take(automatic_name(end))
    return label(graph, end, name), Endpoint(BOUNDARY, name)


def unshare(graph: LogicalGraph, end: Endpoint) -> LogicalGraph:
    """Give the port of a block a parameter of its own again.

    A generated name of the parameter is dropped if only one block still reads it.
    """
    source = graph.source_of.get(end)
    if source is None:
        fed = [str(edge.target) for edge in made_edges(graph) if edge.target.node and not edge.source.node]
        facts = (("shared", listed(fed) or "none"),)
        raise ConnectionError(f"'{end}' has a parameter of its own.", facts, "unshare a port that shares one.")
    graph = disconnect(graph, source, end)
    first, *more = graph.targets_of.get(source, (end,))
    if source.node or more or source.port != automatic_name(first):
        return graph
    own = Endpoint(BOUNDARY, parameter_name(component(first.node), first.port))
    notes = {own if noted == source else noted: note for noted, note in graph.notes}
    return _rebuilt(graph, edges=[edge for edge in made_edges(graph) if edge.source != source], notes=notes)


def rename(graph: LogicalGraph, old: str, name: str) -> LogicalGraph:
    """Rename a block."""
    node_of(graph, old)
    check_length(name, NameTakenError)
    # Otherwise the name would be refused as taken, by the block itself.
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
        # A note is at an output or at an input, and only one of the functions changes it.
        return target(end) if source(end) == end else source(end)

    return infer_boundary(
        nodes,
        [Edge(source(edge.source), target(edge.target)) for edge in made_edges(graph)],
        {label: source(end) for label, end in graph.labels},
        {noted(end): note for end, note in graph.notes},
    )


def swap(graph: LogicalGraph, name: str, block: Block) -> LogicalGraph:
    """Replace a block. Connections to its ports are kept if the new block has a port of the same name."""
    node_of(graph, name)
    inputs, outputs = {port.name for port in block.inputs}, {port.name for port in block.outputs}
    edges = [
        edge
        for edge in made_edges(graph)
        # For example, `Linear` without a bias after one with a connected bias.
        if (edge.source.node != name or edge.source.port in outputs)
        and (edge.target.node != name or edge.target.port in inputs)
    ]
    labels = {label: end for label, end in graph.labels if end.node != name or end.port in outputs}
    nodes = tuple(Node(name, block) if node.name == name else node for node in graph.nodes)
    return _rebuilt(graph, nodes=nodes, edges=edges, labels=labels)


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
    # The name of the kind without a number: there is only one block.
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
    # A model that was composed by hand has no constructor call.
    if block.graph is not None and not block.attributes:
        return "block"
    text = f"{block.kind}({', '.join(f'{key}={value!r}' for key, value in block.attributes)})"
    return text if len(text) <= 80 else "block"


def _check_port(nodes: Mapping[str, Node], end: Endpoint, side: str, argument: str) -> None:
    if end.node == BOUNDARY:
        return
    block = nodes[end.node].block
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
    # The edge closes a cycle if the target reaches the source already.
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


_INSIDE = "inside"
"""Label of the error fact that names the enclosing blocks."""


def inside(graph: LogicalGraph, names: tuple[str, ...], edit: Edit) -> LogicalGraph:
    """Apply an edit to the graph of the composite block at a path, and rebuild the enclosing blocks.

    A composite built from attributes, such as an MLP, becomes a plain model, because its attributes no longer apply.

    `names` are the names of the blocks on the path to the composite; `()` refers to `graph` itself.
    """
    if not names:
        return edit(graph)
    before = inner_graph(graph, names[0])
    with placed(names[0], is_inside=True):
        after = inside(before, names[1:], edit)
    # `swap` drops connections to ports that the edit removed.
    return swap(graph, names[0], composite(after))


def rename_inside(graph: LogicalGraph, names: tuple[str, ...], new: str) -> LogicalGraph:
    """Rename the block at a path.

    Ports of the enclosing blocks whose names were generated from the old name are renamed too, and stay connected.

    Args:
        graph: The outermost graph.
        names: Names of the blocks on the path to the block, and its own.
        new: The new name.

    Examples:
        >>> from mithril_nb.models import MLP, Model
        >>> graph = rename_inside((Model() + MLP(4, [3], 2)).graph, ("mlp_0", "linear_0"), "encoder")
        >>> [path for path, _ in graph.walk()]
        ['mlp_0', 'mlp_0/encoder', 'mlp_0/relu_0', 'mlp_0/linear_1']
    """
    name, *rest = names
    if not rest:
        return rename(graph, name, new)
    before = inner_graph(graph, name)
    with placed(name, is_inside=True):
        after = rename_inside(before, tuple(rest), new)
    # Otherwise an MLP would become a plain model although nothing changed.
    if after == before:
        return graph
    inputs, outputs = (
        {Endpoint(name, port.name): Endpoint(name, now.name) for port, now in zip(*ports, strict=True)}
        for ports in ((before.inputs, after.inputs), (before.outputs, after.outputs))
    )
    nodes = tuple(Node(name, composite(after)) if node.name == name else node for node in graph.nodes)
    # Notes name parameters with dots, at any depth.
    old_path, new_path = (".".join(map(component, path)) for path in (names, (*names[:-1], new)))
    return with_names(
        graph, nodes, lambda end: outputs.get(end, end), lambda end: inputs.get(end, end), (old_path, new_path)
    )


def inner_graph(graph: LogicalGraph, name: str) -> LogicalGraph:
    """Return the graph inside a composite block."""
    block = node_of(graph, name).block
    if block.graph is None or not block.is_composite:
        raise UnknownBlockError(
            f"block {name!r} has nothing inside: {block.kind} is an op.",
            (
                (
                    "composite blocks",
                    ", ".join(repr(node.name) for node in graph.nodes if node.block.is_composite) or "none",
                ),
            ),
            f"edit the block {name!r} itself.",
            block=component(name),
        )
    return block.graph


@contextmanager
def placed(name: str, *, is_inside: bool = False) -> Generator[None]:
    """Add the name of the edited block to the block path of an error that the `with` statement raises.

    Args:
        name: Name of the block.
        is_inside: True if a block inside it is edited: its name is put before the path. False if the block itself is
            edited: its name becomes the path, unless the error has a path already.
    """
    try:
        yield
    except MithrilError as error:
        first, *more = error.diagnostics
        if not is_inside:
            # `from None`: the user made one edit, and the inner error has the same text.
            raise type(error)(replace(first, block=first.block or component(name)), more=tuple(more)) from None
        inner, facts = "", first.facts
        if facts and facts[0][0] == _INSIDE:
            # Outer blocks extend the fact that the inner one wrote.
            (_, inner), *facts = facts
        path, block = (f"{component(name)}/{tail}".removesuffix("/") for tail in (inner, first.block))
        facts = ((_INSIDE, path), *facts)
        raise type(error)(replace(first, block=block, facts=facts), more=tuple(more)) from None


class Draft:
    """A graph under construction: the blocks, connections and names that the user has created so far.

    The method `graph` infers the inputs and outputs (`infer_boundary`) and returns the graph. `edit.add` infers
    them after each block, so composing n blocks takes O(n²). A draft gives the same graph in O(n).

    Args:
        graph: The graph to start from.

    Examples:
        >>> from mithril_nb.graph.records import Port
        >>> draft = Draft(LogicalGraph())
        >>> draft.add(Block("Relu", (), (Port("input"),), (Port("output"),), op="relu"))
        'relu_0'
        >>> draft.graph().inputs
        (Port(name='input', role='data'),)
    """

    def __init__(self, graph: LogicalGraph):
        self.restart(graph)

    def restart(self, graph: LogicalGraph) -> None:
        """Drop all blocks and connections, and continue with those of a graph."""
        # `None` while there are changes: the boundary is inferred when it is needed.
        self._closed: LogicalGraph | None = graph
        self._nodes = dict(graph.by_name)
        self._edges = made_edges(graph)
        self._labels = dict(graph.labels)
        self._notes = dict(graph.notes)
        self._counts = Counter(node.block.kind for node in graph.nodes)
        # Names that `infer_boundary` may give to an input or an output, without their numeric suffixes.
        self._automatic = {INPUT, OUTPUT}
        for node in graph.nodes:
            self._automatic |= _automatic_names(node)

    def state(self) -> tuple[Any, ...]:
        """Return a snapshot for `restore`."""
        parts = (self._nodes, self._edges, self._labels, self._notes, self._counts, self._automatic)
        # Shallow: nodes, edges and notes are immutable.
        return self._closed, *map(copy, parts)

    def restore(self, state: tuple[Any, ...]) -> None:
        """Undo all changes since a snapshot. Each snapshot can be restored once."""
        self._closed, self._nodes, self._edges, self._labels, self._notes, self._counts, self._automatic = state

    def graph(self) -> LogicalGraph:
        """Return the current graph, with its inputs and outputs."""
        if self._closed is None:
            self._closed = infer_boundary(tuple(self._nodes.values()), self._edges, self._labels, self._notes)
        return self._closed

    def last_output(self) -> Endpoint | None:
        """Return the first output of the last block; `None` if there is no block, or the block has no output."""
        last = next(reversed(self._nodes.values()), None)
        return Endpoint(last.name, last.block.outputs[0].name) if last and last.block.outputs else None

    def node(self, name: str) -> Node:
        """Return the node with this name."""
        return self._nodes[name]

    def free_name(self, kind: str) -> str:
        """Return the default name of the next block of a kind."""
        return next_name(kind, self._counts[kind], self._nodes)

    def source(self, node: str, port: str) -> Endpoint:
        """Return the endpoint that feeds an input of a block; the input itself if it is an open parameter."""
        target = Endpoint(node, port)
        # Backwards: the edge in question is mostly one of the last block.
        for edge in reversed(self._edges):
            if edge.target == target:
                return edge.source
        return self.graph().source_of.get(target, target)

    def shared(self, end: Endpoint) -> str:
        """Return the name of the connection at a block's input. If it has no permanent name, name it first."""
        source = self.source(end.node, end.port)
        if source.node != BOUNDARY:
            name = f"{end.node}_{end.port}" if source == end else ""
        else:
            name = f"{end.node}_{end.port}" if "." in source.port else source.port
        # A name that exists is a connection that the user can refer to already.
        if name and name not in self._labels:
            self.restart(label(self.graph(), end if source == end or "." in source.port else source, name))
        return name or str(source)

    def note(self, end: Endpoint, change: Callable[[Note], Note]) -> None:
        """Change the note of an endpoint. The generated name of a graph input becomes permanent."""
        if end.node == BOUNDARY and end.port not in self._labels:
            self.restart(annotate(self.graph(), end))
        self._notes[end] = change(self._notes.get(end, Note()))
        self._closed = None

    def add(
        self,
        block: Block,
        *,
        name: str = "",
        connections: Mapping[str, str] | None = None,
        after: Endpoint | None = None,
    ) -> str:
        """Add a block as the function `add`, and return its name."""
        connections = connections or {}
        name = name or self.free_name(block.kind)
        check_length(name, NameTakenError)
        if name in self._nodes:
            raise NameTakenError(
                f"cannot add {block.kind} as {name!r}: the model has a block with that name.",
                (("blocks", ", ".join(map(repr, self._nodes))),),
                f"name={self.free_name(block.kind)!r}",
                block=component(name),
            )
        if block.graph is not None and block.graph.depth >= DEEPEST:
            raise NestingError(
                f"cannot add {name!r}: models would be nested {block.graph.depth + 1} levels deep.",
                (("at most", f"{DEEPEST} levels"),),
                f"Repeat(body, count={DEEPEST})  # runs body several times without nesting",
                block=component(name),
            )
        inputs, outputs = ({port.name: port for port in ports} for ports in (block.inputs, block.outputs))
        for port in connections:
            if port not in inputs and port not in outputs:
                raise ConnectionError(
                    f"{block.kind} {name!r} has no port {port!r}.",
                    (("inputs", ", ".join(inputs) or "none"), ("outputs", ", ".join(outputs) or "none")),
                    f"{constructor_call(block)}({next(iter(inputs), 'output')}={connections[port]!r})",
                    block=component(name),
                    port=port,
                )
        sources = {port: self.named_source(text, port) for port, text in connections.items() if port in inputs}
        names = {
            port: checked_name(text if (end := Endpoint.parse(text)).node else end.port)
            for port, text in connections.items()
            if port not in inputs
        }
        before, labels = self._edges, dict[str, Endpoint]()
        edges = before
        new: list[Edge] = []
        for port in block.inputs:
            source = sources.get(port.name)
            if source is None and after is not None and port.role == "data":
                # Only the first open data input is chained.
                source, after = after, None
            if source is None:
                continue
            if source.node == BOUNDARY and source.port not in labels and source.port not in self._labels:
                # The generated name of an input becomes permanent, so the edges from it too.
                readers = self.graph().targets_of.get(source, ()) if self._may_be_automatic(source.port) else ()
                new += [Edge(source, target) for target in readers if target.node != BOUNDARY]
                labels[source.port] = source
            new.append(Edge(source, Endpoint(name, port.name)))
        for port in block.outputs:
            if (label := names.get(port.name)) is None:
                continue
            source, holder = Endpoint(name, port.name), labels.get(label) or self._labels.get(label)
            if holder is not None and holder.node != BOUNDARY:
                raise NameTakenError(
                    f"cannot give output {str(source)!r} the name {label!r}: {str(holder)!r} already has it.",
                    (("names", ", ".join(map(repr, sorted({**self._labels, **labels})))),),
                    f"{constructor_call(block)}({port.name}={label + '_2'!r})",
                    block=component(name),
                    port=port.name,
                )
            if holder is not None:  # the output replaces an input of the graph
                for edge in (*edges, *new):
                    if edge.source == holder:
                        _check_no_cycle(LogicalGraph(edges=(*edges, *new)), source, edge.target)
                edges, new = (
                    [Edge(source, edge.target) if edge.source == holder else edge for edge in part]
                    for part in (edges, new)
                )
            labels[label] = source
        # From here nothing can raise, so a refused block leaves the draft unchanged.
        self._edges = edges
        self._edges += new
        self._labels |= labels
        node = Node(name, block)
        self._nodes[name], self._closed = node, None
        self._counts[block.kind] += 1
        self._automatic |= _automatic_names(node)
        if edges is not before:  # a block before this one may read it now: put the blocks in order
            self.restart(self.graph())
        return name

    def named_source(self, text: str, argument: str) -> Endpoint:
        """Return the output or graph input that a connection name refers to. An unknown name is a new graph input."""
        end = Endpoint.parse(text)
        if end.node == BOUNDARY:
            # Inferring the boundary takes O(n), so only for names that it may have generated.
            output = self.graph().source_of.get(end) if self._may_be_automatic(end.port) else None
            end = self._labels.get(end.port) or output or Endpoint(BOUNDARY, checked_name(end.port))
        if end.node != BOUNDARY and end.node not in self._nodes:
            node_of(self.graph(), end.node)
        _check_port(self._nodes, end, "outputs", argument)
        return end

    def _may_be_automatic(self, name: str) -> bool:
        return name in self._automatic or re.sub(r"(_\d+)+$", "", name) in self._automatic


def _automatic_names(node: Node) -> set[str]:
    return {automatic_name(Endpoint(node.name, port.name)) for port in (*node.block.inputs, *node.block.outputs)}
