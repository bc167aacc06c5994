"""What training asks of a model: a pure forward function, parameters, and the specs of what goes in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import singledispatch
from typing import Any, Protocol, runtime_checkable

from mithril_nb.errors import UnknownOptionError
from mithril_nb.graph.spec import TensorSpec


@runtime_checkable
class Trainable(Protocol):
    """A model that `fit` can train: a `PhysicalModel`, or anything with these names.

    Attributes:
        input_names: Names of the inputs that `forward` takes.
        output_names: Names of the outputs that it gives.
        needs_key: Whether `forward` draws random numbers while training (Dropout).
        input_specs: Shape and dtype of each input, dims by name where they are not known.

    A model whose inputs are whole numbers with bounds may say so by `input_ranges`, least and largest by input name:
    the data is then checked against them.

    A model that hands arrays from one step to the next (BatchNorm) says so by `initial_state()`, which gives them by
    name, and has `forward_with_state(params, inputs, state, key=key, training=True)`, which returns
    outputs and state.

    A model some of whose parameters stay as they are may list them by `parameters`, each with `name` and
    `is_trainable`.

    A model may say how its programs are compiled: not at all by `jit = False`, with options for XLA by
    `options.compiler_options`.

    A model whose `forward` will never do anything else may say so by `is_immutable = True`: what was compiled for it is
    then used again by its next run.
    """

    # Any: pyright takes a functools.cached_property for no attribute of the protocol's type.
    @property
    def input_names(self) -> Any: ...  # noqa: D102 - a field of the protocol, told of above

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
    """Return what the first step finds in the place of the model's state; empty for a model without."""
    return dict(getattr(model, "initial_state", dict)())


def runner(model: Trainable, has_state: bool) -> Callable[..., tuple[dict[str, Any], dict[str, Any]]]:
    """Return `(params, inputs, state, *, key, training) -> (outputs, state)`, whether the model has a state or not."""
    if has_state:
        return getattr(model, "forward_with_state")  # noqa: B009 - not part of the protocol

    def forward(params: Any, inputs: Any, state: Any, **how: Any) -> Any:
        return model.forward(params, inputs, **how), {}

    return forward


def frozen_names(model: Trainable) -> frozenset[str]:
    """Return the names of the parameters that training leaves as they are."""
    return frozenset(one.name for one in getattr(model, "parameters", ()) if not one.is_trainable)


def is_jitted(model: Trainable) -> bool:
    """Whether the programs of a model are compiled as a whole."""
    return getattr(model, "jit", True)


def compiler_options(model: Trainable) -> dict[str, str] | None:
    """Return what XLA is told when it compiles a program of the model, by name."""
    return dict(getattr(getattr(model, "options", None), "compiler_options", {})) or None


@singledispatch
def as_trainable(model: object, *, shapes: Mapping[str, tuple[int, ...]], backend: object = None) -> Trainable:
    """Return what `fit` trains for a model: the one place where a further kind of model is let in.

    `train/logical.py` registers `Model` here, which is compiled for `shapes` and `backend`.

    Args:
        model: What the user gave to `fit`.
        shapes: Shape of one batch of each input in the data, by name (`"input"` if the data has no names).
        backend: The backend to compile for, if the model is not compiled yet.

    Raises:
        UnknownOptionError: The value is no model, or is compiled already for another backend.
    """
    if isinstance(model, Trainable):
        own = getattr(model, "backend", None)
        if backend is not None and backend is not own:
            raise UnknownOptionError(
                "backend= has no effect on a model that is compiled already.",
                (("backend", repr(backend)), ("model", type(model).__name__ + (f" for {own!r}" if own else ""))),
                "ml.fit(model, data, backend=backend)  # with the model before ml.compile; or leave backend= out",
            )
        return model
    lacks = [name for name in ("forward", "randomize_params", "input_names") if not hasattr(model, name)]
    raise UnknownOptionError(
        f"cannot train a value of type {type(model).__name__!r}.",
        (("lacks", ", ".join(lacks) or "part of mithril_nb.train.Trainable"),),
        'ml.fit(ml.compile(model, ml.JaxBackend(), shapes={"input": [32, 64]}), data)',
    )
