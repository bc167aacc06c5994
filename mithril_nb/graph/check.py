"""Invariants of every logical graph, checked for graphs that edits did not build, such as graphs from a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from mithril_nb.errors import ConnectionError, NameTakenError, UnconnectedPortError, listed
from mithril_nb.graph.order import run_order
from mithril_nb.graph.paths import join_path
from mithril_nb.graph.records import BOUNDARY, Edge, Endpoint, LogicalGraph, Node


def check(graph: LogicalGraph, prefix: str = "") -> None:
    """Raise if a graph, or a graph inside it, is inconsistent.

    Args:
        graph: The graph.
        prefix: Path of the block that contains the graph.

    Raises:
        NameTakenError: A block or a label has no name, or two share a name.
        ConnectionError: A connection or a label refers to a missing port, or two connections end at one port.
        UnconnectedPortError: A port is not connected.
        CycleError: The blocks form a cycle.

    Examples:
        >>> check(LogicalGraph())
    """
    inputs = {Endpoint(BOUNDARY, port.name) for port in graph.inputs}
    outputs = {Endpoint(BOUNDARY, port.name) for port in graph.outputs}
    check_parts(graph.nodes, graph.edges, graph.labels, prefix, boundary=(inputs, outputs))
    run_order(graph)
    fed = {edge.target for edge in graph.edges}
    needed = [Endpoint(node.name, p.name) for node in graph.nodes for p in node.block.inputs if p.role == "data"]
    for end in (*needed, *sorted(outputs)):
        if end not in fed:
            raise UnconnectedPortError(
                f"the port '{end}'{_location(prefix)} is not connected.",
                (("inputs", listed(f"'{one}'" for one in sorted(inputs))),),
                "connect an input or an output of a block to it.",
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
    """Raise if the parts of a graph are inconsistent. Does not check the graphs inside its blocks.

    Args:
        nodes: The blocks.
        edges: The connections.
        labels: The names given by the user.
        prefix: Path of the block that contains the graph.
        boundary: Its inputs and outputs. By default, every edge from the boundary defines an input.

    Raises:
        NameTakenError, ConnectionError: As in `check`.
    """
    _check_names("block", [node.name for node in nodes], prefix)
    _check_names("label", [label for label, _ in labels], prefix)
    _check_names("labelled port", [str(end) for _, end in labels], prefix)
    gives = {Endpoint(node.name, port.name) for node in nodes for port in node.block.outputs}
    takes = {Endpoint(node.name, port.name) for node in nodes for port in node.block.inputs}
    if boundary is None:
        boundary = {edge.source for edge in edges if edge.source.node == BOUNDARY and edge.source.port}, set()
    sources, targets = gives.union(boundary[0]), takes.union(boundary[1])
    for edge in edges:
        for end, known in ((edge.source, sources), (edge.target, targets)):
            if end not in known:
                raise ConnectionError(
                    f"the connection '{edge}'{_location(prefix)} ends at a port that does not exist.",
                    (("missing", f"'{end}'"), ("blocks", listed(repr(node.name) for node in nodes))),
                    "connect it to a port of one of the blocks.",
                    block=prefix,
                    edge=(str(edge.source), str(edge.target)),
                )
    for label, end in labels:
        if end not in gives and end != Endpoint(BOUNDARY, label):
            raise ConnectionError(
                f"the label {label!r}{_location(prefix)} names a port that does not exist.",
                (("missing", f"'{end}'"), ("blocks", listed(repr(node.name) for node in nodes))),
                "name an output of one of the blocks.",
                block=prefix,
            )
    for end, count in Counter(edge.target for edge in edges).items():
        if count > 1:
            sources = Counter(edge.source for edge in edges if edge.target == end)
            raise ConnectionError(
                f"the port '{end}'{_location(prefix)} has {count:,} connections into it.",
                (("from", listed(f"'{one}'" + (f" {n:,} times" if n > 1 else "") for one, n in sources.items())),),
                "keep one of them.",
                block=prefix,
                port=end.port,
            )


def _check_names(what: str, names: list[str], prefix: str) -> None:
    for name, count in Counter(names).items():
        if count > 1 or not name:
            raise NameTakenError(
                f"a {what}{_location(prefix)} has no name."
                if not name
                else f"{'two' if count == 2 else f'{count:,}'} {what}s{_location(prefix)} are named {name!r}.",
                (("names", listed(map(repr, names))),),
                "give each a unique name.",
                block=prefix,
            )


def _location(prefix: str) -> str:
    return f" inside {prefix!r}" if prefix else ""
