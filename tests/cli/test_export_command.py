"""`mithril-nb export`: models and functions, and errors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import mithril_nb as ml
from mithril_nb.models import Linear, Model, Relu

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model, its parameters, and a function; it is the working directory."""
    monkeypatch.chdir(tmp_path)
    ml.save(Model() + Linear(3) + Relu(), "model.json")
    ml.save_params(
        {"linear_0.weight": np.full((4, 3), 2, "float32"), "linear_0.bias": np.zeros(3, "float32")},
        "params.safetensors",
    )
    Path("net.py").write_text("def twice(x):\n    return x + x\n")
    return tmp_path


def test_models_and_functions_are_exported(files: Path, run_cli: Run, printed):
    model = ("export", "model.json", "--shape", "input=2,4")
    out = printed(*model, "--to", "c", "-o", "in_c", "--params", "params.safetensors")
    assert out.startswith("wrote in_c, 11 files, ")
    assert ml.load_params("in_c/weights.safetensors")["linear_0.weight"].tolist() == [[2] * 3] * 4
    assert run_cli(*model, "--to", "numpy", "-o", "in_c", "--overwrite")[0] == 0
    assert (files / "in_c" / "model.py").exists()
    code, out, _ = run_cli("export", "net.py:twice", "--arg", "f32[3]", "--to", "numpy", "-o", "doubled")
    assert (code, out.partition(",")[0]) == (0, "wrote doubled")
    assert "def twice(x):" in Path("doubled/model.py").read_text()


@pytest.mark.usefixtures("files")
def test_bad_options_are_refused(run_cli: Run, refused):
    model = ("export", "model.json", "--shape", "input=2,4")
    for more, text in (
        (("--to", "tensorrt", "-o", "a"), "ml.export has no format 'tensorrt'"),
        (("--to", "c", "-o", "missing/a"), "cannot export to 'missing/a'"),
        (("--to", "c", "-o", "a", "--params", "none"), "cannot read 'none'"),
    ):
        err = refused(*model, *more)
        assert text in err
    assert "the shape of input 'input' is unknown" in run_cli("export", "model.json", "--to", "c", "-o", "a")[2]
    assert not Path("a").exists()
