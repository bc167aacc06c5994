"""Find the inputs of a program that are parameters of the model, from the option `params` of `inspect`.

The option is the name of an argument, such as `"state"`, or of a part of one, such as `"state.params"`, or several
names. Its default is `"params"`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from mithril_nb.errors import UnknownOptionError, short_repr

DEFAULT = "params"
"""Default of the option."""
_MOST_SHOWN = 8
# For example: .weight, ['a.b'], ["it's"] and [0] in params['a.b'].weight
# A step on the path to an input: an attribute, a key, or an index.
_PART = re.compile(r"""\.\w+|\[(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^\]'"]*)\]""")


def names_of_params(params: Any) -> tuple[str, ...]:
    """Return the option `params` as a tuple of names.

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
    """Return for each input of a program whether it is a parameter of the model.

    Examples:
        >>> which_are_params(["w", "x"], ["w['a']", "x"], ["w"]), which_are_params(["w", "x"], ["w['a']", "x"], ["v"])
        ([True, False], [None, None])
    """
    # If a name in `names` does not exist, every item is `None`, because the name may be misspelt.
    requested = set(names)
    are_params = [bool(requested & _holders(name)) for name in inputs]
    # If a name is misspelt, parameters must not be reported as data.
    return [*are_params] if requested <= _valid_names(arguments, inputs) else [None] * len(inputs)


def check_params(program: str, arguments: Sequence[str], inputs: Sequence[str], names: Sequence[str]) -> None:
    """Raise an `UnknownOptionError` if a name in the option `params` is neither an argument nor a part of one."""
    # `program` is the name of the program, for the message. See `which_are_params` for the other arguments.
    valid = _valid_names(arguments, inputs)
    strange = next((name for name in names if name not in valid), None)
    if strange is None:
        return
    inside = [name for name in inputs if name not in arguments and _holders(name) & _holders(strange)]
    raise UnknownOptionError(
        f"params={strange!r} is not an argument of program {program!r}.",
        (("arguments", _listed(arguments) or "none"), *((("inputs", _listed(inside)),) if inside else ())),
        f"{example_of_params(arguments, inputs)}  # or params=() if it has none",
    )


def why_unknown(arguments: Sequence[str]) -> str:
    """Return the reason why it is unknown which inputs are parameters of the model.

    Examples:
        >>> why_unknown(["w", "x"])
        "none of the arguments w, x is called 'params'"
    """
    # This is for a program for which the user did not set the option `params`, and which has no argument of this
    # name.
    subject = (
        f"the argument {arguments[0]} is not"
        if len(arguments) == 1
        else f"none of the arguments {_listed(arguments)} is"
    )
    return f"{subject} called {DEFAULT!r}"


def example_of_params(arguments: Sequence[str], inputs: Sequence[str]) -> str:
    """Return an example of the option `params` for these arguments and inputs.

    Examples:
        >>> example_of_params(["w", "x"], ["w['a']", "x"])
        'params="w"'
        >>> example_of_params(["x", "state"], ["x", "state.step", "state.params['w']"])
        'params="state.params"'
    """
    # For example: state.params in state.params['w'], but not state.params_old.
    inner = (re.match(rf"(.+?(?:\.{DEFAULT}|\['{DEFAULT}'\]))(?![^.\[])", name) for name in inputs)
    named = next((match.group(1) for match in inner if match), None)
    return f'params="{named or next(iter(arguments), "w")}"'


def _valid_names(arguments: Sequence[str], inputs: Sequence[str]) -> set[str]:
    return {*arguments}.union(*map(_holders, inputs))


def _holders(name: str) -> set[str]:
    # For example: `state.params['w']`, `state.params` and `state`.
    return {name, *(name[: match.start()] for match in _PART.finditer(name))}


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_MOST_SHOWN]) + (", ..." if len(names) > _MOST_SHOWN else "")
