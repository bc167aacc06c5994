"""What each type of value looks like in a notebook: a picture or a table, and always a text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mithril_nb.graph.records import Block, LogicalGraph
from mithril_nb.viz.costs.change import change
from mithril_nb.viz.costs.drawing import Drawing
from mithril_nb.viz.costs.lines import lines_html, lines_text
from mithril_nb.viz.costs.memory.timeline import memory_timeline
from mithril_nb.viz.costs.numbers import Numbers
from mithril_nb.viz.costs.profile import profile_html, profile_text
from mithril_nb.viz.costs.sweep import sweep
from mithril_nb.viz.costs.table import cost_html, cost_text
from mithril_nb.viz.curves import curves_svg, curves_text
from mithril_nb.viz.image import image_html
from mithril_nb.viz.inspection_summary import summary_html, summary_text
from mithril_nb.viz.listing import MOST_LINES, cut_text, listing_html, listing_text
from mithril_nb.viz.picture import Picture, picture
from mithril_nb.viz.records import Diagram
from mithril_nb.viz.retraces import retraces_html, retraces_text
from mithril_nb.viz.svg import diagram_svg
from mithril_nb.viz.text import block_text, graph_text
from mithril_nb.viz.transform_steps import steps_html, steps_text

Bundle = dict[str, str]
PACKAGE = "mithril_nb"


def bundle(value: object) -> Bundle:
    """Return the MIME bundle of a value of this package.

    The renderer is found by the name of the value's class, or of a base of it, so that classes that live beside JAX or
    a widget library need not be imported here. A renderer that fails never takes the page with it: its error is named
    below the value's own `repr`.
    """
    renderer = _renderer(type(value))
    if renderer is None:
        return {"text/plain": repr(value)}
    try:
        return _themed(renderer(value))
    except Exception as error:  # whatever it is, the cell must still show the value
        return {"text/plain": f"{value!r}\n(no picture of it: {type(error).__name__}: {error})"}


def _renderer(kind: type) -> Callable[[Any], Bundle] | None:
    for base in kind.__mro__:
        if base.__module__.partition(".")[0] == PACKAGE and base.__name__ in RENDERERS:
            return RENDERERS[base.__name__]
    return None


def _themed(made: Bundle) -> Bundle:
    """Return a bundle whose picture is as light or dark as the notebook: by itself it is as the system around it."""
    if "image/svg+xml" not in made or "text/html" in made:
        return made
    return {**made, "text/html": image_html(made["image/svg+xml"], made["text/plain"].partition("\n")[0])}


def picture_bundle(made: Picture, title: str) -> Bundle:
    """Return the bundle of a picture that is already laid out."""
    text = graph_text(made.graph, made.annotations.nodes, made.annotations.edge_shapes)
    if made.problems:
        text += "\n\n" + "\n".join(str(problem) for problem in made.problems)
    return {"text/plain": text, "image/svg+xml": diagram_svg(made.diagram, made.problems, title)}


def _graph(graph: LogicalGraph) -> Bundle:
    return picture_bundle(picture(graph), "logical graph")


def _block(block: Block) -> Bundle:
    if block.graph is None:
        return {"text/plain": block_text(block)}
    return {**picture_bundle(picture(block.graph), block.kind), "text/plain": block_text(block)}


def _diagram(diagram: Diagram) -> Bundle:
    blocks = sum(1 for node in diagram.nodes if node.path)
    text = f"diagram of {blocks} blocks, {diagram.width:.0f} x {diagram.height:.0f} px"
    return {"text/plain": text, "image/svg+xml": diagram_svg(diagram)}


def _stage(stage: Any) -> Bundle:
    return {"text/plain": listing_text(stage, MOST_LINES), "text/html": listing_html(stage)}


def _inspection(inspection: Any) -> Bundle:
    """Show what costs little: showing must not start a compiler."""
    return {"text/plain": summary_text(inspection), "text/html": summary_html(inspection)}


def _stage_graph(graph: Any) -> Bundle:
    from mithril_nb.viz.stage_diagram import stage_layout  # imports JAX, which is there if there is such a graph
    from mithril_nb.viz.stage_diagram_svg import stage_graph_text, stage_svg

    return {"text/plain": stage_graph_text(graph), "image/svg+xml": stage_svg(stage_layout(graph))}


def _stage_diagram(diagram: Any) -> Bundle:
    from mithril_nb.viz.stage_diagram_svg import stage_svg

    text = f"diagram of {len(diagram.boxes)} nodes, {diagram.width:.0f} x {diagram.height:.0f} px"
    return {"text/plain": text, "image/svg+xml": stage_svg(diagram)}


def _pass(one: Any) -> Bundle:
    return {"text/plain": f"{one}\n{cut_text(one.diff, MOST_LINES)}"}


def _kernel(kernel: Any) -> Bundle:
    return {"text/plain": cut_text(kernel.llvm, MOST_LINES)}


def _cost(cost: Any) -> Bundle:
    data = cost.to_dict()
    return {"text/plain": cost_text(data), "text/html": cost_html(data)}


def _by_line(found: Any) -> Bundle:
    data = found.to_dict()
    return {"text/plain": lines_text(data), "text/html": lines_html(data)}


def _drawing(drawing: Drawing) -> Bundle:
    return {"text/plain": drawing.text, "text/html": drawing.html, "image/svg+xml": drawing.svg}


def _comparison(found: Any) -> Bundle:
    tables = tuple(Numbers(title, rows) for title, rows in found.tables.items())
    return _drawing(Drawing(found.beside().svg, str(found), tables, found.notes))


def _run(run: Any) -> Bundle:
    view = {**run.snapshot(), "steps_per_s": None, "left_s": None}  # the text of a cell should not change with the load
    return {"text/plain": curves_text(view), "image/svg+xml": curves_svg(run.history.to_dict())}


def _transforms(steps: Any) -> Bundle:
    return {"text/plain": steps_text(steps), "text/html": steps_html(steps)}


def _watched(report: Any) -> Bundle:
    return {"text/plain": retraces_text(report), "text/html": retraces_html(report)}


def _physical(model: Any) -> Bundle:
    made = picture(model.graph, model.input_specs)
    return {**picture_bundle(made, "physical model"), "text/plain": repr(model)}


RENDERERS: dict[str, Callable[[Any], Bundle]] = {
    "LogicalGraph": _graph,
    "Block": _block,
    "Diagram": _diagram,
    "Stage": _stage,
    "Inspection": _inspection,
    "StageGraph": _stage_graph,
    "StageDiagram": _stage_diagram,
    "Pass": _pass,
    "Kernel": _kernel,
    "Buffer": lambda buffer: {"text/plain": str(buffer)},
    "ByLine": _by_line,
    "Change": lambda found: _drawing(change(found.to_dict())),
    "Cost": _cost,
    "Costs": _cost,
    "Comparison": _comparison,
    "Difference": lambda found: {"text/plain": str(found)},
    "Drawing": _drawing,
    "MemoryUse": lambda use: _drawing(memory_timeline(use.to_dict())),
    "Run": _run,
    "FunctionReport": _watched,
    "WatchReport": _watched,
    "Watch": lambda watch: _watched(watch.report()),
    "Watched": lambda watched: _watched(watched.report()),
    "Sweep": lambda found: _drawing(sweep(found.to_dict())),
    "TransformStep": lambda step: _transforms([step]),
    "TransformSteps": _transforms,
    "PhysicalModel": _physical,
    "Profile": lambda found: {"text/plain": profile_text(found), "text/html": profile_html(found)},
}
