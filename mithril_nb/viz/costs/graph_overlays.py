"""Overlays: a graph of a program with one value on each node, such as its FLOPs, memory, role, dtype or sharding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mithril_nb.errors import StageUnavailableError, UnknownOptionError, nearest, short_repr
from mithril_nb.graph.records import LogicalGraph
from mithril_nb.viz.costs.drawing import Drawing
from mithril_nb.viz.costs.fields import BLOCK_FIELDS, FIELDS, ON_GRAPHS, Data
from mithril_nb.viz.costs.node_values import (
    Node,
    cost_values,
    dtype_values,
    dtypes_of_model,
    dtypes_of_stage,
    has_groups,
    memory_values,
    node_shares,
    role_values,
    sharding_values,
    user_values,
)
from mithril_nb.viz.costs.overlay import draw_values, graph_of, validate_opened
from mithril_nb.viz.diagrams.overlays import Overlay
from mithril_nb.viz.diagrams.picture import picture
from mithril_nb.viz.text import outer_paths

if TYPE_CHECKING:
    from mithril_nb.inspection import Inspection
    from mithril_nb.stages.graph.stage_graph import StageGraph

OTHERS = ("memory", "role", "dtype", "sharding")
"""Names of the overlays that show something else than a cost."""
_COUNTED_ON = {"hlo_before": "lowered", "hlo": "compiled"}
"""Sources of costs by the stage with their instructions."""
NAMES = (*ON_GRAPHS, *OTHERS)
_CALL = "inspection.overlay({{{!r}: 0.5}})"


def draw_overlay(
    inspection: Inspection, of: Any, graph: Any = None, expanded: Any = None, *, own: bool = False, title: str = ""
) -> Drawing:
    """Draw the graph of a program with a value on each node. `Inspection.overlay` documents the arguments."""
    from mithril_nb.viz.diagrams.stages import stage_layout

    data = costs_of(inspection, of)
    is_measured = data.get("source") == "measured"
    if graph is None and is_measured:
        graph = "hlo"  # measured times are those of its instructions
    shown = inspection.graph(graph) if graph is None or isinstance(graph, str) else graph_of(graph, inspection.name)
    opened = validate_opened(shown, expanded)
    if isinstance(shown, LogicalGraph):
        specs = getattr(graph, "input_specs", None)
        scene = picture(shown, specs, block_shares(inspection), opened).diagram
        stage = None
    else:
        scene = stage_layout(shown, opened=opened, shares=stage_shares(inspection, shown))
        stage = shown
    if isinstance(of, Mapping):
        values = user_values(of, scene.nodes, title or "value", _CALL)
    else:
        specs = dtypes_of_graph(shown, getattr(graph, "input_specs", None)) if of == "dtype" else {}
        field = of if isinstance(of, str) else "time_s" if is_measured else "flops"
        values = overlay_by_name(inspection, field, scene.nodes, data, graph=stage, own=own, dtypes=specs)
    return draw_values(scene, values, inspection.name)


def stage_shares(inspection: Inspection, graph: StageGraph) -> dict[str, float]:
    """Return the share of each node of a stage in the program's FLOPs, from the jaxpr; see `node_shares`."""
    from mithril_nb import cost

    try:
        found = cost.cost_of(inspection)
    except StageUnavailableError:
        return {}  # a program that cannot be traced has no known cost; its stages show the error
    # Not `to_dict`, which computes ten times as many numbers.
    data = {
        "source": found.source,
        "total": found.total.to_dict(),
        "by_block": {path: figures.to_dict() for path, figures in found.by_block.items()},
        "rows": [{"id": row.id, "flops": row.flops, "blocks": [path for path, _ in row.blocks]} for row in found.rows],
    }
    return node_shares(data, "flops", graph)


def block_shares(inspection: Inspection) -> dict[str, float]:
    """Return the share of each block in the program's FLOPs, 0 to 1, by path. It includes the blocks inside.

    Blocks with an unknown share are left out.
    """
    from mithril_nb import cost

    try:
        found = cost.cost_of(inspection)
    except StageUnavailableError:
        return {}
    if not found.total.flops:
        return {}
    paths: dict[str, None] = {}
    for block in found.by_block:
        paths |= dict.fromkeys(outer_paths(block))
    shares = {path: found.share_of(found.subtree(path))[0] for path in paths}
    return {path: share for path, share in shares.items() if share is not None}


def costs_of(inspection: Inspection, of: Any) -> Data:
    """Return the costs that an overlay shows, as data. If it shows other values, such as dtypes, return `{}`.

    Args:
        inspection: The program.
        of: What the overlay shows: a profile or a cost; a name, such as `"flops"` or `"dtype"`; or the user's own
            values, as a dict by path.

    Raises:
        UnknownOptionError: `of` is none of these.
    """
    if isinstance(of, Mapping):
        return {}
    if isinstance(of, str):
        return inspection.cost().to_dict() if of in ON_GRAPHS else {}
    if hasattr(of, "by_block") and hasattr(of, "to_dict"):
        return of.to_dict()
    raise UnknownOptionError(
        f"inspection.overlay cannot show {short_repr(of, 60)}.",
        (("needs", "a name, a profile, or a dict of values by path"), ("names", ", ".join(NAMES))),
        'inspection.overlay("flops")',
    )


def dtypes_of_graph(graph: LogicalGraph | StageGraph, inputs: Any = None) -> dict[str, str]:
    """Return the known dtypes of results: in a stage by key of the node, in a model by path of the block."""
    if not isinstance(graph, LogicalGraph):
        return dtypes_of_stage(graph)
    from mithril_nb.models.shape_inference.infer import infer

    return dtypes_of_model(infer(graph, inputs or {}).blocks)


def overlay_by_name(
    inspection: Inspection,
    name: str,
    nodes: Sequence[Node],
    data: Data,
    *,
    graph: StageGraph | None,
    own: bool,
    dtypes: Mapping[str, str],
) -> Overlay:
    """Return an overlay: the value and the colour of each node of a graph.

    Args:
        inspection: The program.
        name: `"flops"`, `"memory"`, `"dtype"` or another of `NAMES`.
        nodes: The nodes of the graph.
        data: The costs of the program as data; used if the overlay shows a cost.
        graph: The graph, if it is the graph of a stage; `None` for the graph of a model.
        own: If true, the number of a block excludes the blocks inside it.
        dtypes: The result of `dtypes_of_graph`; used by the overlay `"dtype"`.

    Raises:
        UnknownOptionError: The name is unknown; or it is `"role"` or `"sharding"`, which a model does not have.
        StageUnavailableError: The program cannot be traced or compiled.
    """
    if name in ON_GRAPHS:
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
    if name in ("role", "sharding"):
        if graph is None:
            raise UnknownOptionError(
                f"a model has no {name}s, because only the instructions of a program have them.",
                (("graph", "the logical graph of a model"),),
                f'inspection.overlay("{name}")',
            )
        from mithril_nb.stages.records import ROLES

        if name == "role":
            return role_values(nodes, ROLES)
        return sharding_values(nodes, graph, shardings_of(inspection, graph))
    near = nearest(name, NAMES) or "flops"
    raise UnknownOptionError(
        f"unknown overlay {short_repr(name)}.", (("known", ", ".join(NAMES)),), f'inspection.overlay("{near}")'
    )


def shardings_of(inspection: Inspection, graph: StageGraph) -> dict[str, str]:
    """Return the sharding of each instruction's result, by id of the instruction, if the program specifies it."""
    from mithril_nb.stages.trace.shardings import stated_shardings

    known = stated_shardings(inspection.traced_program, inspection.arguments)
    if graph.stage == "jaxpr":
        return known
    return {id: known[one] for id, equations in graph.equations.items() for one in equations if one in known}


def choices(inspection: Inspection, data: Data, graph: StageGraph | None) -> list[tuple[str, str]]:
    """Return the overlays that the user can choose, as pairs of name and title.

    Args:
        inspection: The program.
        data: The costs of the program as data.
        graph: The graph of a stage; `None` for the graph of a model.
    """
    found = [(name, FIELDS[name].title) for name in ON_GRAPHS if _is_known(data, name)]
    if inspection.is_optimized or inspection.given is None:
        found.append(("memory", "memory at the peak"))
    if graph is not None:
        found.append(("role", "role"))
    found.append(("dtype", "dtype"))
    if graph is not None and inspection.given is None and shardings_of(inspection, graph):
        found.append(("sharding", "sharding"))
    return found


def _is_known(data: Data, name: str) -> bool:
    total = data["total"]
    if name not in BLOCK_FIELDS:
        return bool(total.get(name, 0))
    return total.get(name) is not None or name in (total.get("formulas") or {})


def page_overlays(
    inspection: Inspection,
    nodes: Sequence[Node],
    graph: StageGraph,
    data: Data,
    values: Mapping[str, Mapping[str, Any]],
) -> Iterator[dict[str, Any]]:
    """Yield the overlays of a saved page as data, without compiling the program.

    If blocks contain others, a cost has two overlays: one includes the blocks inside a block, the other excludes them.

    Args:
        inspection: The program.
        nodes: The nodes of `graph`.
        graph: The graph of a stage.
        data: The costs of the program as data.
        values: The user's own values: for each title, values by path of the block.
    """
    keys = [node.key for node in nodes]
    dtypes = dtypes_of_stage(graph)

    def made(name: str, own: bool) -> Overlay:
        return overlay_by_name(inspection, name, nodes, data, graph=graph, own=own, dtypes=dtypes)

    for title, given in values.items():
        yield {**user_values(given, nodes, title, _CALL).to_dict(keys), "name": f"own values: {title}", "own": False}
    for name, _ in choices(inspection, data, graph):
        if name == "memory" and not inspection.is_optimized:
            continue
        for own in (False, True) if name in (*ON_GRAPHS, "memory") and has_groups(data) else (False,):
            yield {**made(name, own).to_dict(keys), "own": own}
