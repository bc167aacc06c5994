"""The commands behind `make`, for systems without make: `python3 tools/dev.py lab`.

It starts on Python 3.8 or newer, and finds or installs a Python that can run the package.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path

if sys.version_info < (3, 8):
    sys.exit("tools/dev.py needs Python 3.8 or newer to start; the package itself needs 3.11 to 3.13.")

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tools import bundle, checks, chromium, environment, lab, lock, slow_tests
from tools.steps import ROOT, end_with_the_children, run, say


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit status."""
    end_with_the_children()
    parser = argparse.ArgumentParser(prog="tools/dev.py", description=__doc__, allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    commands.add_parser("lab", help="set up, and open JupyterLab with the first notebook")
    test = commands.add_parser("test", help="set up, and run the checks with an eighth of the slow tests")
    parts = ", ".join(part.name for part in checks.PARTS)
    test.add_argument("--only", nargs="+", default=[], metavar="PART", help=f"some of: {parts}")
    commands.add_parser("quick", help="run the tests of the changed rooms, for about a minute")
    commands.add_parser("test-all", help="run all checks and slow tests, then unit tests on every other Python found")
    commands.add_parser("stress", help="run the stress tests at full length and print a table (up to 30 minutes)")
    commands.add_parser("bench", help="print the table of benchmarks")
    commands.add_parser("docs", help="build the documentation in build/docs")
    commands.add_parser("format", help="format the code")
    commands.add_parser("screenshot", help="update the screenshot in the README")
    commands.add_parser("notebooks", help="run all notebooks, or the named ones, and save their outputs")
    commands.add_parser("lock", help="write requirements.lock from fresh environments (some minutes)")
    commands.add_parser("exec", help="run a module in the environment: exec ruff check")
    commands.add_parser("clean", help="remove all generated files, environments included")
    known, rest = parser.parse_known_args(arguments)
    if rest and known.command not in ("lab", "stress", "bench", "notebooks", "exec"):
        parser.error(f"unknown arguments: {' '.join(rest)}")
    return _run(known, rest)


def _run(known: argparse.Namespace, rest: list[str]) -> int:
    command = known.command
    if command == "lab":
        return lab.lab(rest)
    if command == "test":
        return checks.run_parts([name for names in known.only for name in names.split(",")], slow_tests.part())
    if command == "test-all":
        return checks.run_everywhere()
    if command == "clean":
        return clean()
    if command == "lock":
        return lock.write()
    if command == "docs":
        return docs()
    venv = environment.prepare(checks.EXTRAS)
    if command == "exec":
        return run(venv.command(*rest), venv.variables())
    if command == "quick":
        return checks.quick(venv)
    if command == "stress":
        return checks.stress(venv, rest)
    if command == "bench":
        return run(venv.command("benchmarks", *rest), venv.variables())
    if command == "notebooks":
        return run(venv.command("tools.notebooks", *rest), checks.with_compilers(venv))
    if command == "screenshot":
        program = chromium.prepare(venv)
        variables = {chromium.VARIABLE: program, "MITHRIL_NB_REFRESH_SCREENSHOT": "1"}
        return run(venv.command("pytest", "tests/browser", "-k", "picture"), venv.variables(**variables))
    present = [name for name in (*checks.SOURCES, "notebooks") if (ROOT / name).exists()]
    fixed = run(venv.command("ruff", "check", "--fix", *present))
    formatted = run(venv.command("ruff", "format", *present)) or run(venv.command("tools.contract"), venv.variables())
    return formatted or bundle.npm_run(ROOT, "format", venv.packages) or fixed


def docs() -> int:
    """Build the documentation in a separate environment, so that the environment of the tests stays small."""
    venv = environment.prepare(["docs", "lab"], ROOT / ".venv-docs")
    # Material otherwise prints a notice about its successor.
    variables = venv.variables(NO_MKDOCS_2_WARNING="1", JAX_PLATFORMS="cpu")
    say("   running the notebooks and the gallery (minutes)")
    status = run([str(venv.python), "-m", "tools.site"], variables)
    if status == 0:
        status = run(venv.command("mkdocs", "build"), variables)
    if status == 0:
        say("   wrote build/docs/index.html")
    return status


def clean() -> int:
    """Remove the generated files of the other commands; git ignores all of them."""
    folders = [
        *ROOT.glob(".venv*"),
        *(ROOT / name for name in (".make", ".pytest_cache", ".ruff_cache", ".hypothesis", "build", "dist")),
        ROOT / bundle.STATIC,
        ROOT / bundle.FRONTEND / "node_modules",
        *(path for room in checks.SOURCES for path in (ROOT / room).rglob("__pycache__")),
    ]
    for folder in folders:
        if folder.is_dir() and not folder.is_symlink():
            say(f"   removing {os.path.relpath(folder, ROOT)}")
            shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
