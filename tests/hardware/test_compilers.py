"""Where compilers are, what they need, and that a failed installation leaves nothing."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata

import pytest

from mithril_nb.cli import main
from mithril_nb.errors import UnavailableBackendError
from mithril_nb.hardware import compilers as module
from mithril_nb.hardware.compilers import Compiler, compiler_of


@pytest.fixture
def compiler(tmp_path):
    return Compiler("tpu", ("libtpu==0.0.0.no-such-version",), tmp_path / "compilers" / "tpu")


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
    def run(command, **options):
        folder = command[command.index("--target") + 1]
        (module.Path(folder) / "libtpu").mkdir()
        return subprocess.CompletedProcess(command, 1, stderr="No space left on device\n")

    monkeypatch.setattr(module.subprocess, "run", run)
    with pytest.raises(UnavailableBackendError, match="No space left on device"):
        compiler.install()
    assert [*compiler.folder.parent.iterdir()] == []


def test_installation_replaces_a_folder(compiler, monkeypatch):
    def run(command, **options):
        assert "--no-deps" in command
        assert command[0] == sys.executable
        (module.Path(command[command.index("--target") + 1]) / "libtpu.so").write_text("new")
        return subprocess.CompletedProcess(command, 0, stderr="")

    compiler.folder.mkdir(parents=True)
    (compiler.folder / "libtpu.so").write_text("old")
    monkeypatch.setattr(module.subprocess, "run", run)
    compiler.install()
    assert compiler.is_installed
    assert (compiler.folder / "libtpu.so").read_text() == "new"


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
