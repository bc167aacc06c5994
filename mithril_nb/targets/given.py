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

from mithril_nb.errors import ModelFileError, UnknownOptionError, listed, short_repr
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
from mithril_nb.targets.calls import shown

_FIRST_NAME = re.compile(r"\w+")


def without_trace(
    target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[Any, tuple[Any, ...], Mapping[str, Any]]:
    """Convert the result of `jax.jit(f).trace(x)` or `jax.make_jaxpr(f)(x)` to a function and its arguments.

    Args:
        target: The traced program. For any other target, `target`, `args` and `kwargs` are returned unchanged.
        args: The positional arguments of the call; may be empty.
        kwargs: The keyword arguments of the call; may be empty.

    Returns:
        A function that runs the traced equations, and the shapes that the program was traced with, as positional and
        keyword arguments.

    Raises:
        UnknownOptionError: `args` or `kwargs` differ from the arguments that the program was traced with, or it was
            traced with shardings.

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
        _refuse_shardings(target)
        function = _function(_whole(target.jaxpr, target.out_tree), target.fun_name, names, tuple(named))
        function = _donating(function, *target.args_info)
    elif isinstance(target, core.ClosedJaxpr):
        positional, named = tuple(map(shape_of_aval, target.in_avals)), {}
        names = [_identifier(name) for name in _leaf_names(target)]
        function = _function(_whole(target), getattr(_debug_info(target), "func_name", "jaxpr"), names)
    else:
        return target, args, kwargs
    if (args or kwargs) and _shapes((args, dict(kwargs))) != _shapes((positional, named)):
        raise UnknownOptionError(
            f"program {function.__name__!r} was traced with other arguments.",
            (("traced with", _format_arguments(positional, named)), ("given", _format_arguments(args, kwargs))),
            "ml.inspect(traced)  # for other arguments, trace the function with them",
        )
    return function, positional, named


def _whole(closed: Any, results: Any = None) -> Callable[..., Any]:
    """Return a jaxpr as a function. By default, it returns a list, or a single array; else the structure `results`."""
    every = jax_versions.jaxpr_as_fun(closed)

    def whole(*args: Any, **kwargs: Any) -> Any:
        found = every(*jax.tree.leaves((args, kwargs)))
        if results is None:
            return found[0] if len(found) == 1 else found
        return jax.tree.unflatten(results, found)

    return whole


def _function(
    call: Callable[..., Any], name: str, names: Sequence[str], named: Sequence[str] = ()
) -> Callable[..., Any]:
    """Return `call` with a name and a signature: `names` are positional, `named` are keywords."""

    def function(*args: Any, **kwargs: Any) -> Any:
        return call(*args, **kwargs)

    function.__name__ = function.__qualname__ = name
    unique: list[str] = []
    for one in names:
        unique.append(one if one not in (*unique, *named) else f"{one}_{len(unique)}")
    kinds = inspect.Parameter
    parameters = [kinds(one, kinds.POSITIONAL_ONLY) for one in unique]
    parameters += [kinds(one, kinds.KEYWORD_ONLY) for one in named]
    function.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportFunctionMemberAccess]
    return function


def _donating(function: Callable[..., Any], positional: Sequence[Any], named: Mapping[str, Any]) -> Callable[..., Any]:
    """Return the function with a `jax.jit` that donates the arguments that the traced program donated."""

    def is_donated(one: Any) -> bool:
        leaves = jax.tree.leaves(one)
        return bool(leaves) and all(leaf.donated for leaf in leaves)

    numbers = tuple(number for number, one in enumerate(positional) if is_donated(one))
    names = tuple(name for name, one in named.items() if is_donated(one))
    return jax.jit(function, donate_argnums=numbers, donate_argnames=names) if numbers or names else function


def _refuse_shardings(traced: jax.stages.Traced) -> None:
    """Raise if a program was traced with shardings, because its jaxpr does not contain them."""
    meshes = [aval.sharding.mesh for aval in jax.tree.leaves(traced.in_avals)]
    if not jax_jit.declares_shardings(traced) and all(mesh.empty for mesh in meshes):
        return
    raise UnknownOptionError(
        f"program {traced.fun_name!r} was traced with shardings, which are not in its equations.",
        (("needs", "the function that was traced, with its shardings"),),
        "ml.inspect(jax.jit(f, in_shardings=...), x)  # with the function itself",
    )


def _argument_names(jaxpr: Any, positional: Sequence[Any]) -> list[str]:
    leaves = _leaf_names(jaxpr)
    names: list[str] = []
    place = 0
    for number, one in enumerate(positional):
        count = len(jax.tree.leaves(one))
        first = _FIRST_NAME.match(leaves[place]) if count and place < len(leaves) else None
        names.append(_identifier(first.group()) if first else f"arg_{number}")
        place += count
    return names


def _leaf_names(jaxpr: Any) -> list[str]:
    known = getattr(_debug_info(jaxpr), "arg_names", None) or ()
    return [name or f"x_{place}" for place, name in enumerate(known or [""] * len(jaxpr.in_avals))]


def _debug_info(jaxpr: Any) -> Any:
    """Return the debug info of a jaxpr, with the names of the function and its arguments; `None` without it."""
    return getattr(jax_versions.open_jaxpr(jaxpr), "debug_info", None)


def _identifier(text: str) -> str:
    """Return a Python identifier for the name of an input array.

    Examples:
        >>> _identifier("params['w']"), _identifier("x"), _identifier("[0]")
        ('params_w', 'x', 'x_0')
    """
    name = re.sub(r"\W+", "_", text).strip("_")
    return name if name.isidentifier() and not keyword.iskeyword(name) else f"x_{name}".rstrip("_")


def _shapes(tree: Any) -> Any:
    """Return the structure of arguments, and the shape and dtype of each leaf, to compare two calls."""
    leaves, structure = jax.tree.flatten(tree)
    specs = [one if hasattr(one, "shape") else np.asarray(one) for one in leaves]
    return structure, [
        (one.shape, jax.dtypes.canonicalize_dtype(one.dtype, allow_extended_dtype=True)) for one in specs
    ]


def _format_arguments(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    return ", ".join(map(shown, jax.tree.leaves((tuple(args), dict(kwargs))))) or "nothing"


LARGEST_BYTES = 256_000_000
_LEADING = re.compile(r"(?:[\s\ufeff]|//[^\n]*|/\*.*?\*/)*+", re.DOTALL)
"""White space, comments and a byte order mark."""
# XLA also reads modules without a header, and single instructions.
_HLO = re.compile(
    r"HloModule\b|(?:(?:ENTRY|ROOT)\s+%?|%)[\w.\-]+\s*[={(]|[\w.\-]+\s*\{\s*(?:ROOT\s+)?[\w.\-]+\s*=\s*\(?\w+\["
)
_STABLEHLO = re.compile(r'(?<!\S)(?:module\s*(?:@|\{|attributes\b)|"builtin\.module"|"?func\.func\b)')
_REASON_LINES = 3
Facts = tuple[tuple[str, str], ...]
_JAX_NAMES = {jax.stages.Lowered: "lowered", jax.stages.Compiled: "compiled", jax.export.Exported: "exported"}
"""JAX's classes of programs, each with the usual name of a variable."""
_WRITERS = {
    ".hlo": "write_text(jax.jit(f).lower(x).compile().as_text())",
    ".pb": 'write_bytes(jax.jit(f).lower(x).compiler_ir("hlo").as_serialized_hlo_module_proto())',
    ".bin": "write_bytes(jax.export.export(jax.jit(f))(x).serialize())",
    ".jax": "write_bytes(jax.export.export(jax.jit(f))(x).serialize())",
    ".mlirbc": "write_bytes(jax.export.export(jax.jit(f))(x).mlir_module_serialized)",
}
OTHER_FILES = {
    ".onnx": "an ONNX model", ".tflite": "a TensorFlow Lite model", ".pt": "a PyTorch file", ".pth": "a PyTorch file",
    ".pt2": "a PyTorch program", ".keras": "a Keras model", ".h5": "an HDF5 file", ".mlmodel": "a Core ML model",
    ".vmfb": "a program that IREE compiled", ".gguf": "arrays of GGML", ".safetensors": "arrays without a program",
    ".npz": "arrays without a program", ".npy": "an array without a program", ".engine": "a program of TensorRT",
    ".pkl": "a pickle",
}  # fmt: skip
"""Descriptions of files that contain no program that JAX can read, by suffix."""


def is_program_file(target: Any) -> bool:
    """Return whether a target is the path of a program file: a `Path`, or text with a known suffix.

    Examples:
        >>> is_program_file("step.mlir"), is_program_file("model.json"), is_program_file(Path("model.json"))
        (True, False, True)
    """
    if isinstance(target, Path):
        return True
    suffixes = (*PROGRAM_SUFFIXES, *OTHER_FILES)
    return isinstance(target, str) and "\n" not in target and Path(target).suffix.lower() in suffixes


def is_given_program(target: Any) -> bool:
    """Return whether a target is a lowered, compiled or exported program; also as text, as bytes or as a path."""
    if isinstance(target, str) and not is_program_file(target):
        return bool(_kind_of_text(target))
    return is_program_file(target) or isinstance(target, (*_JAX_NAMES, bytes, bytearray, memoryview))


def inspect_given_program(
    target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], options: Mapping[str, Any]
) -> Inspection:
    """Return the inspection of a lowered, compiled or exported program, or of a file.

    Raises:
        UnknownOptionError: The call has arguments, or an option that does not apply.
        ModelFileError: The file does not exist, is broken or too large, or contains no program.
    """
    made = _given_of(target, options["device"])
    allowed = {"name", "params"} | ({"compiler_options"} if made.is_compiled_here else set())
    allowed |= set() if made.is_fixed else {"device"}
    given = {name: value for name, value in options.items() if value is not None}
    refused = [name for name in given if name not in allowed] + [*kwargs] + ["arguments"] * bool(args)
    if refused:
        what = "arguments" if refused[0] == "arguments" else f"{refused[0]}="
        raise UnknownOptionError(
            f"program {made.name!r} takes no {what}.",
            (("given as", made.kind), ("takes", ", ".join(f"{one}=" for one in options if one in allowed))),
            f"ml.inspect({_written(target)})",
        )
    return inspect_given(made, **given)


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
    return _read(target.encode("utf-8", "surrogatepass") if isinstance(target, str) else bytes(target), device)


def _written(target: Any) -> str:
    """Return source code for a program: the path of a file, or a variable name."""
    if is_program_file(target):
        return repr(str(target))
    return next((name for kind, name in _JAX_NAMES.items() if isinstance(target, kind)), "data")


def _kind_of_text(text: str) -> str:
    r"""Return `"hlo"` or `"stablehlo"` for a text that begins like one; else `""`.

    Examples:
        >>> _kind_of_text("HloModule jit_f"), _kind_of_text("module @jit_f {\n}"), _kind_of_text("a module of mine")
        ('hlo', 'stablehlo', '')
    """
    start = _LEADING.match(text)
    place = start.end() if start else 0
    if _HLO.match(text, place):
        return "hlo"
    # The definition of an alias, which starts with # or !, may span lines.
    found = (_STABLEHLO.search if text[place : place + 1] in ("#", "!") else _STABLEHLO.match)(text, place)
    return "stablehlo" if found else ""


def _decoded(data: bytes) -> str:
    """Return the text of a file in UTF-8 or UTF-16, with or without a byte order mark; `""` if it is binary."""
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
    """Return the program in the bytes of a file.

    Raises:
        ModelFileError: The bytes contain no program, or a broken program.
    """
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
    what, read = readers[kind]
    try:
        made = read()
    except ValueError as error:
        because = "\n".join(str(error).strip().splitlines()[:_REASON_LINES])
        advice = "pip install flatbuffers" if "install 'flatbuffers'" in because else ""
        why = f"it is not {what} that JAX {jax.__version__} can read"
        raise _refused(path, why, (("because", because),), advice) from error
    return replace(made, name=path.name.partition(".")[0]) if path and made.name == "program" else made


def _bytes_of(path: Path) -> bytes:
    """Return the bytes of a file.

    Raises:
        ModelFileError: The file does not exist, cannot be read, or is too large.
    """
    try:
        found = path.stat()
        if stat.S_ISDIR(found.st_mode):
            inside = sorted(one.name for one in path.iterdir() if one.suffix.lower() in PROGRAM_SUFFIXES)
            advice = f"ml.inspect({str(path / inside[0])!r})" if inside else _advice(path / "step.mlir")
            raise _refused(path, "it is a folder", (("programs in it", listed(inside)),), advice)
        if not stat.S_ISREG(found.st_mode):
            raise _refused(path, "it is not a regular file", (), _advice(None))
        if path.suffix.lower() not in PROGRAM_SUFFIXES:
            known = ("suffixes", ", ".join(PROGRAM_SUFFIXES))
            other = OTHER_FILES.get(path.suffix.lower())
            why = f"it is {other}" if other else f"files with the suffix {path.suffix!r} are not read"
            raise _refused(path, why, (known,), _advice(path.with_suffix(".mlir")))
        if found.st_size > LARGEST_BYTES:
            sizes = ("bytes", f"{found.st_size:,}"), ("limit", f"{LARGEST_BYTES:,}")
            raise _refused(path, "it is too large", sizes, _advice(None))
        with path.open("rb") as file:
            return file.read(LARGEST_BYTES)
    except ModelFileError:
        raise
    except FileNotFoundError as error:
        raise _refused(path, "the file does not exist", (("folder", str(Path.cwd())),)) from error
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the path
        because = getattr(error, "strerror", None) or str(error)
        raise _refused(path, "it cannot be read", (("because", because),), _advice(None)) from error


def _refused(path: Path | None, why: str, facts: Facts = (), advice: str = "") -> ModelFileError:
    """Return the error for a file or for bytes. The default of `advice` is computed by `_advice` from the path."""
    what = "this data" if path is None else repr(str(path))
    return ModelFileError(f"cannot inspect {what}: {why}.", facts, advice or _advice(path))


def _advice(path: Path | None) -> str:
    """Return code that writes a program to `path`; without a path, code that inspects a lowered program."""
    if path is None:
        return "ml.inspect(jax.jit(f).lower(x))"
    writer = _WRITERS.get(path.suffix.lower(), "write_text(jax.jit(f).lower(x).as_text(debug_info=True))")
    return f"pathlib.Path({str(path)!r}).{writer}"
