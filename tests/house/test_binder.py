"""The Binder configuration: repo2docker accepts it, without a Docker engine."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def requirements() -> list[str]:
    lines = (ROOT / "binder" / "requirements.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith(("#", "--"))]


def test_requirements_are_those_of_the_project() -> None:
    assert requirements() == [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["lab"]]


def test_the_lock_is_found_from_where_it_is_named() -> None:
    text = (ROOT / "binder" / "requirements.txt").read_text(encoding="utf-8")
    named = re.search(r"^--constraint (.+)$", text, re.MULTILINE)
    assert named is not None
    assert (ROOT / "binder" / named[1]).resolve() == ROOT / "requirements.lock"


def test_binder_python_is_supported() -> None:
    version = (ROOT / "binder" / "runtime.txt").read_text(encoding="utf-8").strip().removeprefix("python-")
    assert f"Programming Language :: Python :: {version}" in PROJECT["classifiers"]


def test_repo2docker_accepts_the_folder() -> None:
    pytest.importorskip("repo2docker")
    command = [sys.executable, "-W", "ignore", "-m", "repo2docker", "--no-build", "--debug", "--user-id", "1000"]
    done = subprocess.run(
        [*command, "--user-name", "jovyan", "."], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    assert re.search(r'pip install .*-r "binder/requirements.txt"', output)
    assert "./binder/postBuild" in output
    assert re.search(r"3\.11", output)
