"""Modules of Flax, Equinox and Haiku, and pure functions, as models that `fit` trains.

This file imports none of the libraries: if the model is a module, the user has imported its library already.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mithril_nb.errors import UnknownOptionError, short_repr
from mithril_nb.graph.spec import UNKNOWN_SHAPE, TensorSpec
from mithril_nb.models.model import Model
from mithril_nb.train.losses import parameters_of
from mithril_nb.train.trainable import Trainable

Call = Callable[[Any, Any, dict[str, Any], Any, bool], tuple[Any, Any]]
_MODES = {
    "training": True,
    "train": True,
    "is_training": True,
    "deterministic": False,
    "inference": False,
    "use_running_average": False,
}
"""Parameters that switch a module between training and evaluation, and their values in training."""
_KEYS = ("key", "rng", "rngs")


def class_of(package: str, name: str) -> Any:
    """Return a class of a package; if the package is not imported, `()`, so that `isinstance(x, ())` is false.

    Examples:
        >>> isinstance(3, class_of("no_such_package", "Module"))
        False
    """
    return getattr(sys.modules.get(package), name, ())


def is_nnx(value: Any) -> bool:
    """Return whether a value is a Flax nnx module or another object with nnx variables, such as an optimizer."""
    return isinstance(value, class_of("flax.nnx", "Pytree"))


def is_equinox(value: Any) -> bool:
    """Return whether a value is an Equinox module."""
    return isinstance(value, class_of("equinox", "Module"))


def is_linen(value: Any) -> bool:
    """Return whether a value is a Flax linen module."""
    return isinstance(value, class_of("flax.linen", "Module"))


def is_haiku(value: Any) -> bool:
    """Return whether a value is a result of `hk.transform` or `hk.transform_with_state`."""
    return isinstance(value, (class_of("haiku", "Transformed"), class_of("haiku", "TransformedWithState")))


@dataclass(frozen=True, eq=False)
class LibraryModel:
    """A module of another library, or a pure function, as a `Trainable`.

    Attributes:
        call: Function of params, state, inputs by name, key and whether it trains; returns the result and the state.
        params: Initial params: the tree that the library's own training loop passes to optax.
        state: Initial state by name: running statistics, and random keys that the module holds.
        module: Function of params and state that returns the trained module in the type of its library.
        input_specs: Dtype of each input.
        needs_key: True if the model draws random numbers from a key of the step.
    """

    call: Call
    params: Any
    state: dict[str, Any]
    module: Callable[[Any, Any], Any]
    input_specs: dict[str, TensorSpec]
    needs_key: bool = field(default=False)
    output_names: tuple[str, ...] = ()

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the inputs in the data."""
        return tuple(self.input_specs)

    def forward(self, params: Any, inputs: Any, *, key: Any = None, training: bool = False) -> dict[str, Any]:
        """Return the outputs by name."""
        return self.forward_with_state(params, inputs, {}, key=key, training=training)[0]

    def forward_with_state(
        self, params: Any, inputs: Any, state: Any, *, key: Any = None, training: bool = False
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the outputs by name, and the state."""
        result, after = self.call(params, state, inputs, key, training)
        are_named = isinstance(result, Mapping) and all(hasattr(value, "shape") for value in result.values())
        return dict(result) if are_named else {"output": result}, after

    def initial_state(self) -> dict[str, Any]:
        """Return the state before the first step."""
        return self.state

    def randomize_params(self, seed: int | None = None) -> Any:
        """Return the initial params."""
        return self.params


def library_model(model: Any, inputs: Mapping[str, np.ndarray], params: Any, model_state: Any, seed: int) -> Any:
    """Return a `LibraryModel` for a module of another library or a function, and any other model unchanged.

    Args:
        model: The model passed to `fit`.
        inputs: Arrays by name whose first axis is the batch, as the example that initializes a module.
        params: The option of `fit`.
        model_state: The option of `fit`.
        seed: Seed of the params of a module without params.
    """
    dtypes = {name: str(jax.dtypes.canonicalize_dtype(array.dtype)) for name, array in inputs.items()}
    example = {name: jnp.zeros((1, *array.shape[1:]), dtypes[name]) for name, array in inputs.items()}
    if isinstance(model, Trainable):
        return model
    if is_nnx(model):
        parts = _nnx(model)
    elif is_linen(model) or is_haiku(model):
        parts = (_linen if is_linen(model) else _haiku)(model, example, params, seed)
        params = None
    elif is_equinox(model):
        parts = _tree(model, _equinox(model, model_state), model_state)
        model_state = None
    elif inspect.isfunction(model) or (params is not None and callable(model) and not isinstance(model, Model)):
        if params is None:
            raise UnknownOptionError(
                f"the function {getattr(model, '__name__', 'model')!r} needs its params.",
                (("needed", "a function of (params, x), and params=, a tree of arrays"),),
                "ml.fit(function, data, params=params)",
            )
        parts = _tree(params, _function(model), None)
        params = None
    else:
        return model
    call, start, state, module = parts
    start = start if params is None else _like(start, params, "params")
    state = state if model_state is None else _like(state, model_state, "model_state")
    if not jax.tree.leaves(start):
        raise UnknownOptionError(
            f"{type(model).__name__!r} has no params to train.", (("needed", "an array of floats"),)
        )
    specs = {name: TensorSpec(UNKNOWN_SHAPE, dtype) for name, dtype in dtypes.items()}
    found = LibraryModel(call, start, state, module, specs)
    return LibraryModel(call, start, state, module, specs, _needs_key(found, example))


def _like(start: Any, values: Any, name: str) -> Any:
    need, got = jax.tree.structure(start), jax.tree.structure(values)
    if need != got:
        raise UnknownOptionError(
            f"{name} does not have the structure of the model's.",
            (("needed", short_repr(need)), ("got", short_repr(got))),
            f"{name}=run.{name}  # of an earlier run of this model",
        )
    return jax.tree.map(jnp.asarray, values)


def _needs_key(model: LibraryModel, example: Any) -> bool:
    # No library declares whether a module draws random numbers. Without a key, each raises an error of its own.
    try:
        jax.eval_shape(
            lambda *args: model.forward_with_state(*args, training=True)[0]["output"],
            model.params,
            example,
            model.state,
        )
    except KeyError:  # several outputs
        return False
    except Exception:  # any error of the module itself is raised with a key too, when `fit` checks the outputs
        return True
    return False


def _arguments(inputs: Mapping[str, Any], parameters: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if set(inputs) == {"input"}:
        return (inputs["input"],), {}
    named = inputs.keys() <= parameters.keys()
    return ((), dict(inputs)) if named else ((dict(inputs),), {})


def _modes(parameters: Mapping[str, Any], training: bool) -> dict[str, bool]:
    return {name: training == value for name, value in _MODES.items() if name in parameters}


def _nnx(module: Any) -> tuple[Call, Any, Any, Any]:
    nnx = sys.modules["flax.nnx"]
    parameters = parameters_of(type(module).__call__)

    def split(training: bool | None) -> tuple[Any, Any, Any]:
        copy = nnx.clone(module)
        if training is not None:
            (copy.train if training else copy.eval)()
        return nnx.split(copy, nnx.Param, ...)

    definitions = {training: split(training)[0] for training in (True, False)}
    own, params, state = split(None)

    def call(params: Any, state: Any, inputs: Any, key: Any, training: bool) -> tuple[Any, Any]:
        # New variables: a module may change only those of its own trace, and the gradient is another one.
        params, rest = jax.tree.map(lambda leaf: leaf, (params, nnx.State(state)))
        module = nnx.merge(definitions[training], params, rest)
        args, options = _arguments(inputs, parameters)
        if "rngs" in parameters and key is not None:
            options["rngs"] = nnx.Rngs(key)
        out = module(*args, **options, **_modes(parameters, training))
        return out, dict(nnx.split(module, nnx.Param, ...)[2])

    return call, params, dict(state), lambda params, state: nnx.merge(own, params, nnx.State(state))


def _linen(module: Any, example: Any, params: Any, seed: int) -> tuple[Call, Any, Any, Any]:
    parameters = parameters_of(type(module).__call__)
    args, options = _arguments(example, parameters)
    if params is None:
        params = module.init(jax.random.key(seed), *args, **options, **_modes(parameters, False))
    variables = dict(params) if "params" in params and isinstance(params["params"], Mapping) else {"params": params}
    variables.pop("intermediates", None)  # what a module has sown is no state
    start = variables.pop("params")

    def call(params: Any, state: Any, inputs: Any, key: Any, training: bool) -> tuple[Any, Any]:
        args, options = _arguments(inputs, parameters)
        options |= _modes(parameters, training)
        # linen takes a key that is named "params" for each stream that has none.
        options |= {} if key is None else {"rngs": {"params": key}}
        if not training or not state:
            return module.apply({"params": params, **state}, *args, **options), state
        out, after = module.apply({"params": params, **state}, *args, **options, mutable=list(state))
        return out, {**state, **after}

    return call, start, variables, lambda params, state: {"params": params, **state}


def _haiku(transform: Any, example: Any, params: Any, seed: int) -> tuple[Call, Any, Any, Any]:
    has_state = isinstance(transform, class_of("haiku", "TransformedWithState"))
    # haiku 0.0.17: `init` has the signature of the function, after the key
    parameters = parameters_of(transform.init)
    takes_key = "rng" in parameters_of(transform.apply)  # not after hk.without_apply_rng
    if params is None:
        args, options = _arguments(example, parameters)
        params = transform.init(jax.random.key(seed), *args, **options, **_modes(parameters, True))
    start, state = params if has_state and isinstance(params, tuple) else (params, {})

    def call(params: Any, state: Any, inputs: Any, key: Any, training: bool) -> tuple[Any, Any]:
        args, options = _arguments(inputs, parameters)
        variables = (params, state) if has_state else (params,)
        keys = (key,) if takes_key else ()
        out = transform.apply(*variables, *keys, *args, **options, **_modes(parameters, training))
        return out if has_state else (out, state)

    return call, start, dict(state), lambda params, state: (params, state) if has_state else params


Run = Callable[[Any, Any, dict[str, Any], Any, bool], Any]


def _tree(tree: Any, run: Run, state: Any) -> tuple[Call, Any, Any, Any]:
    """Return the parts of a model whose arrays are the leaves of a tree, of which floats are trained."""
    # In a module of Equinox, a Python number is an option, such as the rate of Dropout.
    has_options = any(map(is_equinox, jax.tree.leaves(tree, is_leaf=is_equinox)))

    def trained(leaf: Any) -> Any:
        if isinstance(leaf, float) and not has_options:
            return jnp.asarray(np.asarray(leaf))
        dtype = getattr(leaf, "dtype", None)
        return None if dtype is None or not jnp.issubdtype(dtype, jnp.inexact) else jnp.asarray(leaf)

    params = jax.tree.map(trained, tree)

    def joined(params: Any) -> Any:
        return jax.tree.map(lambda own, leaf: leaf if own is None else own, params, tree, is_leaf=lambda p: p is None)

    def call(params: Any, state: Any, inputs: Any, key: Any, training: bool) -> tuple[Any, Any]:
        out = run(joined(params), state.get("state"), inputs, key, training)
        return (out[0], {"state": out[1]}) if state else (out, state)

    def module(params: Any, state: Any) -> Any:
        return (joined(params), state["state"]) if state else joined(params)

    return call, params, {} if state is None else {"state": state}, module


def _function(function: Any) -> Run:
    parameters = parameters_of(function)

    def run(params: Any, state: Any, inputs: Any, key: Any, training: bool) -> Any:
        args, options = _arguments(inputs, parameters)
        if key is not None:
            options |= {name: key for name in _KEYS if name in parameters}
        return function(params, *args, **options, **_modes(parameters, training))

    return run


def _equinox(module: Any, state: Any) -> Run:
    parameters = parameters_of(type(module).__call__)
    if "state" in parameters and state is None and parameters["state"].default is inspect.Parameter.empty:
        raise UnknownOptionError(
            f"the module {type(module).__name__!r} takes a state.",
            (),
            "module, state = eqx.nn.make_with_state(Module)(key=key); ml.fit(module, data, model_state=state)",
        )
    inference_mode = sys.modules["equinox"].nn.inference_mode
    axes = [getattr(part, "axis_name", None) for part in jax.tree.leaves(module, is_leaf=_has_axis)]
    axis = next((name for name in axes if isinstance(name, str)), "batch")

    def run(module: Any, state: Any, inputs: Any, key: Any, training: bool) -> Any:
        module = module if training else inference_mode(module)

        def of_sample(sample: Any, key: Any) -> Any:
            args, options = _arguments(sample, parameters)
            if state is not None:
                args = (*args, state)
            return module(*args, **options, **({} if key is None else {"key": key}))

        count = len(next(iter(inputs.values())))
        keys = None if key is None else jax.random.split(key, count)
        # A module of Equinox reads one sample. BatchNorm takes its means over the named axis, and returns one state.
        return jax.vmap(of_sample, axis_name=axis, out_axes=0 if state is None else (0, None))(inputs, keys)

    return run


def _has_axis(part: Any) -> bool:
    return isinstance(getattr(part, "axis_name", None), str)
