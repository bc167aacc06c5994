"""What costs are shown on: the graph that a person means, and which of its groups are opened."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, TypeGuard

from mithril_nb.display import Shown
from mithril_nb.errors import UnknownBlockError, UnknownOptionError, nearest, short_repr
from mithril_nb.graph.records import LogicalGraph
from mithril_nb.viz.costs.options import refusal

if TYPE_CHECKING:
    from mithril_nb.stages.graph.stage_graph import StageGraph

_MOST_NAMED = 8


def graph_of(target: Any, program: str) -> LogicalGraph | StageGraph:
    """Return the graph that something is or has; what is not ours is neither looked into nor called.

    Args:
        target: A logical graph, a model that has one, a stage's graph, or an inspection, of which it is that of the
            jaxpr.
        program: Name of the program whose costs are to be shown on it.

    Raises:
        UnknownOptionError: It is no graph, and has none.
    """
    found = getattr(target, "graph", target) if isinstance(target, Shown) else target
    if inspect.ismethod(found) and found.__self__ is target:  # that of an inspection, whose graphs are of its stages
        found = found()
    if isinstance(found, LogicalGraph) or _is_of_stage(found):
        return found
    raise UnknownOptionError(
        f"costs of {program!r} cannot be shown on {_told(target)}.",
        (("needs", "the inspection that they are of, or its graph; a model of mithril_nb, or its graph"),),
        "cost.overlay(inspection)",
    )


def opened_in(graph: LogicalGraph | StageGraph, expanded: Any) -> frozenset[str]:
    """Return the paths of a graph that a person wants to see the insides of.

    Args:
        graph: The graph.
        expanded: Paths of a logical graph, keys of a stage's graph; or one of them.

    Raises:
        UnknownOptionError: These are no paths.
        UnknownBlockError: There is nothing of such a path.
    """
    paths = (expanded,) if isinstance(expanded, str) else expanded
    known = _groups(graph)
    groups = [path for path, is_group in known.items() if is_group]
    call = f'cost.overlay({"model" if isinstance(graph, LogicalGraph) else "inspection"}, expanded=["{{}}"])'
    if not isinstance(paths, Collection) or not all(isinstance(path, str) for path in paths):
        example = call.format(groups[0] if groups else "")
        raise refusal("cost.overlay", "expanded", expanded, "paths of groups, as texts", example)
    strange = next((path for path in paths if path not in known), None)
    if strange is not None:
        near = nearest(strange, groups) or next(iter(groups), None)
        raise UnknownBlockError(
            f"cost.overlay cannot expand {short_repr(strange)}: the graph has nothing of this path.",
            (("groups", _listed(groups)),),
            call.format(near) if near else call.partition(", expanded")[0] + ")",
        )
    return frozenset(paths)


def _is_of_stage(graph: Any) -> TypeGuard[StageGraph]:
    """Return whether this is the graph of a stage, which lives in a room that imports JAX: that is not asked for."""
    return type(graph).__name__ == "StageGraph"


def _groups(graph: LogicalGraph | StageGraph) -> Mapping[str, bool]:
    """Return whether there is something inside of each node, by its path or key."""
    if isinstance(graph, LogicalGraph):
        return {path: node.block.graph is not None for path, node in graph.walk()}
    return {key: bool(key) and node.kind not in ("input", "instruction") for key, node in graph.nodes.items()}


def _listed(paths: Collection[str]) -> str:
    names = [*paths]
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"{', '.join(names[:_MOST_NAMED])}{more}" or "none"


def _told(target: Any) -> str:
    if inspect.isclass(target) or inspect.isroutine(target):
        return f"the {'class' if inspect.isclass(target) else 'function'} {target.__name__!r}"
    if isinstance(target, str | bytes | int | float | list | tuple | dict | set | None):
        return short_repr(target)
    return f"an object of type {type(target).__name__!r}"
