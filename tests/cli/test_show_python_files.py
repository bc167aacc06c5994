"""`show file.py:name`: a Python file runs as under Python, and messages list its names."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from transcript import read_transcript

from mithril_nb import cli

NET = """
from dataclasses import dataclass
import jax, jax.numpy as jnp
from beside import SCALE

@dataclass
class Config:
    scale: float = SCALE

def init():
    return 3

def step(x):
    return jnp.sin(x) * Config().scale

step.example_args = (jax.ShapeDtypeStruct((4,), "float32"),)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with Python files, in which the commands are run."""
    (tmp_path / "nets").mkdir()
    (tmp_path / "nets" / "my-net.py").write_text(NET, encoding="utf-8")
    (tmp_path / "nets" / "beside.py").write_text("SCALE = 3.0", encoding="utf-8")
    (tmp_path / "mlp.py").write_text("def forward(x):\n    return x * 2\n\ndef _hidden(): ...\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.mark.parametrize("place", ["nets/my-net.py", "./nets/my-net.py", "{folder}/nets/my-net.py"])
def test_a_function_of_a_python_file(printed, folder, place):
    out = printed("show", f"{place.format(folder=folder)}:step", "--stage", "jaxpr")
    assert "mul b 3.0:f32[]" in out
    by_line = printed("show", f"{place.format(folder=folder)}:step", "--by", "line", "--stage", "cost")
    assert "    return jnp.sin(x) * Config().scale" in by_line


def test_a_file_named_as_an_imported_module(run_cli, folder):
    (folder / "jax.py").write_text("import jax\ndef f(x): return x * 2\n", encoding="utf-8")
    assert run_cli("show", "./jax.py:f", "--arg", "f32[3]", "--stage", "jaxpr")[::2] == (0, "")
    assert hasattr(sys.modules["jax"], "jit")


def test_a_file_of_a_package_imports_relatively(printed, folder):
    (folder / "nets" / "__init__.py").write_text("", encoding="utf-8")
    (folder / "nets" / "deep.py").write_text("from .beside import SCALE\ndef f(x): return x * SCALE", encoding="utf-8")
    out = printed("show", "nets/deep.py:f", "--arg", "f32[3]", "--stage", "jaxpr")
    assert "mul a 3.0:f32[]" in out


def test_a_file_that_fails_is_run_again(run_cli, folder):
    (folder / "bad.py").write_text("1 / 0", encoding="utf-8")
    message = "ZeroDivisionError: division by zero\n    Try: --debug  # prints the traceback\n"
    for _ in range(2):
        assert run_cli("show", "bad.py:f") == (2, "", message)
    assert "bad" not in sys.modules


REFUSED = """
nets/my-net.py
ModelFileError: 'nets/my-net.py' is a Python file.
    needs  the name of a function in it

mlp.py:forwrad
UnknownOptionError: 'mlp.py' has no 'forwrad'.
    has  forward

nest/mpl.py:f
ModelFileError: file 'nest/mpl.py' does not exist.
    looked in  {folder}/nest

nope
ModelFileError: 'nope' is neither a file nor of the form module:name.
    needs  model.json,

mpl:forward
ModelFileError: module 'mpl' does not exist.
    looked in  {folder}, and the environment
"""


@pytest.mark.parametrize(("command", "message"), read_transcript(REFUSED))
def test_a_name_that_does_not_exist(refused, folder, command: str, message: str) -> None:
    assert refused("show", *shlex.split(command)).startswith(message.format(folder=folder))


UNTRAINED = """
import jax
from mithril_nb.models import Linear, Model, Operator

@jax.custom_vjp
def twice(x):
    return x * 2

def backward(kept, given):
    raise ValueError("twice has no gradient")

twice.defvjp(lambda x: (x * 2, None), backward)

class Twice(Operator):
    def compute(self, arrays):
        return {"output": twice(arrays["input"])}

model = Model()
model += Linear(8)
model += Twice()
"""


def test_a_report_of_a_model_that_cannot_be_traced(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "untrained.py").write_text(UNTRAINED, encoding="utf-8")
    assert cli.main(["report", "untrained.py:model", "--shape", "input=4,8", "-o", "page.html"]) == 0
    page = (folder / "page.html").read_text(encoding="utf-8")
    assert page.count("not available: ValueError: twice has no gradient") == 3
    assert "<h2>Source</h2>" in page
    assert "<h2>Cost</h2>" not in page
    assert "Traceback" not in page
    assert capsys.readouterr().err == ""


def test_file_that_exits(folder: Path, run_cli) -> None:
    (folder / "script.py").write_text("import sys\ndef step(x): return x\nsys.exit(0)\n", encoding="utf-8")
    code, printed, failed = run_cli("show", "script.py:step")
    assert (code, printed) == (2, "")
    assert failed.endswith(
        "script.py' exits while it is imported, so its functions cannot be read.\n    SystemExit  0\n"
    )


def test_a_package_is_run_once(folder: Path, run_cli) -> None:
    source = "print('run')\nfrom jax.numpy import sin as step\n"
    for name in ("pack", "v1.2"):
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(source, encoding="utf-8")
        code, printed, failed = run_cli("show", f"{name}/__init__.py:step", "--arg", "f32[3]", "--stage", "jaxpr")
        assert (code, printed.count("run\n")) == (0, 1), failed
