"""Rich display of pictures: laid-out graphs and drawings of costs."""

from __future__ import annotations

from mithril_nb.display import renderer
from mithril_nb.viz.bundles import Bundle
from mithril_nb.viz.costs.drawing import Drawing
from mithril_nb.viz.diagrams.scene import Scene
from mithril_nb.viz.diagrams.svg import scene_svg


@renderer(Scene)
def _scene(scene: Scene) -> Bundle:
    text = f"diagram of {scene.counted}, {scene.width:.0f} x {scene.height:.0f} px"
    return {"text/plain": text, "image/svg+xml": scene_svg(scene)}


@renderer(Drawing)
def drawing_bundle(drawing: Drawing) -> Bundle:
    """Return the MIME bundle of a drawing."""
    return {"text/plain": drawing.text, "text/html": drawing.html, "image/svg+xml": drawing.svg}
