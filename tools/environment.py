"""The virtual environment of the clone: created once, and updated when its requirements change."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tools import bundle, interpreters
from tools.steps import ROOT, WORK, Stop, output, run_quietly, say, tail

LOCK = ROOT / "requirements.lock"
PIP = "pip==26.3"
"""The version that the tests passed with, pinned so that installing is reproducible too."""
STATE = "mithril-nb.json"
"""File in a complete environment that records its requirements."""


@dataclass(frozen=True)
class Environment:
    """A virtual environment.

    Attributes:
        folder: Its folder.
    """

    folder: Path

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")

    @property
    def packages(self) -> Path:
        """Its `site-packages`."""
        if os.name == "nt":
            return self.folder / "Lib" / "site-packages"
        return next(iter(self.folder.glob("lib/python*/site-packages")), self.folder / "lib")

    def command(self, module: str, *arguments: str) -> list[str]:
        """Return the command that runs a module; unlike scripts, this works in folders with spaces."""
        return [str(self.python), "-m", module, *arguments]

    def variables(self, **more: str) -> dict[str, str]:
        """Return the process environment with this environment's programs first on PATH.

        It removes PYTHONDONTWRITEBYTECODE, which many containers set. Packages are installed without bytecode, so with
        it every process would compile all of JAX again, which takes two seconds.
        """
        path = str(self.python.parent) + os.pathsep + os.environ.get("PATH", "")
        variables = {**os.environ, "VIRTUAL_ENV": str(self.folder), "PATH": path, **more}
        for name in ("PYTHONHOME", "PYTHONDONTWRITEBYTECODE"):
            variables.pop(name, None)
        return variables


def prepare(extras: Sequence[str], folder: Path = ROOT / ".venv", python: str | None = None) -> Environment:
    """Return an environment with the package, editable, with these extras, and the built front end.

    If everything is up to date, this takes a fraction of a second.

    Raises:
        Stop: Python is missing, or pip or npm failed.
    """
    environment = Environment(folder)
    state = _state(environment)
    if state is None and folder.exists():
        say(f"   {_shown(folder)} is incomplete: completing it")
    have = set(state["extras"]) if state else set()
    wanted = have | set(extras)
    up_to_date = state is not None and have >= set(extras) and state["digest"] == _digest()
    if not up_to_date:
        if not _runs(environment):
            _make(environment, python)
        _install(environment, sorted(wanted))
        _quiet_first_page(environment)
        _write_state(environment, sorted(wanted))
    else:
        say(f"   {_shown(folder)} is up to date")
    # An editable install builds the front end; this rebuilds it after changes of its sources.
    bundle.build(ROOT, environment.packages)
    return environment


def _make(environment: Environment, python: str | None) -> None:
    interpreter = interpreters.ask(python) if python else interpreters.choose()
    if interpreter is None:
        raise Stop(f"{python!r} is not a working Python.")
    say(f"   making {_shown(environment.folder)} with {interpreter}")
    if environment.folder.exists():
        shutil.rmtree(environment.folder)
    log = WORK / "venv.log"
    if run_quietly([interpreter.path, "-m", "venv", str(environment.folder)], log):
        raise Stop(f"`python -m venv {environment.folder}` failed.", [tail(log)])


def _install(environment: Environment, extras: list[str]) -> None:
    say(f"   installing mithril_nb[{','.join(extras)}] and its dependencies (a minute or two the first time)")
    target = f"{ROOT}[{','.join(extras)}]"
    locked = ["--constraint", str(LOCK)] if LOCK.exists() else []
    log = WORK / "install.log"
    if shutil.which("uv"):
        command = ["uv", "pip", "install", "--python", str(environment.python), *locked, "--editable", target]
        if run_quietly(command, log) == 0:
            return
        say("   uv failed: trying pip")
    # The pip of an older Python resolves three times more slowly. It is used if no newer one can be downloaded.
    newer = environment.command("pip", "install", "--no-input", "--disable-pip-version-check", PIP)
    run_quietly(newer, WORK / "pip.log")
    # Compiling thousands of files takes half of pip's time, and most are never imported; Python compiles on import.
    options = ("--no-input", "--disable-pip-version-check", "--progress-bar=off", "--no-compile")
    pip = environment.command("pip", "install", *options)
    if run_quietly([*pip, *locked, "--editable", target], log) == 0:
        return
    if locked:
        # A system may lack a wheel of an exact version, but have one in the allowed range.
        say("   some versions of requirements.lock are not available here: trying the ranges of pyproject.toml")
        if run_quietly([*pip, "--editable", target], log) == 0:
            return
    raise Stop("pip could not install the package.", [tail(log), f"log  {log}"])


def _quiet_first_page(environment: Environment) -> None:
    # JupyterLab's first page asks to fetch news, which distracts in a lecture.
    settings = environment.folder / "etc" / "jupyter" / "labconfig"
    settings.mkdir(parents=True, exist_ok=True)
    content = {"disabledExtensions": {"@jupyterlab/apputils-extension:announcements": True}}
    (settings / "page_config.json").write_text(json.dumps(content) + "\n", encoding="utf-8")


def _runs(environment: Environment) -> bool:
    if not environment.python.exists():
        return False
    interpreter = interpreters.ask(str(environment.python))
    return (
        interpreter is not None
        and interpreter.fits
        and output([str(environment.python), "-m", "pip", "--version"]) is not None
    )


def _digest() -> str:
    # Settings of ruff, pyright and pytest do not change what is installed.
    kept, here = [], True
    for line in (ROOT / "pyproject.toml").read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            here = not line.startswith("[tool.") or line.startswith("[tool.hatch")
        if here:
            kept.append(line)
    content = "\n".join(kept).encode() + (LOCK.read_bytes() if LOCK.exists() else b"")
    return hashlib.sha256(content).hexdigest()


def _state(environment: Environment) -> dict | None:
    try:
        state = json.loads((environment.folder / STATE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    # In a clone that was moved or copied, scripts point to the old location.
    return state if state.get("root") == str(ROOT) and environment.python.exists() else None


def _write_state(environment: Environment, extras: list[str]) -> None:
    state = {"root": str(ROOT), "extras": extras, "digest": _digest()}
    (environment.folder / STATE).write_text(json.dumps(state) + "\n", encoding="utf-8")


def _shown(folder: Path) -> str:
    return folder.name if folder.parent == ROOT else str(folder)
