"""Rich display of physical models."""

from __future__ import annotations

from mithril_nb.compilation.model import PhysicalModel
from mithril_nb.display import renderer
from mithril_nb.viz.bundles import Bundle, picture_bundle
from mithril_nb.viz.diagrams.picture import picture


@renderer(PhysicalModel)
def _physical(model: PhysicalModel) -> Bundle:
    drawn = picture(model.graph, model.input_specs)
    return {**picture_bundle(drawn, "physical model"), "text/plain": repr(model)}
