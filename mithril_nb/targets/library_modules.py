"""Modules of Flax, Equinox and Haiku as pure functions of arrays by dotted name, and their programs.

The array `blocks.0.attention.query.kernel` belongs to the block `blocks/0/attention/query`. This file imports none of
the libraries: if the target is a module, the user has imported its library already.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from mithril_nb.errors import StageUnavailableError, UnexpectedInputError, UnknownOptionError
from mithril_nb.graph.paths import component
from mithril_nb.targets.arguments import Arguments, checked_result, named
from mithril_nb.targets.module_scopes import haiku_path, is_module, named_modules
from mithril_nb.train.library_models import class_of, is_equinox, is_haiku, is_linen, is_nnx
from mithril_nb.train.step import Program, key_spec, programs_of

Arrays = dict[str, Any]


@dataclass(frozen=True)
class SplitModule:
    """A module, split into its arrays and a function that rebuilds it.

    Attributes:
        params: Trainable arrays by dotted name.
        state: The other arrays by dotted name, such as running statistics and random keys.
        build: Function of arrays for `params` and `state` that returns the module with these arrays.
        after: Function of the module after a call that returns its state; `None` if a call cannot change the state.
    """

    params: Arrays
    state: Arrays
    build: Callable[[Arrays, Arrays], Any]
    after: Callable[[Any], Arrays] | None = None


@dataclass(frozen=True)
class PureModule:
    """A module of another library as a pure function.

    Attributes:
        name: Name of the module in messages.
        params: Specs of the trainable arrays by dotted name.
        state: Specs of the other arrays by name.
        run: Function of params, state, positional and keyword arguments that returns the result and the new state; the
            new state is `{}` if the call does not change it. JAX names the scopes of its equations after the paths of
            the modules.
    """

    name: str
    params: Arrays
    state: Arrays
    run: Callable[[Arrays, Arrays, Any, Any], tuple[Any, Arrays]]


def flat(tree: Any) -> tuple[Arrays, Callable[[Arrays], Any]]:
    """Return the leaves of a tree by dotted name, and a function that rebuilds the tree.

    Examples:
        >>> leaves, rebuild = flat({"layers": [{"w": 1}, {"w": 2}]})
        >>> leaves, rebuild(leaves)
        ({'layers.0.w': 1, 'layers.1.w': 2}, {'layers': [{'w': 1}, {'w': 2}]})
    """
    leaves, structure = jax.tree_util.tree_flatten_with_path(tree)
    names = [dotted(path) for path, _ in leaves]
    by_name = {name: leaf for name, (_, leaf) in zip(names, leaves, strict=True)}
    return by_name, lambda arrays: structure.unflatten([arrays[name] for name in names])


def dotted(path: tuple[Any, ...]) -> str:
    """Return the dotted name of a leaf from its key path, such as `"layers.0.w"`."""
    keys = [str(next(getattr(step, kind) for kind in ("key", "name", "idx") if hasattr(step, kind))) for step in path]
    if len(keys) > 1 and keys[-1] == "value":  # the array of an nnx variable
        keys.pop()
    return ".".join(map(component, keys))  # a key may contain a dot, which `component` escapes


def part(module: Any) -> SplitModule:
    """Split a module. Trainable arrays are the `nnx.Param`s of an nnx module, else the floating-point arrays."""
    if is_nnx(module):
        return part_nnx(module)
    # As `eqx.filter_grad`, which differentiates floating-point arrays alone. Integers, such as counters, are state.
    held, rebuild = flat(module)
    arrays = {name: leaf for name, leaf in held.items() if is_array(leaf)}
    params = {name: leaf for name, leaf in arrays.items() if jax.numpy.issubdtype(leaf.dtype, jax.numpy.inexact)}
    state = {name: leaf for name, leaf in arrays.items() if name not in params}
    return SplitModule(params, state, lambda params, state: rebuild({**held, **params, **state}))


def part_nnx(module: Any) -> SplitModule:
    """Split an nnx module, or a dict of nnx modules by name."""
    nnx = sys.modules["flax.nnx"]
    definition, params, state = nnx.split(module, nnx.Param, ...)
    (trained, build_params), (rest, build_state) = flat(params), flat(state)

    def after(module: Any) -> Arrays:
        return flat(nnx.split(module, nnx.Param, ...)[2])[0]

    def build(params: Arrays, state: Arrays) -> Any:
        return nnx.merge(definition, build_params(params), build_state(state))

    return SplitModule(trained, rest, build, after if rest else None)


def is_array(leaf: Any) -> bool:
    """Return whether a leaf is an array or a `jax.ShapeDtypeStruct`."""
    return isinstance(leaf, jax.Array | np.ndarray | jax.ShapeDtypeStruct)


def is_foreign(value: Any) -> bool:
    """Return whether a value is a module of Flax or Equinox, or a transform of Haiku."""
    return is_module(value) or is_haiku(value)


def callable_of(target: Any) -> tuple[Callable[..., Any], frozenset[str]]:
    """Return a function with the signature of a target, and the names of keyword arguments that linen adds to it."""
    if is_linen(target):
        return target.__call__, frozenset(("rngs", "mutable", "method", "capture_intermediates"))
    if is_haiku(target):  # haiku 0.0.17: `init` has the signature of the function, after the key
        return functools.partial(target.init, None), frozenset()
    return target, frozenset()


def within(function: Any) -> Any | None:
    """Return the Equinox module in a function such as `jax.vmap(module)`; `None` if there is none."""
    # jax.vmap, jax.jit and Equinox's own wrappers set `__wrapped__`.
    inner = inspect.unwrap(function) if callable(function) else None
    return inner if inner is not function and is_equinox(inner) and callable(inner) else None


def foreign(
    target: Any,
    arguments: Arguments,
    variables: Any,
    method: Callable[..., Any] | None = None,
    around: Callable[..., Any] | None = None,
) -> PureModule:
    """Return a module of Flax, Equinox or Haiku as a pure function."""
    if is_linen(target):
        return _linen(target, arguments, variables)
    if is_haiku(target):
        return _haiku(target, arguments, variables)
    if variables is not None:
        raise UnexpectedInputError(
            f"{type(target).__name__!r} contains its arrays, and takes no variables.",
            (("take variables", "modules of Flax linen, transforms of Haiku"),),
        )
    split = part(target)

    def run(params: Arrays, state: Arrays, args: Any, kwargs: Any) -> tuple[Any, Arrays]:
        module = split.build(params, state)
        with named_modules({"": module}, () if around is None else [(target, module)]) as scopes:
            if around is not None:
                out = around(*args, **kwargs)
                if not scopes.has_substituted:  # the params would be constants, and their gradients 0
                    raise StageUnavailableError(
                        f"the function around module {type(target).__name__!r} calls a copy of the module, so the "
                        "module cannot be trained.",
                        (("example", "eqx.filter_jit(module)"),),
                    )
            else:
                out = module(*args, **kwargs) if method is None else method(module, *args, **kwargs)
        return out, split.after(module) if split.after else {}

    return PureModule(type(target).__name__, specs_of(split.params), specs_of(split.state), run)


def _linen(module: Any, arguments: Arguments, variables: Any) -> PureModule:
    if variables is None:

        def init(key: Any, *traced: Any) -> Any:
            args, kwargs = arguments.with_traced(*traced)
            # Options of `apply`. In `init`, `mutable` would leave out the collections that it creates.
            kwargs = {name: value for name, value in kwargs.items() if name not in ("mutable", "capture_intermediates")}
            keys = kwargs.pop("rngs", None) or {}
            return module.init({"params": key, **(keys if isinstance(keys, Mapping) else {})}, *args, **kwargs)

        variables = jax.eval_shape(init, key_spec(), *arguments.traced)
    # What a module has sown in an earlier call is no state.
    variables = {name: tree for name, tree in _unboxed(variables).items() if name != "intermediates"}
    params, build_params = flat(variables.pop("params", {}))
    others = {name: flat(tree) for name, tree in variables.items()}

    def run(params: Arrays, state: Arrays, args: Any, kwargs: Any) -> tuple[Any, Arrays]:
        collections = {name: others[name][1](arrays) for name, arrays in state.items()}
        # Without `mutable`, linen raises an error where BatchNorm updates its statistics.
        kwargs = {"mutable": list(others), **kwargs} if others else kwargs
        with named_modules({"": module}):
            try:
                out = module.apply({"params": build_params(params), **collections}, *args, **kwargs)
            except Exception as error:  # this file does not import Flax
                if type(error).__name__ != "InvalidRngError":
                    raise
                stream = next(iter(re.findall(r'PRNG for "(\w+)"', str(error))), "dropout")
                raise UnknownOptionError(
                    f"the module draws random numbers from {stream!r}, which has no key.",
                    (),
                    f'ml.inspect(module, x, rngs={{"{stream}": jax.random.key(0)}})',
                ) from error
        if not kwargs.get("mutable"):
            return out, {}
        return out[0], {name: flat(_unboxed(tree))[0] for name, tree in out[1].items()}

    state = {name: specs_of(leaves) for name, (leaves, _) in others.items()}
    return PureModule(module.name or type(module).__name__, specs_of(params), state, run)


def _haiku(transform: Any, arguments: Arguments, variables: Any) -> PureModule:
    has_state = isinstance(transform, class_of("haiku", "TransformedWithState"))
    if variables is None:

        def init(key: Any, *traced: Any) -> Any:
            args, kwargs = arguments.with_traced(*traced)
            return transform.init(key, *args, **kwargs)

        variables = jax.eval_shape(init, key_spec(), *arguments.traced)
    (params, build_params), (own, build_own) = map(_flat_haiku, variables if has_state else (variables, {}))
    takes_key = "rng" in inspect.signature(transform.apply).parameters  # not after hk.without_apply_rng

    def run(params: Arrays, state: Arrays, args: Any, kwargs: Any) -> tuple[Any, Arrays]:
        variables = (build_params(params), build_own(state)) if has_state else (build_params(params),)
        with named_modules({}):  # modules of Haiku exist only inside of the call
            out = transform.apply(*variables, *((state["rng"],) if takes_key else ()), *args, **kwargs)
        # The random key is not returned, because each call gets a new one.
        return (out[0], _flat_haiku(out[1])[0]) if has_state else (out, {})

    state = {**specs_of(own), **({"rng": key_spec()} if takes_key else {})}
    return PureModule("transform", specs_of(params), state, run)


def _flat_haiku(tree: Any) -> tuple[Arrays, Callable[[Arrays], Any]]:
    keys = {".".join(map(component, (*haiku_path(path), name))): (path, name) for path in tree for name in tree[path]}

    def build(arrays: Arrays) -> Any:
        rebuilt: dict[str, Any] = {}
        for dots, (path, name) in keys.items():
            rebuilt.setdefault(path, {})[name] = arrays[dots]
        return rebuilt

    return {dots: tree[path][name] for dots, (path, name) in keys.items()}, build


def _unboxed(variables: Any) -> Any:
    # `nn.with_partitioning` wraps an array in a `Partitioned`, which holds the names of its axes.
    meta = sys.modules.get("flax.core.meta")
    return meta.unbox(variables) if meta is not None else variables


def specs_of(arrays: Mapping[str, Any]) -> Arrays:
    """Return the shapes and dtypes of arrays by name."""
    return {name: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for name, leaf in arrays.items()}


def module_program(module: PureModule, arguments: Arguments, name: str, loss: Any, optimizer: Any) -> Program:
    """Return the program `name` of a module; `loss` and `optimizer` are ignored for `"forward"`."""
    if name == "forward":

        def forward(params: Arrays, *rest: Any) -> Any:
            state, traced = (rest[0], rest[1:]) if module.state else ({}, rest)
            out, after = module.run(params, state, *arguments.with_traced(*traced))
            checked_result(out, module.name)
            return (out, after) if after else out

        own = {"params": module.params, **({"state": module.state} if module.state else {})}
        names = (*own, *(f"{name}_input" if name in own else name for name in arguments.names))
        return Program(name, named(forward, names, module.name), (*own.values(), *arguments.traced))

    def run(params: Arrays, inputs: Arrays, state: Arrays, *, key: Any = None, training: bool = True) -> Any:
        out, after = module.run(params, state, *arguments.with_traced(*(inputs[name] for name in arguments.names)))
        return _outputs(out), {**state, **after}

    inputs = dict(zip(arguments.names, arguments.traced, strict=True))
    return programs_of(run, module.params, inputs, module.state, loss=loss, optimizer=optimizer)[name]


def _outputs(out: Any) -> dict[str, Any]:
    if isinstance(out, Mapping):
        return dict(out)
    outputs = list[Any](out) if isinstance(out, tuple | list) else [out]
    return {"output": out} if len(outputs) == 1 else {f"output_{number}": array for number, array in enumerate(outputs)}
