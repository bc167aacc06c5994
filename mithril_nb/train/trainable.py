"""Trainable models: the protocol, and Mithril models, which `fit` compiles for a batch of any size."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from functools import singledispatch
from typing import Any, Protocol, runtime_checkable

from mithril_nb.compilation import PhysicalModel, compile, graph_of
from mithril_nb.compilation.binding import declared_sizes, infer_for
from mithril_nb.compilation.emitted import EmittedModel, precision
from mithril_nb.errors import UnknownOptionError
from mithril_nb.graph.records import Block, LogicalGraph
from mithril_nb.graph.spec import TensorSpec
from mithril_nb.models.model import Model
from mithril_nb.models.naming import input_names, input_specs
from mithril_nb.models.saving.formats import to_dict


@runtime_checkable
class Trainable(Protocol):
    """A model that `fit` can train: a `PhysicalModel`, or any object with these attributes.

    Attributes:
        input_names: Names of the inputs that `forward` takes.
        output_names: Names of the outputs that `forward` returns.
        needs_key: True if `forward` draws random numbers during training (Dropout).
        input_specs: Shape and dtype of each input; unknown dims are names.

    Optional attributes:

    - `input_ranges`: smallest and largest integer by input name. `fit` checks the data against them.
    - `initial_state()` and `forward_with_state(params, inputs, state, key=key, training=True)`: for a model that
      passes arrays from one step to the next (BatchNorm). The first returns these arrays by name, the second returns
      outputs and state.
    - `param_specs`: the result of `randomize_params` as `jax.ShapeDtypeStruct`s. Inspecting the model then does not
      call `randomize_params`.
    - `parameters`: objects with `name` and `is_trainable`, if some parameters are frozen.
    - `jit = False`: do not compile the programs.
    - `options.compiler_options`: options for XLA.
    - `is_immutable = True`: `forward` never changes, so the next run reuses the compiled programs.
    """

    # Any: pyright does not accept a functools.cached_property as an attribute of the protocol's type.
    @property
    def input_names(self) -> Any: ...  # noqa: D102 - documented above

    @property
    def output_names(self) -> Any: ...  # noqa: D102

    @property
    def needs_key(self) -> Any: ...  # noqa: D102

    @property
    def input_specs(self) -> Mapping[str, TensorSpec]: ...  # noqa: D102

    def forward(
        self, params: dict[str, Any], inputs: dict[str, Any], *, key: Any = None, training: bool = False
    ) -> dict[str, Any]:
        """Return the outputs by name; a pure function that JAX can trace."""
        ...

    def randomize_params(self, seed: int | None = None) -> dict[str, Any]:
        """Return fresh parameters by name, such as `"linear_0.weight"`."""
        ...


def initial_state(model: Trainable) -> dict[str, Any]:
    """Return the model's state before the first step; empty if it has none."""
    return dict(getattr(model, "initial_state", dict)())


def runner(model: Trainable, has_state: bool) -> Callable[..., tuple[dict[str, Any], dict[str, Any]]]:
    """Return `(params, inputs, state, *, key, training) -> (outputs, state)` for models with or without a state."""
    if has_state:
        return getattr(model, "forward_with_state")  # noqa: B009 - not part of the protocol

    def forward(params: Any, inputs: Any, state: Any, **options: Any) -> Any:
        return model.forward(params, inputs, **options), {}

    return forward


def frozen_names(model: Trainable) -> frozenset[str]:
    """Return the names of the parameters that training does not change."""
    return frozenset(parameter.name for parameter in getattr(model, "parameters", ()) if not parameter.is_trainable)


def is_jitted(model: Trainable) -> bool:
    """Return whether the programs of a model are jitted as a whole."""
    return getattr(model, "jit", True)


@singledispatch
def as_trainable(model: object, *, shapes: Mapping[str, tuple[int, ...]], backend: object = None) -> Trainable:
    """Return the `Trainable` for a model. `as_trainable.register` adds other kinds of models.

    A `Model` is compiled for `backend` and `shapes`, with a batch of any size.

    Args:
        model: The model passed to `fit`.
        shapes: Shape of one batch of each input in the data, by name (`"input"` if the data has no names).
        backend: The backend to compile for, if the model is not compiled yet.

    Raises:
        UnknownOptionError: The value is not a model, or is already compiled for another backend.
    """
    if isinstance(model, Trainable):
        _check_backend(model, backend)
        return model
    lacks = [name for name in ("forward", "randomize_params", "input_names") if not hasattr(model, name)]
    raise UnknownOptionError(
        f"cannot train a value of type {type(model).__name__!r}.",
        (("lacks", ", ".join(lacks) or "part of mithril_nb.train.Trainable"),),
        "ml.fit(function, data, params=params)  # a function of (params, x), or a module of Flax, Equinox or Haiku",
    )


def _check_backend(model: object, backend: object) -> None:
    own = getattr(model, "backend", None)
    if backend is not None and backend is not own:
        raise UnknownOptionError(
            "backend= has no effect on a model that is already compiled.",
            (("backend", repr(backend)), ("model", type(model).__name__ + (f" for {own!r}" if own else ""))),
            "ml.fit(model, data, backend=backend)  # with the model before ml.compile; or omit backend=",
        )


@as_trainable.register(Model)
@as_trainable.register(LogicalGraph)
@as_trainable.register(Block)
def _(
    model: Model | LogicalGraph | Block, *, shapes: Mapping[str, tuple[int, ...]], backend: Any = None
) -> PhysicalModel:
    return compile(model, backend, shapes=_of_any_batch(shapes))


@as_trainable.register(PhysicalModel)
def _(model: PhysicalModel, *, shapes: Mapping[str, tuple[int, ...]], backend: Any = None) -> Any:
    _check_backend(model, backend)
    is_known = all(array.spec.is_concrete for array in (*model.parameters, *model.states))
    if is_known or model.placement:  # a placed model is refused later, by an error that names its devices
        return model
    # The model was compiled without shapes, so they are inferred from the first arrays: the data of this call.
    graph, own = model.graph, model.backend
    specs = input_specs(graph, _of_any_batch(shapes), own.default_dtype)
    inference = infer_for(own, graph, specs)
    inference.raise_problems()
    return PhysicalModel(graph, own, inference, model.jit, model.options, sizes=declared_sizes(graph, specs))


@as_trainable.register(EmittedModel)
def _(model: EmittedModel, *, shapes: Mapping[str, tuple[int, ...]], backend: Any = None) -> Any:
    _check_backend(model, backend)
    with precision(model.backend):
        traced: Any = as_trainable(model.traced, shapes=shapes)
    return model if traced is model.traced else EmittedModel(traced, model.backend)


def _of_any_batch(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int | str, ...]]:
    return {name: ("batch", *shape[1:]) for name, shape in shapes.items()}


def names_of_inputs(model: Any) -> tuple[str, ...] | None:
    """Return the names of the inputs of a compiled or uncompiled model; `None` if `model` is not a model.

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
