"""Source code of calls of a target, for the `Try:` lines of errors."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from typing import Any

import jax

from mithril_nb.errors import UnexpectedInputError, short_repr
from mithril_nb.targets.arguments import signature_of
from mithril_nb.targets.entry_point import meant
from mithril_nb.targets.library_modules import is_haiku
from mithril_nb.targets.mithril_models import is_mithril_model
from mithril_nb.targets.module_scopes import is_module

_LIBRARIES = ("jax.numpy", "jax.nn", "jax.lax", "jax.scipy.special", "jax", "numpy")
"""Modules whose functions are written with the name of the module, as `jax.numpy.tanh`."""


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


def check_call(
    fn: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    title: str,
    options: Collection[str],
) -> None:
    """Raise if the signature of a function does not accept these arguments. The advice corrects misspelt names.

    Args:
        fn: The function.
        args: The positional arguments.
        kwargs: The keyword arguments.
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
        left = [one for one in signature.parameters if one not in kwargs]
        slips = {key: meant(key, [*left, *options]) for key in kwargs if key not in signature.parameters}
        instead = [f"{near}={shown(kwargs[key])}" for key, near in slips.items() if near]
        raise UnexpectedInputError(
            f"cannot inspect {title!r} with these arguments: {error}.",
            (("takes", str(signature)), ("given", ", ".join(given) or "nothing")),
            ", ".join(instead),
        ) from None


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
