"""Where a run comes from: its config, the code of its loop with the values that it reads, versions, git, device.

Two starts of a script are the same run if config, code and values are equal. The code is the cell, script or function
that calls `ml.track`, and the user's functions and classes that it uses, followed through closures: the source of an
installed package does not count, but a rate in the closure of `optax.adam(1e-3)` does.
"""

from __future__ import annotations

import difflib
import dis
import functools
import inspect
import linecache
import math
import platform
import subprocess
import sys
import sysconfig
import types
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, is_dataclass
from importlib import metadata
from typing import Any

import jax
import numpy as np

from mithril_nb.errors import DataError, UnknownOptionError, short_repr
from mithril_nb.train.processes import fingerprint

LONGEST_DIFF = 200_000
"""Characters of a git diff to store."""
PACKAGES = ("jax", "jaxlib", "numpy", "optax", "flax", "equinox", "dm-haiku", "mithril-nb")
_INSTALLED = tuple(sysconfig.get_paths()[name] for name in ("purelib", "platlib", "stdlib"))
_MOST_LINES = 6


def plain(config: Any, path: str = "config") -> Any:
    """Return a config as JSON values: dicts, lists, texts, numbers."""
    if is_dataclass(config) and not isinstance(config, type):
        config = asdict(config)
    if isinstance(config, Mapping):
        for key in config:
            if not isinstance(key, str):
                raise UnknownOptionError(f"{path} has a key that is no text.", (("got", short_repr(key)),))
        return {key: plain(value, f"{path}[{key!r}]") for key, value in config.items()}
    if isinstance(config, list | tuple):
        return [plain(value, f"{path}[{index}]") for index, value in enumerate(config)]
    if isinstance(config, np.generic) or (isinstance(config, np.ndarray | jax.Array) and config.ndim == 0):
        config = config.item()
    # JSON has no NaN and no infinity.
    if isinstance(config, float) and not math.isfinite(config):
        return str(config)
    if config is None or isinstance(config, bool | int | float | str):
        return config
    name = getattr(config, "__name__", type(config).__name__)
    raise UnknownOptionError(
        f"{path} cannot be stored as JSON.", (("got", short_repr(config)),), f"{path} = {name!r}  # a text or a number"
    )


def code_of(frame: types.FrameType) -> tuple[dict[str, str], dict[str, str]]:
    """Return the source of a frame and of the user's functions that it uses, and the values it reads, by name."""
    code = frame.f_code
    own = (
        {"self", *code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]}
        if code.co_name != "<module>"
        else set()
    )
    label = "cell" if code.co_name == "<module>" and "ipykernel" in code.co_filename else code.co_name.strip("<>")
    instructions = [*_instructions(code)]
    # What the code assigns itself is in its source; a `state` of an earlier start of the cell must not count. Names
    # that it imports are values of other files.
    assigned = {
        item.argval
        for before, item in zip([None, *instructions], instructions, strict=False)
        if item.opname in ("STORE_NAME", "STORE_GLOBAL") and (before is None or before.opname != "IMPORT_FROM")
    }
    walk = _Walk(frame.f_globals, assigned)
    walk.sources[label] = _source(code)
    names = {item.argval for item in instructions if item.opname in ("LOAD_NAME", "LOAD_GLOBAL", "LOAD_DEREF")}
    for name in sorted((names | own) - {"self"}):
        value = frame.f_locals.get(name, frame.f_globals.get(name))
        walk.add(name, value, is_value=name not in assigned)
        walk.add_attributes(value, instructions)
    return walk.sources, walk.values


class _Walk:
    """Collects the source of functions and the values that they read."""

    def __init__(self, variables: Mapping[str, Any], assigned: set[str]) -> None:
        self._variables, self._assigned = variables, assigned
        self.sources: dict[str, str] = {}
        self.values: dict[str, str] = {}
        self._visited: set[int] = set()
        self._alive: list[Any] = []  # an id is unique only while its object exists

    def add(self, name: str, value: Any, *, is_value: bool = True) -> None:
        if isinstance(value, bool | int | float | complex | str | bytes | np.generic | np.dtype):
            if is_value:
                text = repr(value)
                cut = f"{short_repr(value, 200)} with hash {_hash(text)}"
                self._put(self.values, name, text if len(text) <= 200 else cut)
        elif isinstance(value, np.ndarray | jax.Array):
            if is_value and not getattr(value, "is_deleted", bool)():
                self._put(self.values, name, described(value))
        elif id(value) in self._visited:
            return
        elif isinstance(value, tuple | frozenset):
            self._visit(value)
            for index, item in enumerate(value if isinstance(value, tuple) else sorted(value, key=repr)):
                self.add(f"{name}[{index}]", item, is_value=is_value)
        elif isinstance(value, functools.partial):
            self._visit(value)
            self.add(name, value.func, is_value=is_value)
            self.add(f"{name}'s arguments", (*value.args, *value.keywords.items()), is_value=is_value)
        elif isinstance(value, types.MethodType):
            self.add(name, value.__func__, is_value=is_value)
            self.add(f"type of {name}", type(value.__self__), is_value=is_value)
        elif isinstance(value, type):
            self._visit(value)
            for kind in value.__mro__:
                if _is_own(kind.__module__):
                    self._add_class(kind)
        elif isinstance(value, types.FunctionType):
            self._visit(value)
            self._add_function(name, value, is_value=is_value)
        elif callable(value) and not isinstance(value, types.BuiltinFunctionType):
            self._visit(value)
            if (wrapped := getattr(value, "__wrapped__", None)) is not None:  # of jax.jit and the like
                self.add(name, wrapped, is_value=is_value)
            else:
                self.add(f"type of {name}", type(value))
        elif value is not None and not isinstance(value, types.ModuleType):
            # Objects such as loaders change while a loop runs, so only their kind counts.
            self.add(f"type of {name}", type(value))

    def add_attributes(self, module: Any, instructions: list[Any]) -> None:
        """Add what code takes from a module of the user, such as `helpers.step`."""
        if isinstance(module, types.ModuleType) and _is_own(module.__name__):
            for item in instructions:
                if item.opname in ("LOAD_ATTR", "LOAD_METHOD") and item.argval in vars(module):
                    self.add(f"{module.__name__}.{item.argval}", vars(module)[item.argval])

    def _add_class(self, kind: type) -> None:
        self._add_source(kind)
        for name, member in vars(kind).items():
            if isinstance(member, classmethod | staticmethod):
                member = member.__func__
            if isinstance(member, property):
                member = member.fget
            is_plain = isinstance(member, bool | int | float | str | tuple) and not name.startswith("__")
            if is_plain or isinstance(member, types.FunctionType) or hasattr(member, "__wrapped__"):
                self.add(f"{kind.__qualname__}.{name}", member)

    def _put(self, texts: dict[str, str], name: str, text: str) -> None:
        number, label = 1, name
        while texts.get(label, text) != text:  # two functions of one name, from two files
            number += 1
            label = f"{name} ({number})"
        texts[label] = text

    def _visit(self, value: Any) -> None:
        self._visited.add(id(value))
        self._alive.append(value)

    def _add_function(self, name: str, function: types.FunctionType, *, is_value: bool) -> None:
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        if not _is_own(function.__module__):
            if is_value:
                for variable, cell in cells:
                    self.add(f"{name}: {variable}", _content(cell))
            return
        self._add_source(function)
        for variable, cell in cells:
            self.add(f"{function.__qualname__}: {variable}", _content(cell))
        for default in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            self.add(f"{function.__qualname__}'s default", default)
        instructions = [*_instructions(function.__code__)]
        for item in instructions:
            if item.opname == "LOAD_GLOBAL" and item.argval in function.__globals__:
                # A helper may read what the loop assigns, such as its params.
                is_state = function.__globals__ is self._variables and item.argval in self._assigned
                value = function.__globals__[item.argval]
                self.add(item.argval, value, is_value=not is_state)
                self.add_attributes(value, instructions)

    def _add_source(self, value: Any) -> None:
        code = value.__code__ if isinstance(value, types.FunctionType) else value
        # The source of a lambda is its whole line, which may hold others.
        is_lambda = isinstance(code, types.CodeType) and code.co_name == "<lambda>"
        self._put(self.sources, value.__qualname__, _source(code) + (f"# {hash_of(code)}" if is_lambda else ""))


def _instructions(code: types.CodeType) -> Iterator[Any]:
    yield from dis.get_instructions(code)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _instructions(constant)


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # of a variable that is not assigned yet
        return None


def _source(code: Any) -> str:
    try:
        linecache.checkcache(getattr(code, "co_filename", None))
        return inspect.getsource(code)
    except (OSError, TypeError):  # of code without a file, such as exec
        return f"hash {hash_of(code)}" if isinstance(code, types.CodeType) else f"class {code.__qualname__}"


def hash_of(code: types.CodeType) -> str:
    """Return a hash of the instructions and constants of code whose source is unknown."""
    constants = [hash_of(item) if isinstance(item, types.CodeType) else _constant(item) for item in code.co_consts]
    return _hash(repr((code.co_code, code.co_names, constants)))


def _constant(value: Any) -> str:
    # The order of a set of texts depends on PYTHONHASHSEED.
    return repr(sorted(map(repr, value))) if isinstance(value, frozenset) else repr(value)


def _hash(text: str) -> str:
    return f"{zlib.crc32(text.encode()):08x}"


def described(value: Any) -> str:
    """Return dtype, shape and a hash of an array, or of the arrays of a tree.

    Raises:
        DataError: A leaf of the tree is no array of numbers.
    """
    leaves = jax.tree.leaves(value)
    for leaf in leaves:
        if not isinstance(leaf, jax.Array) and np.asarray(leaf).dtype.kind not in "biufcV":
            raise DataError("data holds a value that is no array of numbers.", (("got", short_repr(leaf)),))
    texts = [f"{getattr(leaf, 'dtype', type(leaf).__name__)}{[*np.shape(leaf)]}" for leaf in leaves]
    first_texts = ", ".join(texts[:3]) + (f" and {len(texts) - 3} more" if len(texts) > 3 else "")
    return f"{first_texts} with hash {_hash(f'{texts} {fingerprint(value)}')}"


def _is_own(module: str | None) -> bool:
    if module in (None, "__main__"):
        return True
    file = getattr(sys.modules.get(str(module)), "__file__", None)
    return file is not None and not file.startswith(_INSTALLED) and module.split(".")[0] != "mithril_nb"


def surroundings() -> dict[str, Any]:
    """Return versions, device and git commit of this process; `None` for what is unknown."""
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    device = jax.devices()[0]
    diff = _git("diff", "HEAD")
    return {
        "versions": versions,
        "device": f"{jax.device_count()} × {device.device_kind} ({device.platform})",
        "host": platform.node(),
        "git": _git("rev-parse", "HEAD"),
        "git_diff": diff if diff is None or len(diff) <= LONGEST_DIFF else f"{diff[:LONGEST_DIFF]}\n[cut here]",
    }


def _git(*arguments: str) -> str | None:
    try:
        ended = subprocess.run(["git", *arguments], capture_output=True, text=True, timeout=10, errors="replace")
    except (OSError, subprocess.TimeoutExpired):
        return None
    return ended.stdout.strip() if ended.returncode == 0 else None


def differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return how two origins differ in config, code, values and data, as facts for a message; empty if they do not."""
    facts: list[tuple[str, str]] = []
    for kind in ("config", "values"):
        before, after = _flat(then[kind], kind), _flat(now[kind], kind)
        for name in sorted({*before, *after}):
            if before.get(name) != after.get(name):
                facts.append((name, f"{before.get(name, 'missing')} → {after.get(name, 'missing')}"))
    for name in sorted({*then["code"], *now["code"]}):
        before, after = then["code"].get(name, ""), now["code"].get(name, "")
        if before != after:
            lines = difflib.unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm="")
            changed = [line for line in lines if line[:1] in "+-" and line[:3] not in ("+++", "---")]
            more = f"\n... and {len(changed) - _MOST_LINES} more" if len(changed) > _MOST_LINES else ""
            facts.append((f"code of {name}", "\n".join(changed[:_MOST_LINES]) + more))
    return facts


def _flat(value: Any, kind: str, name: str = "") -> dict[str, str]:
    if isinstance(value, Mapping) and value:
        return {
            path: text
            for key, item in value.items()
            for path, text in _flat(item, kind, f"{name}.{key}" if name else str(key)).items()
        }
    return {name: str(value) if kind == "values" else repr(value)} if name else {}
