"""The graph of a stage as a nested graph, as a picture with positions, and as text."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial

from mithril_nb.display import columns
from mithril_nb.stages.graph.stage_graph import ROOT, GraphNode, StageGraph, short_shape, size_of_shape
from mithril_nb.stages.records import ROLES
from mithril_nb.viz.diagrams.layout import fits_first_view, layout
from mithril_nb.viz.diagrams.logical import LEFT, NAME_SIZE, RIGHT, SMALL_SIZE
from mithril_nb.viz.diagrams.nested import GRADIENT, SHARED, Box, Flow, NestedGraph, Scene
from mithril_nb.viz.palette import HUES, hue_of, hues_of_blocks
from mithril_nb.viz.text import one_line, text_width, times
from mithril_nb.viz.units import percent

_HEIGHTS = {"instruction": 46, "input": 34}
_BOX_H = 64
_NARROW, _WIDE, _GRID = 112, 208, 16
# Width in px for the share of a node's cost. Nodes of `SHARED` have this room even if their cost is unknown.
_SHARE_W = 52


def stage_layout(
    graph: StageGraph,
    *,
    opened: Collection[str] | None = None,
    shares: Mapping[str, float] | None = None,
    hues: Mapping[str, int] | None = None,
) -> Scene:
    """Lay out the graph of a stage."""
    nested = nested_stage(graph, shares, hues)
    return layout(nested, opened_at_first(graph, nested, shares) if opened is None else opened)


def opened_at_first(
    graph: StageGraph, nested: NestedGraph | None = None, shares: Mapping[str, float] | None = None
) -> frozenset[str]:
    """Return the keys of the nodes to open in the first picture, so that it is readable without zooming."""
    return graph.first_view(shares=shares, fits=partial(fits_first_view, nested or nested_stage(graph)))


def nested_stage(
    graph: StageGraph, shares: Mapping[str, float] | None = None, hues: Mapping[str, int] | None = None
) -> NestedGraph:
    """Return the graph of a stage as a nested graph.

    Args:
        graph: The graph.
        shares: Shares of the cost, 0 to 1, by key of the node, from `node_shares`.
        hues: Colours of blocks, as indices by path. Default: the result of `hues_of_blocks`.
    """
    if hues is None:
        hues = hues_of_blocks(node.block for node in graph.nodes.values() if node.block)
    boxes = [_box(graph, node, shares or {}, hues) for node in graph.visible(graph.nodes)]
    # The boxes of a level have the same width, so that rows of boxes form columns.
    usual = defaultdict[str, float](int)
    for box in boxes:
        usual[box.parent] = max(usual[box.parent], 0 if box.is_pill else box.w)
    boxes = tuple(box if box.is_pill else replace(box, w=usual[box.parent]) for box in boxes)
    drawn = [link for link in graph.links if not link.is_between_rounds]
    # The largest comes last, because a wire shows the last of its shapes.
    specs = sorted({spec for link in drawn for spec in link.specs}, key=size_of_shape)
    ranks = {spec: at for at, spec in enumerate(specs)}
    flows: list[Flow] = []
    rounds: list[Flow] = []
    for link in graph.links:
        roles = tuple(at for at, role in enumerate(ROLES) if role in link.roles)
        if link.is_between_rounds:
            rounds.append(Flow(link.source, link.target, roles=roles))
        else:
            roles, shapes = (
                (GRADIENT,) if link.is_gradient else roles,
                tuple(sorted(ranks[spec] for spec in link.specs)),
            )
            flows.append(Flow(link.source, link.target, roles=roles, shapes=shapes, loop=link.loop))
    shapes = tuple(map(short_shape, specs))
    return NestedGraph(graph.stage, boxes, tuple(flows), shapes, is_model=False, roles=ROLES, rounds=tuple(rounds))


def _box(graph: StageGraph, node: GraphNode, shares: Mapping[str, float], hues: Mapping[str, int]) -> Box:
    own = hue_of(node.block, hues)
    is_block = node.kind == "block" and node.block != ""
    members = (graph.nodes[key].block for key in graph.represented_by(node.key))
    blocks = tuple(dict.fromkeys(filter(None, members))) if is_block else ()
    ids = () if is_block else graph.instructions_of(node.key)
    room = _SHARE_W if node.kind in SHARED else 0
    title = text_width(" ".join(frame_texts(node.name, node.repeat, node.note, node.shape)), NAME_SIZE, bold=True) + 24
    name = text_width(one_line(node.name), NAME_SIZE, bold=True)
    name += text_width(f"×{node.repeat}", NAME_SIZE, bold=True) + 12 if node.repeat > 1 else 0
    # The pattern of its role is in its corner.
    name += 18 if node.kind == "instruction" else 0
    widest = max(_NARROW, max(name, text_width(node.shape, SMALL_SIZE) + room) + LEFT + RIGHT)
    return Box(
        node.key, node.name, node.kind, int(-(-min(widest, _WIDE) // _GRID) * _GRID),
        _HEIGHTS.get(node.kind, _BOX_H), round(title + room), node.parent, bool(node.children),
        # The last hue is grey.
        HUES - 1 if own is None else own, node.block, node.note, node.shape, node.repeat, shares.get(node.key),
        0 if node.kind == "failure" else None, counts=node.counts, blocks=() if blocks == (node.block,) else blocks,
        equations=tuple(dict.fromkeys(equation for id in ids for equation in graph.equations.get(id, ()))),
    )  # fmt: skip


def frame_texts(name: str, repeat: int, note: str, shape: str) -> tuple[str, str]:
    """Return the title of an open node of a stage as two texts."""
    return times(one_line(name), repeat), " · ".join(part for part in (note, one_line(shape)) if part)


def count_text(kind: str, counts: Sequence[int], roles: Sequence[str]) -> str:
    """Return the numbers of instructions in a node by role; `""` for a single instruction or an input."""
    if kind in ("instruction", "input"):
        return ""
    named = zip((*roles, "without a role"), counts, strict=False)
    return ", ".join(f"{count} {name}" for name, count in named if count)


def stage_graph_text(
    graph: StageGraph, opened: Collection[str] | None = None, shares: Mapping[str, float] | None = None
) -> str:
    """Return the nodes of the graph of a stage as an indented list."""
    expanded = opened_at_first(graph, shares=shares) if opened is None else opened
    depth = {ROOT: -1}
    rows: list[tuple[str, ...]] = []
    for node in graph.visible(expanded):
        depth[node.key] = depth[node.parent] + 1
        share = (shares or {}).get(node.key)
        rows.append(
            (
                "  " * depth[node.key] + times(one_line(node.name), node.repeat),
                "" if node.kind in ("block", "instruction") else node.kind,
                node.note,
                one_line(node.shape),
                count_text(node.kind, node.counts, ROLES),
                "" if share is None else percent(share),
            )
        )
    return columns(rows, {5}) if rows else f"{graph.stage}: nothing to draw"
