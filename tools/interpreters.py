"""Find a Python that can run the package."""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import dataclass

from tools.steps import WORK, Stop, is_root, output, run_quietly, say

OLDEST, NEWEST = (3, 11), (3, 13)
"""The versions that pyproject.toml allows; `tests/house` compares them."""

_ASK = (
    "import importlib.util as u, json, sys; "
    "print(json.dumps([getattr(sys, '_base_executable', None) or sys.executable, list(sys.version_info[:3]), "
    "bool(u.find_spec('venv') and u.find_spec('ensurepip'))]))"
)


@dataclass(frozen=True)
class Interpreter:
    """A Python on this machine.

    Attributes:
        path: The program.
        version: Major, minor and micro version.
        makes_venvs: True if `venv` and `ensurepip` are present. Debian has them in a separate package.
    """

    path: str
    version: tuple[int, int, int]
    makes_venvs: bool

    @property
    def fits(self) -> bool:
        """True if the package supports this version."""
        return OLDEST <= self.version[:2] <= NEWEST

    def __str__(self) -> str:
        return f"Python {'.'.join(map(str, self.version))} ({self.path})"


def ask(program: str) -> Interpreter | None:
    """Return the Python behind a program, or `None` if it is not a working Python."""
    answer = output([program, "-c", _ASK])
    if answer is None:
        return None
    try:
        path, version, makes_venvs = json.loads(answer.splitlines()[-1])
    except (ValueError, IndexError):
        return None
    return Interpreter(path, (version[0], version[1], version[2]), makes_venvs)


def _names() -> list[str]:
    exact = [f"python{OLDEST[0]}.{minor}" for minor in range(OLDEST[1], NEWEST[1] + 1)]
    return ["python3", "python", *exact]


def candidates() -> list[Interpreter]:
    """Return the Pythons of this machine without duplicates, starting with the current one."""
    programs = [sys.executable]
    for name in _names():
        for folder in os.environ.get("PATH", "").split(os.pathsep):
            found = shutil.which(name, path=folder) if folder else None
            if found:
                programs.append(found)
    # Version managers keep interpreters outside of PATH.
    home = os.path.expanduser("~")
    for versions in (os.path.join(home, ".pyenv", "versions"), os.path.join(home, ".local", "share", "uv", "python")):
        if os.path.isdir(versions):
            programs += [os.path.join(versions, name, "bin", "python3") for name in sorted(os.listdir(versions))]
    seen: dict[str, Interpreter] = {}
    for program in dict.fromkeys(programs):
        if not program:
            continue
        interpreter = ask(program)
        if interpreter is not None:
            seen.setdefault(os.path.realpath(interpreter.path), interpreter)
    return list(seen.values())


def choose() -> Interpreter:
    """Return the interpreter for a new environment.

    Raises:
        Stop: No Python has a supported version, or none can create environments.
    """
    here = ask(sys.executable)
    if here is not None and here.fits and here.makes_venvs:
        return here
    found = candidates()
    fitting = [interpreter for interpreter in found if interpreter.fits]
    span = f"{OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}"
    if not fitting:
        raise Stop(
            f"no Python {span} on this machine.",
            [f"found    {interpreter}" for interpreter in found],
            f"install Python {NEWEST[0]}.{NEWEST[1]}, then run `make PYTHON=/path/to/python lab`",
        )
    able = [interpreter for interpreter in fitting if interpreter.makes_venvs]
    if able:
        return able[0]
    package = "python{}.{}-venv".format(*fitting[0].version[:2])
    if is_root() and shutil.which("apt-get"):
        say(f"   {fitting[0]} cannot create environments: installing {package}")
        if run_quietly(["apt-get", "install", "-y", "--no-install-recommends", package], WORK / "apt.log"):
            run_quietly(["apt-get", "update"], WORK / "apt.log")
            run_quietly(["apt-get", "install", "-y", "--no-install-recommends", package], WORK / "apt.log")
        again = ask(fitting[0].path)
        if again is not None and again.makes_venvs:
            return again
    raise Stop(
        f"{fitting[0]} cannot create virtual environments.",
        ["missing  the modules venv and ensurepip"],
        f"sudo apt-get install {package}",
    )


def others(used: tuple[int, int]) -> list[Interpreter]:
    """Return one interpreter for each other supported version."""
    by_version: dict[tuple[int, int], Interpreter] = {}
    for interpreter in candidates():
        if interpreter.fits and interpreter.makes_venvs and interpreter.version[:2] != used:
            by_version.setdefault(interpreter.version[:2], interpreter)
    return [by_version[version] for version in sorted(by_version)]
