"""Options that functions take beside those of `ml.inspect`: a slip in their names is not a program's argument."""

from __future__ import annotations

import inspect as python_inspect
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

from mithril_nb.errors import UnknownOptionError
from mithril_nb.targets.inspection import inspect
from mithril_nb.targets.own import is_own

_ALIKE = 0.8


def takes(target: Any, name: str, value: object) -> bool:
    """Whether a program can be given an argument of this name: a model of ours takes arrays, or their shapes."""
    if is_own(target):
        return hasattr(value, "shape")
    try:
        parameters = python_inspect.signature(target).parameters
    except (TypeError, ValueError):
        return False
    return name in parameters or any(one.kind is one.VAR_KEYWORD for one in parameters.values())


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
    for name, value in options.items():
        if name in python_inspect.signature(inspect).parameters or takes(target, name, value):
            continue
        near = [*get_close_matches(name, known, 1, _ALIKE), *(one for one in known if one.startswith(f"{name}_"))]
        if near:
            raise UnknownOptionError(
                f"{called} takes no argument {name!r}.",
                (("takes", ", ".join(known)),),
                f"{called}(..., {near[0]}={example})",
            )
