"""The graph on which costs are drawn, and the groups to open in it."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, TypeGuard

from mithril_nb.display import Shown
from mithril_nb.errors import UnknownBlockError, UnknownOptionError, nearest, short_repr
from mithril_nb.graph.records import LogicalGraph
from mithril_nb.viz.costs.options import option_error

if TYPE_CHECKING:
    from mithril_nb.stages.graph.stage_graph import StageGraph

_MOST_NAMED = 8


def graph_of(target: Any, program: str) -> LogicalGraph | StageGraph:
    """Return the graph of an object; objects of other libraries are neither searched nor called.

    Args:
        target: A logical graph, a model with one, a stage's graph, or an inspection, whose jaxpr graph is used.
        program: Name of the program whose costs are drawn.

    Raises:
        UnknownOptionError: It has no graph.
    """
    found = getattr(target, "graph", target) if isinstance(target, Shown) else target
    if inspect.ismethod(found) and found.__self__ is target:  # the method of an inspection, with the stage as argument
        found = found()
    if isinstance(found, LogicalGraph) or _is_of_stage(found):
        return found
    raise UnknownOptionError(
        f"costs of {program!r} cannot be shown on {_described(target)}.",
        (("needs", "the inspection of the program or its graph; or the mithril_nb model or its graph"),),
        "cost.overlay(inspection)",
    )


def validate_opened(graph: LogicalGraph | StageGraph, expanded: Any) -> frozenset[str]:
    """Validate the groups to open in a graph and return their paths.

    Args:
        graph: The graph.
        expanded: Paths of a logical graph, or keys of a stage's graph; or a single one.

    Raises:
        UnknownOptionError: These are not paths.
        UnknownBlockError: The graph has no such path.
    """
    paths = (expanded,) if isinstance(expanded, str) else expanded
    known = _groups(graph)
    groups = [path for path, is_group in known.items() if is_group]
    call = f'cost.overlay({"model" if isinstance(graph, LogicalGraph) else "inspection"}, expanded=["{{}}"])'
    if not isinstance(paths, Collection) or not all(isinstance(path, str) for path in paths):
        example = call.format(groups[0] if groups else "")
        raise option_error("cost.overlay", "expanded", expanded, "paths of groups, as strings", example)
    strange = next((path for path in paths if path not in known), None)
    if strange is not None:
        near = nearest(strange, groups) or next(iter(groups), None)
        raise UnknownBlockError(
            f"cost.overlay cannot expand {short_repr(strange)}: the graph has no such path.",
            (("groups", _listed(groups)),),
            call.format(near) if near else call.partition(", expanded")[0] + ")",
        )
    return frozenset(paths)


def _is_of_stage(graph: Any) -> TypeGuard[StageGraph]:
    """Return whether this is a stage's graph, by name, because importing its class would import JAX."""
    return type(graph).__name__ == "StageGraph"


def _groups(graph: LogicalGraph | StageGraph) -> Mapping[str, bool]:
    """Return, for each node by path or key, whether it can be opened."""
    if isinstance(graph, LogicalGraph):
        return {path: node.block.graph is not None for path, node in graph.walk()}
    return {key: bool(key) and node.kind not in ("input", "instruction") for key, node in graph.nodes.items()}


def _listed(paths: Collection[str]) -> str:
    names = [*paths]
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"{', '.join(names[:_MOST_NAMED])}{more}" or "none"


def _described(target: Any) -> str:
    if inspect.isclass(target) or inspect.isroutine(target):
        return f"the {'class' if inspect.isclass(target) else 'function'} {target.__name__!r}"
    if isinstance(target, str | bytes | int | float | list | tuple | dict | set | None):
        return short_repr(target)
    return f"an object of type {type(target).__name__!r}"
