"""Where compilers are, what they need, and that a failed installation leaves nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import zipfile
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata

import pytest

from mithril_nb.cli import main
from mithril_nb.errors import UnavailableBackendError
from mithril_nb.hardware import compilers as module
from mithril_nb.hardware.compilers import Compiler, compiler_of


@pytest.fixture
def compiler(tmp_path):
    return Compiler("tpu", ("libtpu==0.0.0.no-such-version",), tmp_path / "compilers" / "tpu")


@pytest.fixture
def wheels(tmp_path):
    """A folder with a wheel of a compiler."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    with zipfile.ZipFile(folder / "a_compiler-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("a_compiler/__init__.py", "x = 1\n" * 2000)
        facts = "a_compiler-1.0.dist-info"
        wheel.writestr(f"{facts}/METADATA", "Metadata-Version: 2.1\nName: a-compiler\nVersion: 1.0\n")
        wheel.writestr(f"{facts}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{facts}/RECORD", "")
    return folder


def of_wheels(tmp_path, version="1.0"):
    return Compiler("tpu", (f"a-compiler=={version}",), tmp_path / "compilers" / f"tpu-jax-{version}-python-3.9")


def test_versions_are_those_that_jax_names():
    version = metadata.version("jax")
    assert all(version in requirement for requirement in compiler_of("cuda").requirements)
    assert [requirement.split("<")[0] for requirement in compiler_of("cuda").requirements] == [
        "jax-cuda12-plugin",
        "jax-cuda12-pjrt",
    ]
    assert compiler_of("tpu").requirements[0].startswith("libtpu==")


def test_a_failed_installation_leaves_nothing(compiler, tmp_path, capfd):
    (tmp_path / "wheels").mkdir()
    with pytest.raises(UnavailableBackendError, match="cannot be installed") as caught:
        compiler.install(tmp_path / "wheels")
    assert "libtpu==0.0.0.no-such-version" in str(caught.value)
    assert [*compiler.folder.parent.iterdir()] == []
    with pytest.raises(UnavailableBackendError, match="Try: mithril-nb devices install tpu"):
        compiler.check()


def test_a_folder_without_permission(compiler):
    compiler.folder.parent.parent.joinpath("compilers").write_text("a file where the folder would be")
    with pytest.raises(UnavailableBackendError, match="because  "):
        compiler.install()


def test_half_a_folder_does_not_count(compiler):
    compiler.folder.mkdir(parents=True)
    (compiler.folder / "libtpu").mkdir()
    assert not compiler.is_installed
    compiler.remove()
    assert not compiler.folder.exists()


def test_pip_that_ends_while_it_downloads(compiler, monkeypatch):
    def run(command, *_):
        folder = command[command.index("--target") + 1]
        (module.Path(folder) / "libtpu").mkdir()
        return 1, "No space left on device\n"

    monkeypatch.setattr(module, "_run", run)
    with pytest.raises(UnavailableBackendError, match="No space left on device"):
        compiler.install()
    assert [*compiler.folder.parent.iterdir()] == []


def test_installation_replaces_a_folder(compiler, monkeypatch):
    def run(command, *_):
        assert "--no-deps" in command
        assert command[0] == sys.executable
        (module.Path(command[command.index("--target") + 1]) / "libtpu.so").write_text("new")
        return 0, ""

    compiler.folder.mkdir(parents=True)
    (compiler.folder / "libtpu.so").write_text("old")
    monkeypatch.setattr(module, "_run", run)
    compiler.install()
    assert compiler.is_installed
    assert (compiler.folder / "libtpu.so").read_text() == "new"


def test_two_installations_at_once(tmp_path, wheels):
    compiler = of_wheels(tmp_path)
    with ThreadPoolExecutor() as pool:
        assert [*pool.map(compiler.install, [wheels] * 2)] == [None, None]
    assert compiler.is_installed
    assert (compiler.folder / "a_compiler" / "__init__.py").is_file()
    assert [*compiler.folder.parent.iterdir()] == [compiler.folder]


def test_a_killed_installation_leaves_nothing(tmp_path, wheels):
    compiler = of_wheels(tmp_path)
    (tmp_path / "pip").mkdir()
    (tmp_path / "pip" / "__init__.py").touch()
    (tmp_path / "pip" / "__main__.py").write_text(
        textwrap.dedent("""
        import os, pathlib, sys, tempfile, time
        target = pathlib.Path(sys.argv[sys.argv.index("--target") + 1])
        (target / "half").mkdir()
        tempfile.mkdtemp()
        print(os.getpid(), flush=True)
        time.sleep(60)
    """)
    )
    script = "import sys; from mithril_nb.hardware.compilers import *; from pathlib import Path\n" \
             f"Compiler('tpu', ('x',), Path({str(compiler.folder)!r})).install()"  # fmt: skip
    paths = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "TMPDIR": str(tmp_path)}
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=environment)
    process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.read()  # ends with pip, which has the same standard output
    process.stdout.close()
    assert not compiler.is_installed
    assert not compiler.folder.exists()
    compiler.install(wheels)
    assert [*compiler.folder.parent.iterdir()] == [compiler.folder]
    assert {path.name for path in tmp_path.iterdir()} == {"pip", "wheels", "compilers"}


def test_a_broken_wheel(tmp_path, wheels):
    (wheel,) = wheels.iterdir()
    wheel.write_bytes(wheel.read_bytes()[:300])
    compiler = of_wheels(tmp_path)
    with pytest.raises(UnavailableBackendError, match=r"because +\S.*\n") as caught:
        compiler.install(wheels)
    assert "a_compiler" in str(caught.value)
    assert [*compiler.folder.parent.iterdir()] == []


def test_no_space_for_the_last_file(tmp_path, wheels, monkeypatch):
    def write_text(path, text, **options):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(module.Path, "write_text", write_text)
    compiler = of_wheels(tmp_path)
    with pytest.raises(UnavailableBackendError, match=r"No space left on device: .*installed.json"):
        compiler.install(wheels)
    assert [*compiler.folder.parent.iterdir()] == []


def test_compilers_for_other_versions(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MITHRIL_NB_COMPILERS", str(tmp_path))
    compiler_of.cache_clear()
    try:
        for name in ("tpu-jax-0.9.0-python-3.11", compiler_of("tpu").folder.name):
            (tmp_path / name).mkdir()
            (tmp_path / name / "installed.json").write_text(json.dumps({}))
        assert main(["devices"]) == 0
        assert "mithril-nb devices remove tpu-jax-0.9.0-python-3.11\n" in capsys.readouterr().out
        assert main(["devices", "remove", "tpu-jax-0.9.0-python-3.11"]) == 0
        assert [*tmp_path.iterdir()] == [compiler_of("tpu").folder]
        assert main(["devices"]) == 0
        assert "devices remove" not in capsys.readouterr().out
    finally:
        compiler_of.cache_clear()


def test_a_jax_that_names_no_compiler(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MITHRIL_NB_COMPILERS", str(tmp_path))
    monkeypatch.setattr(Compiler, "is_in_environment", False)
    monkeypatch.setattr(module.metadata, "requires", lambda name: ["numpy"])
    compiler_of.cache_clear()
    (tmp_path / "tpu-jax-0.9.0-python-3.11").mkdir()
    try:
        assert main(["devices"]) == 0
        output = capsys.readouterr().out
        assert all(f"names no compiler for {platform}" in output for platform in ("cuda", "tpu"))
        assert "devices remove tpu-jax-0.9.0-python-3.11" in output
        assert main(["devices", "install", "tpu"]) == 2
        assert "names no compiler for tpu" in capsys.readouterr().err
        with pytest.raises(UnavailableBackendError, match="names no compiler for cuda"):
            compiler_of("cuda").check()
    finally:
        compiler_of.cache_clear()


PIP = """
import sys, time
print("Downloading libtpu-1-py3-none.whl (140.0 MB)")
for done in range(1, 1000):
    print(f"Progress {done} of 1000")
    time.sleep(0.1)
"""


def test_progress_and_cancel(compiler, monkeypatch):
    progress = []
    run = module._run
    monkeypatch.setattr(module, "_run", lambda command, *rest: run([sys.executable, "-c", PIP], *rest))
    with pytest.raises(UnavailableBackendError, match=r"because  +cancelled"):
        compiler.install(
            report=lambda *each: progress.append(each),
            is_wanted=lambda: not (progress and progress[-1][1]),
        )
    assert progress[-1][0] == "Downloading libtpu-1-py3-none.whl (140.0 MB)"
    assert 0 < progress[-1][1] < 0.5
    assert [*compiler.folder.parent.iterdir()] == []


def test_commands(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("MITHRIL_NB_COMPILERS", str(tmp_path))
    compiler_of.cache_clear()
    try:
        assert main(["devices"]) == 0
        assert "v5e" in capsys.readouterr().out
        assert main(["devices", "remove", "h100"]) == 0
        assert main(["devices", "install"]) == 2
        assert main(["devices", "install", "h10"]) == 2
        errors = capsys.readouterr().err
    finally:
        compiler_of.cache_clear()
    assert "needs a NAME" in errors
    assert "no device 'h10'" in errors
