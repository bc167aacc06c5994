"""Find a Chromium for the browser tests: an installed one, a Debian package, or Playwright's download."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from tools.environment import Environment
from tools.steps import WORK, Stop, is_root, output, run_quietly, say, tail

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PLACES = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)
VARIABLE = "MITHRIL_NB_CHROMIUM"
"""Environment variable with the path of the browser; the tests read it."""


def on_machine() -> str | None:
    """Return an installed Chromium that runs, or `None`."""
    named = os.environ.get(VARIABLE)
    for program in (*((named,) if named else ()), *(shutil.which(name) for name in NAMES), *PLACES):
        # Ubuntu's `chromium-browser` may be a script that installs a snap, so require that it prints its version.
        if program and Path(program).exists() and output([program, "--version"]):
            return program
    return None


def prepare(environment: Environment) -> str:
    """Return a Chromium; install one if needed.

    Raises:
        Stop: No Chromium could be installed.
    """
    program = on_machine() or _from_debian() or _from_playwright(environment)
    if program is None:
        raise Stop(
            "the browser tests need Chromium, which could not be installed.",
            ["tried  PATH, Debian's package (as root), Playwright's download", tail(WORK / "chromium.log")],
            f"install Chromium, or run {VARIABLE}=/path/to/chromium make test",
        )
    say(f"   Chromium: {program}")
    return program


def _from_debian() -> str | None:
    if not (is_root() and shutil.which("apt-get")):
        return None
    say("   installing Debian's chromium")
    log = WORK / "chromium.log"
    variables = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    # A minimal system needs the dejavu fonts to show any text.
    install = ["apt-get", "install", "-y", "--no-install-recommends", "chromium", "fonts-dejavu-core"]
    if run_quietly(install, log, variables):
        run_quietly(["apt-get", "update"], log, variables)
        run_quietly(install, log, variables)
    return on_machine()


def _from_playwright(environment: Environment) -> str | None:
    where = "from playwright.sync_api import sync_playwright as s\nwith s() as p: print(p.chromium.executable_path)"
    program = output([str(environment.python), "-c", where])
    if program and Path(program).exists():
        return program
    say("   fetching Playwright's Chromium")
    more = ["--with-deps"] if is_root() and sys.platform == "linux" else []
    run_quietly(environment.command("playwright", "install", *more, "chromium"), WORK / "chromium.log")
    program = output([str(environment.python), "-c", where])
    return program if program and Path(program).exists() else None
