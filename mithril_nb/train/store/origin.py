"""Where a run comes from: its config, the code of its loop with the values that it reads, versions, git, device.

Two starts of a script are the same run if config, code and values are equal. The code is the cell, script or function
that calls `ml.track`, and the user's functions and classes that it uses, followed through closures: the source of an
installed package does not count, but a rate in the closure of `optax.adam(1e-3)` does.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import linecache
import math
import platform
import subprocess
import sys
import sysconfig
import types
from collections.abc import Iterator, Mapping
from dataclasses import asdict, is_dataclass
from importlib import metadata
from typing import Any

import jax
import numpy as np

from mithril_nb.errors import UnknownOptionError, short_repr
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
    walk = _Walk()
    code = frame.f_code
    own = (
        {"self", *code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]}
        if code.co_name != "<module>"
        else set()
    )
    label = "cell" if code.co_name == "<module>" and "ipykernel" in code.co_filename else code.co_name.strip("<>")
    walk.sources[label] = _source(code)
    # What the code assigns itself is in its source; a `state` of an earlier start of the cell must not count.
    assigned = {item.argval for item in _instructions(code) if item.opname in ("STORE_NAME", "STORE_GLOBAL")}
    names = {item.argval for item in _instructions(code) if item.opname in ("LOAD_NAME", "LOAD_GLOBAL", "LOAD_DEREF")}
    for name in sorted((names | own) - {"self"}):
        value = frame.f_locals.get(name, frame.f_globals.get(name))
        walk.add(name, value, is_value=name not in assigned)
    return walk.sources, walk.values


class _Walk:
    """Collects the source of functions and the values that they read."""

    def __init__(self) -> None:
        self.sources: dict[str, str] = {}
        self.values: dict[str, str] = {}
        self._visited: set[int] = set()
        self._alive: list[Any] = []  # an id is unique only while its object exists

    def add(self, name: str, value: Any, *, is_value: bool = True) -> None:
        if isinstance(value, bool | int | float | complex | str | bytes | np.generic | np.dtype):
            if is_value:
                self.values[name] = short_repr(value, 200)
        elif isinstance(value, np.ndarray | jax.Array):
            if is_value and not getattr(value, "is_deleted", bool)():
                self.values[name] = f"{value.dtype}{[*value.shape]} with hash {fingerprint(value):08x}"
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
            if _is_own(value.__module__):
                self._visit(value)
                self._add_source(value)
                for method in vars(value).values():
                    self.add(value.__qualname__, inspect.unwrap(method) if callable(method) else None)
        elif callable(value) or isinstance(value, types.FunctionType):
            self._visit(value)
            function = inspect.unwrap(value)
            if isinstance(function, types.FunctionType):
                self._add_function(name, function, is_value=is_value)
            elif not isinstance(function, types.BuiltinFunctionType):
                self.add(f"type of {name}", type(function))
        elif value is not None and not isinstance(value, types.ModuleType):
            # Objects such as loaders change while a loop runs, so only their kind counts.
            self.add(f"type of {name}", type(value))

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
        for item in _instructions(function.__code__):
            if item.opname == "LOAD_GLOBAL" and item.argval in function.__globals__:
                self.add(item.argval, function.__globals__[item.argval])

    def _add_source(self, value: Any) -> None:
        code = value.__code__ if isinstance(value, types.FunctionType) else value
        # The source of a lambda is its whole line, which may hold others.
        is_lambda = isinstance(code, types.CodeType) and code.co_name == "<lambda>"
        self.sources[value.__qualname__] = _source(code) + (f"# {hash_of(code)}" if is_lambda else "")


def _instructions(code: types.CodeType) -> Iterator[Any]:
    import dis

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
    constants = [hash_of(item) if isinstance(item, types.CodeType) else repr(item) for item in code.co_consts]
    return f"{fingerprint(np.frombuffer(repr((code.co_code, code.co_names, constants)).encode(), np.uint8)):08x}"


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
        before, after = _flat(then[kind]), _flat(now[kind])
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


def _flat(value: Any, name: str = "") -> dict[str, str]:
    if isinstance(value, Mapping) and value:
        return {
            path: text
            for key, item in value.items()
            for path, text in _flat(item, f"{name}.{key}" if name else str(key)).items()
        }
    return {name: value if isinstance(value, str) else repr(value)} if name else {}
