"""Execution order of blocks, and detection of cycles."""

from __future__ import annotations

from collections import deque
from graphlib import CycleError as _GraphlibCycle
from graphlib import TopologicalSorter

from mithril_nb.errors import CycleError, listed
from mithril_nb.graph.paths import component
from mithril_nb.graph.records import BOUNDARY, LogicalGraph, Node


def run_order(graph: LogicalGraph) -> tuple[Node, ...]:
    """Return the nodes in topological order: each after the nodes that it reads from.

    Args:
        graph: One level of a model; nested graphs are not visited.

    Returns:
        All nodes; independent nodes stay in the order in which they were added.

    Raises:
        CycleError: The blocks form a cycle.

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
    if all(before[name] <= done and not done.add(name) for name in names):
        return graph.nodes  # the usual case: added in topological order
    sorter = TopologicalSorter(before)
    try:
        sorter.prepare()
    except _GraphlibCycle as error:
        cycle = list(reversed(error.args[1]))
        raise CycleError(
            f"the block {cycle[0]!r} feeds itself."
            if len(cycle) == 2
            else f"the blocks {listed(map(repr, cycle[:-1]))} feed each other in a cycle.",
            (("cycle", _format_cycle(cycle)),),
            "remove one of these connections.",
            block=cycle[0],
        ) from None
    place = {name: index for index, name in enumerate(names)}
    order: list[Node] = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready(), key=place.__getitem__)
        order.extend(graph.by_name[name] for name in ready)
        sorter.done(*ready)
    return tuple(order)


def _format_cycle(cycle: list[str]) -> str:
    """Return the blocks of a cycle in execution order; of a long cycle, only its two ends."""
    names = [component(name) for name in cycle]
    if len(names) > 20:
        names = [*names[:10], f"{len(names) - 11:,} more", names[-1]]
    return " -> ".join(names)


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
    while frontier:
        name = frontier.popleft()
        if name == end:
            way: list[str] = []
            step: str | None = name
            while step is not None:
                way.append(step)
                step = came_from[step]
            return tuple(reversed(way))
        for after in following.get(name, ()):
            if after not in came_from:
                came_from[after] = name
                frontier.append(after)
    return None
