"""Invariants of every logical graph: blocks that form no cycle, ports that exist, unique names."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Sequence
from graphlib import CycleError as _GraphlibCycle
from graphlib import TopologicalSorter

from mithril_nb.errors import ConnectionError, CycleError, NameTakenError, UnconnectedPortError, listed
from mithril_nb.graph.paths import component, join_path
from mithril_nb.graph.records import BOUNDARY, Edge, Endpoint, LogicalGraph, Node


def run_order(graph: LogicalGraph) -> tuple[Node, ...]:
    """Return the nodes in topological order: each node after the nodes whose outputs it reads.

    Independent nodes stay in the order in which they were added. The nodes of nested graphs are not returned.

    Examples:
        >>> run_order(LogicalGraph())
        ()
    """
    before: dict[str, set[str]] = {node.name: set() for node in graph.nodes}
    for edge in graph.edges:
        if edge.source.node != BOUNDARY and edge.target.node != BOUNDARY:
            before[edge.target.node].add(edge.source.node)
    names = [node.name for node in graph.nodes]
    done: set[str] = set()
    # `done.add` returns None, so this marks each name on the way.
    if all(before[name] <= done and not done.add(name) for name in names):
        return graph.nodes  # the usual case: added in topological order
    sorter = TopologicalSorter(before)
    try:
        sorter.prepare()
    except _GraphlibCycle as error:
        cycle = list(error.args[1])  # each node is read by the next one
        raise CycleError(
            f"the block {cycle[0]!r} feeds itself."
            if len(cycle) == 2
            else f"the blocks {listed(map(repr, cycle[:-1]))} feed each other in a cycle.",
            (("cycle", listed(map(component, cycle))),),
            "let one of these blocks read a block before all of them; a group needs all blocks of the cycle.",
            block=cycle[0],
        ) from None
    # `TopologicalSorter` returns ready nodes in any order; graphs are compared, so the order must not depend on it.
    position = {name: index for index, name in enumerate(names)}
    order: list[Node] = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready(), key=position.__getitem__)
        order.extend(graph.by_name[name] for name in ready)
        sorter.done(*ready)
    return tuple(order)


def path_between(graph: LogicalGraph, start: str, end: str) -> tuple[str, ...] | None:
    """Return the names of the nodes on a path from `start` to `end`, or `None` if no path exists.

    Examples:
        >>> path_between(LogicalGraph(), "a", "a")
        ('a',)
    """
    came_from: dict[str, str | None] = {start: None}
    frontier = deque([start])
    following: dict[str, list[str]] = {}
    for edge in graph.edges:
        if edge.source.node != BOUNDARY and edge.target.node != BOUNDARY:
            following.setdefault(edge.source.node, []).append(edge.target.node)
    # Breadth first, so the reported cycle is a shortest one.
    while frontier:
        name = frontier.popleft()
        if name == end:
            path: list[str] = []
            step: str | None = name
            while step is not None:
                path.append(step)
                step = came_from[step]
            return tuple(reversed(path))
        for after in following.get(name, ()):
            if after not in came_from:
                came_from[after] = name
                frontier.append(after)
    return None


def check(graph: LogicalGraph, prefix: str = "") -> None:
    """Raise if a graph, or a graph inside it, is inconsistent. `prefix` is the path of the block that contains it.

    Examples:
        >>> check(LogicalGraph())
    """
    inputs = {Endpoint(BOUNDARY, port.name) for port in graph.inputs}
    outputs = {Endpoint(BOUNDARY, port.name) for port in graph.outputs}
    check_parts(graph.nodes, graph.edges, graph.labels, prefix, boundary=(inputs, outputs))
    # Raises for a cycle.
    run_order(graph)
    fed = {edge.target for edge in graph.edges}
    needed = [Endpoint(node.name, p.name) for node in graph.nodes for p in node.block.inputs if p.role == "data"]
    for end in (*needed, *sorted(outputs)):
        if end not in fed:
            side = "input" if end.node else "output"
            raise UnconnectedPortError(
                f"the {side} '{end}'{_location(prefix)} is not connected.",
                block=join_path(prefix, end.node) if end.node else prefix,
                port=end.port,
            )
    for node in graph.nodes:
        if node.block.graph is not None:
            check(node.block.graph, join_path(prefix, node.name))


def check_parts(
    nodes: Sequence[Node],
    edges: Sequence[Edge],
    labels: Sequence[tuple[str, Endpoint]],
    prefix: str = "",
    *,
    boundary: tuple[Collection[Endpoint], Collection[Endpoint]] | None = None,
) -> None:
    """Raise if nodes, edges and labels are inconsistent. Does not check the graphs inside the blocks.

    `boundary` is a pair: the inputs and the outputs of the graph. If it is `None`, the graph has no outputs, and every
    source of an edge that is not a port of a block is an input of the graph.
    """
    _check_names("block", [node.name for node in nodes], prefix)
    _check_names("label", [label for label, _ in labels], prefix)
    for end, count in Counter(end for _, end in labels).items():
        if count > 1:
            raise NameTakenError(
                f"port '{end}'{_location(prefix)} has {count:,} labels.",
                (("labels", listed(repr(label) for label, endpoint in labels if endpoint == end)),),
                "remove all but one of these labels.",
                block=prefix,
            )
    gives = {Endpoint(node.name, port.name) for node in nodes for port in node.block.outputs}
    takes = {Endpoint(node.name, port.name) for node in nodes for port in node.block.inputs}
    if boundary is None:
        # A file does not list inputs: they are inferred from these edges.
        boundary = {edge.source for edge in edges if edge.source.node == BOUNDARY and edge.source.port}, set()
    sources, targets = gives.union(boundary[0]), takes.union(boundary[1])
    for edge in edges:
        for end, available, does in ((edge.source, sources, "starts"), (edge.target, targets, "ends")):
            if end not in available:
                raise ConnectionError(
                    f"the connection '{edge}'{_location(prefix)} {does} at a port that does not exist.",
                    (("missing", f"'{end}'"), ("blocks", listed(repr(node.name) for node in nodes))),
                    f"use an existing port instead of '{end}'.",
                    block=prefix,
                    edge=(str(edge.source), str(edge.target)),
                )
    for label, end in labels:
        # A label of an input has the name of the input.
        if end not in gives and end != Endpoint(BOUNDARY, label):
            raise ConnectionError(
                f"the label {label!r}{_location(prefix)} is given to port '{end}', which does not exist.",
                (("blocks", listed(repr(node.name) for node in nodes)),),
                f"use an output of one of the blocks instead of '{end}'.",
                block=prefix,
            )
    for end, count in Counter(edge.target for edge in edges).items():
        if count > 1:
            raise ConnectionError(
                f"the port '{end}'{_location(prefix)} has {count:,} connections into it.",
                (("from", listed(f"'{edge.source}'" for edge in edges if edge.target == end)),),
                "remove all but one of these connections.",
                block=prefix,
                port=end.port,
            )


def _check_names(kind: str, names: list[str], prefix: str) -> None:
    for name, count in Counter(names).items():
        if count > 1 or not name:
            raise NameTakenError(
                f"{count:,} {kind}s{_location(prefix)} are named {name!r}."
                if name
                else f"a {kind}{_location(prefix)} has no name.",
                (("names", listed(map(repr, names))),),
                f"give each {kind} a unique name.",
                block=prefix,
            )


def _location(prefix: str) -> str:
    return f" inside {prefix!r}" if prefix else ""
