"""Programs that JAX has already traced, lowered, compiled or exported, and files with such programs."""

from __future__ import annotations

import inspect
import keyword
import re
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.extend import core

from mithril_nb.errors import ModelFileError, UnknownOptionError, short_repr
from mithril_nb.inspection import Inspection
from mithril_nb.inspection.inspection import inspect_given
from mithril_nb.stages import jax_jit, jax_versions
from mithril_nb.stages.given.program import (
    Given,
    given_of_compiled,
    given_of_exported,
    given_of_hlo,
    given_of_lowered,
    given_of_serialized,
    given_of_stablehlo,
)
from mithril_nb.stages.records import PROGRAM_SUFFIXES
from mithril_nb.stages.trace.tracing import shape_of_aval
from mithril_nb.targets.arguments import format_argument
from mithril_nb.targets.options import check_applicable

_FIRST_NAME = re.compile(r"\w+")


def without_trace(
    target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[Any, tuple[Any, ...], Mapping[str, Any]]:
    """Convert the result of `jax.jit(f).trace(x)` or `jax.make_jaxpr(f)(x)` to a function and its arguments.

    Examples:
        >>> import jax.numpy as jnp
        >>> traced = jax.jit(jnp.dot).trace(jnp.ones((2, 3)), jnp.ones(3))
        >>> function, args, _ = without_trace(traced, (), {})
        >>> function.__name__, [spec.shape for spec in args]
        ('dot', [(2, 3), (3,)])
    """
    if isinstance(target, jax.stages.Traced):
        positional, named = jax.tree.map(shape_of_aval, target.in_avals)
        names = [] if not positional else _argument_names(target.jaxpr, positional)
        # A jaxpr does not contain the shardings that it was traced with.
        meshes = [aval.sharding.mesh for aval in jax.tree.leaves(target.in_avals)]
        if jax_jit.declares_shardings(target) or not all(mesh.empty for mesh in meshes):
            raise UnknownOptionError(
                f"program {target.fun_name!r} was traced with shardings, which are not in its equations.",
                (("needs", "the function that was traced, with its shardings"),),
            )
        function = _function(target.jaxpr, target.out_tree, target.fun_name, names, tuple(named))
        function = _donating(function, *target.args_info)
    elif isinstance(target, core.ClosedJaxpr):
        positional, named = tuple(map(shape_of_aval, target.in_avals)), {}
        names = [_identifier(name) for name in _leaf_names(target)]
        function = _function(target, None, getattr(_debug_info(target), "func_name", "jaxpr"), names)
    else:
        return target, args, kwargs
    if (args or kwargs) and _shapes((args, dict(kwargs))) != _shapes((positional, named)):
        raise UnknownOptionError(
            f"program {function.__name__!r} was traced with other arguments.",
            (("traced with", _format_arguments(positional, named)), ("given", _format_arguments(args, kwargs))),
        )
    return function, positional, named


def _function(
    closed: Any, structure: Any, name: str, names: Sequence[str], named: Sequence[str] = ()
) -> Callable[..., Any]:
    run = jax_versions.jaxpr_as_fun(closed)

    def function(*args: Any, **kwargs: Any) -> Any:
        results = run(*jax.tree.leaves((args, kwargs)))
        if structure is None:
            return results[0] if len(results) == 1 else results
        return jax.tree.unflatten(structure, results)

    function.__name__ = function.__qualname__ = name
    unique: list[str] = []
    for parameter in names:
        unique.append(parameter if parameter not in (*unique, *named) else f"{parameter}_{len(unique)}")
    kinds = inspect.Parameter
    parameters = [kinds(parameter, kinds.POSITIONAL_ONLY) for parameter in unique]
    parameters += [kinds(parameter, kinds.KEYWORD_ONLY) for parameter in named]
    function.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportFunctionMemberAccess]
    return function


def _donating(function: Callable[..., Any], positional: Sequence[Any], named: Mapping[str, Any]) -> Callable[..., Any]:

    # `donate_argnums` donates whole arguments, so an argument of which only a part was donated is kept.
    def is_donated(argument: Any) -> bool:
        leaves = jax.tree.leaves(argument)
        return bool(leaves) and all(leaf.donated for leaf in leaves)

    numbers = tuple(number for number, argument in enumerate(positional) if is_donated(argument))
    names = tuple(name for name, argument in named.items() if is_donated(argument))
    return jax.jit(function, donate_argnums=numbers, donate_argnames=names) if numbers or names else function


def _argument_names(jaxpr: Any, positional: Sequence[Any]) -> list[str]:
    leaves = _leaf_names(jaxpr)
    names: list[str] = []
    start = 0
    for number, argument in enumerate(positional):
        count = len(jax.tree.leaves(argument))
        first = _FIRST_NAME.match(leaves[start]) if count and start < len(leaves) else None
        names.append(_identifier(first.group()) if first else f"arg_{number}")
        start += count
    return names


def _leaf_names(jaxpr: Any) -> list[str]:
    names = getattr(_debug_info(jaxpr), "arg_names", None) or [""] * len(jaxpr.in_avals)
    return [name or f"x_{number}" for number, name in enumerate(names)]


def _debug_info(jaxpr: Any) -> Any:
    return getattr(jax_versions.open_jaxpr(jaxpr), "debug_info", None)


def _identifier(text: str) -> str:
    name = re.sub(r"\W+", "_", text).strip("_")
    return name if name.isidentifier() and not keyword.iskeyword(name) else f"x_{name}".rstrip("_")


def _shapes(tree: Any) -> Any:
    leaves, structure = jax.tree.flatten(tree)
    # Canonical, because without x64 JAX also traces an array in float64 as float32.
    arrays = [leaf if hasattr(leaf, "shape") else np.asarray(leaf) for leaf in leaves]
    return structure, [
        (array.shape, jax.dtypes.canonicalize_dtype(array.dtype, allow_extended_dtype=True)) for array in arrays
    ]


def _format_arguments(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    return ", ".join(map(format_argument, jax.tree.leaves((tuple(args), dict(kwargs))))) or "nothing"


LARGEST_BYTES = 256_000_000
# Possessive, since Python 3.11: without backtracking, a file of comments that ends in garbage takes linear time.
_LEADING = re.compile(r"(?:[\s\ufeff]|//[^\n]*|/\*.*?\*/)*+", re.DOTALL)
"""White space, comments and a byte order mark."""
# XLA also reads modules without a header, and single instructions.
_HLO = re.compile(
    r"HloModule\b|(?:(?:ENTRY|ROOT)\s+%?|%)[\w.\-]+\s*[={(]|[\w.\-]+\s*\{\s*(?:ROOT\s+)?[\w.\-]+\s*=\s*\(?\w+\["
)
_STABLEHLO = re.compile(r'(?<!\S)(?:module\s*(?:@|\{|attributes\b)|"builtin\.module"|"?func\.func\b)')
_REASON_LINES = 3
Facts = tuple[tuple[str, str], ...]
_JAX_PROGRAMS = (jax.stages.Lowered, jax.stages.Compiled, jax.export.Exported)
_OTHER_SUFFIXES = tuple(
    ".onnx .tflite .pt .pth .pt2 .keras .h5 .mlmodel .vmfb .gguf .safetensors .npz .npy .engine .pkl".split()
)
"""Suffixes of files of other libraries, which contain no program that JAX can read."""


def is_program_file(target: Any) -> bool:
    """Return whether a target is the path of a program file: a `Path`, or text with a known suffix.

    Examples:
        >>> is_program_file("step.mlir"), is_program_file("model.json"), is_program_file(Path("model.json"))
        (True, False, True)
    """
    if isinstance(target, Path):
        return True
    suffixes = (*PROGRAM_SUFFIXES, *_OTHER_SUFFIXES)
    return isinstance(target, str) and "\n" not in target and Path(target).suffix.lower() in suffixes


def is_given_program(target: Any) -> bool:
    """Return whether a target is a lowered, compiled or exported program; also as text, as bytes or as a path."""
    if isinstance(target, str) and not is_program_file(target):
        return bool(_kind_of_text(target))
    return is_program_file(target) or isinstance(target, (*_JAX_PROGRAMS, bytes, bytearray, memoryview))


def inspect_given_program(
    target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], options: Mapping[str, Any]
) -> Inspection:
    """Return the inspection of a lowered, compiled or exported program, or of a file."""
    program = _given_of(target, options["device"])
    applicable = {"name", "params", *(["compiler_options"] if program.is_compiled_here else [])}
    applicable |= set() if program.is_fixed else {"device"}
    check_applicable({**options, **kwargs, "arguments": args or None}, applicable, program.name)
    return inspect_given(program, **{name: value for name, value in options.items() if value is not None})


def _given_of(target: Any, device: Any) -> Given:
    if isinstance(target, jax.stages.Lowered):
        return given_of_lowered(target)
    if isinstance(target, jax.stages.Compiled):
        return given_of_compiled(target)
    if isinstance(target, jax.export.Exported):
        return given_of_exported(target, device)
    if is_program_file(target):
        path = Path(target)
        return _read(_bytes_of(path), device, path)
    # A text may contain lone surrogates, which UTF-8 rejects; the parser then reports the place.
    return _read(target.encode("utf-8", "surrogatepass") if isinstance(target, str) else bytes(target), device)


def _kind_of_text(text: str) -> str:
    start = _LEADING.match(text)
    begin = start.end() if start else 0
    if _HLO.match(text, begin):
        return "hlo"
    # The definition of an alias, which starts with # or !, may span lines.
    search = _STABLEHLO.search if text[begin : begin + 1] in ("#", "!") else _STABLEHLO.match
    return "stablehlo" if search(text, begin) else ""


def _decoded(data: bytes) -> str:
    for encoding in ("utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"):
        # Without a mark, `utf-16` is the encoding of the processor: text of the other one begins with no known word.
        try:
            text = data.decode(encoding)
        except UnicodeDecodeError:
            continue
        if "\0" not in text and (encoding == "utf-8-sig" or _kind_of_text(text)):
            return text
    return ""


def _read(data: bytes, device: Any, path: Path | None = None) -> Given:
    if not data.strip():
        raise _refused(path, "it is empty")
    text = _decoded(data)
    kind = _kind_of_text(text) if text else "binary"
    readers: dict[str, tuple[str, Callable[[], Given]]] = {
        "binary": ("a serialized program", lambda: given_of_serialized(data, device)),
        "hlo": ("HLO", lambda: given_of_hlo(text)),
        "stablehlo": ("StableHLO", lambda: given_of_stablehlo(text, device=device)),
    }
    if kind not in readers:
        begins = short_repr(text.strip()[:60])
        needs = "StableHLO, HLO, or an exported program"
        raise _refused(path, "it contains no program", (("begins with", begins), ("needs", needs)))
    title, read = readers[kind]
    try:
        program = read()
    except ValueError as error:
        because = ("because", "\n".join(str(error).strip().splitlines()[:_REASON_LINES]))
        raise _refused(path, f"it is not {title} that JAX {jax.__version__} can read", (because,)) from error
    # Up to the first dot, because a dump of XLA has several suffixes: module_0001.jit_step.hlo.pb.
    return replace(program, name=path.name.partition(".")[0]) if path and program.name == "program" else program


def _bytes_of(path: Path) -> bytes:
    try:
        status = path.stat()
        is_readable = stat.S_ISREG(status.st_mode) and status.st_size <= LARGEST_BYTES
        data = path.read_bytes() if is_readable else b""
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the path
        because = getattr(error, "strerror", None) or str(error)
        raise _refused(path, "it cannot be read", (("because", because), ("folder", str(Path.cwd())))) from error
    if not is_readable:
        raise _refused(path, f"it is not a regular file of at most {LARGEST_BYTES:,} bytes")
    if path.suffix.lower() not in PROGRAM_SUFFIXES:
        reason = f"files with the suffix {path.suffix!r} are not read"
        raise _refused(path, reason, (("suffixes", ", ".join(PROGRAM_SUFFIXES)),))
    return data


def _refused(path: Path | None, reason: str, facts: Facts = ()) -> ModelFileError:
    subject = "this data" if path is None else repr(str(path))
    advice = "pathlib.Path('step.mlir').write_text(jax.jit(f).lower(x).as_text(debug_info=True))"
    return ModelFileError(f"cannot inspect {subject}: {reason}.", facts, advice)
