"""Programs without their Python: lowered, compiled or exported by JAX, and files of these."""

from __future__ import annotations

import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax

from mithril_nb.errors import ModelFileError, UnknownOptionError, listed, short_repr
from mithril_nb.inspection import Inspection
from mithril_nb.inspection.inspection import inspect_given
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
from mithril_nb.targets.entry_point import entry_point
from mithril_nb.targets.kinds.kind import TargetCall, TargetKind

LARGEST_BYTES = 256_000_000
_FIRST_CHARS = 100_000
_REASON_LINES = 3
Facts = tuple[tuple[str, str], ...]
_JAX_NAMES = {jax.stages.Lowered: "lowered", jax.stages.Compiled: "compiled", jax.export.Exported: "exported"}
"""JAX's classes of programs, and the usual names of their variables."""
_WRITERS = {
    ".hlo": "write_text(jax.jit(f).lower(x).compile().as_text())",
    ".pb": 'write_bytes(jax.jit(f).lower(x).compiler_ir("hlo").as_serialized_hlo_module_proto())',
    ".bin": "write_bytes(jax.export.export(jax.jit(f))(x).serialize())",
}


def is_program_file(target: Any) -> bool:
    """Return whether a target is the path of a program file: a `Path`, or text with a known suffix.

    Examples:
        >>> is_program_file("step.mlir"), is_program_file("model.json"), is_program_file(Path("model.json"))
        (True, False, True)
    """
    if isinstance(target, Path):
        return True
    return isinstance(target, str) and "\n" not in target and Path(target).suffix.lower() in PROGRAM_SUFFIXES


def _accepts(call: TargetCall) -> bool:
    target = call.target
    if isinstance(target, str) and not is_program_file(target):
        return bool(_kind_of_text(target))
    return is_program_file(target) or isinstance(target, (*_JAX_NAMES, bytes, bytearray, memoryview))


def _inspect(call: TargetCall) -> Inspection:
    """Return the inspection of a lowered, compiled or exported program, or of a file.

    Raises:
        UnknownOptionError: The call has arguments, or an option that does not apply.
        ModelFileError: The file does not exist, is broken or too large, or contains no program.
    """
    made = _given_of(call.target, call.options["device"])
    allowed = {"name", "params"} | ({"compiler_options"} if made.is_compiled_here else set())
    allowed |= set() if made.is_fixed else {"device"}
    given = {name: value for name, value in call.options.items() if value is not None}
    refused = [name for name in given if name not in allowed] + [*call.kwargs] + ["arguments"] * bool(call.args)
    if refused:
        what = "arguments" if refused[0] == "arguments" else f"{refused[0]}="
        raise UnknownOptionError(
            f"program {made.name!r} takes no {what}.",
            (("given as", made.kind), ("takes", ", ".join(f"{one}=" for one in call.options if one in allowed))),
            entry_point().call(_written(call.target)),
        )
    return inspect_given(made, **given)


GIVEN_PROGRAM = TargetKind("lowered and compiled programs", _accepts, _inspect, is_traced=False)


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
    """Return a program as source code in a call."""
    if is_program_file(target):
        return repr(str(target))
    return next((name for kind, name in _JAX_NAMES.items() if isinstance(target, kind)), "data")


def _kind_of_text(text: str) -> str:
    r"""Return `"hlo"` or `"stablehlo"` for text that looks like one, else `""`.

    Examples:
        >>> _kind_of_text("HloModule jit_f"), _kind_of_text("module @jit_f {\n}"), _kind_of_text("a module of mine")
        ('hlo', 'stablehlo', '')
    """
    for line in text[:_FIRST_CHARS].splitlines():
        start = line.lstrip()
        if start.startswith("HloModule"):
            return "hlo"
        if start.startswith(("module @", "module {", "module attributes", '"builtin.module"', "func.func")):
            return "stablehlo"
        if start and not start.startswith(("#", "//", "!")):
            return ""
    return ""


def _read(data: bytes, device: Any, path: Path | None = None) -> Given:
    """Return the program that the bytes contain.

    Raises:
        ModelFileError: The bytes contain no program, or a broken one.
    """
    if not data.strip():
        raise _refused(path, "it is empty")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = "\0"
    kind = "binary" if "\0" in text else _kind_of_text(text)
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
            advice = entry_point().call(repr(str(path / inside[0]))) if inside else _advice(path / "step.mlir")
            raise _refused(path, "it is a folder", (("programs in it", listed(inside)),), advice)
        if not stat.S_ISREG(found.st_mode):
            raise _refused(path, "it is not a regular file", (), _advice(None))
        if path.suffix.lower() not in PROGRAM_SUFFIXES:
            known = ("suffixes", ", ".join(PROGRAM_SUFFIXES))
            why = f"files with the suffix {path.suffix!r} are not read"
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
    """Return the error for a file or bytes; by default it advises how to write such a file."""
    what = "this data" if path is None else repr(str(path))
    return ModelFileError(f"cannot inspect {what}: {why}.", facts, advice or _advice(path))


def _advice(path: Path | None) -> str:
    """Return code that writes such a file, or that inspects a program without one."""
    if path is None:
        return entry_point().call("jax.jit(f).lower(x)")
    writer = _WRITERS.get(path.suffix.lower(), "write_text(jax.jit(f).lower(x).as_text(debug_info=True))")
    return f"pathlib.Path({str(path)!r}).{writer}"
