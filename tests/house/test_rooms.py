"""The rooms: imports run one way, and expensive packages are imported late."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "mithril_nb"

FLOORS = [
    {"errors", "display", "atomic_write"},
    {"graph"},
    {"models"},
    {"program"},
    {"backends"},
    {"stages"},
    {"cost", "retraces"},
    {"inspection"},
    {"physical"},
    {"interop"},
    {"train", "launch"},
    {"targets"},
    {"measure"},
    {"whatif"},
    {"checks"},
    {"viz"},
    {"session"},
    {"widgets"},
    {"cli", "ipython"},
    {"__main__"},
]
"""From the ground up. A room imports only from floors below its own, and from itself."""

FORBIDDEN = {
    "errors": {"jax", "jaxlib", "numpy", "optax", "anywidget", "ipywidgets", "IPython", "matplotlib"},
    "display": {"jax", "jaxlib", "numpy", "optax", "anywidget", "ipywidgets", "matplotlib"},
    "graph": {"jax", "jaxlib", "numpy", "optax", "anywidget", "ipywidgets", "IPython", "matplotlib"},
    "models": {"jax", "jaxlib", "optax", "anywidget", "ipywidgets", "IPython", "matplotlib"},
    "viz": {"jax", "jaxlib", "optax", "anywidget", "ipywidgets"},
    "widgets": {"jax", "jaxlib", "optax"},
    "launch": {"jaxlib", "numpy", "optax", "anywidget", "ipywidgets", "IPython", "matplotlib"},
    "cli": {"jax", "jaxlib", "optax"},
}
"""Packages that a room never imports, not even inside a function."""

STACKS = {
    "stages": (("trace", "hlo", "xla", "machine", "graph", "transforms"), ("pipeline", "program_stages")),
    "cost": (("formulas", "hlo", "memory"), ("comparison", "difference", "side_by_side")),
}
"""Folders within a room, from the ground up, and the files beside them that import all of them."""

IMPORT_NAMES = {"IPython": "ipython", "elftools": "pyelftools", "sklearn": "scikit-learn"}
"""Packages whose import name differs from the installed name."""


def python_files() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if "node_modules" not in path.parts)


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def floor_of(room: str) -> int:
    return next((floor for floor, rooms in enumerate(FLOORS) if room in rooms), -1)


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and dotted name of each import, wherever in the file it is."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}:{node.lineno} imports relatively"
            if node.module == "mithril_nb":
                yield from ((node.lineno, f"mithril_nb.{alias.name}") for alias in node.names)
            else:
                yield node.lineno, node.module or ""


def wrong_way(path: Path) -> list[str]:
    room = room_of(path)
    problems = []
    for line, name in imports(path):
        first, _, rest = name.partition(".")
        target = rest.partition(".")[0]
        if first == "mithril_nb" and target and target != room and floor_of(target) >= floor_of(room):
            problems.append(f"{path.relative_to(ROOT)}:{line} imports mithril_nb.{rest}")
        if first in FORBIDDEN.get(room, set()):
            problems.append(f"{path.relative_to(ROOT)}:{line} imports {name}")
    return problems


def test_every_room_has_a_floor() -> None:
    rooms = {room_of(path) for path in python_files()} - {"__init__"}
    assert {room for room in rooms if floor_of(room) < 0} == set()


def test_imports_run_one_way() -> None:
    problems = [problem for path in python_files() if room_of(path) != "__init__" for problem in wrong_way(path)]
    assert problems == []


def test_rooms_within_the_stages_and_the_costs_stack() -> None:
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
    monkeypatch.setitem(globals(), "PACKAGE", tmp_path)
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    (tmp_path / "graph").mkdir()
    culprit = tmp_path / "graph" / "edges.py"
    culprit.write_text("def f():\n    from mithril_nb.viz import svg\n    import jax.numpy\n")
    assert wrong_way(culprit) == ["graph/edges.py:2 imports mithril_nb.viz", "graph/edges.py:3 imports jax.numpy"]


def test_package_import_loads_nothing_expensive() -> None:
    expensive = ["jax", "jaxlib", "optax", "anywidget", "ipywidgets", "matplotlib", "IPython", "numpy", "pygraphviz"]
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


def _name(requirement: str) -> str:
    return requirement.split(";")[0].split("[")[0].split("=")[0].rstrip("<>!~ ")
