"""Logical models in `fit`: compiled for the shapes of the data, with a batch of any size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mithril_nb.graph.records import Block, LogicalGraph
from mithril_nb.models.model import Model
from mithril_nb.physical import PhysicalModel, compile
from mithril_nb.train.trainable import as_trainable


@as_trainable.register(Model)
@as_trainable.register(LogicalGraph)
@as_trainable.register(Block)
def _(
    model: Model | LogicalGraph | Block, *, shapes: Mapping[str, tuple[int, ...]], backend: Any = None
) -> PhysicalModel:
    return compile(model, backend, shapes={name: ("batch", *shape[1:]) for name, shape in shapes.items()})
