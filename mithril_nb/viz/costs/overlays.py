"""The overlays of a program, a model or costs: the graph, and the values to show on its nodes."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mithril_nb.display import Shown, columns
from mithril_nb.errors import StageUnavailableError, UnknownBlockError, UnknownOptionError, short_repr
from mithril_nb.figures import MEASURED, OF_BLOCKS
from mithril_nb.graph.records import LogicalGraph
from mithril_nb.models.shape_inference.infer import infer
from mithril_nb.stages.graph.stage_graph import StageGraph
from mithril_nb.viz import units
from mithril_nb.viz.costs.blocks import path_text
from mithril_nb.viz.costs.drawing import Drawing, replace_undrawable
from mithril_nb.viz.costs.fields import (
    BLOCK_FIELDS,
    FIELDS,
    OF_KNOWN,
    Data,
    field_of,
    is_bound,
    notes_of,
    reason_of,
)
from mithril_nb.viz.costs.node_values import (
    cost_values,
    dtype_values,
    dtypes_of_model,
    dtypes_of_stage,
    has_groups,
    inclusive,
    memory_values,
    node_shares,
    role_values,
    sharding_values,
    user_values,
)
from mithril_nb.viz.diagrams.nested import Box, Scene
from mithril_nb.viz.diagrams.overlays import UNKNOWN, Overlay
from mithril_nb.viz.diagrams.picture import picture
from mithril_nb.viz.diagrams.stages import stage_layout
from mithril_nb.viz.diagrams.svg import scene_svg
from mithril_nb.viz.text import listed, one_line, outer_paths, times
from mithril_nb.viz.units import percent

if TYPE_CHECKING:
    from mithril_nb.inspection import Inspection
# Sources of costs by the stage with their instructions.
_COUNTED_ON = {"hlo_before": "lowered", "hlo": "compiled"}
NAMES = (*OF_BLOCKS, "memory", "role", "dtype", "sharding")


def overlay_of(
    data: Data, target: Any, field: str = "flops", expanded: Collection[str] | None = None, *, own: bool = False
) -> Drawing:
    """Draw the graph of a program or a model with a cost on each node.

    Args:
        data: The costs: `Cost.to_dict()`.
        target: The graph, or what has one: an inspection or a model.
        field: Name of the cost, one of `OF_BLOCKS`.
        expanded: Paths or keys of the groups to open. Default: those of the first view.
        own: If true, the number of a block excludes the blocks inside it.
    """
    graph = graph_of(target, str(data["program"]))
    opened = validate_opened(graph, expanded)
    kind, data = field_of(field, OF_BLOCKS), replace_undrawable(data)
    values, total = inclusive(data, field), data["total"].get(field)
    is_model = isinstance(graph, LogicalGraph)
    if is_model:
        paths, tops = [path for path, _ in graph.walk()], {node.name for node in graph.nodes}
    else:
        paths = [node.block for node in graph.nodes.values() if node.kind == "block" and node.block]
        tops = {path.partition("/")[0] for path in graph.nodes if path}
    if paths and values and not values.keys() & set(paths):
        raise UnknownOptionError(
            f"the costs of {data['program']!r} contain no block of this graph.",
            (("costs", listed([*map(path_text, values)], 4)),
             ("graph", listed([*map(path_text, dict.fromkeys(paths))], 4))),
        )  # fmt: skip
    if is_model:
        shares = {path: value / total for path, value in values.items() if value is not None} if total else {}
        scene = picture(graph, getattr(target, "input_specs", None), shares, opened).diagram
        overlay = cost_values(data, scene.nodes, kind, own=own)
    else:
        scene = stage_layout(graph, opened=opened, shares=node_shares(data, field, graph))
        overlay = cost_values(data, scene.nodes, kind, own=own, graph=graph)
    notes = [*overlay.notes]
    if not total:
        notes.append(reason_of(data, kind))
    else:
        outside = total - sum(value or 0 for path, value in values.items() if path in tops)
        if outside and field not in MEASURED:
            notes.append(f"outside this graph: {kind.short(outside)}, {percent(outside / total)}")
        notes += [OF_KNOWN] if is_bound(data["total"], field) else []
        notes += notes_of(data, field)
    return draw_values(scene, replace(overlay, notes=tuple(notes)), str(data["program"]))


def draw_values(scene: Scene, values: Overlay, name: str) -> Drawing:
    """Draw values on the nodes of a graph, and list them as text."""
    title = f"{one_line(name)}, graph: {one_line(values.title)}"
    rows: list[tuple[str, ...]] = [("node", "", one_line(values.title), *(("share",) if values.total else ()))]
    depth = {"": -1}
    for node in scene.nodes:
        depth[node.key] = depth.get(node.parent, -1) + 1
        node_value = values.at(node.key)
        if node_value is None:
            continue
        value = values.values[node.key]
        text = units.UNKNOWN if node_value.text == UNKNOWN else node_value.text
        share = percent(value / values.total) if values.total and isinstance(value, int | float) else ""
        named = "  " * depth[node.key] + times(one_line(node.name), node.repeat)
        kind = one_line(node.kind) if scene.is_model else "" if node.kind == "block" else node.kind
        rows.append((named, kind, text, *((share,) if values.total else ())))
    right = {2, 3} if not values.categories else set[int]()
    text = "\n".join((title, columns(rows, right=right), *values.notes))
    return Drawing(scene_svg(scene, title=title, overlay=values), text, notes=values.notes)


def graph_of(target: Any, program: str) -> LogicalGraph | StageGraph:
    """Return the graph of an inspection or a model, or the graph itself."""
    # Objects of other libraries may have an attribute `graph`, too, but they are not `Shown`.
    graph = getattr(target, "graph", target) if isinstance(target, Shown) else target
    if inspect.ismethod(graph) and graph.__self__ is target:  # `Inspection.graph` is a method
        graph = graph()
    if isinstance(graph, LogicalGraph | StageGraph):
        return graph
    raise UnknownOptionError(
        f"costs of {program!r} cannot be shown on {short_repr(target, 60)}.",
        (("needs", "an inspection, a mithril_nb model, or the graph of one of them"),),
    )


def validate_opened(graph: LogicalGraph | StageGraph, expanded: Any) -> frozenset[str] | None:
    """Return the keys of the nodes to open; `None` for those of the first view."""
    if expanded is None:
        return None
    paths = (expanded,) if isinstance(expanded, str) else tuple(expanded)
    if isinstance(graph, LogicalGraph):
        groups = {path: node.block.graph is not None for path, node in graph.walk()}
    else:
        groups = {key: bool(key) and node.kind not in ("input", "instruction") for key, node in graph.nodes.items()}
    for path in paths:
        if path not in groups:
            raise UnknownBlockError(
                f"cost.overlay cannot expand {short_repr(path)}: the graph has no such path.",
                (("groups", listed([path for path, is_group in groups.items() if is_group], 8) or "none"),),
            )
    return frozenset(paths)


def draw_overlay(
    inspection: Inspection, of: Any, graph: Any = None, expanded: Any = None, *, own: bool = False, title: str = ""
) -> Drawing:
    """Draw the graph of a program with a value on each node.

    Args:
        inspection: The program.
        of: The name of an overlay, measured costs, or values by path of the block.
        graph: The graph, the name of its stage, or what has a graph. Default: that of the program, or for measured
            costs, the graph of the instructions that were measured.
        expanded: Paths or keys of the groups to open. Default: those of the first view.
        own: If true, the number of a block excludes the blocks inside it.
        title: Title of the user's values.
    """
    data = costs_of(inspection, of)
    if graph is None and data.get("source") in ("measured", "predicted"):
        graph = "hlo"
    drawn = inspection.graph(graph) if graph is None or isinstance(graph, str) else graph_of(graph, inspection.name)
    opened = validate_opened(drawn, expanded)
    specs, stage, dtypes = getattr(graph, "input_specs", None), None, dict[str, str]()
    if isinstance(drawn, LogicalGraph):
        scene = picture(drawn, specs, block_shares(inspection), opened).diagram
        if of == "dtype":
            dtypes = dtypes_of_model(infer(drawn, specs or {}).blocks)
    else:
        scene, stage = stage_layout(drawn, opened=opened, shares=stage_shares(inspection, drawn)), drawn
        dtypes = dtypes_of_stage(drawn)
    if isinstance(of, Mapping):
        values = user_values(of, scene.nodes, title or "value")
    else:
        time = {"measured": "time_s", "predicted": "predicted_s"}
        name = of if isinstance(of, str) else time.get(str(data.get("source")), "flops")
        values = overlay_by_name(inspection, name, scene.nodes, data, graph=stage, own=own, dtypes=dtypes)
    return draw_values(scene, values, inspection.name)


def stage_shares(inspection: Inspection, graph: StageGraph) -> dict[str, float]:
    """Return the share of each node of a stage in the program's FLOPs, from the jaxpr; see `node_shares`."""
    from mithril_nb import cost

    try:
        counted = cost.cost_of(inspection)
    except StageUnavailableError:
        return {}  # a program that cannot be traced has no known cost; its stages show the error
    # Not `to_dict`, which computes ten times as many numbers.
    data = {
        "source": counted.source,
        "total": counted.total.to_dict(),
        "by_block": {path: figures.to_dict() for path, figures in counted.by_block.items()},
        "rows": [
            {"id": row.id, "flops": row.flops, "blocks": [path for path, _ in row.blocks]} for row in counted.rows
        ],
    }
    return node_shares(data, "flops", graph)


def block_shares(inspection: Inspection) -> dict[str, float]:
    """Return the share of each block in the program's FLOPs, 0 to 1, by path. It includes the blocks inside.

    Blocks with an unknown share are left out.
    """
    from mithril_nb import cost

    try:
        counted = cost.cost_of(inspection)
    except StageUnavailableError:
        return {}
    paths = dict.fromkeys(path for block in counted.by_block for path in outer_paths(block))
    shares = {path: counted.share_of(counted.subtree(path))[0] for path in paths} if counted.total.flops else {}
    return {path: share for path, share in shares.items() if share is not None}


def costs_of(inspection: Inspection, of: Any) -> Data:
    """Return the costs that an overlay needs: `{}` if it needs none."""
    if isinstance(of, str | Mapping):
        return inspection.cost().to_dict() if of in OF_BLOCKS else {}
    if hasattr(of, "by_block") and hasattr(of, "to_dict"):
        return of.to_dict()
    needs = (("needs", "a name, a profile, or a dict of values by path"), ("names", ", ".join(NAMES)))
    raise UnknownOptionError(f"inspection.overlay cannot show {short_repr(of, 60)}.", needs)


def overlay_by_name(
    inspection: Inspection,
    name: str,
    nodes: Sequence[Box],
    data: Data,
    *,
    graph: StageGraph | None,
    own: bool,
    dtypes: Mapping[str, str],
) -> Overlay:
    """Return an overlay of a program. `graph` is `None` for the graph of a model."""
    if name in OF_BLOCKS:
        source = None if graph is None else _COUNTED_ON.get(graph.stage)
        # The costs of equations do not add up to those of instructions, which XLA fuses, merges and copies.
        if source and data["source"] == "analytic":
            data = inspection.cost(source).to_dict()
        return cost_values(data, nodes, FIELDS[name], own=own, graph=graph)
    if name == "memory":
        use = inspection.memory
        return memory_values(use.at_peak, nodes, use.source, own=own, graph=graph)
    if name == "dtype":
        return dtype_values(nodes, dtypes)
    if name not in NAMES:
        raise UnknownOptionError(f"unknown overlay {short_repr(name)}.", (("known", ", ".join(NAMES)),))
    if graph is None:
        raise UnknownOptionError(
            f"a model has no {name}s, because only the instructions of a program have them.",
            (("graph", "the logical graph of a model"),),
        )
    if name == "role":
        return role_values(nodes)
    return sharding_values(nodes, graph, shardings_of(inspection, graph))


def shardings_of(inspection: Inspection, graph: StageGraph) -> dict[str, str]:
    """Return the sharding of each instruction's result, by id of the instruction, if the program specifies it."""
    from mithril_nb.stages.trace.shardings import stated_shardings

    stated = stated_shardings(inspection.traced_program, inspection.arguments)
    if graph.stage == "jaxpr":
        return stated
    pairs = ((id, equation) for id, equations in graph.equations.items() for equation in equations)
    return {id: stated[equation] for id, equation in pairs if equation in stated}


def choices(inspection: Inspection, data: Data, graph: StageGraph | None) -> list[tuple[str, str]]:
    """Return the overlays of a program as pairs of name and title, without those that would show nothing."""
    total = data["total"]
    formulas = total.get("formulas") or {}
    names = [
        (name, FIELDS[name].title)
        for name in OF_BLOCKS
        if (total.get(name) is not None or name in formulas if name in BLOCK_FIELDS else total.get(name))
    ]
    is_traced = inspection.given is None
    if inspection.is_optimized or is_traced:
        names.append(("memory", "memory at the peak"))
    if graph is not None:
        names.append(("role", "role"))
    names.append(("dtype", "dtype"))
    if graph is not None and is_traced and shardings_of(inspection, graph):
        names.append(("sharding", "sharding"))
    return names


def page_overlays(
    inspection: Inspection,
    nodes: Sequence[Box],
    graph: StageGraph,
    data: Data,
    values: Mapping[str, Mapping[str, Any]],
) -> Iterator[dict[str, Any]]:
    """Yield the overlays of a saved page as data for the front end: the user's values by title, then all others.

    If blocks contain others, a cost has two overlays: one includes the blocks inside a block, the other excludes them.
    """
    keys = [node.key for node in nodes]
    dtypes = dtypes_of_stage(graph)
    for title, by_path in values.items():
        yield {**user_values(by_path, nodes, title).to_dict(keys), "name": f"own values: {title}", "own": False}
    for name, _ in choices(inspection, data, graph):
        if name == "memory" and not inspection.is_optimized:
            continue
        for own in (False, True) if name in (*OF_BLOCKS, "memory") and has_groups(data) else (False,):
            overlay = overlay_by_name(inspection, name, nodes, data, graph=graph, own=own, dtypes=dtypes)
            yield {**overlay.to_dict(keys), "own": own}
