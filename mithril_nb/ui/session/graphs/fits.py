"""The kinds of blocks that can read a connection, with the shapes of their outputs, before one is added."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypedDict

from mithril_nb.errors import MithrilError
from mithril_nb.graph.edit import add
from mithril_nb.graph.paths import name_of
from mithril_nb.graph.records import LogicalGraph
from mithril_nb.graph.spec import TensorSpec
from mithril_nb.models.registry import KINDS
from mithril_nb.models.shape_inference.infer import Inference, infer
from mithril_nb.ui.session.commands import Client, Reply, RequestHandler, command
from mithril_nb.ui.session.design import fresh_block
from mithril_nb.viz.diagrams.logical import shape_text


class FitsHead(TypedDict):
    """The connection; the data are the shape of the output by kind of block, without the kinds that do not fit."""

    source: str


class FitRequests(RequestHandler):
    """Finds the blocks that fit on request."""

    def __init__(self, inference: Callable[[], Inference], client: Client):
        super().__init__(client, "fits", "slow-fits")
        self._inference = inference

    @command
    def request_fits(self, source: str) -> None:
        """Send the kinds of blocks that can read `source`, an output of a block or an input of the model."""
        inference = self._inference()
        self._quick.submit(lambda _: self._client.send("fits", Reply(FitsHead(source=source), fits(inference, source))))


def fits(inference: Inference, source: str) -> dict[str, str]:
    """Return the shape of the output of each kind of block that can read `source`; `""` while it is unknown."""
    path, _, port = source.rpartition(".")
    specs = inference.blocks[path].outputs if path in inference.blocks else inference.inputs
    spec = specs.get(name_of(port))
    shapes: dict[str, str] = {}
    for kind, constructor in KINDS.items():
        if not getattr(constructor, "category", ""):
            continue  # blocks that are built from other blocks
        with suppress(MithrilError):
            graph, _ = add(LogicalGraph(), fresh_block(kind))
            data = [port.name for port in graph.inputs if port.role == "data"]
            if data and graph.outputs:
                of_block = infer(graph, {data[0]: spec} if isinstance(spec, TensorSpec) else {})
                if not of_block.problems:
                    shapes[kind] = shape_text(of_block.outputs[graph.outputs[-1].name])
    return shapes
