"""The graph of a program that somebody looks at: which stage, what is open, drawn anew when that changes."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass

from mithril_nb.stages import Inspection
from mithril_nb.stages.given import first_stage
from mithril_nb.stages.graph.stage_graph import StageGraph
from mithril_nb.viz.escape import block_key
from mithril_nb.viz.stage_diagram import StageDiagram, stage_layout
from mithril_nb.viz.stage_diagram_svg import stage_svg


@dataclass(frozen=True)
class Picture:
    """A graph, drawn.

    Attributes:
        stage: Its stage.
        svg: The picture.
        nodes: What each node that is seen stands for.
    """

    stage: str
    svg: str
    nodes: tuple[Node, ...]


@dataclass(frozen=True)
class Node:
    """A node that is seen.

    Attributes:
        key: Its key in the graph.
        mark: What stands in `data-node` of the picture.
        name: Its name.
        blocks: Paths of the blocks that it is, or stands for; empty if its equations say it better.
        equations: Ids of its equations, if it is no block.
        opens: Whether there is something inside.
        opened: Whether that is shown.
    """

    key: str
    mark: str
    name: str
    blocks: tuple[str, ...]
    equations: tuple[str, ...]
    opens: bool
    opened: bool


class GraphView:
    """Which graph is shown, and how. May be used by several threads.

    Args:
        inspection: The program.

    Attributes:
        stage: Name of the stage that is shown.
        latest: The last picture.
    """

    def __init__(self, inspection: Inspection):
        self._inspection = inspection
        self.stage = first_stage(inspection)
        self.latest: Picture | None = None
        self._lock = threading.RLock()
        self._opened: dict[str, frozenset[str]] = {}
        self._shares: Mapping[str, float] = {}
        self._wish = 1
        self._drawn = 0

    @property
    def is_news(self) -> bool:
        """Whether what is shown is not what is wished for."""
        return self._drawn != self._wish

    @property
    def is_ready(self) -> bool:
        """Whether the graph of the stage was drawn before, so that drawing it takes little."""
        return self.stage in self._opened

    def show(self, stage: str) -> None:
        """Show another stage."""
        with self._lock:
            if stage != self.stage:
                self.stage = stage
                self._wish += 1

    def open(self, key: str) -> None:
        """Show what is inside a node; of a graph that nobody has seen yet, none can be meant."""
        with self._lock:
            if self.stage in self._opened:
                self._opened[self.stage] |= {key}
                self._wish += 1

    def close(self, key: str) -> None:
        """Show a node as one; of a graph that nobody has seen yet, none can be meant."""
        with self._lock:
            if self.stage in self._opened:
                self._opened[self.stage] -= {key}
                self._wish += 1

    def take_shares(self, shares: Mapping[str, float]) -> None:
        """Show what each block costs."""
        with self._lock:
            self._shares = shares
            self._wish += 1

    def draw(self, hues: Mapping[str, int]) -> Picture:
        """Return the picture as it is wished for now; what was open when it was first drawn stays open."""
        with self._lock:
            wish, stage = self._wish, self.stage
            graph = self._inspection.graph(stage)
            if stage not in self._opened:
                self._opened[stage] = graph.first_view()
            diagram = stage_layout(graph, opened=self._opened[stage], shares=self._shares, hues=hues)
            title = f"graph of {stage}"
            self.latest = Picture(stage, stage_svg(diagram, title, embedded=True), _nodes(graph, diagram))
            self._drawn = wish
            return self.latest


def _nodes(graph: StageGraph, diagram: StageDiagram) -> tuple[Node, ...]:
    found = []
    for box in diagram.boxes:
        node = box.node
        blocks = dict.fromkeys(graph.nodes[key].block for key in graph.stands_for(node.key) if graph.nodes[key].block)
        found.append(
            Node(
                node.key,
                block_key(node.key),
                node.name,
                () if box.equations else tuple(blocks),
                box.equations,
                bool(node.children),
                box.opened,
            )
        )
    return tuple(found)
