"""`make lock`: versions that work together, for every supported Python of this machine.

Each Python gets a fresh environment with the newest versions that pyproject.toml allows. Versions that differ between
Pythons get a marker. The result is a constraints file.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tools import interpreters
from tools.environment import LOCK, Environment
from tools.steps import ROOT, WORK, Stop, output, run_quietly, say, tail

_HEAD = """\
# The exact versions that the tests passed with, on Python {pythons}. Written by `make lock`; do not edit.
# `make` and Binder install with `--constraint requirements.lock`.
"""


def write() -> int:
    """Write `requirements.lock`.

    Returns:
        0.

    Raises:
        Stop: No supported Python is installed, or pip failed.
    """
    by_python: dict[str, dict[str, str]] = {}
    for interpreter in interpreters.others((0, 0)):
        name = "{}.{}".format(*interpreter.version[:2])
        say(f"   Python {name}: installing the newest allowed versions")
        with tempfile.TemporaryDirectory(prefix="mithril-nb-lock-") as folder:
            by_python[name] = _resolve(interpreter.path, Path(folder))
    if not by_python:
        raise Stop("no Python from 3.11 to 3.13 can create environments.")
    LOCK.write_text(merge(by_python), encoding="utf-8")
    say(f"   wrote {LOCK.name}: {len(LOCK.read_text(encoding='utf-8').splitlines())} lines")
    return 0


def merge(by_python: dict[str, dict[str, str]]) -> str:
    """Return the text of the lock file.

    Args:
        by_python: The version of each package, for each Python such as `"3.11"`.
    """
    lines = [_HEAD.format(pythons=", ".join(by_python))]
    for name in sorted({name for versions in by_python.values() for name in versions}):
        pythons_of: dict[str, list[str]] = {}
        for python, versions in by_python.items():
            if name in versions:
                pythons_of.setdefault(versions[name], []).append(python)
        for version, pythons in pythons_of.items():
            if len(pythons) == len(by_python):
                lines.append(f"{name}=={version}\n")
            else:
                markers = " or ".join(f'python_version == "{python}"' for python in pythons)
                lines.append(f"{name}=={version}; {markers}\n")
    return "".join(lines)


def _resolve(python: str, folder: Path) -> dict[str, str]:
    log = WORK / "lock.log"
    venv = Environment(folder)
    install = venv.command(
        "pip", "install", "--no-input", "--disable-pip-version-check", "--no-compile", f"{ROOT}[dev,docs,ggml,lab,test]"
    )
    if run_quietly([python, "-m", "venv", str(folder)], log) or run_quietly(install, log):
        raise Stop(f"{python} could not install the package.", [tail(log), f"log  {log}"])
    frozen = output(venv.command("pip", "freeze", "--exclude", "mithril-nb"), timeout_s=60) or ""
    pairs = (line.split("==") for line in frozen.splitlines() if "==" in line)
    # A suffix such as `+cpu` names a build that other indexes may lack.
    return {name: version.split("+")[0] for name, version in pairs}
