"""The rooms: imports run one way, without circles, and heavy packages are imported late."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "mithril_nb"

FLOORS = [
    {"errors", "display", "figures", "atomic_write", "jobs", "plugins"},
    {"hardware"},
    {"graph"},
    {"models"},
    {"program"},
    {"backends"},
    {"stages"},
    {"emission"},
    {"cost"},
    {"inspection"},
    {"compilation"},
    {"train"},
    {"targets"},
    {"interop"},
    {"analysis"},
    {"teach"},
    {"viz"},
    {"ui"},
    {"cli"},
    {"__main__"},
]
"""From the ground up. A room imports only from floors below its own, and from itself."""

DOOR = "mithril_nb"
"""The module that may import upper rooms, on demand: the public names, and what lower rooms look up."""
BY_STRING = {"importlib", "import_module", "__import__", "find_spec"}
"""Names that occur in files that import by string."""

FORBIDDEN = {
    "errors": {"jax", "jaxlib", "numpy", "optax", "anywidget", "ipywidgets", "IPython", "matplotlib"},
    "display": {"jax", "jaxlib", "numpy", "optax", "anywidget", "ipywidgets", "matplotlib"},
    "graph": {"jax", "jaxlib", "numpy", "optax", "anywidget", "ipywidgets", "IPython", "matplotlib"},
    "models": {"jax", "jaxlib", "optax", "anywidget", "ipywidgets", "IPython", "matplotlib"},
    "viz": {"jax", "jaxlib", "optax", "anywidget", "ipywidgets"},
    "ui": {"jaxlib", "optax"},
    "ui/widgets": {"jax", "jaxlib", "optax"},
    "compilation/launch": {"jaxlib", "numpy", "optax", "anywidget", "ipywidgets", "IPython", "matplotlib"},
    "cli": {"jax", "jaxlib", "optax"},
}
"""Packages that a room, or a folder of it, never imports, not even inside a function."""

LAZILY = {"mithril_nb.models.lazy_jax": "jax"}
"""Modules that import such a package for type checkers, and otherwise when a kernel runs."""

STACKS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "analysis": (("retraces", "measure", "whatif"), ()),
    "ui": (("session", "widgets"), ()),
    "stages": (("trace", "hlo", "xla", "graph", "transforms"), ("pipeline", "program_stages")),
    "cost": (("formulas", "hlo", "memory"), ("costs", "counting")),
}
"""Folders within a room, from the ground up, and the files beside them that import all of them."""

IMPORT_NAMES = {
    "orbax": "orbax-checkpoint",
    "IPython": "ipython",
    "ggml": "ggml-python",
    "elftools": "pyelftools",
    "iree": "iree-base-compiler",
    "sklearn": "scikit-learn",
}
"""Packages whose import name differs from the installed name."""


def python_files() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if "node_modules" not in path.parts)


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def module_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def floor_of(room: str) -> int:
    return next((floor for floor, rooms in enumerate(FLOORS) if room in rooms), -1)


@functools.cache
def imports(path: Path) -> tuple[tuple[int, str], ...]:
    """Return line and dotted name of each import: at the top, in functions, for type checking, and by string.

    A file that imports by string must contain the names of its modules: every string there that names a module counts,
    and of an f-string its constant start.
    """
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[tuple[int, str]]:
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    by_string = any(isinstance(node, ast.Name | ast.Attribute) and _last(node) in BY_STRING for node in ast.walk(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}:{node.lineno} imports relatively"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield node.lineno, inner if inner in modules() else node.module or ""
        elif by_string and isinstance(node, ast.Constant) and isinstance(node.value, str):
            name = node.value.rstrip(".")
            if re.fullmatch(r"mithril_nb(\.\w+)+", name) and name in modules():
                yield node.lineno, name
        if isinstance(node, ast.Call) and by_string and any(_is_package(argument) for argument in node.args):
            yield node.lineno, "mithril_nb"


def _is_package(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value == "mithril_nb"


def _last(node: ast.Name | ast.Attribute) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr


@functools.cache
def modules() -> dict[str, Path]:
    """Return the files of the package by the names of their modules."""
    parts = {path: path.relative_to(PACKAGE.parent).with_suffix("").parts for path in python_files()}
    return {".".join(names[:-1] if names[-1] == "__init__" else names): path for path, names in parts.items()}


def wrong_way(path: Path) -> list[str]:
    room = room_of(path)
    problems = []
    for line, name in imports(path):
        first, _, rest = name.partition(".")
        target = rest.partition(".")[0]
        if name == DOOR and floor_of(room) < floor_of("cli"):
            problems.append(f"{path.relative_to(ROOT)}:{line} imports mithril_nb")
        if first == "mithril_nb" and target and target != room and floor_of(target) >= floor_of(room):
            problems.append(f"{path.relative_to(ROOT)}:{line} imports mithril_nb.{rest}")
        forbidden = FORBIDDEN.get(room, set()) | FORBIDDEN.get(path.parent.relative_to(PACKAGE).as_posix(), set())
        if first in forbidden and LAZILY.get(module_of(path)) != first:
            problems.append(f"{path.relative_to(ROOT)}:{line} imports {name}")
    return problems


def test_every_room_has_a_floor() -> None:
    rooms = {room_of(path) for path in python_files()} - {"__init__"}
    assert {room for room in rooms if floor_of(room) < 0} == set()


def test_imports_run_one_way() -> None:
    problems = [problem for path in python_files() if module_of(path) != DOOR for problem in wrong_way(path)]
    assert problems == []


def test_only_the_door_changes_its_names_on_demand() -> None:
    """`globals()` and `singledispatch` would hide imports from this test."""
    hidden = {"globals", "singledispatch", "singledispatchmethod"}
    in_one_room = {"mithril_nb.train.trainable"}  # it registers the kinds of models itself
    used = {
        module_of(path)
        for path in python_files()
        for text in [path.read_text(encoding="utf-8")]
        if any(name in text for name in hidden)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Name | ast.Attribute) and _last(node) in hidden
    }
    assert used - in_one_room <= {DOOR}


def test_no_circles_between_modules() -> None:
    known = modules()
    graph = {
        module: {name for _, name in imports(path) if name in known and name != module}
        for module, path in known.items()
        if module != DOOR
    }
    while free := [module for module, needs in graph.items() if not needs & graph.keys()]:
        for module in free:
            del graph[module]
    while tops := graph.keys() - set().union(*graph.values()):  # modules above a circle are not in it
        for module in tops:
            del graph[module]
    assert graph == {}


def test_folders_within_a_room_stack() -> None:
    """Files beside the folders are imported by all of them (records), or import all of them (the pipeline)."""
    problems = []
    for floor, (stack, above) in STACKS.items():
        for place, folder in enumerate(stack):
            barred = tuple(f"mithril_nb.{floor}.{name}" for name in (*stack[place + 1 :], *above))
            files = sorted((PACKAGE / floor / folder).glob("*.py"))
            assert files, f"{floor}/{folder} is gone"
            problems += [
                f"{path.relative_to(ROOT)}:{line} {name}"
                for path in files
                for line, name in imports(path)
                if name.startswith(barred)
            ]
    assert problems == []


def test_models_room_does_not_import_blocks() -> None:
    """`models/` finds blocks by name in its registry; only its `__init__` names the library, whose folders stack."""
    library = PACKAGE / "models" / "library"
    stack = ["operations", "layers", "networks", "objectives", "classical"]
    problems = []
    for path in python_files():
        if room_of(path) != "models" or path.name == "__init__.py":
            continue
        folder = path.parent.name if path.is_relative_to(library) else ""
        above = stack[stack.index(folder) + 1 :] if folder else [""]
        prefixes = tuple(f"mithril_nb.models.library.{name}".rstrip(".") for name in above)
        problems += [
            f"{path.relative_to(ROOT)}:{line} {name}" for line, name in imports(path) if name.startswith(prefixes)
        ]
    assert problems == []


def test_the_check_sees_an_import_that_runs_the_wrong_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert modules()  # cached, with the real package
    monkeypatch.setitem(globals(), "PACKAGE", tmp_path)
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    (tmp_path / "graph").mkdir()
    culprit = tmp_path / "graph" / "edges.py"
    culprit.write_text("def f():\n    from mithril_nb.viz.diagrams import svg\n    import jax.numpy\n")
    assert wrong_way(culprit) == [
        "graph/edges.py:2 imports mithril_nb.viz.diagrams.svg",
        "graph/edges.py:3 imports jax.numpy",
    ]


def test_package_import_loads_nothing_expensive() -> None:
    expensive = ["jax", "jaxlib", "optax", "anywidget", "ipywidgets", "matplotlib", "IPython", "numpy"]
    code = f"import mithril_nb, sys; print([name for name in {expensive} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
    assert done.stderr == ""


def test_imported_packages_are_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = {_name(requirement) for requirement in project["dependencies"]}
    # Imported only if the user installed an extra, or passes objects of that library.
    optional = {_name(line) for extra in project["optional-dependencies"].values() for line in extra} | {"torch"}
    brought_along = {"traitlets", "ipython", "scipy"}  # ipywidgets, ipywidgets, jax
    used = {name.partition(".")[0] for path in python_files() for _, name in imports(path)}
    used = {IMPORT_NAMES.get(name, name) for name in used} - sys.stdlib_module_names - {"mithril_nb"}
    assert used - declared - optional - brought_along == set()


def test_modules_import_optional_packages_inside_of_functions() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    always = {_name(requirement) for requirement in project["dependencies"]} | {"traitlets", "ipython", "scipy"}
    always |= {*sys.stdlib_module_names, "mithril_nb"}
    emitted = PACKAGE / "emission" / "arrays" / "helpers"  # becomes part of programs for these packages
    problems: list[str] = []
    for path in python_files():
        for node in () if path.is_relative_to(emitted) else ast.parse(path.read_text(encoding="utf-8")).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            used = {IMPORT_NAMES.get(name, name) for name in (full.partition(".")[0] for full in names)}
            problems += [f"{path.relative_to(ROOT)}:{node.lineno} {name}" for name in sorted(used - always)]
    assert problems == []


def _name(requirement: str) -> str:
    return requirement.split(";")[0].split("[")[0].split("=")[0].rstrip("<>!~ ")
