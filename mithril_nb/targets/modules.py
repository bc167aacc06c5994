"""Modules of other libraries as what every program here is made of: arrays by dotted name, and a pure function.

`blocks.0.attention.query.kernel` belongs to the block `blocks/0/attention/query`, as our own parameters do. Libraries
are looked for among what is imported already: whoever has a module has imported its library.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from mithril_nb.errors import StageUnavailableError, UnexpectedInputError
from mithril_nb.graph.paths import component
from mithril_nb.targets.arguments import Arguments
from mithril_nb.targets.entry_point import door
from mithril_nb.targets.scopes import Scopes, class_of, haiku_path, is_module, named_modules

Arrays = dict[str, Any]


@dataclass(frozen=True)
class Parted:
    """A module, parted into arrays and what makes a module of them again.

    Attributes:
        params: What training changes, by dotted name.
        state: Its other arrays: running statistics, random keys, buffers.
        build: Makes a module of params and state.
        after: Gives the state of a module that was called; `None` if a call changes nothing.
    """

    params: Arrays
    state: Arrays
    build: Callable[[Arrays, Arrays], Any]
    after: Callable[[Any], Arrays] | None = None


@dataclass(frozen=True)
class Foreign:
    """A module of another library as a pure function.

    Attributes:
        name: What to call it.
        params: Specs of what training changes, by dotted name.
        state: Specs of its other arrays by name.
        run: Takes params, state, arguments and keyword arguments; gives the result, and the state after, `{}` if a
            call leaves it as it is. Equations carry the paths of the modules.
    """

    name: str
    params: Arrays
    state: Arrays
    run: Callable[[Arrays, Arrays, Any, Any], tuple[Any, Arrays]]


def is_nnx(value: Any) -> bool:
    """Whether a value is a module of Flax nnx, or an optimizer or other object with arrays of it."""
    return isinstance(value, class_of("flax.nnx", "Pytree"))


def is_equinox(value: Any) -> bool:
    """Whether a value is a module of Equinox."""
    return isinstance(value, class_of("equinox", "Module"))


def is_linen(value: Any) -> bool:
    """Whether a value is a module of Flax linen."""
    return isinstance(value, class_of("flax.linen", "Module"))


def is_haiku(value: Any) -> bool:
    """Whether a value is what `hk.transform` or `hk.transform_with_state` gave."""
    return isinstance(value, (class_of("haiku", "Transformed"), class_of("haiku", "TransformedWithState")))


def flat(tree: Any) -> tuple[Arrays, Callable[[Arrays], Any]]:
    """Return the leaves of a tree by dotted name, and what makes the tree of them again.

    Examples:
        >>> leaves, rebuild = flat({"layers": [{"w": 1}, {"w": 2}]})
        >>> leaves, rebuild(leaves)
        ({'layers.0.w': 1, 'layers.1.w': 2}, {'layers': [{'w': 1}, {'w': 2}]})
    """
    leaves, structure = jax.tree_util.tree_flatten_with_path(tree)
    names = [dotted(path) for path, _ in leaves]
    found = {name: leaf for name, (_, leaf) in zip(names, leaves, strict=True)}
    return found, lambda arrays: structure.unflatten([arrays[name] for name in names])


def dotted(path: tuple[Any, ...]) -> str:
    """Return the name of a leaf: its keys, attributes and places on the way to it."""
    keys = [str(next(getattr(step, kind) for kind in ("key", "name", "idx") if hasattr(step, kind))) for step in path]
    if len(keys) > 1 and keys[-1] == "value":  # A variable of nnx holds its array so.
        keys.pop()
    return ".".join(map(component, keys))


def part(module: Any) -> Parted:
    """Return a module of nnx or Equinox in parts."""
    return _part_nnx(module) if is_nnx(module) else _part_equinox(module)


def nnx_params(objects: Mapping[str, Any]) -> list[str]:
    """Return the dotted names of what training changes among objects of nnx: their types tell it."""
    return list(_part_nnx(objects).params)


def _part_nnx(module: Any) -> Parted:
    nnx = sys.modules["flax.nnx"]
    definition, params, state = nnx.split(module, nnx.Param, ...)
    (trained, build_params), (rest, build_state) = flat(params), flat(state)

    def after(module: Any) -> Arrays:
        return flat(nnx.split(module, nnx.Param, ...)[2])[0]

    def build(params: Arrays, state: Arrays) -> Any:
        return nnx.merge(definition, build_params(params), build_state(state))

    return Parted(trained, rest, build, after if rest else None)


def _part_equinox(module: Any) -> Parted:
    leaves, structure = jax.tree_util.tree_flatten_with_path(module)
    names = [dotted(path) for path, _ in leaves]
    held = {name: leaf for name, (_, leaf) in zip(names, leaves, strict=True)}
    arrays = {name: leaf for name, leaf in held.items() if is_array(leaf)}
    params = {name: leaf for name, leaf in arrays.items() if jax.numpy.issubdtype(leaf.dtype, jax.numpy.inexact)}
    state = {name: leaf for name, leaf in arrays.items() if name not in params}

    def build(params: Arrays, state: Arrays) -> Any:
        found = {**held, **params, **state}
        return structure.unflatten([found[name] for name in names])

    return Parted(params, state, build)


def is_array(leaf: Any) -> bool:
    """Whether a leaf is an array, or says the shape of one."""
    return isinstance(leaf, jax.Array | np.ndarray | jax.ShapeDtypeStruct)


def is_foreign(value: Any) -> bool:
    """Whether a value is a module that `foreign` reads."""
    return is_module(value) or is_haiku(value)


def callable_of(target: Any) -> tuple[Callable[..., Any], frozenset[str]]:
    """Return what says which arguments a module takes, and names of keyword arguments that its library takes."""
    if is_linen(target):
        return target.__call__, frozenset(("rngs", "mutable", "method", "capture_intermediates"))
    if is_haiku(target):
        return functools.partial(target.init, None), frozenset()
    return target, frozenset()


def within(function: Any) -> Any | None:
    """Return the Equinox module that a function was made of, as `jax.vmap(module)` is; `None` if there is none."""
    inner = inspect.unwrap(function) if callable(function) else None
    return inner if inner is not function and is_equinox(inner) and callable(inner) else None


def foreign(
    target: Any,
    given: Arguments,
    variables: Any,
    method: Callable[..., Any] | None = None,
    around: Callable[..., Any] | None = None,
) -> Foreign:
    """Return a module of any of the libraries as a pure function.

    Args:
        target: The module.
        given: What it is called with.
        variables: What `init` of a linen module, or of a Haiku transform, gave; by default it is found from the
            arguments, without memory.
        method: What to call in the place of the module of nnx or Equinox: a function of it.
        around: The same, if it is a function that holds the module, and takes what it is called with.

    Raises:
        UnexpectedInputError: Variables for a module that holds its own.
    """
    if is_linen(target):
        return _linen(target, given, variables)
    if is_haiku(target):
        return _haiku(target, given, variables)
    if variables is not None:
        raise UnexpectedInputError(
            f"{type(target).__name__!r} holds its arrays itself, and takes no variables.",
            (("take variables", "modules of Flax linen, transforms of Haiku"),),
            door().call("module", *given.all_names),
        )
    parted = part(target)

    def run(params: Arrays, state: Arrays, args: Any, kwargs: Any) -> tuple[Any, Arrays]:
        module = parted.build(params, state)
        with named_modules({"": module}, () if around is None else [(target, module)]) as scopes:
            if around is not None:
                out = around(*args, **kwargs)
                _check_called(type(target).__name__, scopes)
            else:
                out = module(*args, **kwargs) if method is None else method(module, *args, **kwargs)
        return out, parted.after(module) if parted.after else {}

    return Foreign(type(target).__name__, specs_of(parted.params), specs_of(parted.state), run)


def _check_called(name: str, scopes: Scopes) -> None:
    """Raise if a function called a copy of the module that it holds: nothing would depend on the parameters."""
    if not scopes.has_substituted:
        raise StageUnavailableError(
            f"the function around the module {name!r} calls a copy of it, whose parameters nobody can train.",
            (("as", "eqx.filter_jit does"),),
            "jax.vmap(module)  # or the module itself: a program is jitted in any case",
        )


def _linen(module: Any, given: Arguments, variables: Any) -> Foreign:
    if variables is None:

        def init(key: Any, *traced: Any) -> Any:
            args, kwargs = given.whole(*traced)
            kwargs = {name: value for name, value in kwargs.items() if name not in ("mutable", "capture_intermediates")}
            keys = kwargs.pop("rngs", None) or {}
            return module.init({"params": key, **(keys if isinstance(keys, Mapping) else {})}, *args, **kwargs)

        variables = jax.eval_shape(init, _key(), *given.traced)
    variables = {name: tree for name, tree in _unboxed(variables).items() if name != "intermediates"}
    params, build_params = flat(variables.pop("params", {}))
    others = {name: flat(tree) for name, tree in variables.items()}

    def run(params: Arrays, state: Arrays, args: Any, kwargs: Any) -> tuple[Any, Arrays]:
        whole = {name: others[name][1](arrays) for name, arrays in state.items()}
        kwargs = {"mutable": list(others), **kwargs} if others else kwargs
        with named_modules({"": module}):
            out = module.apply({"params": build_params(params), **whole}, *args, **kwargs)
        if not kwargs.get("mutable"):
            return out, {}
        return out[0], {name: flat(_unboxed(tree))[0] for name, tree in out[1].items()}

    state = {name: specs_of(leaves) for name, (leaves, _) in others.items()}
    return Foreign(module.name or type(module).__name__, specs_of(params), state, run)


def _haiku(transform: Any, given: Arguments, variables: Any) -> Foreign:
    has_state = isinstance(transform, class_of("haiku", "TransformedWithState"))
    if variables is None:

        def init(key: Any, *traced: Any) -> Any:
            args, kwargs = given.whole(*traced)
            return transform.init(key, *args, **kwargs)

        variables = jax.eval_shape(init, _key(), *given.traced)
    (params, build_params), (own, build_own) = map(_flat_haiku, variables if has_state else (variables, {}))
    takes_key = "rng" in inspect.signature(transform.apply).parameters

    def run(params: Arrays, state: Arrays, args: Any, kwargs: Any) -> tuple[Any, Arrays]:
        whole = (build_params(params), build_own(state)) if has_state else (build_params(params),)
        with named_modules({}):
            out = transform.apply(*whole, *((state["rng"],) if takes_key else ()), *args, **kwargs)
        # The key is an input of each call; who calls again brings another.
        return (out[0], _flat_haiku(out[1])[0]) if has_state else (out, {})

    state = {**specs_of(own), **({"rng": _key()} if takes_key else {})}
    return Foreign("transform", specs_of(params), state, run)


def _flat_haiku(tree: Any) -> tuple[Arrays, Callable[[Arrays], Any]]:
    places = {".".join(map(component, (*haiku_path(path), name))): (path, name) for path in tree for name in tree[path]}

    def build(arrays: Arrays) -> Any:
        found: dict[str, Any] = {}
        for dots, (path, name) in places.items():
            found.setdefault(path, {})[name] = arrays[dots]
        return found

    return {dots: tree[path][name] for dots, (path, name) in places.items()}, build


def _unboxed(variables: Any) -> Any:
    """Variables without the notes of `nn.with_partitioning`."""
    meta = sys.modules.get("flax.core.meta")
    return meta.unbox(variables) if meta is not None else variables


def specs_of(arrays: Mapping[str, Any]) -> Arrays:
    """Return the shapes and dtypes of arrays by name."""
    return {name: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for name, leaf in arrays.items()}


def _key() -> jax.ShapeDtypeStruct:
    return jax.eval_shape(lambda: jax.random.key(0))
