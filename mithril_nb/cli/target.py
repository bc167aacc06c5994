"""Programs named on the command line: by a file, `module:name` or `file.py:name`."""

from __future__ import annotations

import argparse
import ast
import inspect
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mithril_nb.errors import Diagnostic, MithrilError, ModelFileError, UnexpectedInputError, UnknownOptionError
from mithril_nb.graph.spec import read_spec
from mithril_nb.models.saving.serialization import is_link
from mithril_nb.plugins import load_plugins

if TYPE_CHECKING:
    from mithril_nb.graph.records import LogicalGraph
    from mithril_nb.inspection import Inspection
    from mithril_nb.models import Model

PROGRAMS = {"forward": "forward", "forward+backward": "forward+backward", "train-step": "train step"}
"""Values of `--program`, and the programs' names."""
_LOADED = re.compile(r"ml\.load\((.*)\)")
_VALUES = {"int": "3", "float": "0.1", "bool": "True", "str": "'text'"}
"""Example arguments, by annotation."""
_COUNTS = re.compile(r"[nk]|axis|steps|depth|length|count|(n|num|max)_\w+|\w+_(size|dim|steps)|size|dim")
"""Names of arguments that are usually whole numbers."""
_EXAMPLE = '--arg "f32[32,784]"'


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
    """Return the target that is named on the command line.

    Args:
        text: Path of a model file or a program file, link to a model, `module:name` or `file.py:name`. The last two run
            the module or file.
        has_args: True if `--arg` is given. Without `--arg`, a function without parameters is called, and its result is
            the target.

    Raises:
        ModelFileError: A model file or module does not exist, a file contains no model, or the name after a Python file
            is missing. Program files, such as `*.mlir`, are read later, so they raise no error here.
        UnknownOptionError: The module or file does not define the name.
    """
    from mithril_nb.targets.given import is_program_file
    from mithril_nb.targets.imported import NAMED, imported, without_name

    load_plugins()
    if is_link(text):
        model = load_model(text)
        return Target(model.name or "model", model, model.graph, (), text)
    if is_program_file(text):
        return Target(Path(text).stem, Path(text), None, (), text)
    if Path(text).suffix == ".py" and not Path(text).is_dir():
        raise without_name(Path(text))
    if not NAMED.fullmatch(text) or Path(text).exists():
        model = load_model(text)
        return Target(model.name or Path(text).stem, model, model.graph, (), text)
    value = imported(text)
    args: Any = getattr(value, "example_args", ())
    if callable(args):
        args = args()
    if not has_args and not args and not _is_value(value) and callable(value) and _parameters(value) == {}:
        value, args = _made(value)
    args = tuple(args) if isinstance(args, tuple | list) else (args,)
    return Target(text.rpartition(":")[2], value, _graph_of(value), () if has_args else args, text)


def load_model(path: str) -> Model:
    """Return the model in a file or link. In the advice of errors, a path replaces the call of `ml.load`."""
    from mithril_nb.models import load

    try:
        return load(path)
    except ModelFileError as error:
        problem = error.diagnostics[0]
        other = _LOADED.fullmatch(problem.advice)
        if other is None or is_link(path):
            raise
        near = str(ast.literal_eval(other[1]))
        near = near if Path(near).exists() else ""
        if Path(path).suffix != ".json" and not Path(path).exists():
            from mithril_nb.targets.imported import no_target

            raise no_target(path, near) from error
        raise ModelFileError(replace(problem, advice=shlex.quote(near) if near else "")) from error


def inspection_of(target: Target, options: argparse.Namespace) -> Inspection:
    """Return the inspection of the program that the options of the command line select; nothing is run.

    Raises:
        MithrilError: Shapes or arguments are missing, or do not fit.
    """
    from mithril_nb import targets

    args, keywords = call_of(target, options)
    return targets.inspect(target.value, *args, **keywords)


def call_of(target: Target, options: argparse.Namespace) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments and options of `ml.inspect` for a target on the command line.

    Raises:
        MithrilError: Shapes or arguments are missing, or do not fit.
    """
    shapes, (args, named) = shapes_of(options.shape), _arguments(options.arg)
    chosen = options.program or (options.default_program if target.graph is not None else None)
    program = None if chosen is None else PROGRAMS[chosen]
    args = tuple(args or target.args)
    if isinstance(target.value, Path):
        _check_options_of_file(target, options)
    if target.graph is None:
        if shapes:
            raise UnknownOptionError(f"--shape is for models, but {target.text!r} is not a model.", (), _EXAMPLE)
        _check_static(options.static)
        _check_arguments(target, args, named, options.arg)
        return args, {"kwargs": named, "program": program, "static_argnames": options.static or None}
    if not args and not named:
        for problem in _open_inputs(target.graph, shapes):
            raise MithrilError(problem)
    return args, {"kwargs": named, "shapes": shapes, "program": program}


def _check_options_of_file(target: Target, options: argparse.Namespace) -> None:
    values = {"--shape": options.shape, "--arg": options.arg, "--static": options.static, "--program": options.program}
    refused = [option for option, value in values.items() if value]
    if refused:
        raise UnknownOptionError(
            f"{refused[0]} is for models and functions, but the program in {target.text!r} "
            "is already lowered for its arguments.",
            (),
            f"mithril-nb show {shlex.quote(target.text)}",
        )


def shapes_of(texts: Sequence[str]) -> dict[str, list[int | str]]:
    """Parse values of `--shape`, `input=32,784`, to shapes by input.

    Raises:
        UnknownOptionError: A value is invalid.
    """
    from mithril_nb.graph.spec import is_dim_name

    shapes: dict[str, list[int | str]] = {}
    for text in texts:
        name, equals, sizes = text.rpartition("=")
        dims = [part.strip() for part in sizes.strip("()[] ").split(",") if part.strip()]
        if not equals or not name or not dims:
            raise UnknownOptionError(
                f"invalid --shape {text!r}.",
                (("needs", "INPUT=SIZES, with commas between the sizes"),),
                "--shape input=32,784",
            )
        for dim in dims:
            if not dim.isdecimal() and not is_dim_name(dim):
                raise UnknownOptionError(
                    f"invalid size {dim!r} in --shape {text!r}.",
                    (("needs", "a whole number, 0 or more, or a name for an unknown size"),),
                    f"--shape {name}=32,784",
                )
        shapes[name] = [int(dim) if dim.isdecimal() else dim for dim in dims]
    return shapes


def argument(text: str) -> tuple[str, Any]:
    """Parse a value of `--arg`. Return the argument's name (`""` if omitted), and its value.

    The value is a Python number or string, or an array of zeros that uses no memory.

    Raises:
        UnknownOptionError: The value is invalid.

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
            f'--arg "{name.strip() or "x"}=f32[32,784]"',
        ) from None


def _arguments(texts: Sequence[str]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    pairs = [argument(text) for text in texts]
    return tuple(value for name, value in pairs if not name), {name: value for name, value in pairs if name}


def _made(value: Callable[[], Any]) -> tuple[Any, Any]:
    """Call a function without parameters, and return a target and its arguments.

    If the function returns a model or a function, that is the target. If it returns a pair (target, arguments), return
    the pair. Otherwise the function itself is the target.
    """
    result = value()
    if isinstance(result, tuple) and len(result) == 2 and (callable(result[0]) or _is_value(result[0])):
        return result
    return (result, getattr(result, "example_args", ())) if callable(result) or _is_value(result) else (value, ())


def _is_value(value: Any) -> bool:
    """Return whether a value is a model or a module, rather than a function."""
    from mithril_nb.targets.library_modules import is_foreign
    from mithril_nb.targets.mithril_models import is_mithril_model
    from mithril_nb.targets.module_scopes import is_module

    return not isinstance(value, type) and (is_mithril_model(value) or is_foreign(value) or is_module(value))


def _graph_of(value: Any) -> LogicalGraph | None:
    from mithril_nb.targets.mithril_models import graph_in, is_mithril_model

    return graph_in(value) if is_mithril_model(value) else None


def _parameters(value: Any) -> Mapping[str, inspect.Parameter] | None:
    """Return the required parameters of a function; `None` if Python cannot read its signature."""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return None
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {
        name: parameter
        for name, parameter in signature.parameters.items()
        if parameter.default is parameter.empty and parameter.kind not in optional
    }


def _check_static(texts: Sequence[str]) -> None:
    for text in texts:
        if text.isidentifier():
            continue
        names = re.findall(r"[^\W\d]\w*", text) or ["n"]
        advice = " ".join(f"--static {name}" for name in names)
        if "=" in text:
            advice = f"--arg {shlex.quote(text)} --static {names[0]}"
        raise UnknownOptionError(f"--static takes the name of an argument, not {text!r}.", (), advice)


def _check_arguments(target: Target, args: Sequence[Any], named: Mapping[str, Any], texts: Sequence[str]) -> None:
    """Raise, with advice for the command line, if a function cannot be called with these arguments."""
    if _is_value(target.value) or not callable(target.value):
        return
    needed = _parameters(target.value)
    if needed is None:
        return
    signature = inspect.signature(target.value)
    takes = ("takes", str(signature))
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature.parameters.values())
    unknown = [name for name in named if name not in signature.parameters and not takes_any]
    usable = [text for text in texts if text.partition("=")[0].strip() not in unknown]
    try:
        bound = signature.bind_partial(*args, **{name: named[name] for name in named if name not in unknown}).arguments
    except TypeError:  # too many
        bound, usable = {}, []
    missing = [
        *(f'"{text}"' for text in usable),
        *(f'"{_example(parameter)}"' for name, parameter in needed.items() if name not in bound),
    ]
    advice = " ".join(f"--arg {text}" for text in missing) or f"mithril-nb show {target.text}"
    if unknown:
        raise UnexpectedInputError(f"{target.text!r} takes no argument {unknown[0]!r}.", (takes,), advice)
    try:
        signature.bind(*args, **named)
    except TypeError as error:
        raise UnexpectedInputError(
            f"{target.text!r} cannot be called with these arguments: {error}.",
            (takes, ("without --arg", f"add {target.title}.example_args = (...) to the module")),
            advice,
        ) from None


def _example(parameter: inspect.Parameter) -> str:
    """Return an example value of `--arg`: a number if annotation or name suggest one, else an array."""
    kind = getattr(parameter.annotation, "__name__", parameter.annotation)
    value = _VALUES.get(str(kind))
    if value is None:
        value = _VALUES["int"] if _COUNTS.fullmatch(parameter.name) else "f32[32,784]"
    return value if parameter.kind is parameter.POSITIONAL_ONLY else f"{parameter.name}={value}"


def _open_inputs(graph: LogicalGraph, shapes: Mapping[str, Sequence[int | str]]) -> list[Diagnostic]:
    """Return the errors for inputs whose shape is unknown, with advice for the command line."""
    from mithril_nb.compilation.calls import example_shape
    from mithril_nb.models.naming import input_specs
    from mithril_nb.models.shape_inference.infer import infer

    inferred = infer(graph, input_specs(graph, shapes))
    if inferred.problems:
        return []  # `compile` reports all mismatches together
    return [
        Diagnostic(
            f"the shape of input {name!r} is unknown.",
            (("so far", str(spec)),),
            f"--shape {name}={','.join(map(str, example_shape(spec.shape)))}",
            port=name,
            code="ShapeError",
        )
        for name, spec in inferred.inputs.items()
        if not spec.is_concrete
    ]
