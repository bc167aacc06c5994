"""Checks and examples of constructor calls: suggest the call that the user meant, or a call that works."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, NoReturn

from mithril_nb.errors import MithrilError, UnknownOptionError, alike, listed, short_repr
from mithril_nb.models.fields import example, fields_of
from mithril_nb.models.registry import KINDS

_LONGEST = 200
"""Maximum length of a suggested call."""
_STARRED = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def refuse_call(kind: type, error: TypeError, given: tuple[Any, ...], named: Mapping[str, Any]) -> NoReturn:
    """Raise for an invalid constructor call, and suggest a valid one.

    Args:
        kind: The kind of block.
        error: Python's error for the call.
        given: Its positional arguments.
        named: Its keyword arguments.

    Raises:
        UnknownOptionError: Always.
    """
    takes = ", ".join(str(one.replace(annotation=one.empty)) for one in inspect.signature(kind).parameters.values())
    shown = listed([*map(_short, given), *(f"{key}={_short(value)}" for key, value in named.items())])
    raise UnknownOptionError(
        f"cannot make {kind.__name__}: {error}.",
        (("takes", takes or "nothing"), *((("given", shown),) if given or named else ())),
        _corrected_call(kind, given, named) or example_call(kind),
    ) from None


def example_block(kind: type) -> Any:
    """Return an example block of a kind, built by `example_call` if it takes no blocks.

    Raises:
        Exception: The constructor rejects the example arguments.
    """
    return kind(**_needed(kind))


def example_call(kind: type) -> str:
    """Return an example constructor call of a kind, as code.

    Examples:
        >>> from mithril_nb.models import Linear, Relu
        >>> example_call(Linear), example_call(Relu)
        ('Linear(dimension=64)', 'Relu()')
    """
    needed = _needed(kind)
    try:
        if ... not in needed.values():
            example_block(kind)
    except MithrilError as error:  # the error of a kind that takes blocks has an example
        advice = error.diagnostics[0].advice
        return advice if advice.startswith(f"{kind.__name__}(") else _call_of(kind, (), needed)
    return _call_of(kind, (), needed)


def _corrected_call(kind: type, given: tuple[Any, ...], named: Mapping[str, Any]) -> str:
    """Return the same call with corrected argument names; `""` if that call fails too."""
    signature = inspect.signature(kind)
    try:
        taken = {*signature.bind_partial(*given).arguments, *named}
    except TypeError:  # too many arguments
        return ""
    names = [one.name for one in signature.parameters.values() if one.kind not in _STARRED]
    found: dict[str, Any] = {}
    for name, value in named.items():
        near = [name] if name in names else alike(name, [one for one in names if one not in taken])
        found.update({near[0]: value} if near else {})
    try:
        bound = signature.bind_partial(*given, **found).arguments
        found |= {name: value for name, value in _needed(kind).items() if name not in bound}
        signature.bind(*given, **found)
        if sum(len(_short(value)) for value in (*given, *found.values())) > _LONGEST:
            return ""
        call = _call_of(kind, given, found)
        if len(call) > _LONGEST or " at 0x" in call:
            return ""
        kind(*given, **found)
    except Exception:  # a user-defined kind may raise anything
        return ""
    return call


def _short(value: Any) -> str:
    return short_repr(value, _LONGEST + 1)


def _needed(kind: type) -> dict[str, Any]:
    """Return the required and recommended arguments of a kind with example values; `...` for unknown ones."""
    fields = {field.name: field for field in fields_of(kind)} if kind in KINDS.values() else {}
    return {
        one.name: example(fields[one.name]) if one.name in fields else ...
        for one in inspect.signature(kind).parameters.values()
        if (one.name in fields and fields[one.name].start is not None)
        or (one.default is one.empty and one.kind not in _STARRED)
    }


def _call_of(kind: type, given: tuple[Any, ...], named: Mapping[str, Any]) -> str:
    arguments = [
        *map(repr, given),
        *(f"{name}={'...' if value is ... else repr(value)}" for name, value in named.items()),
    ]
    return f"{kind.__name__}({', '.join(arguments)})"
