"""GGML for the checks: `ggml-python` has no wheels, so it is compiled once, in the background of other parts."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from tools.environment import LOCK, Environment
from tools.steps import WORK, Beside, run_quietly, say, tail

WHEELS = WORK / "wheels"
"""Compiled wheels; they outlive the environment."""
QUICKLY = " ".join(f"-DCMAKE_{language}_FLAGS_RELEASE='-O0 -DNDEBUG'" for language in ("C", "CXX"))
"""Arguments for CMake: a third of the time, and the tests, of small arrays, take as long."""


def version() -> str:
    """Return the version of `ggml-python` in requirements.lock."""
    found = re.search(r"^ggml-python==(\S+)$", LOCK.read_text(encoding="utf-8"), re.M)
    assert found is not None, "requirements.lock has no ggml-python"
    return found[1]


def is_installed(venv: Environment) -> bool:
    """Return whether an environment has this version."""
    return (venv.packages / f"ggml_python-{version()}.dist-info").exists()


def wheel() -> Path | None:
    """Return the compiled wheel of this version, or `None`."""
    return next(iter(WHEELS.glob(f"ggml_python-{version()}-*.whl")), None)


def begin(venv: Environment) -> list[Beside]:
    """Start to compile the wheel, unless it is there or installed: 30 s of one core, with CMake and a C++ compiler."""
    if is_installed(venv) or wheel():
        return []
    say("   compiling ggml-python in the background")
    pip = venv.command("pip", "wheel", "--no-input", "--disable-pip-version-check", "--no-deps", "--quiet")
    gentle = ["nice", "-n", "10"] if shutil.which("nice") else []
    command = [*gentle, *pip, "--wheel-dir", str(WHEELS), f"ggml-python=={version()}"]
    return [Beside(command, WORK / "ggml.log", venv.variables(CMAKE_ARGS=f"{QUICKLY} -DGGML_LLAMAFILE=OFF"))]


def install(venv: Environment) -> int:
    """Install the wheel, and return the exit status: 1 if it is missing."""
    if is_installed(venv):
        return 0
    found = wheel()
    if found is None:
        say("ggml-python is not compiled.\n    Try: apt-get install g++")
        return 1
    log = WORK / "ggml-install.log"
    pip = venv.command("pip", "install", "--no-input", "--disable-pip-version-check", "--no-deps", "--no-index")
    status = run_quietly([*pip, str(found)], log)
    if status:
        say(f"pip could not install ggml-python.\n{tail(log)}")
    return status
