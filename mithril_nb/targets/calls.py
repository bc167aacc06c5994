"""Source code of calls of a target, for the `Try:` lines of errors."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from inspect import Parameter
from typing import Any

import jax

from mithril_nb.errors import UnexpectedInputError, short_repr
from mithril_nb.models.naming import input_names
from mithril_nb.targets.arguments import argument_names, signature_of
from mithril_nb.targets.entry_point import entry_point, meant
from mithril_nb.targets.library_modules import callable_of, is_haiku
from mithril_nb.targets.mithril_models import graph_in, is_mithril_model
from mithril_nb.targets.module_scopes import is_module

_LIBRARIES = ("jax.numpy", "jax.nn", "jax.lax", "jax.scipy.special", "jax", "numpy")
"""Modules whose functions are written with the name of the module, as `jax.numpy.tanh`."""
_STARRED = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


def variable_of(target: Any) -> str:
    """Return source code for a target: the name of a function, or a usual variable name such as `model` or `f`.

    Examples:
        >>> import jax
        >>> variable_of(variable_of), variable_of(jax.numpy.tanh), variable_of(lambda x: x)
        ('variable_of', 'jax.numpy.tanh', 'f')
    """
    name = getattr(target, "__name__", None)
    if not isinstance(name, str) or not name.isidentifier():
        kinds = (("model", is_mithril_model), ("module", is_module), ("transform", is_haiku), ("f", callable))
        return next((word for word, is_one in kinds if is_one(target)), "target")
    if is_module(getattr(target, "__self__", None)):
        return f"module.{name}"
    library = next((one for one in _LIBRARIES if getattr(sys.modules.get(one), name, None) is target), None)
    return name if library is None else f"{library}.{name}"


def arguments_written(target: Any, args: tuple[Any, ...]) -> list[str]:
    """Return the names of the positional arguments of a call of a target.

    Examples:
        >>> from mithril_nb.models import Add
        >>> arguments_written(Add(), (1,)), arguments_written(lambda x, *more: x, (1, 2))
        (['left'], ['x', 'more_0'])
    """
    if is_mithril_model(target):
        return list(input_names(graph_in(target)))[: len(args)]
    try:
        return argument_names(callable_of(target)[0], args)
    except TypeError:  # too many
        return [f"x_{place}" for place in range(len(args))]


def required(fn: Any, kwargs: Mapping[str, Any], shapes: Any = None) -> list[str]:
    """Return source code for the required arguments of a function.

    Args:
        fn: The function.
        kwargs: Keyword arguments whose values are known. An array is written as its name, other values unchanged.
        shapes: Shapes by argument name. An argument with a shape is written as a `jax.ShapeDtypeStruct`.

    Examples:
        >>> required(lambda x, *, axis, depth=2: x, {"axis": 0}, {"x": [4]})
        ['jax.ShapeDtypeStruct((4,), "float32")', 'axis=0']
    """
    signature = signature_of(fn)
    known = shapes if isinstance(shapes, Mapping) else {}
    positional: list[str] = []
    by_name: list[str] = []
    for one in signature.parameters.values() if signature is not None else ():
        if one.default is not one.empty or one.kind in _STARRED:
            continue
        value = _of_shape(known[one.name]) if _is_shape(known.get(one.name)) else ""
        is_named = one.name in kwargs or bool(by_name)  # positional arguments cannot follow a keyword argument
        if one.kind is one.KEYWORD_ONLY or (is_named and one.kind is not one.POSITIONAL_ONLY):
            by_name.append(f"{one.name}={value or _given(one, kwargs)}")
        else:
            positional.append(value or one.name)
    return [*positional, *by_name]


def _given(one: Parameter, kwargs: Mapping[str, Any]) -> str:
    if one.name in kwargs and not hasattr(kwargs[one.name], "shape"):
        return shown(kwargs[one.name])
    return "..." if one.kind is one.KEYWORD_ONLY and one.name not in kwargs else one.name


def _of_shape(shape: Sequence[int]) -> str:
    return f'jax.ShapeDtypeStruct({tuple(shape)}, "float32")'


def _is_shape(shape: Any) -> bool:
    return isinstance(shape, list | tuple) and all(isinstance(dim, int) for dim in shape)


def check_call(
    fn: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    target: Any,
    title: str,
    options: Collection[str],
) -> None:
    """Raise if the signature of a function does not accept these arguments. The advice corrects misspelt names.

    Args:
        fn: The function.
        args: The positional arguments.
        kwargs: The keyword arguments.
        target: The object that the user passed to `ml.inspect`, for the advice.
        title: Name of the target for the message.
        options: Options of `ml.inspect` for this kind of target, which may be misspelt too.

    Raises:
        UnexpectedInputError: There are too few or too many arguments, or unknown names.
    """
    signature = signature_of(fn)
    if signature is None:
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        given = [*map(shown, args), *(f"{key}={shown(value)}" for key, value in kwargs.items())]
        wanted = required(fn, kwargs)
        left = [one for one in signature.parameters if one not in kwargs]
        slips = {key: meant(key, [*left, *options]) for key in kwargs if key not in signature.parameters}
        instead = [f"{near}={shown(kwargs[key])}" for key, near in slips.items() if near and near not in wanted]
        raise UnexpectedInputError(
            f"cannot inspect {title!r} with these arguments: {error}.",
            (("takes", str(signature)), ("given", ", ".join(given) or "nothing")),
            entry_point().call(variable_of(target), *wanted, *instead) + ("" if args else _explained(target, wanted)),
        ) from None


def _explained(target: Any, wanted: Sequence[str]) -> str:
    """Return a comment that states what the names in the advice are, because the user has to define them."""
    arrays = [one for one in wanted if one.isidentifier()]
    given = ["f, your function"] * (variable_of(target) == "f")
    if arrays:
        are = "an array or a jax.ShapeDtypeStruct" if len(arrays) == 1 else "arrays or jax.ShapeDtypeStructs"
        given.append(f"{', '.join(arrays)}, {are}")
    return f"  # with {', and '.join(given)}" if given else ""


class _Spec(str):
    """The dtype and the shape of an array as text, with a `repr` without quotes."""

    def __repr__(self) -> str:
        return str(self)


def shown(value: Any) -> str:
    """Return an argument as short text. An array is its dtype and shape.

    Examples:
        >>> shown({"w": jax.ShapeDtypeStruct((3, 2), "float32"), "axis": 0})
        "{'axis': 0, 'w': float32[3, 2]}"
    """

    def spec(leaf: Any) -> Any:
        shape = getattr(leaf, "shape", None)
        return leaf if shape is None else _Spec(f"{getattr(leaf, 'dtype', '')}{list(shape)}")

    try:
        plain = jax.tree.map(spec, value)
    except (TypeError, ValueError):  # a dict whose keys JAX cannot sort
        plain = value
    return " ".join(short_repr(plain, 40).split())
