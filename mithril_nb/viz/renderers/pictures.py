"""Rich display of pictures: laid-out graphs and drawings of costs."""

from __future__ import annotations

from mithril_nb.display import renderer
from mithril_nb.viz.bundles import Bundle
from mithril_nb.viz.costs.drawing import Drawing
from mithril_nb.viz.diagrams.scene import Diagram
from mithril_nb.viz.diagrams.stages import StageDiagram
from mithril_nb.viz.diagrams.svg import diagram_svg
from mithril_nb.viz.stage_diagram_svg import stage_svg


@renderer(Diagram)
def _diagram(diagram: Diagram) -> Bundle:
    blocks = sum(1 for node in diagram.nodes if node.path)
    text = f"diagram of {blocks} blocks, {diagram.width:.0f} x {diagram.height:.0f} px"
    return {"text/plain": text, "image/svg+xml": diagram_svg(diagram)}


@renderer(StageDiagram)
def _stage_diagram(diagram: StageDiagram) -> Bundle:
    text = f"diagram of {len(diagram.boxes)} nodes, {diagram.width:.0f} x {diagram.height:.0f} px"
    return {"text/plain": text, "image/svg+xml": stage_svg(diagram)}


@renderer(Drawing)
def drawing_bundle(drawing: Drawing) -> Bundle:
    """Return the MIME bundle of a drawing."""
    return {"text/plain": drawing.text, "text/html": drawing.html, "image/svg+xml": drawing.svg}
