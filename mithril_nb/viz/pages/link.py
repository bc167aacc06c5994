"""A small model as a link. Any page saved by `Inspection.to_html` can show the model, without a kernel or a network."""

from __future__ import annotations

from mithril_nb.models.model import Model
from mithril_nb.models.saving.formats import to_dict
from mithril_nb.models.saving.serialization import fragment_of
from mithril_nb.viz.diagrams.logical import first_view, model_graph


def share_link(model: Model, page: str = "") -> str:
    """Return a link to `page` that contains a model; `Model.share_link` documents it.

    The link contains the model for Python, and its graph with the sizes of boxes, which the page can draw.
    """
    graph = model_graph(model.graph, fold=True)
    shown = {**graph.to_dict(), "opened": sorted(first_view(graph))}
    data = {"format": "mithril_nb.link", "version": 1, "model": to_dict(model), "graph": shown}
    return page.partition("#")[0] + fragment_of(data)
