"""Options that functions take beside those of `ml.inspect`: a slip in their names is not a program's argument."""

from __future__ import annotations

import inspect as python_inspect
from collections.abc import Callable, Mapping, Sequence

from mithril_nb.errors import UnknownOptionError
from mithril_nb.models.naming import input_names
from mithril_nb.stages.param_names import DEFAULT
from mithril_nb.targets.arguments import is_own_argument
from mithril_nb.targets.constants import without_partial
from mithril_nb.targets.mithril_models import graph_in, is_own
from mithril_nb.targets.modules import callable_of
from mithril_nb.targets.option_checks import OPTIONS, meant

_ALIKE = 0.8


def has_argument(target: object, name: str, args: Sequence[object] = ()) -> bool | None:
    """Return whether a target has an argument of a name that others leave open; `None` if it takes any name.

    Args:
        target: What `ml.inspect` takes.
        name: The name.
        args: What it is called with by position.

    Examples:
        >>> from mithril_nb.models import Linear
        >>> has_argument(Linear(3), "input"), has_argument(Linear(3), "batch"), has_argument(dict, "batch")
        (True, False, False)
        >>> has_argument(lambda x, axis: x, "x", args=(1,)), has_argument(lambda **every: 0, "batch")
        (False, None)
    """
    if is_own(target):
        return name in input_names(graph_in(target))[len(args) :]
    return is_own_argument(callable_of(target)[0], len(args), name)


def takes_params(target: object, args: tuple[object, ...], given: Mapping[str, object], params: object) -> bool:
    """Whether `params=` is an argument of a target itself, rather than what tells which of them holds its parameters.

    Args:
        target: What `inspect` takes.
        args: What it is called with.
        given: What it is called with by name, besides.
        params: What `params=` is.
    """
    target, args, given = without_partial(target, args, given)
    if "params" in given or (isinstance(params, str) and params == DEFAULT):
        return False
    is_argument = has_argument(target, "params", args)
    is_names = isinstance(params, str | tuple | list) and all(isinstance(name, str) for name in params)
    return not is_names if is_argument is None else is_argument


def refuse_misspelt(
    called: str, options: Mapping[str, object], own: Callable[..., object], target: object, example: str = "..."
) -> None:
    """Raise if one of the options is meant to be an argument of our own, but is written otherwise.

    Args:
        called: What the person called.
        options: What it is to hand on to `ml.inspect`.
        own: The function that takes these arguments.
        target: The program, which may take anything by name.
        example: A value, for what to try.

    Raises:
        UnknownOptionError: There is such an option.
    """
    known = [one.name for one in python_inspect.signature(own).parameters.values() if one.kind is one.KEYWORD_ONLY]
    for name in options:
        if name in OPTIONS or has_argument(target, name) is not False:
            continue
        near = meant(name, known, _ALIKE)
        if near:
            raise UnknownOptionError(
                f"{called} takes no argument {name!r}.",
                (("takes", ", ".join(known)),),
                f"{near}={example}",
            )
