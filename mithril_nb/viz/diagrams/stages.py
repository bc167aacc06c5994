"""Layout of a stage's graph.

The boxes of each level are placed in rows, from left to right and top to bottom like text; the wires run in lanes
between them. All closed boxes of a level have the same width, and wires from different outputs have separate tracks, so
nothing overlaps. A picture keeps its layout when a name or a number in it changes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from itertools import pairwise

from mithril_nb.display import columns
from mithril_nb.stages.graph.stage_graph import ROOT, GraphEdge, GraphNode, StageGraph
from mithril_nb.stages.records import ROLES
from mithril_nb.viz.diagrams.labels import LEFT, NAME_SIZE, RIGHT, SMALL_SIZE
from mithril_nb.viz.diagrams.rows import Net, Part, Placed, arrange_lines
from mithril_nb.viz.diagrams.scene import Level, Scene, SceneEdge, SceneNode, count_text, frame_texts
from mithril_nb.viz.palette import HUES, hue_of, hues_of_blocks
from mithril_nb.viz.text import one_line, text_width, times
from mithril_nb.viz.units import percent

MARGIN = 12
BOX_H, LEAF_H, INPUT_H = 64, 46, 34
TITLE_H = 28
PAD = 10
_NARROW, _WIDE, _GRID = 112, 208, 16
_SHARE_W = 52
"""Room for a share and its margin, for any number of digits."""


def stage_layout(
    graph: StageGraph,
    *,
    opened: Collection[str] | None = None,
    shares: Mapping[str, float] | None = None,
    hues: Mapping[str, int] | None = None,
) -> Scene:
    """Lay out a stage's graph.

    Args:
        graph: The graph.
        opened: Keys of the nodes that are drawn open; default: `graph.first_view`.
        shares: Share of the cost by block path.
        hues: Index of the hue by block; default: in program order.

    Returns:
        The scene; equal arguments give equal scenes on every machine.
    """
    shown = frozenset(graph.first_view(shares=shares) if opened is None else opened)
    if hues is None:
        hues = hues_of_blocks(node.block for node in graph.nodes.values() if node.block)
    plan = _Plan(graph, shown, shares or {}, hues)
    level = plan.level(ROOT)
    return Scene(
        graph.stage,
        level.w + 2 * MARGIN,
        level.h + 2 * MARGIN,
        tuple(level.shifted_nodes(MARGIN, MARGIN)),
        tuple(level.shifted_edges(MARGIN, MARGIN)),
        is_model=False,
        roles=ROLES,
    )


class _Plan:
    def __init__(self, graph: StageGraph, opened: frozenset[str], shares: Mapping[str, float], hues: Mapping[str, int]):
        self._graph, self._shares, self._hues = graph, shares, hues
        self._opened = frozenset(node.key for node in graph.visible(opened) if node.key in opened and node.children)
        self._edges: dict[str, list[tuple[str, str, GraphEdge]]] = {}
        edges = graph.edges(self._opened)
        self._back = {(edge.target, edge.source) for edge in edges if "backward" in edge.roles}
        for edge in edges:
            if self._is_drawn(edge):
                self._spread(edge)

    def _is_drawn(self, edge: GraphEdge) -> bool:
        """Return whether an edge is drawn as a wire, as forward edges are; cells in the nodes show other roles."""
        if not edge.roles or "forward" in edge.roles:
            return True
        ends = self._graph.nodes[edge.source], self._graph.nodes[edge.target]
        return edge.roles != ("update",) and any(not end.counts[0] and end.kind != "input" for end in ends)

    def _spread(self, edge: GraphEdge) -> None:
        """Cut an edge into one piece per level between its ends; `""` is the border of the level's frame."""
        tails, heads = self._above(edge.source), self._above(edge.target)
        common = next(key for key in tails if key in heads)
        out_of, into = tails[: tails.index(common)], heads[: heads.index(common)]
        for inner, outer in pairwise(out_of):
            self._edges.setdefault(outer, []).append((inner, "", edge))
        self._edges.setdefault(common, []).append((out_of[-1], into[-1], edge))
        for inner, outer in pairwise(into):
            self._edges.setdefault(outer, []).append(("", inner, edge))

    def _above(self, key: str) -> list[str]:
        found = [key]
        while key:
            key = self._graph.nodes[key].parent
            found.append(key)
        return found

    def level(self, key: str) -> Level:
        nodes = self._graph.level(key)
        inner = {node.key: self.level(node.key) for node in nodes if node.key in self._opened}
        leaf_w = self._width([node for node in nodes if node.key not in inner])
        parts = {node.key: self._part(node, inner.get(node.key), leaf_w) for node in nodes}
        nets: dict[tuple[str, str], dict[str, list[GraphEdge]]] = {}
        for tail, head, edge in self._edges.get(key, ()):
            nets.setdefault((tail, edge.source), {}).setdefault(head, []).append(edge)
        # The name of an input port is the source of its data.
        wanted = [Net(tail, source, tuple((head, source) for head in heads)) for (tail, source), heads in nets.items()]
        # The border of a frame can have wires of many sources: the inner picture has one pin for each.
        placed = arrange_lines(parts, wanted)
        level = Level(placed.w, placed.h, ins=dict(placed.ins), outs=dict(placed.outs))
        for node in nodes:
            x, y = placed.corners[node.key]
            self._draw(level, node, x, y, parts[node.key], inner.get(node.key))
        self._wire(level, nets, placed)
        return level

    def _wire(
        self, level: Level, nets: Mapping[tuple[str, str], Mapping[str, list[GraphEdge]]], placed: Placed
    ) -> None:
        for (tail, source), heads in nets.items():
            for head, edges in heads.items():
                first = edges[0]
                forward = [edge for edge in edges if "forward" in edge.roles or not edge.roles]
                level.edges.append(
                    SceneEdge(
                        source,
                        first.target if len(edges) == 1 else head or first.target,
                        placed.routes[tail, source, (head, source)],
                        shape=first.shape,
                        is_backward=not forward,
                        returns=any((edge.source, edge.target) in self._back for edge in edges),
                        is_end=head != "" and head not in self._opened,
                    )
                )

    def _width(self, nodes: list[GraphNode]) -> int:
        widest = _NARROW
        for node in nodes:
            name = text_width(one_line(node.name), NAME_SIZE, bold=True)
            name += text_width(f"×{node.repeat}", NAME_SIZE, bold=True) + 12 if node.repeat > 1 else 0
            below = text_width(node.shape, SMALL_SIZE)
            below += _SHARE_W if self._share(node) is not None else 0
            name += 18 if node.kind == "instruction" else 0
            widest = max(widest, name + LEFT + RIGHT, below + LEFT + RIGHT)
        return int(-(-min(widest, _WIDE) // _GRID) * _GRID)

    def _part(self, node: GraphNode, inner: Level | None, leaf_w: int) -> Part:
        if inner is None:
            heights = {"instruction": LEAF_H, "input": INPUT_H}
            return Part(leaf_w, heights.get(node.kind, BOX_H), {}, {}, node.kind == "input")
        title = (
            text_width(" ".join(frame_texts(node.name, node.repeat, node.note, node.shape)), NAME_SIZE, bold=True) + 24
        )
        title += _SHARE_W if self._share(node) is not None else 0
        w = max(inner.w + 2 * PAD, title)
        return Part(
            w,
            inner.h + TITLE_H + PAD,
            {name: y + TITLE_H for name, y in inner.ins.items()},
            {name: y + TITLE_H for name, y in inner.outs.items()},
        )

    def _draw(self, level: Level, node: GraphNode, x: float, y: float, part: Part, inner: Level | None) -> None:
        own = hue_of(node.block, self._hues)
        level.nodes.append(
            SceneNode(
                node.key, node.name, node.kind, x, y, part.w, part.h, HUES - 1 if own is None else own, node.block,
                node.parent, bool(node.children), inner is not None, node.note, node.shape, node.repeat,
                self._share(node), counts=node.counts,
                equations=() if node.kind == "block" and node.block else self._linked(node),
            )
        )  # fmt: skip
        if inner is None:
            return
        dx, dy = x + PAD, y + TITLE_H
        level.nodes += inner.shifted_nodes(dx, dy)
        for edge in inner.shifted_edges(dx, dy):
            points = list(edge.points)
            # Lines of the border start and end at the frame, which may be wider than its content.
            if points[0][0] <= dx:
                points[0] = (x, points[0][1])
            if not edge.is_end and points[-1][0] >= dx + inner.w:
                points[-1] = (x + part.w, points[-1][1])
            level.edges.append(replace(edge, points=tuple(points)))

    def _linked(self, node: GraphNode) -> tuple[str, ...]:
        ids = self._graph.instructions_of(node.key)
        return tuple(dict.fromkeys(one for id in ids for one in self._graph.equations.get(id, ())))

    def _share(self, node: GraphNode) -> float | None:
        return self._graph.share(node.key, self._shares)


def stage_graph_text(
    graph: StageGraph, opened: Collection[str] | None = None, shares: Mapping[str, float] | None = None
) -> str:
    """Return a stage's graph as an indented list with the content of the picture.

    Args:
        graph: The graph.
        opened: Keys of the nodes whose content is listed; default: `graph.first_view`.
        shares: Share of the cost by block path.
    """
    shown = graph.first_view(shares=shares) if opened is None else opened
    depth = {ROOT: -1}
    rows: list[tuple[str, ...]] = []
    for node in graph.visible(shown):
        depth[node.key] = depth[node.parent] + 1
        share = graph.share(node.key, shares or {})
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
