"""Logical models in `fit`: compiled for the shapes of the data, with a batch of any size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mithril_nb.models.model import Model
from mithril_nb.physical import PhysicalModel, compile
from mithril_nb.train.trainable import as_trainable


@as_trainable.register
def _(model: Model, *, shapes: Mapping[str, tuple[int, ...]], backend: Any = None) -> PhysicalModel:
    return compile(model, backend, shapes={name: ("batch", *shape[1:]) for name, shape in shapes.items()})
