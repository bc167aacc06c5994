"""MIME bundles for each type of value: a picture or a table, and always a text."""

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

    The renderer is looked up by the name of the value's class or of a base class. So classes that need JAX or a widget
    library are not imported here. If a renderer fails, the bundle holds the value's own `repr` and the error below it.
    """
    renderer = _renderer(type(value))
    if renderer is None:
        return {"text/plain": repr(value)}
    try:
        return _themed(renderer(value))
    except Exception as error:  # any error: the cell must still show the value
        return {"text/plain": f"{value!r}\n(cannot draw it: {type(error).__name__}: {error})"}


def _renderer(kind: type) -> Callable[[Any], Bundle] | None:
    for base in kind.__mro__:
        if base.__module__.partition(".")[0] == PACKAGE and base.__name__ in RENDERERS:
            return RENDERERS[base.__name__]
    return None


def _themed(plain: Bundle) -> Bundle:
    """Add HTML that follows the notebook's light or dark theme; an SVG alone follows the system's."""
    if "image/svg+xml" not in plain or "text/html" in plain:
        return plain
    return {**plain, "text/html": image_html(plain["image/svg+xml"], plain["text/plain"].partition("\n")[0])}


def picture_bundle(drawn: Picture, title: str) -> Bundle:
    """Return the bundle of a picture that is already laid out."""
    text = graph_text(drawn.graph, drawn.annotations.nodes, drawn.annotations.edge_shapes)
    if drawn.problems:
        text += "\n\n" + "\n".join(str(problem) for problem in drawn.problems)
    return {"text/plain": text, "image/svg+xml": diagram_svg(drawn.diagram, drawn.problems, title)}


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
    """Render only the cheap parts: displaying an inspection must not start a compilation."""
    return {"text/plain": summary_text(inspection), "text/html": summary_html(inspection)}


def _stage_graph(graph: Any) -> Bundle:
    from mithril_nb.viz.stage_diagram import stage_layout  # imports JAX; a stage graph exists only if JAX does
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
    view = {**run.snapshot(), "steps_per_s": None, "left_s": None}  # keep the saved text independent of machine load
    return {"text/plain": curves_text(view), "image/svg+xml": curves_svg(run.history.to_dict())}


def _transforms(steps: Any) -> Bundle:
    return {"text/plain": steps_text(steps), "text/html": steps_html(steps)}


def _watched(report: Any) -> Bundle:
    return {"text/plain": retraces_text(report), "text/html": retraces_html(report)}


def _physical(model: Any) -> Bundle:
    drawn = picture(model.graph, model.input_specs)
    return {**picture_bundle(drawn, "physical model"), "text/plain": repr(model)}


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
