"""Notebook display of inspections, stages, stage graphs, passes, kernels, buffers, and physical models."""

from __future__ import annotations

from typing import Any

from mithril_nb.compilation.model import PhysicalModel
from mithril_nb.compilation.values import TracedValues
from mithril_nb.display import columns, renderer
from mithril_nb.inspection.inspection import Inspection
from mithril_nb.inspection.tour import Tour
from mithril_nb.stages.graph.stage_graph import StageGraph
from mithril_nb.stages.records import Stage
from mithril_nb.stages.stage_kinds import title_of
from mithril_nb.stages.transforms.stepping import TransformStep, TransformSteps
from mithril_nb.stages.xla.kernels import Kernel
from mithril_nb.stages.xla.memory import Buffer
from mithril_nb.stages.xla.passes import Pass
from mithril_nb.viz.bundles import Bundle, picture_bundle
from mithril_nb.viz.costs.overlays import draw_overlay
from mithril_nb.viz.diagrams.picture import picture
from mithril_nb.viz.diagrams.stages import stage_graph_text, stage_layout
from mithril_nb.viz.diagrams.svg import scene_svg
from mithril_nb.viz.pages.film import film_of
from mithril_nb.viz.pages.inspection import inspection_page, summary_html, summary_text
from mithril_nb.viz.pages.listing import MOST_LINES, listing_html, listing_text
from mithril_nb.viz.pages.transform_steps import steps_html, steps_text
from mithril_nb.viz.text import cut_text, one_line
from mithril_nb.viz.values import values_html, values_text


# Only what is cheap to compute: displaying an inspection must not compile the program.
@renderer(Inspection)
def _inspection(inspection: Inspection) -> Bundle:
    return {"text/plain": summary_text(inspection), "text/html": summary_html(inspection)}


renderer(Inspection, kind="page")(inspection_page)
renderer(Inspection, kind="overlay")(draw_overlay)
renderer(Inspection, kind="film")(film_of)


@renderer(StageGraph)
def _stage_graph(graph: StageGraph) -> Bundle:
    return {"text/plain": stage_graph_text(graph), "image/svg+xml": scene_svg(stage_layout(graph))}


@renderer(TransformSteps)
def _transforms(steps: Any) -> Bundle:
    return {"text/plain": steps_text(steps), "text/html": steps_html(steps)}


@renderer(PhysicalModel)
def _physical(model: PhysicalModel) -> Bundle:
    drawn = picture(model.graph, model.input_specs)
    return {**picture_bundle(drawn, "physical model"), "text/plain": repr(model)}


@renderer(Tour)
def _tour(tour: Tour) -> Bundle:
    rows = []
    for at, (moment, data) in enumerate(zip(tour.moments, tour.data, strict=True), 1):
        line = "" if moment.line is None else f"line {moment.line[1]} of {title_of(moment.line[0])}"
        rows.append((str(at), ", ".join(map(title_of, data["stages"])), moment.block or line, one_line(moment.caption)))
    return {"text/plain": columns(rows, {0}) or "a tour without moments"}


renderer(TracedValues)(lambda traced: {"text/plain": values_text(traced), "text/html": values_html(traced)})
renderer(TransformStep)(lambda step: _transforms([step]))
renderer(Stage)(lambda stage: {"text/plain": listing_text(stage, MOST_LINES), "text/html": listing_html(stage)})
renderer(Pass)(lambda step: {"text/plain": f"{step}\n{cut_text(step.diff, MOST_LINES)}"})
renderer(Kernel)(lambda kernel: {"text/plain": cut_text(kernel.llvm, MOST_LINES)})
renderer(Buffer)(lambda buffer: {"text/plain": str(buffer)})
