"""Notebook display of blocks, logical graphs, models and pictures."""

from __future__ import annotations

from graphviz import Digraph

from mithril_nb.display import renderer
from mithril_nb.graph.query import Found
from mithril_nb.graph.records import Block, LogicalGraph
from mithril_nb.models.model import Model
from mithril_nb.viz.bundles import Bundle, bundle, picture_bundle
from mithril_nb.viz.costs.drawing import Drawing
from mithril_nb.viz.diagrams.dot import to_dot
from mithril_nb.viz.diagrams.picture import block_text, picture
from mithril_nb.viz.diagrams.scene import Scene
from mithril_nb.viz.diagrams.svg import scene_svg
from mithril_nb.viz.found import found_html, found_text
from mithril_nb.viz.pages.link import share_link


@renderer(LogicalGraph)
def _graph(graph: LogicalGraph) -> Bundle:
    return picture_bundle(picture(graph), "logical graph")


@renderer(Block)
def _block(block: Block) -> Bundle:
    if block.graph is None:
        return {"text/plain": block_text(block)}
    return {**picture_bundle(picture(block.graph), block.kind), "text/plain": block_text(block)}


@renderer(Model)
def _model(model: Model) -> Bundle:
    return {**bundle(model.graph), "text/plain": repr(model)}


@renderer(LogicalGraph, kind="dot")
def _dot(graph: LogicalGraph) -> Digraph:
    drawn = picture(graph)
    return to_dot(graph, drawn.annotations.nodes, drawn.annotations.edge_shapes)


@renderer(Model, kind="dot")
def _dot_of_model(model: Model) -> Digraph:
    return _dot(model.graph)


renderer(Model, kind="link")(share_link)


@renderer(Found)
def _found(found: Found) -> Bundle:
    return {"text/plain": found_text(found), "text/html": found_html(found)}


@renderer(Scene)
def _scene(scene: Scene) -> Bundle:
    text = f"diagram of {scene.counted}, {scene.width:.0f} x {scene.height:.0f} px"
    return {"text/plain": text, "image/svg+xml": scene_svg(scene)}


@renderer(Drawing)
def drawing_bundle(drawing: Drawing) -> Bundle:
    """Return the MIME bundle of a drawing."""
    return {"text/plain": drawing.text, "text/html": drawing.html, "image/svg+xml": drawing.svg}
