"""The displayed graph of a program: its stage and open nodes, redrawn when they change."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass

from mithril_nb.inspection import Inspection
from mithril_nb.stages.graph.stage_graph import StageGraph
from mithril_nb.stages.program_stages import first_stage
from mithril_nb.viz.diagrams.scene import Scene
from mithril_nb.viz.diagrams.stages import stage_layout
from mithril_nb.viz.diagrams.svg import scene_svg
from mithril_nb.viz.text import block_key


@dataclass(frozen=True)
class Picture:
    """A drawn graph.

    Attributes:
        stage: Its stage.
        svg: The picture.
        nodes: The visible nodes.
    """

    stage: str
    svg: str
    nodes: tuple[Node, ...]


@dataclass(frozen=True)
class Node:
    """A visible node.

    Attributes:
        key: Its key in the graph.
        mark: Value of `data-node` in the picture.
        name: Its name.
        blocks: Paths of the blocks that it represents; empty if it has `equations`.
        equations: Ids of its equations, if it does not represent blocks.
        opens: True if it contains nodes.
        opened: True if these are shown.
    """

    key: str
    mark: str
    name: str
    blocks: tuple[str, ...]
    equations: tuple[str, ...]
    opens: bool
    opened: bool


class GraphView:
    """State of the displayed graph. Several threads may use it.

    Args:
        inspection: The program.

    Attributes:
        stage: Name of the displayed stage.
        latest: The latest picture.
    """

    def __init__(self, inspection: Inspection):
        self._inspection = inspection
        self.stage = first_stage(inspection)
        self.latest: Picture | None = None
        self._lock = threading.RLock()
        self._opened: dict[str, frozenset[str]] = {}
        self._shares: Mapping[str, float] = {}
        self._requested = 1
        self._drawn = 0

    @property
    def is_news(self) -> bool:
        """True if the picture is outdated."""
        return self._drawn != self._requested

    @property
    def is_ready(self) -> bool:
        """True if the graph of the stage was drawn before, so that drawing it again is fast."""
        return self.stage in self._opened

    def show(self, stage: str) -> None:
        """Show another stage."""
        with self._lock:
            if stage != self.stage:
                self.stage = stage
                self._requested += 1

    def open(self, key: str) -> None:
        """Show the inside of a node. Ignored if the graph was never drawn."""
        with self._lock:
            if self.stage in self._opened:
                self._opened[self.stage] |= {key}
                self._requested += 1

    def close(self, key: str) -> None:
        """Hide the inside of a node. Ignored if the graph was never drawn."""
        with self._lock:
            if self.stage in self._opened:
                self._opened[self.stage] -= {key}
                self._requested += 1

    def take_shares(self, shares: Mapping[str, float]) -> None:
        """Show each block's share of the cost."""
        with self._lock:
            self._shares = shares
            self._requested += 1

    def draw(self, hues: Mapping[str, int]) -> Picture:
        """Draw the current graph. The first drawing chooses the open nodes."""
        with self._lock:
            requested, stage = self._requested, self.stage
            graph = self._inspection.graph(stage)
            if stage not in self._opened:
                self._opened[stage] = graph.first_view()
            diagram = stage_layout(graph, opened=self._opened[stage], shares=self._shares, hues=hues)
            title = f"graph of {stage}"
            self.latest = Picture(stage, scene_svg(diagram, title=title, embedded=True), _nodes(graph, diagram))
            self._drawn = requested
            return self.latest


def _nodes(graph: StageGraph, diagram: Scene) -> tuple[Node, ...]:
    found = []
    for node in diagram.nodes:
        members = (graph.nodes[key] for key in graph.represented_by(node.key))
        blocks = dict.fromkeys(member.block for member in members if member.block)
        found.append(
            Node(
                node.key,
                block_key(node.key),
                node.name,
                () if node.equations else tuple(blocks),
                node.equations,
                node.group,
                node.expanded,
            )
        )
    return tuple(found)
