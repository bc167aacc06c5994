"""Values in modules and in Python files, named as `module:name` and `file.py:name`."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from mithril_nb.errors import ModelFileError, UnknownOptionError, listed

NAMED = re.compile(r"([A-Za-z_][\w.]*|.+\.py):([A-Za-z_][\w.]*)")
"""`module:name` or `path/to/file.py:name`."""


def imported(text: str) -> Any:
    """Import a module or a Python file, and return the value of a name in it."""
    source, _, path = text.rpartition(":")
    value: Any
    if source.endswith(".py"):
        value = _of_file(Path(source))
    else:
        if os.getcwd() not in sys.path:  # as in `python -m`, the working directory comes first
            sys.path.insert(0, os.getcwd())
        try:
            value = importlib.import_module(source)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{source}.".startswith(f"{error.name}."):
                raise  # the module exists, but one of its imports does not
            facts = (("looked in", f"{os.getcwd()}, and the environment"),)
            raise ModelFileError(f"module {source!r} does not exist.", facts) from None
    for name in path.split("."):
        if not hasattr(value, name):
            names = [name for name in dir(value) if not name.startswith("_") and callable(getattr(value, name, None))]
            raise UnknownOptionError(f"{source!r} has no {path!r}.", (("has", listed(names)),))
        value = getattr(value, name)
    return value


def _of_file(path: Path) -> ModuleType:
    # The folder is on `sys.path`, as in `python file.py`. A file of a package is imported as part of the package, so
    # that relative imports work.
    if not path.is_file():
        raise ModelFileError(f"file {str(path)!r} does not exist.", (("looked in", str(path.parent.absolute())),))
    path = path.resolve()
    folder, package = path.parent, ""
    while (folder / "__init__.py").exists() and folder.name.isidentifier():
        folder, package = folder.parent, f"{folder.name}.{package}"
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    if package:
        importlib.import_module(package[:-1])
    own = package[:-1] if package and path.name == "__init__.py" else f"{package}{path.stem}"
    for name in (own, f"{own}.py"):  # the second for a file such as `jax.py`: another module has its name
        module = sys.modules.get(name)
        if module is None:
            return _run(path, name)
        if Path(getattr(module, "__file__", None) or "").resolve() == path:
            return module
    return _run(path, f"{own}.py")


def _run(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    # In `sys.modules` before it runs, as for `import`: dataclasses look up the module of a class by its name.
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except SystemExit as error:
        del sys.modules[name]
        raise ModelFileError(
            f"{str(path)!r} exits while it is imported, so its functions cannot be read.",
            (("SystemExit", str(error.code)),),
        ) from error
    except BaseException:
        del sys.modules[name]
        raise
    return module


def example_args(value: Any) -> tuple[Any, ...]:
    """Return the arguments in the attribute `example_args` of a function, or those that it returns; `()` if none."""
    args = getattr(value, "example_args", ())
    args = args() if callable(args) else args
    return tuple(args) if isinstance(args, tuple | list) else (args,)
