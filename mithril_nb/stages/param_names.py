"""Which inputs of a program hold its parameters: those that somebody named, else the argument called `params`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from mithril_nb.errors import UnknownOptionError, short_repr

DEFAULT = "params"
"""What the argument is called that holds the parameters, if nobody says otherwise."""
_MOST_SHOWN = 8
_PART = re.compile(r"""\.\w+|\[(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^\]'"]*)\]""")
"""A step on the way to an input: an attribute, a key, or a place."""


def names_of_params(params: Any) -> tuple[str, ...]:
    """Return the names of what holds the parameters, however they were given.

    Raises:
        UnknownOptionError: They are no names.

    Examples:
        >>> names_of_params("w"), names_of_params(["encoder", "decoder"]), names_of_params(())
        (('w',), ('encoder', 'decoder'), ())
    """
    names = (params,) if isinstance(params, str) else params
    if not isinstance(names, tuple | list) or not all(isinstance(name, str) and name for name in names):
        raise UnknownOptionError(
            f"params={' '.join(short_repr(params, 40).split())} does not say what holds the parameters of a program.",
            (("needs", "the name of an argument, or several; () if there are none"),),
            'params="w"  # or params=("encoder", "decoder")',
        )
    return tuple(names)


def which_are_params(arguments: Sequence[str], inputs: Sequence[str], names: Sequence[str]) -> list[bool | None]:
    """Return for each input of a program whether it is a parameter; `None` if nobody knows, as a name is not there.

    Args:
        arguments: What its arguments are called, those without an array too.
        inputs: What its inputs are called.
        names: What holds its parameters: arguments, or parts of them.

    Examples:
        >>> which_are_params(["w", "x"], ["w['a']", "x"], ["w"]), which_are_params(["w", "x"], ["w['a']", "x"], ["v"])
        ([True, False], [None, None])
    """
    wanted = set(names)
    found = [bool(wanted & _holders(name)) for name in inputs]
    return [*found] if wanted <= _known(arguments, inputs) else [None] * len(inputs)


def check_params(program: str, arguments: Sequence[str], inputs: Sequence[str], names: Sequence[str]) -> None:
    """Raise if a program has nothing of a name that somebody gave.

    Args:
        program: Name of the program.
        arguments: What its arguments are called.
        inputs: What its inputs are called.
        names: What holds its parameters.

    Raises:
        UnknownOptionError: An argument, or a part of one, that is not there.
    """
    known = _known(arguments, inputs)
    strange = next((name for name in names if name not in known), None)
    if strange is None:
        return
    inside = [name for name in inputs if name not in arguments and _holders(name) & _holders(strange)]
    raise UnknownOptionError(
        f"program {program!r} takes no {strange!r} that could hold its parameters.",
        (("arguments", _listed(arguments) or "none"), *((("inputs", _listed(inside)),) if inside else ())),
        f"{example_of_params(arguments, inputs)}  # or params=() if it has none",
    )


def why_unknown(arguments: Sequence[str]) -> str:
    """Return in words why nobody knows which inputs are parameters.

    Examples:
        >>> why_unknown(["w", "x"])
        "none of the arguments w, x is called 'params'"
    """
    one = (
        f"the argument {arguments[0]} is not"
        if len(arguments) == 1
        else f"none of the arguments {_listed(arguments)} is"
    )
    return f"{one} called {DEFAULT!r}"


def example_of_params(arguments: Sequence[str], inputs: Sequence[str]) -> str:
    """Return what somebody may write who knows which inputs are parameters.

    Examples:
        >>> example_of_params(["w", "x"], ["w['a']", "x"])
        'params="w"'
        >>> example_of_params(["x", "state"], ["x", "state.step", "state.params['w']"])
        'params="state.params"'
    """
    inner = (re.match(rf"(.+?(?:\.{DEFAULT}|\['{DEFAULT}'\]))(?![^.\[])", name) for name in inputs)
    named = next((found.group(1) for found in inner if found), None)
    return f'params="{named or next(iter(arguments), "w")}"'


def _known(arguments: Sequence[str], inputs: Sequence[str]) -> set[str]:
    """All that may hold parameters: the arguments, and the inputs with whatever they are a part of."""
    return {*arguments}.union(*map(_holders, inputs))


def _holders(name: str) -> set[str]:
    """An input itself, and all that it is a part of: `state.params['w']`, `state.params`, `state`.

    Examples:
        >>> sorted(_holders("w['a.b'][0].c"))
        ['w', "w['a.b']", "w['a.b'][0]", "w['a.b'][0].c"]
    """
    return {name, *(name[: found.start()] for found in _PART.finditer(name))}


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_MOST_SHOWN]) + (", ..." if len(names) > _MOST_SHOWN else "")
