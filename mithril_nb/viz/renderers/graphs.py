"""Rich display of blocks, logical graphs, models and physical models."""

from __future__ import annotations

from mithril_nb.display import renderer
from mithril_nb.graph.records import Block, LogicalGraph
from mithril_nb.models.model import Model
from mithril_nb.viz.bundles import Bundle, bundle, picture_bundle
from mithril_nb.viz.diagrams.graph_text import block_text
from mithril_nb.viz.diagrams.picture import picture


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
