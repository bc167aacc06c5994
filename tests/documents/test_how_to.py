"""Each page of docs/how-to is followed: its files are written, its plugin is installed, and its tests run."""

from __future__ import annotations

import importlib
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from inline_code import ROOT, fences

import mithril_nb as ml
from mithril_nb.emission.python_text import load

FOLDER = ROOT / "docs" / "how-to"
PAGES = {path.stem: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.md"))}
MOST_LINES = 60
_TITLED = re.compile(r'(?:python|toml) title="([\w./-]+)"')
_LINKED = re.compile(r"\]\((\w+\.py)\)")


def files_of(page: str) -> dict[str, str]:
    """Return the files that a page shows or links, by name."""
    shown = {found[1]: code for language, code in fences(page) if (found := _TITLED.fullmatch(language))}
    return shown | {name: (FOLDER / name).read_text(encoding="utf-8") for name in _LINKED.findall(page)}


def install(folder: Path, project: str) -> None:
    """Write the metadata of an installed package, with the entry points of its `pyproject.toml`."""
    import tomllib

    data = tomllib.loads(project)["project"]
    info = folder / f"{data['name'].replace('-', '_')}-{data['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {data['name']}\nVersion: {data['version']}\n")
    lines = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in points.items())
        for group, points in data["entry-points"].items()
    ]
    (info / "entry_points.txt").write_text("\n".join(lines))


@pytest.mark.parametrize("page", PAGES)
def test_pages_are_short_and_have_a_test(page: str) -> None:
    assert len(PAGES[page].splitlines()) <= MOST_LINES
    assert any(name.startswith("test_") for name in files_of(PAGES[page])), "a page shows a test of its extension"


def test_following_every_page_works(tmp_path: Path) -> None:
    """Each page has a folder of its own. One process runs the tests of all, as a user runs pytest."""
    folders = []
    for page, text in PAGES.items():
        folder = tmp_path / page
        folder.mkdir()
        folders.append(str(folder))
        for name, code in files_of(text).items():
            (folder / name).write_text(code, encoding="utf-8")
        if "pyproject.toml" in files_of(text):
            install(folder, files_of(text)["pyproject.toml"])
    command = [sys.executable, "-W", "error", "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    settings = {"PYTHONPATH": os.pathsep.join([*folders, str(ROOT)]), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, **settings}, capture_output=True, text=True, timeout=170
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (lambda i, j, k: i @ j + k, [(2, 3), (3, 4), (4,)]),
        (lambda x: x @ np.ones((3, 4), "float32"), [(2, 3)]),
        (lambda x: (x * 2, 1.0), [(3,)]),
        (lambda x: x + x, [(0, 3)]),
    ],
    ids=["names", "constants", "numbers", "empty"],
)
def test_the_emitter_of_lists_writes_small_programs(
    function: Any, shapes: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(FOLDER)
    emitter = importlib.import_module("lists_emitter")
    arrays = [np.arange(math.prod(shape), dtype="float32").reshape(shape) for shape in shapes]
    source = emitter.emit_lists(ml.inspect(function, *arrays, name="program").traced_program)
    found = load(source)(*[array.ravel().tolist() for array in arrays])
    expected = function(*arrays)
    if not isinstance(expected, tuple):
        found, expected = (found,), (expected,)
    assert [*found] == [np.ravel(one).tolist() for one in expected]


def test_a_broken_plugin_warns_and_others_load(tmp_path: Path) -> None:
    project = """
        [project]
        name = "two-plugins"
        version = "0.1"
        [project.entry-points."mithril_nb.plugins"]
        broken = "broken_plugin"
        whole = "whole_plugin"
    """
    (tmp_path / "broken_plugin.py").write_text("import no_such_package\n")
    (tmp_path / "whole_plugin.py").write_text("import mithril_nb as ml\nlinear = ml.models.Linear\n")
    install(tmp_path, project)
    code = "import warnings, mithril_nb as ml\nwith warnings.catch_warnings(record=True) as caught:\n    ml.models\n"
    code += "import mithril_nb.plugins as p\nprint(caught[0].message)\nprint([one.name for one in p.load_plugins()])"
    paths = os.pathsep.join([str(tmp_path), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env={**os.environ, "PYTHONPATH": paths}, capture_output=True,
        text=True, timeout=60,
    )  # fmt: skip
    assert done.stderr == ""
    assert done.stdout == (
        "mithril_nb cannot load the plugin 'broken' of the package 'two-plugins': "
        "ModuleNotFoundError: No module named 'no_such_package'\n"
        "    Try: pip install --upgrade two-plugins\n"
        "['whole']\n"
    )
