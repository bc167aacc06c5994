"""The picture of a model, with everything known about it: shapes, costs, problems, differences; and its text."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from mithril_nb.display import columns
from mithril_nb.errors import Diagnostic, MithrilError
from mithril_nb.graph.paths import join_path
from mithril_nb.graph.records import BOUNDARY, Endpoint, LogicalGraph
from mithril_nb.graph.spec import TensorSpec
from mithril_nb.models.shape_inference.infer import infer
from mithril_nb.stages.graph.stage_graph import MOST, GraphNode, StageGraph
from mithril_nb.viz.diagrams.layout import layout
from mithril_nb.viz.diagrams.logical import first_view, model_graph, repeat_key, repeated_runs
from mithril_nb.viz.diagrams.nested import Box, NestedGraph, Scene
from mithril_nb.viz.diagrams.stages import stage_layout
from mithril_nb.viz.text import one_line, outer_paths
from mithril_nb.viz.units import percent


@dataclass(frozen=True)
class Picture:
    """A graph with positions and labels."""

    graph: LogicalGraph
    diagram: Scene
    # All blocks, with the labels of the picture
    nested: NestedGraph
    problems: tuple[Diagnostic, ...]


def picture(
    graph: LogicalGraph,
    inputs: Mapping[str, TensorSpec] | None = None,
    shares: Mapping[str, float] | None = None,
    expanded: Collection[str] | None = None,
    marks: Mapping[str, str] | None = None,
) -> Picture:
    """Infer the specs of a graph, and lay it out with labels.

    Args:
        graph: The graph.
        inputs: Specs of its inputs, if they are known.
        shares: Shares of the cost, 0 to 1, by path of the block.
        expanded: Paths of the groups to draw open. Default: the result of `first_view`.
        marks: Marks of blocks that differ, by path; `first_view` opens the groups around them.
    """
    # A model with an error has a picture, too, which shows where the error is.
    specs, input_specs, diagnostics = {}, inputs, ()
    try:
        inference = infer(graph, inputs or {})
    except MithrilError as error:
        diagnostics = error.diagnostics
    else:
        specs, input_specs = inference.blocks, inference.inputs
        if inputs:  # without inputs, missing shapes are not errors yet
            diagnostics = inference.problems
    nested = model_graph(graph, specs, input_specs, shares, diagnostics, fold=True)
    if expanded is None:
        opened = first_view(nested, marks)
    else:  # and the repeated parts around them, which have no paths
        present = {key for key in expanded if key in nested.by_key}
        around = {key for inner in present for key in nested.above(inner)[1:-1]}
        opened = present | {key for key in around if not nested.by_key[key].path}
    return Picture(graph, layout(nested, opened), nested, diagnostics)


def graph_text(graph: LogicalGraph, nested: NestedGraph) -> str:
    """Return the blocks of a graph as an indented list."""
    if not graph.nodes:
        return "an empty graph: no blocks yet"
    rows = [
        (one_line(port.name), "input", "", "", one_line(nested.by_key[f"input:{port.name}"].shape), "")
        for port in graph.inputs
    ]
    rows += _rows(graph, "", "", nested.by_key)
    for port in graph.outputs:
        source = graph.source_of.get(Endpoint(BOUNDARY, port.name))
        rows.append((one_line(port.name), "output", "", _from([("", source)]), "", ""))
    return columns(rows, {5})


def _rows(
    graph: LogicalGraph, prefix: str, indent: str, boxes: Mapping[str, Box]
) -> Iterator[tuple[str, str, str, str, str, str]]:
    for node in graph.nodes:
        path = join_path(prefix, node.name)
        box = boxes[path]
        wired = [
            (port.name, graph.source_of.get(Endpoint(node.name, port.name)))
            for port in node.block.inputs
            if port.role == "data" or Endpoint(node.name, port.name) in graph.source_of
        ]
        share = "" if box.share is None else percent(box.share)
        sources = _from(wired if len(wired) > 1 else [("", source) for _, source in wired])
        texts = (one_line(node.block.kind), one_line(box.label), sources, one_line(box.shape))
        yield f"{indent}{one_line(node.name)}", *texts, share
        if node.block.graph is not None:
            yield from _rows(node.block.graph, path, indent + "  ", boxes)


def _from(wired: list[tuple[str, Endpoint | None]]) -> str:
    texts = []
    for name, source in wired:
        text = "(nothing)" if source is None else one_line(source.node or source.port)
        texts.append(f"{one_line(name)}={text}" if name else text)
    return f"<- {', '.join(texts)}" if texts else ""


# Pictures of a comparison: nodes that differ have a mark


def marked_scene(graph: LogicalGraph | StageGraph, marks: Mapping[str, str], hues: Mapping[str, int]) -> Scene:
    """Lay out a graph whose nodes have marks."""
    if isinstance(graph, StageGraph):
        opened = _opened_nodes(graph, marks) if marks else None
        return stage_layout(graph, opened=opened, hues=hues).with_marks(marks)
    all_marks = with_outer_blocks(marks)
    all_marks |= _marks_of_repeats(graph, all_marks, "")
    return picture(graph, marks=all_marks).diagram.with_marks(all_marks)


def with_outer_blocks(marks: Mapping[str, str]) -> dict[str, str]:
    """Add the mark `"changed"` for all blocks around a marked block."""
    result = dict(marks)
    for path in marks:
        for outer in outer_paths(path)[:-1]:
            result.setdefault(outer, "changed")
    return result


def _marks_of_repeats(graph: LogicalGraph, marks: Mapping[str, str], prefix: str) -> dict[str, str]:
    by_key: dict[str, str] = {}
    for run in repeated_runs(graph.nodes):
        paths = [join_path(prefix, node.name) for node in graph.nodes[run.start : run.end]]
        own = {marks.get(path, "") for path in paths}
        if own != {""}:
            by_key[repeat_key(paths[0])] = own.pop() if len(own) == 1 else "changed"
    for node in graph.nodes:
        if node.block.graph is not None and marks.get(join_path(prefix, node.name)) == "changed":
            by_key |= _marks_of_repeats(node.block.graph, marks, join_path(prefix, node.name))
    return by_key


def _opened_nodes(graph: StageGraph, marks: Mapping[str, str]) -> frozenset[str]:
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
