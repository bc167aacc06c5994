"""Logical models in `fit`: compile them for the shapes of the data with a batch of any size, and fingerprint them."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any

from mithril_nb.compilation import PhysicalModel, compile, graph_of
from mithril_nb.compilation.binding import declared_sizes, infer_for
from mithril_nb.graph.records import Block, LogicalGraph
from mithril_nb.models.model import Model
from mithril_nb.models.naming import input_names, input_specs
from mithril_nb.models.saving.formats import to_dict
from mithril_nb.train.trainable import as_trainable


@as_trainable.register(Model)
@as_trainable.register(LogicalGraph)
@as_trainable.register(Block)
def _(
    model: Model | LogicalGraph | Block, *, shapes: Mapping[str, tuple[int, ...]], backend: Any = None
) -> PhysicalModel:
    return compile(model, backend, shapes=_of_any_batch(shapes))


@as_trainable.register(PhysicalModel)
def _(model: PhysicalModel, *, shapes: Mapping[str, tuple[int, ...]], backend: Any = None) -> Any:
    as_trainable.dispatch(object)(model, shapes=shapes, backend=backend)  # rejects another backend
    is_known = all(array.spec.is_concrete for array in (*model.parameters, *model.states))
    if is_known or model.placement:
        return model
    # The model was compiled without shapes, to infer them from the first arrays. These are the first.
    graph, own = model.graph, model.backend
    specs = input_specs(graph, _of_any_batch(shapes), own.default_dtype)
    inference = infer_for(own, graph, specs)
    inference.raise_problems()
    return PhysicalModel(graph, own, inference, model.jit, model.options, sizes=declared_sizes(graph, specs))


def _of_any_batch(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int | str, ...]]:
    return {name: ("batch", *shape[1:]) for name, shape in shapes.items()}


def names_of_inputs(model: Any) -> tuple[str, ...] | None:
    """Return the names of a model's inputs before it is compiled; `None` if `model` is not a model.

    Examples:
        >>> from mithril_nb.models import Add
        >>> names_of_inputs(Add())
        ('left', 'right')
    """
    if isinstance(model, Model | LogicalGraph | Block):
        return input_names(graph_of(model))
    return getattr(model, "input_names", None)


def model_fingerprint(model: Any) -> int | None:
    """Return a hash of a model's graph; `None` if the model has no graph.

    Examples:
        >>> from mithril_nb.models import Relu, Tanh
        >>> [model_fingerprint(Relu()) == model_fingerprint(other) for other in (Relu(), Tanh())]
        [True, False]
    """
    graph = getattr(model, "graph", None)
    if not isinstance(graph, LogicalGraph):
        return None
    return zlib.crc32(json.dumps(to_dict(graph)["graph"], sort_keys=True).encode())
