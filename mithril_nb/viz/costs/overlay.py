"""A graph coloured by the cost of each block, with the number on each. Expensive blocks stand out most."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeGuard

from mithril_nb.display import Shown, columns
from mithril_nb.errors import UnknownBlockError, UnknownOptionError, nearest, short_repr
from mithril_nb.graph.records import LogicalGraph
from mithril_nb.graph.spec import TensorSpec
from mithril_nb.viz.costs.blocks import path_text
from mithril_nb.viz.costs.canvas.svg_canvas import FOOT, HEAD_H, Page
from mithril_nb.viz.costs.drawing import Drawing, option_error, replace_undrawable
from mithril_nb.viz.costs.fields import BLOCK_FIELDS, OF_KNOWN, Data, Field, field_of, is_bound, notes_of, reason_of
from mithril_nb.viz.costs.overlay_boxes import Box, draw
from mithril_nb.viz.diagrams.picture import picture
from mithril_nb.viz.diagrams.scene import Scene
from mithril_nb.viz.text import listed, one_line, outer_paths, times
from mithril_nb.viz.units import percent

if TYPE_CHECKING:
    from mithril_nb.stages.graph.stage_graph import StageGraph


_CALL = 'cost.overlay(inspection, "{}")'
_STEP_TEXTS = ("< 1 %", "1–3 %", "3–10 %", "10–30 %", "30–60 %", "≥ 60 %")
_NARROWEST = 450
_MOST_ALIKE = 8
"""Graphs with more top-level blocks draw equal blocks in a row as one."""


def overlay_of(data: Data, target: Any, field: str = "flops", expanded: Collection[str] = ()) -> Drawing:
    """Draw costs on a graph, by `overlay` or `stage_overlay` depending on the graph.

    Args:
        data: The costs.
        target: A logical graph, a model with one, a stage's graph, or an inspection, whose jaxpr graph is used.
        field: Field to show, one of `BLOCK_FIELDS`.
        expanded: Groups to open.

    Raises:
        UnknownOptionError: The field does not exist, the costs belong to another graph, or the target has no graph.
        UnknownBlockError: A group does not exist.
    """
    graph = graph_of(target, str(data["program"]))
    opened = validate_opened(graph, expanded)
    if isinstance(graph, LogicalGraph):
        return overlay(data, graph, field, getattr(target, "input_specs", None), opened)
    return stage_overlay(data, graph, field, opened or None)


def overlay(
    data: Data,
    graph: LogicalGraph,
    field: str = "flops",
    inputs: Mapping[str, TensorSpec] | None = None,
    expanded: Collection[str] = frozenset(),
) -> Drawing:
    """Draw a logical graph with the cost of each block.

    Args:
        data: The costs, as returned by `Cost.to_dict()`.
        graph: The graph of the same model.
        field: Field to show, one of `BLOCK_FIELDS`.
        inputs: Specs of the graph's inputs.
        expanded: Paths of the groups that are drawn open.

    Raises:
        UnknownOptionError: The field does not exist, or the costs belong to another graph.
    """
    kind, data = field_of(field, BLOCK_FIELDS, _CALL), replace_undrawable(data)
    values = inclusive(data, field)
    paths = [path for path, _ in graph.walk()]
    _check_blocks(data, values, paths)
    shares = _shares(data, kind, values)
    of_graph = {path: share for path, share in shares.items() if path in paths}
    drawn = picture(graph, inputs, of_graph, expanded, fold=not expanded and len(graph.nodes) > _MOST_ALIKE)
    least = _bounds(data, kind)
    boxes = [
        Box(node, "" if node.is_pill else node.kind, not node.is_pill, is_least=node.path in least)
        for node in drawn.diagram.nodes
    ]
    inside = sum(values.get(node.name) or 0 for node in graph.nodes)
    return _drawing(data, kind, boxes, drawn.diagram, inside)


def stage_overlay(
    data: Data, graph: StageGraph, field: str = "flops", opened: Collection[str] | None = None
) -> Drawing:
    """Draw the graph of a stage with the cost of each block.

    Args:
        data: The costs, as returned by `Cost.to_dict()`.
        graph: The graph, as returned by `Inspection.graph`.
        field: Field to show, one of `BLOCK_FIELDS`.
        opened: Keys of the nodes that are drawn open; default: the most expensive ones that fit.

    Raises:
        UnknownOptionError: The field does not exist, or the costs belong to another graph.
    """
    from mithril_nb.viz.diagrams.stages import stage_layout  # imports JAX; a stage graph exists only if JAX does

    kind, data = field_of(field, BLOCK_FIELDS, _CALL), replace_undrawable(data)
    values = inclusive(data, field)
    blocks = (node.block for node in graph.nodes.values() if node.kind == "block" and node.block)
    _check_blocks(data, values, dict.fromkeys(blocks))
    least = _bounds(data, kind)
    diagram = stage_layout(graph, opened=opened, shares=_shares(data, kind, values))

    boxes: list[Box] = []
    for node in diagram.nodes:
        is_block = node.kind == "block"
        # A block without costs shows 0: the instructions in it belong to other blocks.
        share = 0.0 if is_block and node.path not in values else node.share
        drawn = replace(node, path=node.path if is_block else "", share=share)
        together = values.get(node.path) if is_block and share is None else None
        boxes.append(Box(drawn, "", is_block, together, is_block and node.path in least))
    tops = {path.partition("/")[0] for path in graph.nodes if path}
    inside = sum(value or 0 for path, value in values.items() if path in tops)
    return _drawing(data, kind, boxes, diagram, inside)


def inclusive(data: Data, field: str) -> dict[str, float | None]:
    """Return the cost of each block with the blocks inside it; `None` if all of it is unknown.

    Examples:
        >>> inclusive({"by_block": {"a/b": {"flops": 2}, "a/c": {"flops": 3}, "d": {"flops": None}}}, "flops")
        {'a': 5, 'a/b': 2, 'a/c': 3, 'd': None}
    """
    found: dict[str, float | None] = {}
    for path, figures in data["by_block"].items():
        value = figures.get(field)
        for above in outer_paths(path):
            before = found.setdefault(above, None)
            if value is not None:
                found[above] = (before or 0) + value
    return found


def _bounds(data: Data, kind: Field) -> set[str]:
    """Return the paths of blocks that contain unknown costs."""
    return {
        above
        for path, figures in data["by_block"].items()
        if figures.get(kind.name) is None or is_bound(figures, kind.name)
        for above in outer_paths(path)
    }


def _shares(data: Data, kind: Field, values: Mapping[str, float | None]) -> dict[str, float]:
    total = data["total"].get(kind.name)
    return {path: value / total for path, value in values.items() if value is not None} if total else {}


def _check_blocks(data: Data, values: Mapping[str, float | None], paths: Collection[str]) -> None:
    """Raise if the costs and the graph both have blocks, but none in common."""
    if not paths or not values or values.keys() & set(paths):
        return
    raise UnknownOptionError(
        f"the costs of {data['program']!r} contain no block of this graph.",
        (("costs", listed([*map(path_text, values)], 4)), ("graph", listed([*map(path_text, paths)], 4))),
        "inspection.cost().overlay(inspection)",
    )


def _drawing(data: Data, kind: Field, boxes: list[Box], scene: Scene, inside: float) -> Drawing:
    total = data["total"].get(kind.name)
    outside = None if total is None or kind.name == "time_s" else total - inside
    return Drawing(_svg(data, kind, boxes, scene, outside), _text(data, kind, boxes, outside))


def _svg(data: Data, kind: Field, boxes: list[Box], scene: Scene, outside: float | None) -> str:
    width = max(_NARROWEST, round(scene.width))
    page = Page(data, kind, f"{kind.title} by block", width)
    page.sheet.shift((width - scene.width) / 2, HEAD_H - 4)
    draw(page.sheet, boxes, scene.edges, kind, data["total"].get(kind.name))
    page.sheet.close()
    page.y = HEAD_H + scene.height + FOOT
    page.sheet.text(8, page.y + 10, "share of the total", "muted")
    page.y += 17
    page.legend([(f"heat{at}", text) for at, text in enumerate(_STEP_TEXTS)])
    for note in _notes(data, kind, boxes, outside):
        page.note(note)
    costly = sorted(
        (box for box in boxes if box.node.share and not box.node.expanded), key=lambda box: -(box.node.share or 0)
    )
    names = ", ".join(f"{one_line(box.node.name)} {percent(box.node.share)}" for box in costly[:6])
    count = sum(box.is_block for box in boxes)
    return page.svg(f"{kind.title} of {count} blocks; the most expensive are {names or 'none'}.")


def _notes(data: Data, kind: Field, boxes: list[Box], outside: float | None) -> list[str]:
    total = data["total"].get(kind.name)
    if not total:
        return [reason_of(data, kind)]
    found = [f"outside this graph: {kind.short(outside)}, {percent(outside / total)}"] if outside else []
    if any(box.node.share is None and box.together is not None for box in boxes):
        found.append("Σ: cost of all calls of a function together, not of a single call")
    if is_bound(data["total"], kind.name):
        found.append(OF_KNOWN)
    return [*found, *notes_of(data, kind.name)]


def _text(data: Data, kind: Field, boxes: list[Box], outside: float | None) -> str:
    total = data["total"].get(kind.name)
    head = f"{one_line(str(data['program']))}: {kind.title} by block of its graph, {data['source']}"
    rows: list[tuple[str, ...]] = [("block", "", kind.title, "share")]
    for box in boxes:
        if box.is_block:
            share = "" if box.node.share is None else percent(box.node.share)
            name = times(path_text(box.node.path) if box.node.path else one_line(box.node.name), box.node.repeat)
            rows.append((name, one_line(box.kind), box.shown(kind, total), share))
    return "\n".join((head, columns(rows, right={2, 3}), *_notes(data, kind, boxes, outside)))


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
            (("groups", listed(groups, _MOST_NAMED) or "none"),),
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


def _described(target: Any) -> str:
    if inspect.isclass(target) or inspect.isroutine(target):
        return f"the {'class' if inspect.isclass(target) else 'function'} {target.__name__!r}"
    if isinstance(target, str | bytes | int | float | list | tuple | dict | set | None):
        return short_repr(target)
    return f"an object of type {type(target).__name__!r}"
