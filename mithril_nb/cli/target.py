"""Programs named on the command line: by a file, `module:name` or `file.py:name`."""

from __future__ import annotations

import argparse
import ast
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mithril_nb.errors import ModelFileError, UnknownOptionError
from mithril_nb.graph.spec import read_spec
from mithril_nb.models.saving.serialization import is_link
from mithril_nb.plugins import load_plugins

if TYPE_CHECKING:
    from mithril_nb.graph.records import LogicalGraph
    from mithril_nb.inspection import Inspection

PROGRAMS = {"forward": "forward", "forward+backward": "forward+backward", "train-step": "train step"}
"""Values of `--program`, and the programs' names."""


@dataclass(frozen=True)
class Target:
    """The model, function or program file that a command prints, searches or compares.

    Attributes:
        title: Name of the target in messages and titles.
        value: A model, a function, a module of Flax, Equinox or Haiku, or the `Path` of a program file.
        graph: The graph of a Mithril model; `None` for other targets.
        args: Example arguments for the function: its attribute `example_args`, or the arguments that were returned
            together with it. Empty if there are none, or if `--arg` is given.
        text: The argument TARGET of the command line, unchanged.
    """

    title: str
    value: Any
    graph: LogicalGraph | None
    args: tuple[Any, ...] = ()
    text: str = ""


def find_target(text: str, has_args: bool) -> Target:
    """Return the target that is named on the command line."""
    from mithril_nb.models import load
    from mithril_nb.targets.imported import NAMED, example_args, imported
    from mithril_nb.targets.lowered import is_program_file
    from mithril_nb.targets.mithril_models import graph_in, is_mithril_model

    load_plugins()  # before the file is read, which may contain blocks of a plugin
    if is_link(text):
        model = load(text)
        return Target(model.name or "model", model, model.graph, (), text)
    if is_program_file(text):
        return Target(Path(text).stem, Path(text), None, (), text)
    if Path(text).suffix == ".py" and not Path(text).is_dir():
        raise ModelFileError(f"{text!r} is a Python file.", (("needs", f"the name of a function in it: {text}:NAME"),))
    # A file comes first: on POSIX, `mine:step` is also a valid name of a file.
    if not NAMED.fullmatch(text) or Path(text).exists():
        if Path(text).suffix != ".json" and not Path(text).exists():
            forms = "model.json, step.mlir, train.py:step, package.module:step"
            raise ModelFileError(f"{text!r} is neither a file nor of the form module:name.", (("needs", forms),))
        model = load(text)
        return Target(model.name or Path(text).stem, model, model.graph, (), text)
    value = imported(text)
    args = example_args(value)
    if not has_args and not args and not _is_value(value) and callable(value) and _needs_no_arguments(value):
        result = value()  # a function without arguments may be the program itself, or make it
        if isinstance(result, tuple) and len(result) == 2 and (callable(result[0]) or _is_value(result[0])):
            value, args = result
            args = tuple(args) if isinstance(args, tuple | list) else (args,)
        elif callable(result) or _is_value(result):
            value, args = result, example_args(result)
    graph = graph_in(value) if is_mithril_model(value) else None
    return Target(text.rpartition(":")[2], value, graph, () if has_args else args, text)


def inspection_of(target: Target, options: argparse.Namespace) -> Inspection:
    """Return the inspection of the program that the options of the command line select; nothing is run."""
    from mithril_nb import targets

    args, keywords = call_of(target, options)
    return targets.inspect(target.value, *args, **keywords)


def call_of(target: Target, options: argparse.Namespace) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments and options of `ml.inspect` for a target on the command line."""
    shapes, (args, named) = shapes_of(options.shape), _arguments(options.arg)
    chosen = options.program or (options.default_program if target.graph is not None else None)
    program = None if chosen is None else PROGRAMS[chosen]
    args = tuple(args or target.args)
    shapes = {"shapes": shapes} if shapes or target.graph is not None else {}
    static = {"static_argnames": options.static} if options.static else {}
    device = {"device": options.device} if options.device else {}
    return args, {"kwargs": named, "program": program, **shapes, **static, **device}


def shapes_of(texts: Sequence[str]) -> dict[str, list[int | str]]:
    """Parse values of `--shape`, `input=32,784`, to shapes by input."""
    from mithril_nb.graph.spec import is_dim_name

    shapes: dict[str, list[int | str]] = {}
    for text in texts:
        name, equals, sizes = text.rpartition("=")  # the name of an input may contain "="
        dims = [part.strip() for part in sizes.strip("()[] ").split(",") if part.strip()]
        if not equals or not name or not dims:
            raise UnknownOptionError(
                f"invalid --shape {text!r}.",
                (("needs", "INPUT=SIZES, with commas between the sizes, such as input=32,784"),),
            )
        for dim in dims:
            if not dim.isdecimal() and not is_dim_name(dim):
                raise UnknownOptionError(
                    f"invalid size {dim!r} in --shape {text!r}.",
                    (("needs", "a whole number, 0 or more, or a name for an unknown size"),),
                )
        shapes[name] = [int(dim) if dim.isdecimal() else dim for dim in dims]
    return shapes


def argument(text: str) -> tuple[str, Any]:
    """Parse a value of `--arg`. Return the argument's name (`""` if omitted), and its value.

    Examples:
        >>> name, array = argument("x=f32[32,784]")
        >>> name, array.shape, array.dtype.name
        ('x', (32, 784), 'float32')
        >>> argument("axis=-1"), argument("'relu'")
        (('axis', -1), ('', 'relu'))
    """
    import numpy as np

    name, equals, rest = text.partition("=")
    if not (equals and name.strip().isidentifier()):
        name, rest = "", text
    spec = read_spec(rest)
    try:
        if spec is None:
            return name.strip(), ast.literal_eval(rest.strip())
        # A broadcast scalar takes no memory; the values are never used.
        return name.strip(), np.broadcast_to(np.zeros((), spec.dtype), tuple(map(int, spec.shape)))
    except (ValueError, SyntaxError, TypeError):
        raise UnknownOptionError(
            f"invalid --arg {text!r}.",
            (("needs", "dtype and shape, as f32[32,784], or a Python number or string; optionally NAME= before it"),),
        ) from None


def _arguments(texts: Sequence[str]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    pairs = [argument(text) for text in texts]
    return tuple(value for name, value in pairs if not name), {name: value for name, value in pairs if name}


def _is_value(value: Any) -> bool:
    from mithril_nb.targets.library_modules import is_foreign
    from mithril_nb.targets.mithril_models import is_mithril_model
    from mithril_nb.targets.module_scopes import is_module

    return not isinstance(value, type) and (is_mithril_model(value) or is_foreign(value) or is_module(value))


def _needs_no_arguments(function: Callable[..., Any]) -> bool:
    from mithril_nb.targets.arguments import signature_of

    signature = signature_of(function)
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return signature is not None and all(
        parameter.default is not parameter.empty or parameter.kind in optional
        for parameter in signature.parameters.values()
    )
