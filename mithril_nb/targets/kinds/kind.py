"""Kinds of targets: for each, a test whether it accepts a target, and a function that inspects one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from mithril_nb.errors import UnknownOptionError
from mithril_nb.inspection import Inspection

PROGRAMS = ("forward", "forward+backward", "train step")
"""Names of a model's programs."""
TRAINING = ("program", "loss", "optimizer")
"""The options that request a program of a model or a module."""


@dataclass(frozen=True)
class TargetCall:
    """A call of `inspect`.

    Attributes:
        target: The target, without wrappers: a function with its arguments instead of a traced program or a partial.
        args: Positional arguments of the target.
        kwargs: Keyword arguments of the target.
        options: All options of `inspect` except `kwargs`, by name; `None` means not given.
    """

    target: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    options: Mapping[str, Any]

    def of_stages(self) -> dict[str, Any]:
        """Return the options that all targets accept: `name`, `device` and `compiler_options`."""
        return {name: self.options[name] for name in ("name", "device", "compiler_options")}

    def training(self) -> dict[str, Any]:
        """Return the requested program, loss and optimizer; `None` means not given."""
        return {name: self.options[name] for name in TRAINING}


@dataclass(frozen=True)
class TargetKind:
    """A kind of target of `inspect`, such as functions, or the modules of a library.

    Attributes:
        name: Plural noun for messages.
        accepts: Returns whether a call has a target of this kind. It must be fast, and must not import a library.
        build: Inspects the target of a call.
        is_traced: False for programs that have left Python: `params=` then only names inputs, and no arguments or
            compiler options are separated from the target before `build`.
    """

    name: str
    accepts: Callable[[TargetCall], bool]
    build: Callable[[TargetCall], Inspection]
    is_traced: bool = True


def training_of(call: TargetCall) -> tuple[str, Any, Any]:
    """Return the requested program of a model or a module, its loss and its optimizer.

    Raises:
        UnknownOptionError: The program does not exist.
    """
    program, loss, optimizer = (call.options[name] for name in TRAINING)
    if program is not None and program not in PROGRAMS:
        near = get_close_matches(str(program).replace("_", " ").replace("-", " "), PROGRAMS, 1, 0.5)
        raise UnknownOptionError(
            f"unknown program {program!r}.", (("known", ", ".join(PROGRAMS)),), f'program="{(*near, PROGRAMS[0])[0]}"'
        )
    program = program or PROGRAMS[2 if optimizer is not None else 1 if loss is not None else 0]
    return program, "cross_entropy" if loss is None else loss, "adam" if optimizer is None else optimizer
