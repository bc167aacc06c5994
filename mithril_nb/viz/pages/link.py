"""A small model as a link: any page that `Inspection.to_html` saved shows it, without a kernel and a network."""

from __future__ import annotations

from mithril_nb.models.model import Model
from mithril_nb.models.saving.formats import to_dict
from mithril_nb.models.saving.links import fragment_of
from mithril_nb.viz.diagrams.logical import first_view, model_graph


def share_link(model: Model, page: str = "") -> str:
    """Return a link to a model; see `Model.share_link`.

    The link contains the model, for Python, and its graph with the sizes of all boxes, for the page.
    """
    graph = model_graph(model.graph, fold=True)
    shown = {**graph.to_dict(), "opened": sorted(first_view(graph))}
    data = {"format": "mithril_nb.link", "version": 1, "model": to_dict(model), "graph": shown}
    return page.partition("#")[0] + fragment_of(data)
