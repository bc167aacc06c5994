"""Inputs of a program that hold its parameters: the arguments named by the user, else the argument `params`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from mithril_nb.errors import UnknownOptionError, short_repr

DEFAULT = "params"
"""Default name of the argument that holds the parameters."""
_MOST_SHOWN = 8
# For example: .weight, ['a.b'], ["it's"] and [0] in params['a.b'].weight
_PART = re.compile(r"""\.\w+|\[(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^\]'"]*)\]""")
"""A step on the path to an input: an attribute, a key, or an index."""


def names_of_params(params: Any) -> tuple[str, ...]:
    """Return the `params` option as a tuple of names.

    Args:
        params: The name of an argument that holds the parameters, or a list or tuple of such names.

    Raises:
        UnknownOptionError: `params` is not a string, list or tuple, or a name is empty or not a string.

    Examples:
        >>> names_of_params("w"), names_of_params(["encoder", "decoder"]), names_of_params(())
        (('w',), ('encoder', 'decoder'), ())
    """
    names = (params,) if isinstance(params, str) else params
    if not isinstance(names, tuple | list) or not all(isinstance(name, str) and name for name in names):
        raise UnknownOptionError(
            f"params={' '.join(short_repr(params, 40).split())} does not name the arguments that hold the parameters.",
            (("needs", "the name of an argument, or several; () if there are none"),),
            'params="w"  # or params=("encoder", "decoder")',
        )
    return tuple(names)


def which_are_params(arguments: Sequence[str], inputs: Sequence[str], names: Sequence[str]) -> list[bool | None]:
    """Return for each input of a program whether it is a parameter; `None` for every input if a name does not exist.

    Args:
        arguments: Names of the arguments, including those without an array.
        inputs: Names of the inputs.
        names: Names of the arguments, or of parts of them, that hold the parameters.

    Examples:
        >>> which_are_params(["w", "x"], ["w['a']", "x"], ["w"]), which_are_params(["w", "x"], ["w['a']", "x"], ["v"])
        ([True, False], [None, None])
    """
    wanted = set(names)
    found = [bool(wanted & _holders(name)) for name in inputs]
    # A misspelt name must not make the other inputs look like data.
    return [*found] if wanted <= _known(arguments, inputs) else [None] * len(inputs)


def check_params(program: str, arguments: Sequence[str], inputs: Sequence[str], names: Sequence[str]) -> None:
    """Raise an error if a name is neither an argument of a program nor a part of one.

    Args:
        program: Name of the program.
        arguments: Names of the arguments.
        inputs: Names of the inputs.
        names: Names of the arguments, or of parts of them, that hold the parameters.

    Raises:
        UnknownOptionError: A name does not exist.
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
    """Return the reason why it is unknown which inputs are parameters.

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
    """Return an example of the `params` option for these arguments and inputs.

    Examples:
        >>> example_of_params(["w", "x"], ["w['a']", "x"])
        'params="w"'
        >>> example_of_params(["x", "state"], ["x", "state.step", "state.params['w']"])
        'params="state.params"'
    """
    # For example: state.params in state.params['w'], but not state.params_old.
    inner = (re.match(rf"(.+?(?:\.{DEFAULT}|\['{DEFAULT}'\]))(?![^.\[])", name) for name in inputs)
    named = next((found.group(1) for found in inner if found), None)
    return f'params="{named or next(iter(arguments), "w")}"'


def _known(arguments: Sequence[str], inputs: Sequence[str]) -> set[str]:
    """Return all names that may hold parameters: the arguments, the inputs, and the containers of the inputs."""
    return {*arguments}.union(*map(_holders, inputs))


def _holders(name: str) -> set[str]:
    """Return the name of an input and of all its containers: `state.params['w']`, `state.params`, `state`.

    Examples:
        >>> sorted(_holders("w['a.b'][0].c"))
        ['w', "w['a.b']", "w['a.b'][0]", "w['a.b'][0].c"]
    """
    return {name, *(name[: found.start()] for found in _PART.finditer(name))}


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_MOST_SHOWN]) + (", ..." if len(names) > _MOST_SHOWN else "")
