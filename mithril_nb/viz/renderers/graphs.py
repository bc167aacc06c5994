"""Notebook display of blocks, logical graphs, models and pictures."""

from __future__ import annotations

from graphviz import Digraph

from mithril_nb.display import renderer
from mithril_nb.graph.query import Found
from mithril_nb.graph.records import Block, LogicalGraph
from mithril_nb.models.model import Model
from mithril_nb.models.saving.formats import to_dict
from mithril_nb.models.saving.serialization import fragment_of
from mithril_nb.viz.bundles import Bundle, bundle, picture_bundle
from mithril_nb.viz.costs.drawing import Drawing
from mithril_nb.viz.diagrams.dot import to_dot
from mithril_nb.viz.diagrams.logical import first_view, model_graph
from mithril_nb.viz.diagrams.nested import Scene
from mithril_nb.viz.diagrams.picture import picture
from mithril_nb.viz.diagrams.svg import scene_svg
from mithril_nb.viz.pages.film import Film
from mithril_nb.viz.search_results import result_html, result_text
from mithril_nb.viz.text import one_line

renderer(LogicalGraph)(lambda graph: picture_bundle(picture(graph), "logical graph"))
renderer(Model)(lambda model: {**bundle(model.graph), "text/plain": repr(model)})
renderer(Found)(lambda result: {"text/plain": result_text(result), "text/html": result_html(result)})


@renderer(Block)
def _block(block: Block) -> Bundle:
    drawn = {} if block.graph is None else picture_bundle(picture(block.graph), block.kind)
    options = ", ".join(f"{name}={value!r}" for name, value in block.attributes)
    return {**drawn, "text/plain": f"{one_line(block.kind)}({options})"}


@renderer(LogicalGraph, Model, kind="dot")
def _dot(drawn: LogicalGraph | Model) -> Digraph:
    graph = drawn.graph if isinstance(drawn, Model) else drawn
    return to_dot(graph, picture(graph).nested)


@renderer(Model, kind="link")
def share_link(model: Model, page: str = "") -> str:
    """Return a link to a page that shows a model. It contains the model for Python, and its graph for the page."""
    graph = model_graph(model.graph, fold=True)
    drawn = {**graph.to_dict(), "opened": sorted(first_view(graph))}
    data = {"format": "mithril_nb.link", "version": 1, "model": to_dict(model), "graph": drawn}
    return page.partition("#")[0] + fragment_of(data)


@renderer(Scene)
def _scene(scene: Scene) -> Bundle:
    text = f"diagram of {scene.counted}, {scene.width:.0f} x {scene.height:.0f} px"
    return {"text/plain": text, "image/svg+xml": scene_svg(scene)}


@renderer(Drawing)
def drawing_bundle(drawing: Drawing) -> Bundle:
    """Return the MIME bundle of a drawing."""
    return {"text/plain": drawing.text, "text/html": drawing.html, "image/svg+xml": drawing.svg}


renderer(Film)(lambda film: {"text/plain": film.text, "text/html": film.html})
