"""Programs with symbolic sizes: what keeps the names runs at any batch size as JAX does; other formats refuse them."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from safetensors.numpy import load_file, save_file

import mithril_nb as ml
from mithril_nb import models
from mithril_nb.errors import ShapeError, StageUnavailableError
from mithril_nb.interop.exporting.folder import FORMATS, TAKES_NAMES

WIDTH = 4
SHAPES = {"input": ["batch", WIDTH]}


def loaded(folder: Path) -> tuple[Any, dict[str, dict[str, np.ndarray]]]:
    arrays = {file: load_file(folder / f"{file}.safetensors") for file in ("weights", "inputs", "expected")}
    return export.deserialize(bytearray((folder / "model.jax").read_bytes())), arrays


def equal(found: Any, wanted: Any) -> None:
    largest = max(np.abs(wanted).max(initial=0), 1)  # sums over the batch round relative to their largest terms
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-5 * largest)


@pytest.mark.parametrize("name", ["mlp", "norm", "attention", "states", "loss"])
def test_models_keep_the_name_of_a_size(name: str, tmp_path: Path) -> None:
    shapes: dict[str, Any] = SHAPES
    options: dict[str, Any] = {}
    model: Any = models.MLP(WIDTH, [5], 3)
    if name == "norm":
        model = models.Model()
        model += models.LayerNorm()
        model += models.Softmax()
    elif name == "attention":
        model, shapes = models.TransformerEncoder(1, 8, 2), {"input": ["batch", "time", 8]}
    elif name == "states":
        model = models.BatchNorm1d()
    elif name == "loss":
        options = {"program": "forward+backward", "loss": "mean_squared_error"}
    folder = ml.export(model, tmp_path / "folder", to="stablehlo", shapes=shapes, **options)
    run, arrays = loaded(folder)
    assert "batch = 32" in (folder / "README.md").read_text()
    if name in ("mlp", "loss"):
        done = subprocess.run([sys.executable, "test.py"], cwd=folder, capture_output=True, text=True, timeout=120)
        assert (done.returncode, " ok\n" in done.stdout) == (0, True), done.stdout + done.stderr
    if name == "loss":
        return
    state = ml.compile(model, shapes={"input": [2] * (len(shapes["input"]) - 1) + shapes["input"][-1:]}).initial_state()
    (key,) = set(arrays["inputs"]) - {f"state.{one}" for one in state}
    order = re.findall(r"^    \('(\w+)', '([\w.]+)'\),", (folder / "model.py").read_text(), re.MULTILINE)
    for rows in (1, 3, 8):
        numbers = [{"batch": rows, "time": 6}.get(dim, dim) for dim in shapes["input"]]
        pm = ml.compile(model, shapes={"input": numbers})
        x = np.random.default_rng(rows).normal(size=numbers).astype("float32")
        arrays["inputs"][key] = x
        wanted = pm.evaluate(pm.randomize_params(0), {"input": x}, **({"state": state} if state else {}))
        found = run.call(*(arrays[file][array] for file, array in order))
        for one, other in zip(found, jax.tree.leaves(wanted), strict=True):
            equal(one, other)


KEEPS = sorted(
    name for name in TAKES_NAMES - {"stablehlo"} if find_spec({"numpy": "numpy", "onnx": "onnxruntime"}.get(name, name))
)


@pytest.mark.parametrize("name", ["attention", "loss"])
@pytest.mark.parametrize("to", KEEPS)
def test_the_test_of_a_folder_passes_at_other_sizes(to: str, name: str, tmp_path: Path) -> None:
    model: Any = models.MLP(WIDTH, [5], 3)
    shape, options = ["batch", WIDTH], {"program": "forward+backward", "loss": "mean_squared_error"}
    if name == "attention":
        model, shape, options = models.TransformerEncoder(1, 8, 2), ["batch", "time", 8], {}
    folder = ml.export(model, tmp_path / "folder", to=to, shapes={"input": shape}, **options)
    assert "any number from 1 on" in (folder / "README.md").read_text()
    for rows in (32, 1, 3):
        if rows != 32:  # the arrays of an export with numbers
            numbers = [{"batch": rows, "time": 5}.get(size, size) for size in shape]
            other = ml.export(model, tmp_path / str(rows), to="numpy", shapes={"input": numbers}, **options)
            for file in ("inputs", "expected"):
                (folder / f"{file}.safetensors").write_bytes((other / f"{file}.safetensors").read_bytes())
        done = subprocess.run([sys.executable, "test.py"], cwd=folder, capture_output=True, text=True, timeout=120)
        assert (done.returncode, " ok\n" in done.stdout) == (0, True), done.stdout + done.stderr


@pytest.mark.parametrize("to", KEEPS)
def test_arrays_whose_sizes_contradict_each_other_are_refused(to: str, tmp_path: Path) -> None:
    (batch,) = export.symbolic_shape("batch")
    specs = [jax.ShapeDtypeStruct((batch, 3), "float32"), jax.ShapeDtypeStruct((2 * batch,), "float32")]
    folder = ml.export(lambda batch, y: (batch.mean(), y.mean()), tmp_path / "folder", *specs, to=to)
    arrays = load_file(folder / "inputs.safetensors")
    save_file(arrays | {"y": arrays["y"][:5]}, folder / "inputs.safetensors")
    done = subprocess.run([sys.executable, "test.py"], cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert re.search("batch|reshape", done.stderr)


def test_given_arrays_determine_the_sizes(tmp_path: Path) -> None:
    model, x = models.Linear(3), np.ones((5, WIDTH), "float32")
    folder = ml.export(model, tmp_path / "a", to="stablehlo", shapes=SHAPES, inputs={"input": x})
    assert loaded(folder)[1]["expected"]["output"].shape == (5, 3)
    with pytest.raises(ShapeError, match=r"\(32, 4\)"):
        ml.export(model, tmp_path / "b", to="stablehlo", shapes=SHAPES, inputs={"input": x[0]})
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize("program", ["forward", "train step"])
@pytest.mark.parametrize("to", sorted(FORMATS.keys() - TAKES_NAMES))
def test_other_formats_ask_for_numbers(to: str, program: str, tmp_path: Path) -> None:
    model = models.MLP(WIDTH, [5], 3)
    with pytest.raises(StageUnavailableError, match="it needs a number for each size") as error:
        ml.export(model, tmp_path / "a", to=to, shapes=SHAPES, program=program)
    assert str(error.value).endswith('Try: pass numbers for the sizes, such as batch=32, or export to "stablehlo".')
    assert not [*tmp_path.iterdir()]
    (batch,) = export.symbolic_shape("batch")
    with pytest.raises(StageUnavailableError, match="such as batch=32"):
        ml.export(lambda x: x, tmp_path / "a", jax.ShapeDtypeStruct((2 * batch, 2), "float32"), to=to)


def test_a_program_that_jax_does_not_export_is_refused(tmp_path: Path) -> None:
    batch, _ = export.symbolic_shape("batch, b", constraints=["batch >= 100"])
    with pytest.raises(StageUnavailableError, match="with names of sizes") as error:
        ml.export(jnp.sin, tmp_path / "a", jax.ShapeDtypeStruct((batch,), "float32"), to="stablehlo")
    assert "batch >= 100" in str(error.value)
    assert not [*tmp_path.iterdir()]
