"""Draw a graph with a cost or another value on each node, as a picture and as text."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeGuard

from mithril_nb.display import Shown, columns
from mithril_nb.errors import UnknownBlockError, UnknownOptionError, nearest, short_repr
from mithril_nb.graph.records import LogicalGraph
from mithril_nb.graph.spec import TensorSpec
from mithril_nb.viz import units
from mithril_nb.viz.costs.blocks import path_text
from mithril_nb.viz.costs.drawing import Drawing, option_error, replace_undrawable
from mithril_nb.viz.costs.fields import OF_KNOWN, ON_GRAPHS, Data, Field, field_of, is_bound, notes_of, reason_of
from mithril_nb.viz.costs.node_values import cost_values, inclusive, node_shares
from mithril_nb.viz.diagrams.overlays import UNKNOWN, Overlay
from mithril_nb.viz.diagrams.picture import picture
from mithril_nb.viz.diagrams.scene import Scene
from mithril_nb.viz.diagrams.svg import scene_svg
from mithril_nb.viz.text import listed, one_line, outer_paths, times
from mithril_nb.viz.units import percent

if TYPE_CHECKING:
    from mithril_nb.stages.graph.stage_graph import StageGraph


_CALL = 'cost.overlay(inspection, "{}")'


def overlay_of(
    data: Data, target: Any, field: str = "flops", expanded: Collection[str] | None = None, *, own: bool = False
) -> Drawing:
    """Draw costs on a graph: with `overlay` for a model, with `stage_overlay` for a stage.

    Args:
        data: The costs, as returned by `Cost.to_dict()`.
        target: A model, a logical graph, or the graph of a stage. For an inspection, the graph of its jaxpr is drawn.
        field: Name of the cost to show, one of `ON_GRAPHS`.
        expanded: Paths of the groups to open; by default as many as fit.
        own: If true, the number of a block excludes the blocks inside it.

    Raises:
        UnknownOptionError: `field` is not one of `ON_GRAPHS`, the costs belong to another graph, `target` has no graph,
            or `expanded` is neither a string nor a collection of strings.
        UnknownBlockError: The graph has no node at a path in `expanded`.
    """
    graph = graph_of(target, str(data["program"]))
    opened = validate_opened(graph, expanded)
    if isinstance(graph, LogicalGraph):
        return overlay(data, graph, field, getattr(target, "input_specs", None), opened, own=own)
    return stage_overlay(data, graph, field, opened, own=own)


def overlay(
    data: Data,
    graph: LogicalGraph,
    field: str = "flops",
    inputs: Mapping[str, TensorSpec] | None = None,
    expanded: Collection[str] | None = None,
    *,
    own: bool = False,
) -> Drawing:
    """Draw a logical graph with the cost of each block.

    Args:
        data: The costs, as returned by `Cost.to_dict()`.
        graph: The graph of the same model.
        field: Name of the cost to show, one of `ON_GRAPHS`.
        inputs: Specs of the graph's inputs, from which shapes are inferred.
        expanded: Paths of the groups to open; by default as many as fit, the most expensive ones first.
        own: If true, the number of a block excludes the blocks inside it.

    Raises:
        UnknownOptionError: `field` is not one of `ON_GRAPHS`, or the costs belong to another graph.
    """
    kind, data = field_of(field, ON_GRAPHS, _CALL), replace_undrawable(data)
    _check_blocks(data, [path for path, _ in graph.walk()])
    scene = picture(graph, inputs, _shares(data, kind), expanded).diagram
    values = inclusive(data, field)
    inside = sum(values.get(node.name) or 0 for node in graph.nodes)
    return _of_costs(data, kind, scene, cost_values(data, scene.nodes, kind, own=own), inside)


def stage_overlay(
    data: Data, graph: StageGraph, field: str = "flops", opened: Collection[str] | None = None, *, own: bool = False
) -> Drawing:
    """Draw the graph of a stage with the cost of each node.

    Args:
        data: The costs, as returned by `Cost.to_dict()`.
        graph: The graph, as returned by `Inspection.graph`.
        field: Name of the cost to show, one of `ON_GRAPHS`.
        opened: Keys of the nodes to open; by default as many as fit, the most expensive ones first.
        own: If true, the number of a block excludes the blocks inside it.

    Raises:
        UnknownOptionError: `field` is not one of `ON_GRAPHS`, or the costs belong to another graph.
    """
    from mithril_nb.viz.diagrams.stages import stage_layout  # imports JAX, which is loaded if there is a stage graph

    kind, data = field_of(field, ON_GRAPHS, _CALL), replace_undrawable(data)
    _check_blocks(data, [node.block for node in graph.nodes.values() if node.kind == "block" and node.block])
    scene = stage_layout(graph, opened=opened, shares=node_shares(data, kind.name, graph))
    tops = {path.partition("/")[0] for path in graph.nodes if path}
    inside = sum(value or 0 for path, value in inclusive(data, field).items() if path in tops)
    return _of_costs(data, kind, scene, cost_values(data, scene.nodes, kind, own=own, graph=graph), inside)


def _shares(data: Data, kind: Field) -> dict[str, float]:
    total = data["total"].get(kind.name)
    values = inclusive(data, kind.name)
    return {path: value / total for path, value in values.items() if value is not None} if total else {}


def _check_blocks(data: Data, paths: Collection[str]) -> None:
    """Raise an error if no block of the costs is in the graph, although both have blocks."""
    known = {above for path in data["by_block"] for above in outer_paths(path)}
    if not paths or not known or known & set(paths):
        return
    raise UnknownOptionError(
        f"the costs of {data['program']!r} contain no block of this graph.",
        (("costs", listed([*map(path_text, inclusive(data, "flops"))], 4)),
         ("graph", listed([*map(path_text, dict.fromkeys(paths))], 4))),
        "inspection.cost().overlay(inspection)",
    )  # fmt: skip


def _of_costs(data: Data, kind: Field, scene: Scene, values: Overlay, inside: float) -> Drawing:
    total = data["total"].get(kind.name)
    notes = [*values.notes]
    if not total:
        notes.append(reason_of(data, kind))
    else:
        outside = total - inside
        if outside and kind.name != "time_s":
            notes.append(f"outside this graph: {kind.short(outside)}, {percent(outside / total)}")
        if is_bound(data["total"], kind.name):
            notes.append(OF_KNOWN)
        notes += notes_of(data, kind.name)
    return draw_values(scene, replace(values, notes=tuple(notes)), str(data["program"]))


def draw_values(scene: Scene, values: Overlay, name: str) -> Drawing:
    """Draw values on the nodes of a graph, and list them as text.

    Args:
        scene: The graph with positions.
        values: The values.
        name: Name of the program or model, for the title.
    """
    title = f"{one_line(name)}, graph: {one_line(values.title)}"
    rows: list[tuple[str, ...]] = [("node", "", one_line(values.title), *(("share",) if values.total else ()))]
    depth = {"": -1}
    for node in scene.nodes:
        depth[node.key] = depth.get(node.parent, -1) + 1
        shown = values.at(node.key)
        if shown is None:
            continue
        value = values.values[node.key]
        text = units.UNKNOWN if shown.text == UNKNOWN else shown.text
        share = percent(value / values.total) if values.total and isinstance(value, int | float) else ""
        named = "  " * depth[node.key] + times(one_line(node.name), node.repeat)
        kind = one_line(node.kind) if scene.is_model else "" if node.kind == "block" else node.kind
        rows.append((named, kind, text, *((share,) if values.total else ())))
    right = {2, 3} if not values.categories else set[int]()
    text = "\n".join((title, columns(rows, right=right), *values.notes))
    return Drawing(scene_svg(scene, title=title, overlay=values), text, notes=values.notes)


_MOST_NAMED = 8


def graph_of(target: Any, program: str) -> LogicalGraph | StageGraph:
    """Return the graph of a model or an inspection, or `target` itself if it is a graph.

    Args:
        target: A model, a logical graph, or the graph of a stage. For an inspection, the graph of its jaxpr is
            returned.
        program: Name of the program whose costs are drawn, for the error.

    Raises:
        UnknownOptionError: `target` is none of these.
    """
    # Objects of other libraries may have an attribute `graph`, too, but they are not `Shown`.
    found = getattr(target, "graph", target) if isinstance(target, Shown) else target
    if inspect.ismethod(found) and found.__self__ is target:  # `Inspection.graph` is a method
        found = found()
    if isinstance(found, LogicalGraph) or _is_of_stage(found):
        return found
    raise UnknownOptionError(
        f"costs of {program!r} cannot be shown on {_described(target)}.",
        (("needs", "an inspection, a mithril_nb model, or the graph of one of them"),),
        "cost.overlay(inspection)",
    )


def validate_opened(graph: LogicalGraph | StageGraph, expanded: Any) -> frozenset[str] | None:
    """Validate the paths of the groups to open, and return them as a set.

    Args:
        graph: The graph of a model or of a stage.
        expanded: One path or several: paths of blocks in a model, keys of nodes in a stage. `None` if the user gave no
            paths; the result is then `None`.

    Raises:
        UnknownOptionError: `expanded` is neither a string nor a collection of strings.
        UnknownBlockError: The graph has no node at one of the paths.
    """
    if expanded is None:
        return None
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
            (("groups", listed(groups, _MOST_NAMED) or "none"),),
            call.format(near) if near else call.partition(", expanded")[0] + ")",
        )
    return frozenset(paths)


def _is_of_stage(graph: Any) -> TypeGuard[StageGraph]:
    """Return whether the class of a graph is called `StageGraph`. Importing the class would import JAX."""
    return type(graph).__name__ == "StageGraph"


def _groups(graph: LogicalGraph | StageGraph) -> Mapping[str, bool]:
    """Return whether each node can be opened: in a stage by key of the node, in a model by path of the block."""
    if isinstance(graph, LogicalGraph):
        return {path: node.block.graph is not None for path, node in graph.walk()}
    return {key: bool(key) and node.kind not in ("input", "instruction") for key, node in graph.nodes.items()}


def _described(target: Any) -> str:
    if inspect.isclass(target) or inspect.isroutine(target):
        return f"the {'class' if inspect.isclass(target) else 'function'} {target.__name__!r}"
    if isinstance(target, str | bytes | int | float | list | tuple | dict | set | None):
        return short_repr(target)
    return f"an object of type {type(target).__name__!r}"
