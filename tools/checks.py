"""`make test`: its parts, ordered so that the most informative checks run first."""

from __future__ import annotations

import os
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tools import bundle, chromium, environment, ggml, interpreters, nodejs, slow_tests
from tools.environment import Environment
from tools.steps import ROOT, WORK, Beside, Clock, Stop, output, run, say

EXTRAS = ("dev", "lab", "test")
SOURCES = ("mithril_nb", "tests", "tools", "benchmarks", "hatch_build.py")
NOTHING_COLLECTED = 5
"""pytest's exit status if it collects no tests."""


@dataclass(frozen=True)
class Part:
    """One part of the checks.

    Attributes:
        name: Its name for `--only`.
        title: Its headline.
        work: Runs it and returns an exit status, after what was started for it in the background. `None`: only that.
    """

    name: str
    title: str
    work: Callable[[Environment], int] | None = None


def lint(venv: Environment) -> int:
    """Check rules and format, of the front end too."""
    present = [name for name in (*SOURCES, "notebooks") if (ROOT / name).exists()]
    checked = run(venv.command("ruff", "check", *present)) or run(venv.command("ruff", "format", "--check", *present))
    return checked or bundle.npm_run(ROOT, "lint", venv.packages)


def types(venv: Environment) -> list[Beside]:
    """Start the type checks of the Python code."""
    return [Beside(venv.command("pyright", "--pythonpath", str(venv.python)), WORK / "pyright.log", venv.variables())]


def with_compilers(venv: Environment) -> dict[str, str]:
    """Return the variables of the environment, with the folder of the tests' compilers."""
    return venv.variables(MITHRIL_NB_COMPILERS=str(WORK / "compilers"))


def compilers(venv: Environment) -> list[Beside]:
    """Start to install XLA's compilers for other devices (1.2 GB) where the tests look for them."""
    variables = with_compilers(venv)
    return [
        Beside(venv.command("mithril_nb", "devices", "install", name), WORK / f"compiler-{name}.log", variables)
        for name in ("cuda", "tpu")
    ]


def frontend(*package_folders: Path) -> list[Beside]:
    """Start the type checks and the tests of the front end."""
    node = bundle.install_packages(ROOT, *package_folders)
    return [
        Beside([*node.npm, "run", "--silent", script], WORK / f"{log}.log", node.environment(), ROOT / bundle.FRONTEND)
        for script, log in (("check", "tsc"), ("test", "vitest"))
    ]


def unit(venv: Environment, report: str = "unit", **variables: str) -> int:
    """Run unit and property tests, and the examples in docstrings; write a report with this name."""
    # One process per core: most of the time is XLA compiling thousands of small programs.
    many = ("--numprocesses=auto", "--maxprocesses=4", "--dist=worksteal")
    elsewhere = ("--ignore=tests/browser", f"--ignore={GGML}")
    return _pytest(venv, report, "mithril_nb", "tests", *elsewhere, *IN_PYTHON, *many, **variables)


IN_PYTHON = ("--doctest-modules", "-p", "no:nbval")
"""Options of tests without notebooks. nbval imports jsonschema, which builds 40 parsers: 3 s in each process."""
GGML = "tests/emission/ggml"
"""Tests that need ggml-python: a separate part, so that a missing package is a failure, not a skipped test."""


def on_ggml(venv: Environment) -> int:
    """Run the tests of GGML, whose package was compiled in the background."""
    export = "tests/interop/exporting/test_export.py"
    return ggml.install(venv) or _pytest(venv, "ggml", GGML, export, "-k", "ggml", "--numprocesses=2")


def jupyter(venv: Environment) -> int:
    """Run every notebook cell by cell, and drive the workbench in JupyterLab with Chromium.

    nbval compares the outputs of a fresh kernel with the saved ones. Both mostly wait, so four files run in parallel,
    one process each.
    """
    notebooks = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "notebooks").glob("*.ipynb"))
    # Stages have other texts under another JAX. Notebooks are saved with the oldest Python and the JAX locked for it.
    # Other Pythons run every cell, and compare only cells marked with `# NBVAL_CHECK_OUTPUT`.
    interpreter = interpreters.ask(str(venv.python))
    is_saved_with = interpreter is not None and interpreter.version[:2] == interpreters.OLDEST
    mode = "--nbval" if is_saved_with else "--nbval-lax"
    options = (mode, "--nbval-current-env", "--nbval-sanitize-with=tests/notebooks/sanitize.cfg")
    # Keep the order of tests/browser/conftest.py; xdist would start with the file that has the most tests or cells.
    many = ("--numprocesses=4", "--dist=loadfile", "--no-loadscope-reorder")
    variables = {
        chromium.VARIABLE: chromium.prepare(venv),
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",  # as in a kernel: figures are outputs
    }
    # filterwarnings: these warnings are Jupyter's; a cell that warns prints to stderr, which nbval compares.
    lenient = ("--nbval-cell-timeout=300", "-o", "filterwarnings=default")
    return _pytest(venv, "jupyter", "tests/browser", *notebooks, *options, *many, *lenient, **variables)


QUICK_S = 44
"""Seconds after which `make quick` starts no further test."""


def quick(venv: Environment) -> int:
    """Run the house tests, and the tests of the rooms changed since the main branch, for about a minute."""
    rooms = changed_rooms(changed_files())
    say(f"changed rooms: {', '.join(rooms) or 'none'}; tests not started after {QUICK_S} s are listed as skipped.")
    folders = [path for room in rooms for path in (f"mithril_nb/{room}", f"tests/{room}") if (ROOT / path).exists()]
    many = ("--numprocesses=2", "--dist=load", *IN_PYTHON, "-m", "not slow and not browser")
    stop_at = {"MITHRIL_NB_STOP_AT": str(time.time() + QUICK_S)}
    return _pytest(venv, "quick", "tests/house", *folders, *many, **stop_at)


def changed_files() -> list[str]:
    """Return the files that differ from the main branch, or are new, as paths in the repository."""
    base = "HEAD"
    for branch in ("origin/main", "main"):
        base = (output(["git", "-C", str(ROOT), "merge-base", "HEAD", branch]) or base).strip()
        if base != "HEAD":
            break
    differing = output(["git", "-C", str(ROOT), "diff", "--name-only", base]) or ""
    new = output(["git", "-C", str(ROOT), "ls-files", "--others", "--exclude-standard"]) or ""
    return [*differing.splitlines(), *new.splitlines()]


def changed_rooms(files: Iterable[str]) -> list[str]:
    """Return the rooms of files of the package and of its tests, in the order of the files.

    Examples:
        >>> changed_rooms(["README.md", "mithril_nb/cost/costs.py", "tests/cost/conftest.py", "mithril_nb/program.py"])
        ['cost', 'program']
    """
    parts = [file.removesuffix(".py").split("/") for file in files]
    found = [names[1] for names in parts if names[0] in ("mithril_nb", "tests") and len(names) > 1]
    return [
        room for room in dict.fromkeys(found) if (ROOT / "tests" / room).is_dir() and room not in ("house", "browser")
    ]


def stress(venv: Environment, arguments: Sequence[str]) -> int:
    """Run the stress tests at full length, with the browser, and print a table of their measurements."""
    variables = {chromium.VARIABLE: chromium.prepare(venv), "MITHRIL_NB_STRESS": "1"}
    many = ("--numprocesses=2", "--dist=loadfile")
    return _pytest(venv, "stress", "tests", "-m", "stress", *many, *arguments, **variables)


PARTS = (
    Part("lint", "ruff and Prettier: rules and format", lint),
    Part("frontend", "front end: tsc and vitest, started during set-up"),
    Part("unit", "pytest: unit and property tests, examples in docstrings", unit),
    Part("types", "pyright, started after set-up"),
    Part("ggml", "pytest: GGML, compiled since set-up", on_ggml),
    Part("jupyter", "pytest: notebooks cell by cell, and JupyterLab in Chromium", jupyter),
)


def run_parts(only: Sequence[str] = (), slow: str | None = None) -> int:
    """Set up, run all parts or some, and print the time of each.

    All parts run even if one fails, so that one run reports every failure.

    Args:
        only: Names of the parts; default: all.
        slow: Part of the slow tests to run, such as `"0/8"`; default: all of them.

    Returns:
        0 if all passed, else 1.

    Raises:
        Stop: Unknown part.
    """
    known = [part.name for part in PARTS]
    unknown = [name for name in only if name not in known]
    if unknown:
        raise Stop(f"no part {unknown[0]!r} in the tests.", [f"parts  {', '.join(known)}"], f"--only {known[0]}")
    wanted = {part.name: part for part in PARTS if not only or part.name in only}
    if slow:
        os.environ[slow_tests.VARIABLE] = slow
        say(f"part {slow} of the slow tests, chosen by the commit; `make test-all` runs all of them")
    clock = Clock()
    prepared: list[Environment] = []
    for report in WORK.glob("report-*.xml"):
        report.unlink()
    with ExitStack() as until_the_end:
        begun: dict[str, list[Beside]] = {}

        def begin(name: str, programs: Sequence[Beside]) -> None:
            begun[name] = [until_the_end.enter_context(program) for program in programs]

        def set_up() -> int:
            if "frontend" in wanted and nodejs.on_path():
                bundle.build(ROOT)  # before pip builds it: its checks then run while pip uses one core
                begin("frontend", frontend())
            prepared.append(environment.prepare(EXTRAS))
            if "frontend" in wanted and "frontend" not in begun:
                begin("frontend", frontend(prepared[0].packages))
            if "types" in wanted:
                begin("types", types(prepared[0]))
            if "unit" in wanted:
                begin("unit", compilers(prepared[0]))
            if "ggml" in wanted:
                begin("ggml", ggml.begin(prepared[0]))
            if "jupyter" in wanted:
                chromium.prepare(prepared[0])
            return 0

        def work(part: Part) -> int:
            status = next(filter(None, [program.finish() for program in begun.get(part.name, ())]), 0)
            return status if status or part.work is None else part.work(prepared[0])

        clock.part("set-up", set_up)
        for part in wanted.values():
            clock.part(part.title, lambda part=part: work(part))
    say("\n" + clock.table())
    say(_closing_line(clock.total_s))
    return 1 if any(status for _, _, status in clock.parts) else 0


def run_everywhere() -> int:
    """Run the unit tests on each other supported Python of this machine, in a separate environment."""
    status = run_parts()
    used = interpreters.ask(str(Environment(ROOT / ".venv").python))
    clock = Clock()
    for interpreter in interpreters.others(used.version[:2] if used else (0, 0)):
        name = "{}.{}".format(*interpreter.version[:2])

        def work(name: str = name, path: str = interpreter.path) -> int:
            # This variable also makes the tests compile every program as users do: see tests/process.py.
            venv = environment.prepare(["lab", "test"], ROOT / f".venv-{name}", path)
            with ExitStack() as until_installed:
                begun = [until_installed.enter_context(program) for program in compilers(venv)]
                if any([program.finish() for program in begun]):
                    return 1
            return unit(venv, f"unit-{name}", MITHRIL_NB_EXAMPLES="1")

        clock.part(f"Python {name}: unit tests", work)
    if not clock.parts:
        say("\n   no other Python from 3.11 to 3.13 on this machine")
        return status
    say("\n" + clock.table())
    return 1 if status or any(failed for _, _, failed in clock.parts) else 0


def _pytest(venv: Environment, name: str, *arguments: str, **variables: str) -> int:
    scratch = WORK / "jupyter"
    settings = {
        # Keep the user's Jupyter and IPython settings and ours apart.
        "IPYTHONDIR": str(scratch / "ipython"),
        "JUPYTER_CONFIG_DIR": str(scratch / "config"),
        "JUPYTER_DATA_DIR": str(scratch / "data"),
        "JUPYTER_PLATFORM_DIRS": "1",
        "JAX_PLATFORMS": os.environ.get("JAX_PLATFORMS", "cpu"),
        **variables,
    }
    for folder in ("ipython", "config", "data"):
        (scratch / folder).mkdir(parents=True, exist_ok=True)  # IPython warns if a folder is missing
    report = WORK / f"report-{name}.xml"
    command = venv.command("pytest", *arguments, f"--junit-xml={report}", "--durations=5", "--durations-min=2")
    status = run(command, venv.variables(**settings))
    return 0 if status == NOTHING_COLLECTED else status


def _closing_line(elapsed_s: float) -> str:
    """Return the total of pytest's closing lines, in pytest's format."""
    counts = {"failed": 0, "passed": 0, "skipped": 0, "errors": 0}
    for report in sorted(WORK.glob("report-*.xml")):
        for suite in ElementTree.parse(report).getroot().iter("testsuite"):
            number = {key: int(suite.get(key, 0)) for key in ("tests", "failures", "errors", "skipped")}
            counts["failed"] += number["failures"]
            counts["errors"] += number["errors"]
            counts["skipped"] += number["skipped"]
            counts["passed"] += number["tests"] - number["failures"] - number["errors"] - number["skipped"]
    result = ", ".join(f"{number} {what}" for what, number in counts.items() if number) or "no tests ran"
    minutes, seconds = divmod(int(elapsed_s), 60)
    return f" {result} in {elapsed_s:.2f}s ({minutes // 60}:{minutes % 60:02d}:{seconds:02d}) ".center(80, "=")
