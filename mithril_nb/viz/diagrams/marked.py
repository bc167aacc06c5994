"""Layout of the two graphs of a comparison. Nodes that differ have a mark."""

from __future__ import annotations

from collections.abc import Mapping

from mithril_nb.graph.paths import join_path
from mithril_nb.graph.records import LogicalGraph
from mithril_nb.stages.graph.stage_graph import MOST, GraphNode, StageGraph
from mithril_nb.viz.diagrams.logical import repeat_key
from mithril_nb.viz.diagrams.picture import picture
from mithril_nb.viz.diagrams.repeats import repeated_runs
from mithril_nb.viz.diagrams.scene import Scene
from mithril_nb.viz.diagrams.stages import stage_layout
from mithril_nb.viz.text import outer_paths


def marked_scene(graph: LogicalGraph | StageGraph, marks: Mapping[str, str], hues: Mapping[str, int]) -> Scene:
    """Lay out a graph whose nodes have marks.

    Args:
        graph: The graph of a model or of a stage.
        marks: `"added"`, `"removed"` or `"changed"`: in a model by path of the block, in a stage by key of the node.
        hues: Colours of the blocks of a stage, as indices by path; ignored for a model.

    Examples:
        >>> from mithril_nb.models import Linear, Model, Relu
        >>> scene = marked_scene((Model() + Linear(3) + Relu()).graph, {"relu_0": "added"}, {})
        >>> [(node.key, node.mark) for node in scene.nodes if node.mark]
        [('relu_0', 'added')]
    """
    if isinstance(graph, StageGraph):
        opened = _opened_nodes(graph, marks) if marks else None
        return stage_layout(graph, opened=opened, hues=hues).with_marks(marks)
    known = with_outer_blocks(marks)
    known |= _marks_of_repeats(graph, known, "")
    return picture(graph, marks=known).diagram.with_marks(known)


def with_outer_blocks(marks: Mapping[str, str]) -> dict[str, str]:
    """Add the mark `"changed"` for all blocks around a marked block.

    Examples:
        >>> with_outer_blocks({"net/mlp": "added"})
        {'net/mlp': 'added', 'net': 'changed'}
    """
    found = dict(marks)
    for path in marks:
        for outer in outer_paths(path)[:-1]:
            found.setdefault(outer, "changed")
    return found


def _marks_of_repeats(graph: LogicalGraph, marks: Mapping[str, str], prefix: str) -> dict[str, str]:
    """Return marks for the boxes of repeated parts: the mark that all blocks inside have, or else `"changed"`."""
    found: dict[str, str] = {}
    for run in repeated_runs(graph.nodes):
        paths = [join_path(prefix, node.name) for node in graph.nodes[run.start : run.end]]
        own = {marks.get(path, "") for path in paths}
        if own != {""}:
            found[repeat_key(paths[0])] = own.pop() if len(own) == 1 else "changed"
    for node in graph.nodes:
        if node.block.graph is not None and marks.get(join_path(prefix, node.name)) == "changed":
            found |= _marks_of_repeats(node.block.graph, marks, join_path(prefix, node.name))
    return found


def _opened_nodes(graph: StageGraph, marks: Mapping[str, str]) -> frozenset[str]:
    """Return the keys of the nodes to open in a stage: as many nodes around a difference as fit, outer ones first."""
    opened: set[str] = set()
    level = list(graph.level())
    count = len(level)
    while level:
        inner: list[GraphNode] = []
        for node in level:
            if marks.get(node.key) != "changed" or not any(child in marks for child in node.children):
                continue
            if count + len(node.children) <= MOST:
                opened.add(node.key)
                count += len(node.children)
                inner += graph.level(node.key)
        level = inner
    return frozenset(opened)
