"""Values in modules and in Python files, named as `module:name` and `file.py:name`."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from mithril_nb.errors import ModelFileError, UnknownOptionError, nearest, similar

NAMED = re.compile(r"([A-Za-z_][\w.]*|.+\.py):([A-Za-z_][\w.]*)")
"""`module:name` or `path/to/file.py:name`."""
_EXAMPLE = "ml.inspect('jax.nn:gelu')"
_MOST_NAMES = 8


def imported(text: str) -> Any:
    """Import a module or a Python file, and return the value of a name in it.

    Args:
        text: `module:name`, where the module may be in the working directory, or `path/to/file.py:name`.

    Raises:
        ModelFileError: The module or file does not exist, or the file exits when it is run.
        UnknownOptionError: The module or file does not define the name.
    """
    where, _, path = text.rpartition(":")
    value: Any = _of_file(Path(where), path) if where.endswith(".py") else _of_module(where, path)
    for name in path.split("."):
        if not hasattr(value, name):
            known = [one for one in dir(value) if not one.startswith("_") and callable(getattr(value, one, None))]
            near = similar(name, known, 3, 0.6) or known[:_MOST_NAMES]
            raise UnknownOptionError(
                f"{where!r} has no {path!r}.",
                (("has", ", ".join(near) or "no function"),),
                _show(where, near[0]) if near else _EXAMPLE,
            )
        value = getattr(value, name)
    return value


def without_name(path: Path) -> ModelFileError:
    """Build the error raised for a Python file without a function name. The file, if it exists, is parsed, not run."""
    if not path.is_file():
        return _no_file(path)
    names = _names_in(path)
    return ModelFileError(
        f"{str(path)!r} is a Python file: add the name of a function or a model in it.",
        (("has", ", ".join(names[-_MOST_NAMES:]) or "no function"),),
        _show(path, names[-1]) if names else "add a function to the file.",
    )


def no_target(text: str, near: str) -> ModelFileError:
    """Build the error raised for text that is neither a file nor `module:name`.

    The advice contains `near`, a model file with a similar name, unless it is `""`.
    """
    text = text.rstrip(":")
    file = Path(text if text.endswith(".py") else f"{text}.py")
    names = _names_in(file) if file.is_file() else []
    return ModelFileError(
        f"{text!r} is neither a file nor of the form module:name.",
        (
            ("files", "model.json, step.mlir"),
            ("names", ", ".join(f"{one}:step" for one in dict.fromkeys((text, str(file))))),
        ),
        _show(file, names[-1]) if names else f"ml.inspect({near!r})" if near else _EXAMPLE,
    )


def _no_file(path: Path, name: str = "") -> ModelFileError:
    near = nearest(path.name, _python_files(path.parent))
    names = [name] if name else _names_in(path.with_name(near)) if near else []
    advice = _show(path.with_name(near), names[-1]) if near and names else _EXAMPLE
    return ModelFileError(f"file {str(path)!r} does not exist.", (("looked in", str(path.parent.absolute())),), advice)


def _names_in(path: Path) -> list[str]:
    """Return the names of the functions that a file defines, or of its other values if there are none."""
    body = ast.parse(path.read_bytes(), str(path)).body
    functions = [one.name for one in body if isinstance(one, ast.FunctionDef) and not one.name.startswith("_")]
    targets = [target for one in body if isinstance(one, ast.Assign) for target in one.targets]
    targets += [one.target for one in body if isinstance(one, ast.AnnAssign) and one.value is not None]
    return functions or [target.id for target in targets if isinstance(target, ast.Name)]


def _show(where: str | Path, name: str) -> str:
    return f"ml.inspect({f'{where}:{name}'!r})"


def _python_files(folder: Path) -> list[str]:
    return sorted(one.name for one in folder.glob("*.py"))


def _of_file(path: Path, name: str) -> ModuleType:
    """Run a file as a module, with its folder on `sys.path`, as `python file.py` does.

    A file of a package is imported as part of the package, so that relative imports work.
    """
    if not path.is_file():
        raise _no_file(path, name)
    path = path.resolve()
    folder, package = path.parent, ""
    while (folder / "__init__.py").exists() and folder.name.isidentifier():
        folder, package = folder.parent, f"{folder.name}.{package}"
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    if package:
        importlib.import_module(package[:-1])
    own = package[:-1] if package and path.name == "__init__.py" else f"{package}{path.stem}"
    for known in (own, f"{own}.py"):  # the second for a file such as `jax.py`: another module has its name
        module = sys.modules.get(known)
        if module is None:
            return _run(path, known)
        if Path(getattr(module, "__file__", None) or "").resolve() == path:
            return module
    return _run(path, f"{own}.py")


def _run(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except SystemExit as error:
        del sys.modules[name]
        raise ModelFileError(
            f"{str(path)!r} exits while it is imported, so its functions cannot be read.",
            (("SystemExit", str(error.code)),),
            'move the code that exits under `if __name__ == "__main__":`.',
        ) from error
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _of_module(name: str, path: str) -> ModuleType:
    """Import a module from the environment or the working directory, as `python -m` does."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # the module exists, but one of its imports does not
        near = nearest(name, [one.removesuffix(".py") for one in _python_files(Path())])
        raise ModelFileError(
            f"module {name!r} does not exist.",
            (("looked in", f"{os.getcwd()}, and the environment"),),
            _show(near, path) if near else _EXAMPLE,
        ) from None
