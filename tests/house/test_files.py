"""Limits on files: names and content."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FORBIDDEN_NAMES = {"utils", "util", "common", "core", "helpers", "helper", "base", "misc", "manager", "handler"}
FORBIDDEN_WORDS = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
ADDRESSES = re.compile(r"https?://[^\s\"'`)>\]]+")
HOSTS_OF_CODE = re.compile(
    r"//[^/]*(unpkg|jsdelivr|cdnjs|esm\.sh|skypack|googleapis|pypi|npmjs|artifactory|nexus)", re.I
)
MACHINE_PATHS = re.compile(r"(?<![\w.])/(work|root|home/\w+|Users/\w+)/")


def tracked(*suffixes: str) -> list[Path]:
    """Return the files of the project: tracked by git if there is git, otherwise all."""
    done = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True
    )
    if done.returncode == 0:
        files = [ROOT / name for name in done.stdout.splitlines()]
    else:
        files = [path for path in ROOT.rglob("*") if not {"node_modules", ".venv", ".git"} & set(path.parts)]
    return sorted(path for path in files if path.is_file() and path.suffix in suffixes)


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_no_file_has_a_generic_name() -> None:
    wrong = [shown(path) for path in tracked(".py", ".ts", ".tsx") if path.stem.lstrip("_").lower() in FORBIDDEN_NAMES]
    assert wrong == []


def test_tests_are_in_folders_without_init_and_have_unique_names() -> None:
    files = [path for path in tracked(".py") if path.is_relative_to(ROOT / "tests")]
    assert [shown(path) for path in files if path.name == "__init__.py"] == []
    names = [path.name for path in files if path.name.startswith("test_")]
    assert sorted({name for name in names if names.count(name) > 1}) == []


def test_no_todo_and_no_unfinished_code() -> None:
    wrong = [
        f"{shown(path)}:{number}"
        for path in tracked(".py", ".ts", ".tsx", ".mjs")
        if path != Path(__file__)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if FORBIDDEN_WORDS.search(line)
    ]
    assert wrong == []


def test_no_exception_is_swallowed() -> None:
    wrong = []
    for path in tracked(".py"):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "except" in text else ():
            if isinstance(node, ast.ExceptHandler) and node.type is None:
                wrong.append(f"{shown(path)}:{node.lineno}")
            if isinstance(node, ast.ExceptHandler) and all(isinstance(inner, ast.Pass) for inner in node.body):
                wrong.append(f"{shown(path)}:{node.lineno}")
    assert wrong == []


@pytest.mark.parametrize(
    "suffix", [".py", ".ts", ".tsx", ".css", ".json", ".toml", ".yaml", ".yml", ".txt", ".lock", ".ipynb"]
)
def test_no_code_comes_from_a_network_and_no_path_is_of_one_machine(suffix: str) -> None:
    wrong = []
    for path in tracked(suffix):
        if path == Path(__file__):
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if MACHINE_PATHS.search(line) or any(HOSTS_OF_CODE.search(url) for url in ADDRESSES.findall(line)):
                wrong.append(f"{shown(path)}:{number}")
    assert wrong == []


def test_bundles_and_environments_are_not_committed() -> None:
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        pytest.skip("no git here")
    made = re.compile(r"(^|/)(node_modules|\.venv|(ui|viz)/static|__pycache__|\.ipynb_checkpoints)/")
    assert [name for name in done.stdout.splitlines() if made.search(name)] == []
