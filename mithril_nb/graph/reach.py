"""Reachability in a directed graph."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Generic, TypeVar

Vertex = TypeVar("Vertex", bound=Hashable)


class Reach(Generic[Vertex]):
    """Finds the vertices of a directed graph that can be reached from given ones, or from which the given ones can be.

    The results include the given vertices.

    Args:
        flows: The edges, as pairs of source and target.

    Examples:
        >>> reach = Reach([("a", "b"), ("b", "c"), ("d", "c")])
        >>> sorted(reach.before(["c"])), sorted(reach.after(["a"]))
        (['a', 'b', 'c', 'd'], ['a', 'b', 'c'])
    """

    def __init__(self, flows: Iterable[tuple[Vertex, Vertex]]):
        self._after: dict[Vertex, list[Vertex]] = {}
        self._before: dict[Vertex, list[Vertex]] = {}
        for source, target in flows:
            self._after.setdefault(source, []).append(target)
            self._before.setdefault(target, []).append(source)

    def after(self, starts: Iterable[Vertex]) -> set[Vertex]:
        """Return the vertices `starts`, and all vertices that can be reached from them."""
        return _walk(starts, self._after)

    def before(self, starts: Iterable[Vertex]) -> set[Vertex]:
        """Return the vertices `starts`, and all vertices from which they can be reached."""
        return _walk(starts, self._before)


def _walk(starts: Iterable[Vertex], links: Mapping[Vertex, list[Vertex]]) -> set[Vertex]:
    # An explicit stack: a chain of 10,000 blocks is deeper than Python's recursion limit.
    reached = set(starts)
    waiting = [*reached]
    while waiting:
        fresh = [vertex for vertex in links.get(waiting.pop(), ()) if vertex not in reached]
        reached.update(fresh)
        waiting.extend(fresh)
    return reached
