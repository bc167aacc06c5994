"""What must hold in every logical graph, as a check: for graphs that were not made by edits, such as those of a file."""

from __future__ import annotations

from collections import Counter

from mithril_nb.errors import ConnectionError, NameTakenError, UnconnectedPortError
from mithril_nb.graph.order import run_order
from mithril_nb.graph.paths import join_path
from mithril_nb.graph.records import BOUNDARY, Endpoint, LogicalGraph


def check(graph: LogicalGraph, prefix: str = "") -> None:
    """Raise if a graph, or one inside it, does not hold together.

    Args:
        graph: The graph.
        prefix: Path of the block that it is inside of.

    Raises:
        NameTakenError: A block or a label without a name, or two of one name.
        ConnectionError: A connection or a label at a port that does not exist, or two connections into one port.
        UnconnectedPortError: A port gets no data.
        CycleError: The blocks feed each other in a cycle.

    Examples:
        >>> check(LogicalGraph())
    """
    _check_names(graph, prefix)
    _check_edges(graph, prefix)
    run_order(graph)
    for node in graph.nodes:
        if node.block.graph is not None:
            check(node.block.graph, join_path(prefix, node.name))


def _check_names(graph: LogicalGraph, prefix: str) -> None:
    named = {"block": [node.name for node in graph.nodes], "label": [label for label, _ in graph.labels]}
    for what, names in named.items():
        for name, count in Counter(names).items():
            if count > 1 or not name:
                raise NameTakenError(
                    f"{count} {what}s have the name {name!r}{_place(prefix)}.",
                    (("names", ", ".join(map(repr, names))),),
                    "give each a name of its own.",
                    block=prefix,
                )


def _check_edges(graph: LogicalGraph, prefix: str) -> None:
    outer = {Endpoint(BOUNDARY, port.name) for port in graph.inputs}
    outputs = {Endpoint(node.name, port.name) for node in graph.nodes for port in node.block.outputs}
    inputs = {Endpoint(node.name, port.name): port for node in graph.nodes for port in node.block.inputs}
    results = {Endpoint(BOUNDARY, port.name) for port in graph.outputs}
    for edge in graph.edges:
        if edge.source not in outer | outputs or edge.target not in inputs.keys() | results:
            missing = edge.target if edge.source in outer | outputs else edge.source
            raise ConnectionError(
                f"the connection '{edge}'{_place(prefix)} ends at a port that does not exist.",
                (("missing", str(missing)),),
                "connect it to a port of one of the blocks.",
                block=prefix,
                edge=(str(edge.source), str(edge.target)),
            )
    for label, end in graph.labels:
        if end not in outputs and end != Endpoint(BOUNDARY, label):
            raise ConnectionError(
                f"the label {label!r}{_place(prefix)} names a port that does not exist.",
                (("missing", str(end)),),
                "name an output of one of the blocks.",
                block=prefix,
            )
    fed = Counter(edge.target for edge in graph.edges)
    for end in [*inputs, *results]:
        if fed[end] > 1:
            raise ConnectionError(
                f"the port '{end}'{_place(prefix)} has {fed[end]} connections into it.",
                (("from", ", ".join(f"'{edge.source}'" for edge in graph.edges if edge.target == end)),),
                "leave one of them.",
                block=prefix,
                port=end.port,
            )
        if not fed[end] and (end in results or inputs[end].role == "data"):
            raise UnconnectedPortError(
                f"the port '{end}'{_place(prefix)} gets its data from nowhere.",
                (("outputs", ", ".join(f"'{one}'" for one in sorted(outer | outputs)) or "none"),),
                "connect one of these to it.",
                block=prefix,
                port=end.port,
            )


def _place(prefix: str) -> str:
    return f" inside {prefix!r}" if prefix else ""
