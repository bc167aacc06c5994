"""Options of functions such as `ml.what_if`, which also accept the arguments of `ml.inspect` and of the program.

A misspelt option must not be mistaken for an argument of the program.
"""

from __future__ import annotations

import inspect as python_inspect
from collections.abc import Callable, Mapping, Sequence

from mithril_nb.errors import UnknownOptionError
from mithril_nb.models.naming import input_names
from mithril_nb.stages.param_names import DEFAULT
from mithril_nb.targets.arguments import accepts_keyword
from mithril_nb.targets.constants import without_partial
from mithril_nb.targets.libraries.modules import callable_of
from mithril_nb.targets.mithril_models import graph_in, is_mithril_model
from mithril_nb.targets.option_checks import OPTIONS, meant

_ALIKE = 0.8


def has_argument(target: object, name: str, args: Sequence[object] = ()) -> bool | None:
    """Return whether a target accepts a keyword argument of this name; `None` if it accepts any name.

    Args:
        target: A target of `ml.inspect`.
        name: The name.
        args: The positional arguments of the call, whose parameters are taken.

    Examples:
        >>> from mithril_nb.models import Linear
        >>> has_argument(Linear(3), "input"), has_argument(Linear(3), "batch"), has_argument(dict, "batch")
        (True, False, False)
        >>> has_argument(lambda x, axis: x, "x", args=(1,)), has_argument(lambda **every: 0, "batch")
        (False, None)
    """
    if is_mithril_model(target):
        return name in input_names(graph_in(target))[len(args) :]
    return accepts_keyword(callable_of(target)[0], len(args), name)


def takes_params(target: object, args: tuple[object, ...], given: Mapping[str, object], params: object) -> bool:
    """Return whether `params=` is an argument of the target itself, not the option that names the parameters' holder.

    Args:
        target: A target of `inspect`.
        args: Its positional arguments.
        given: Its other keyword arguments.
        params: The value of `params=`.
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
    """Raise if one of the options is a misspelt argument of the function that the user called.

    Args:
        called: The function as the user writes it.
        options: The options to pass on to `ml.inspect`.
        own: The function that the user called.
        target: The program, which may accept any keyword argument.
        example: A value for the advice.

    Raises:
        UnknownOptionError: An option is misspelt.
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
