"""The graph of a stage as a nested graph, as a picture with positions, and as text."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial

from mithril_nb.display import columns
from mithril_nb.graph.spec import TensorSpec
from mithril_nb.stages.graph.stage_graph import ROOT, GraphNode, StageGraph, short_shape, size_of_shape
from mithril_nb.stages.records import ROLES
from mithril_nb.viz.diagrams.labels import LEFT, NAME_SIZE, RIGHT, SMALL_SIZE
from mithril_nb.viz.diagrams.layout import fits_first_view, layout
from mithril_nb.viz.diagrams.nested import GRADIENT, SHARED, Box, Flow, NestedGraph
from mithril_nb.viz.diagrams.scene import Scene, count_text, frame_texts
from mithril_nb.viz.palette import HUES, hue_of, hues_of_blocks
from mithril_nb.viz.text import one_line, text_width, times
from mithril_nb.viz.units import percent

_HEIGHTS = {"instruction": 46, "input": 34}
_BOX_H = 64
_NARROW, _WIDE, _GRID = 112, 208, 16
_SHARE_W = 52
"""Width in px for the share of a node's cost. Nodes of `SHARED` have this room even if their cost is unknown."""


def stage_layout(
    graph: StageGraph,
    *,
    opened: Collection[str] | None = None,
    shares: Mapping[str, float] | None = None,
    hues: Mapping[str, int] | None = None,
) -> Scene:
    """Lay out the graph of a stage.

    Args:
        graph: The graph.
        opened: Keys of the nodes to draw open. Default: the result of `opened_at_first`.
        shares: Shares of the cost, 0 to 1, by key of the node, from `node_shares`.
        hues: Colours of blocks, as indices by path. Default: the result of `hues_of_blocks`.

    Returns:
        The scene; equal arguments give equal scenes on every machine.
    """
    nested = nested_stage(graph, shares, hues)
    return layout(nested, opened_at_first(graph, nested, shares) if opened is None else opened)


def opened_at_first(
    graph: StageGraph, nested: NestedGraph | None = None, shares: Mapping[str, float] | None = None
) -> frozenset[str]:
    """Return the keys of the nodes to open in the first picture, so that it is readable without zooming.

    Args:
        graph: The graph.
        nested: The result of `nested_stage`, which is computed if it is `None`.
        shares: Shares of the cost, 0 to 1, by key of the node. The nodes with the largest shares are opened first;
            without shares, the nodes with the most instructions.
    """
    return graph.first_view(shares=shares, fits=partial(fits_first_view, nested or nested_stage(graph)))


def nested_stage(
    graph: StageGraph, shares: Mapping[str, float] | None = None, hues: Mapping[str, int] | None = None
) -> NestedGraph:
    """Return the graph of a stage as a nested graph. The arguments are those of `stage_layout`."""
    if hues is None:
        hues = hues_of_blocks(node.block for node in graph.nodes.values() if node.block)
    boxes = tuple(_box(graph, node, shares or {}, hues) for node in graph.visible(graph.nodes))
    drawn = [link for link in graph.links if not link.is_between_rounds]
    specs = sorted({spec for link in drawn for spec in link.specs}, key=size_of_shape)
    ranks: dict[TensorSpec, int] = {spec: at for at, spec in enumerate(specs)}
    flows = tuple(
        Flow(
            link.source,
            link.target,
            roles=(GRADIENT,) if link.is_gradient else tuple(at for at, role in enumerate(ROLES) if role in link.roles),
            shapes=tuple(sorted(ranks[spec] for spec in link.specs)),
            loop=link.loop,
        )
        for link in drawn
    )
    rounds = tuple(
        Flow(link.source, link.target, roles=tuple(at for at, role in enumerate(ROLES) if role in link.roles))
        for link in graph.links
        if link.is_between_rounds
    )
    shapes = tuple(map(short_shape, specs))
    return NestedGraph(graph.stage, boxes, flows, shapes, is_model=False, roles=ROLES, rounds=rounds)


def _box(graph: StageGraph, node: GraphNode, shares: Mapping[str, float], hues: Mapping[str, int]) -> Box:
    own = hue_of(node.block, hues)
    members = [graph.nodes[key].block for key in graph.represented_by(node.key)]
    is_block = node.kind == "block" and node.block != ""
    title = text_width(" ".join(frame_texts(node.name, node.repeat, node.note, node.shape)), NAME_SIZE, bold=True) + 24
    blocks = tuple(dict.fromkeys(filter(None, members))) if is_block else ()
    if blocks == (node.block,):
        blocks = ()
    return Box(
        node.key, node.name, node.kind, _width(node), _HEIGHTS.get(node.kind, _BOX_H), round(title + _room(node)),
        node.parent, bool(node.children), HUES - 1 if own is None else own, node.block, node.note, node.shape,
        node.repeat, shares.get(node.key), 0 if node.kind == "failure" else None, counts=node.counts,
        blocks=blocks, equations=() if is_block else _linked(graph, node),
    )  # fmt: skip


def _width(node: GraphNode) -> int:
    name = text_width(one_line(node.name), NAME_SIZE, bold=True)
    name += text_width(f"×{node.repeat}", NAME_SIZE, bold=True) + 12 if node.repeat > 1 else 0
    name += 18 if node.kind == "instruction" else 0
    below = text_width(node.shape, SMALL_SIZE) + _room(node)
    widest = max(_NARROW, name + LEFT + RIGHT, below + LEFT + RIGHT)
    return int(-(-min(widest, _WIDE) // _GRID) * _GRID)


def _room(node: GraphNode) -> int:
    return _SHARE_W if node.kind in SHARED else 0


def _linked(graph: StageGraph, node: GraphNode) -> tuple[str, ...]:
    ids = graph.instructions_of(node.key)
    return tuple(dict.fromkeys(one for id in ids for one in graph.equations.get(id, ())))


def stage_graph_text(
    graph: StageGraph, opened: Collection[str] | None = None, shares: Mapping[str, float] | None = None
) -> str:
    """Return the nodes of the graph of a stage as an indented list.

    Args:
        graph: The graph.
        opened: Keys of the nodes whose content is listed. Default: the result of `opened_at_first`.
        shares: Shares of the cost, 0 to 1, by key of the node.
    """
    shown = opened_at_first(graph, shares=shares) if opened is None else opened
    depth = {ROOT: -1}
    rows: list[tuple[str, ...]] = []
    for node in graph.visible(shown):
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
