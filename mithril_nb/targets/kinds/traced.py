"""Programs that JAX has traced already, turned back into functions of their arguments."""

from __future__ import annotations

import inspect
import keyword
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend import core

from mithril_nb.errors import UnknownOptionError
from mithril_nb.stages import jax_jit, jax_versions
from mithril_nb.targets.entry_point import entry_point

_FIRST_NAME = re.compile(r"\w+")


def without_trace(
    target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[Any, tuple[Any, ...], Mapping[str, Any]]:
    """Return the result of `jax.jit(f).trace(x)` or `jax.make_jaxpr(f)(x)` as a function with its arguments.

    Args:
        target: The traced program; anything else is returned unchanged.
        args: The positional arguments of the call; default: the shapes that the program was traced with.
        kwargs: The keyword arguments.

    Returns:
        A function that runs the traced equations, not the original Python, and the shapes of its arguments.

    Raises:
        UnknownOptionError: It was traced with other arguments.

    Examples:
        >>> import jax.numpy as jnp
        >>> traced = jax.jit(jnp.dot).trace(jnp.ones((2, 3)), jnp.ones(3))
        >>> function, args, _ = without_trace(traced, (), {})
        >>> function.__name__, [spec.shape for spec in args]
        ('dot', [(2, 3), (3,)])
    """
    if isinstance(target, jax.stages.Traced):
        positional, named = jax.tree.map(_spec, target.in_avals)
        names = [] if not positional else _argument_names(target.jaxpr, positional)
        _refuse_shardings(target)
        function = _function(_whole(target.jaxpr, target.out_tree), target.fun_name, names, tuple(named))
        function = _donating(function, *target.args_info)
    elif isinstance(target, core.ClosedJaxpr):
        positional, named = tuple(map(_spec, target.in_avals)), {}
        names = [_identifier(name) for name in _leaf_names(target)]
        function = _function(_whole(target), getattr(_debug_info(target), "func_name", "jaxpr"), names)
    else:
        return target, args, kwargs
    if (args or kwargs) and _shapes((args, dict(kwargs))) != _shapes((positional, named)):
        raise UnknownOptionError(
            f"program {function.__name__!r} was traced with other arguments.",
            (("traced with", _format_arguments(positional, named)), ("given", _format_arguments(args, kwargs))),
            f"{entry_point().call('traced')}  # with its own arguments; for others, trace it with them",
        )
    return function, positional, named


def _spec(aval: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=getattr(aval, "weak_type", False))


def _whole(closed: Any, results: Any = None) -> Callable[..., Any]:
    """Return a jaxpr as a function.

    Args:
        closed: The jaxpr.
        results: The structure of its results; by default a list, or the only result itself.
    """
    every = jax_versions.jaxpr_as_fun(closed)  # A `Traced` becomes one equation that contains all others.

    def whole(*args: Any, **kwargs: Any) -> Any:
        found = every(*jax.tree.leaves((args, kwargs)))
        if results is None:
            return found[0] if len(found) == 1 else found
        return jax.tree.unflatten(results, found)

    return whole


def _function(
    call: Callable[..., Any], name: str, names: Sequence[str], named: Sequence[str] = ()
) -> Callable[..., Any]:
    """Return a function with the original's signature, as far as the trace contains it."""

    def function(*args: Any, **kwargs: Any) -> Any:
        return call(*args, **kwargs)

    function.__name__ = function.__qualname__ = name
    unique: list[str] = []
    for one in names:
        unique.append(one if one not in (*unique, *named) else f"{one}_{len(unique)}")
    kinds = inspect.Parameter
    parameters = [kinds(one, kinds.POSITIONAL_ONLY) for one in unique]
    parameters += [kinds(one, kinds.KEYWORD_ONLY) for one in named]
    function.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportFunctionMemberAccess]
    return function


def _donating(function: Callable[..., Any], positional: Sequence[Any], named: Mapping[str, Any]) -> Callable[..., Any]:
    """Return a function that donates the arguments that the traced program donated."""

    def is_donated(one: Any) -> bool:
        leaves = jax.tree.leaves(one)
        return bool(leaves) and all(leaf.donated for leaf in leaves)

    numbers = tuple(number for number, one in enumerate(positional) if is_donated(one))
    names = tuple(name for name, one in named.items() if is_donated(one))
    return jax.jit(function, donate_argnums=numbers, donate_argnames=names) if numbers or names else function


def _refuse_shardings(traced: jax.stages.Traced) -> None:
    """Raise if a program was traced with shardings: its jaxpr does not contain them."""
    meshes = [aval.sharding.mesh for aval in jax.tree.leaves(traced.in_avals)]
    if not jax_jit.declares_shardings(traced) and all(mesh.empty for mesh in meshes):
        return
    raise UnknownOptionError(
        f"program {traced.fun_name!r} was traced with shardings, which are not in its equations.",
        (("needs", "the function that was traced, with its shardings"),),
        f"{entry_point().call('jax.jit(f, in_shardings=...)', 'x')}  # with the function itself",
    )


def _argument_names(jaxpr: Any, positional: Sequence[Any]) -> list[str]:
    """Return the names of the positional arguments: each has the name of its first array, if that has one."""
    leaves = _leaf_names(jaxpr)
    names: list[str] = []
    place = 0
    for number, one in enumerate(positional):
        count = len(jax.tree.leaves(one))
        first = _FIRST_NAME.match(leaves[place]) if count and place < len(leaves) else None
        names.append(_identifier(first.group()) if first else f"arg_{number}")
        place += count
    return names


def _leaf_names(jaxpr: Any) -> list[str]:
    """Return a jaxpr's names for its input arrays: `"params['w']"`."""
    known = getattr(_debug_info(jaxpr), "arg_names", None) or ()
    return [name or f"x_{place}" for place, name in enumerate(known or [""] * len(jaxpr.in_avals))]


def _debug_info(jaxpr: Any) -> Any:
    """Return the jaxpr's debug info, which JAX keeps for its error messages; only names depend on it."""
    return getattr(jax_versions.open_jaxpr(jaxpr), "debug_info", None)


def _identifier(text: str) -> str:
    """Return a Python identifier for a jaxpr's name of an array.

    Examples:
        >>> _identifier("params['w']"), _identifier("x"), _identifier("[0]")
        ('params_w', 'x', 'x_0')
    """
    name = re.sub(r"\W+", "_", text).strip("_")
    return name if name.isidentifier() and not keyword.iskeyword(name) else f"x_{name}".rstrip("_")


def _shapes(tree: Any) -> Any:
    """Return the arguments with a shape and dtype for each array and number."""
    leaves, structure = jax.tree.flatten(tree)
    specs = [one if hasattr(one, "shape") else np.asarray(one) for one in leaves]
    return structure, [
        (one.shape, jax.dtypes.canonicalize_dtype(one.dtype, allow_extended_dtype=True)) for one in specs
    ]


def _format_arguments(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Format arguments for messages, with shape and dtype for each array."""
    leaves = jax.tree.leaves((tuple(args), dict(kwargs)))
    return (
        ", ".join(f"{one.dtype}{[*one.shape]}" if hasattr(one, "shape") else type(one).__name__ for one in leaves)
        or "nothing"
    )
