"""What the documents of Mithril show must run as printed, with `mithril` read as `mithril_nb`."""

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fresh import run_fresh

import mithril_nb as ml
from mithril_nb.errors import DeviceNotFoundError
from tests.backends.test_emitted_backends import each_kind

HERE = Path(__file__).parent


def blocks(document: str, section: str) -> list[str]:
    """The Python blocks under a heading."""
    text = (HERE / document).read_text(encoding="utf-8")
    _, _, rest = text.partition(f"\n## {section}\n")
    assert rest, f"no section {section!r} in {document}"
    found = re.findall(r"```python\n(.*?)```", rest.partition("\n## ")[0], re.S)
    assert found
    return [re.sub(r"\bmithril\b", "mithril_nb", block) for block in found]


def run(document: str, *sections: str, **names: Any) -> dict[str, Any]:
    """Run the blocks of some sections, one after the other, in one fresh namespace."""
    namespace = dict(names)
    for section in sections:
        for block in blocks(document, section):
            exec(compile(block, f"{document}: {section}", "exec"), namespace)
    return namespace


def test_000_from_compiling_to_gradients():
    ran = run("000_jax_backend.txt", "Compiling Models with JAX Backend", "Running Inference", "Computing Gradients")
    inputs, params = np.asarray(ran["inputs"]["input"]), {name: np.asarray(p) for name, p in ran["params"].items()}
    assert ran["output_tensor"].shape == (32, 64)
    np.testing.assert_allclose(ran["output_tensor"], inputs @ params["weight"] + params["bias"], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(ran["weight_grad"], inputs.T @ np.ones((32, 64)), rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(ran["bias_grad"], np.full(64, 32.0))


def test_000_creating_tensors():
    ran = run("000_jax_backend.txt", "Creating Tensors", ml=ml, backend=ml.JaxBackend())
    shapes = {name: ran[name].shape for name in ("zeros", "ones", "randn", "rand", "jax_tensor", "arange")}
    assert shapes == dict.fromkeys(shapes, (3, 4)) | {"arange": (10,)}
    np.testing.assert_array_equal(ran["zeros"], np.zeros((3, 4)))
    np.testing.assert_array_equal(ran["ones"], np.ones((3, 4)))
    np.testing.assert_array_equal(ran["arange"], np.arange(10))
    np.testing.assert_allclose(ran["jax_tensor"], ran["numpy_array"], rtol=1e-6)
    assert (ran["rand"] >= 0).all()
    assert (ran["rand"] < 1).all()
    assert (ran["randn"] < 0).any()
    assert {str(ran[name].dtype) for name in ("zeros", "ones", "randn", "rand", "jax_tensor")} == {"float32"}
    assert str(ran["float16_tensor"].dtype) == "float16"
    assert str(ran["int32_tensor"].dtype) == "int32"


def test_000_mathematical_operations():
    ran = run("000_jax_backend.txt", "Mathematical Operations", backend=ml.JaxBackend())
    ones = np.ones((3, 4))
    expected = {
        "add": 2 * ones, "sub": 0 * ones, "mul": ones, "div": ones, "matmul": np.full((3, 5), 4.0), "sum_all": 12.0,
        "sum_axis": np.full(4, 3.0), "mean": 1.0, "max_val": 1.0, "relu": ones, "sigmoid": ones / (1 + np.exp(-1)),
        "tanh": np.tanh(ones),
    }  # fmt: skip
    for name, value in expected.items():
        np.testing.assert_allclose(ran[name], value, rtol=1e-6, err_msg=name)


def test_000_shape_manipulation():
    ran = run("000_jax_backend.txt", "Shape Manipulation", backend=ml.JaxBackend())
    assert [ran[name].shape for name in ("reshaped", "transposed", "concatenated")] == [(3, 4), (4, 3), (6, 4)]


def test_000_creating_a_backend():
    (block,) = blocks("000_jax_backend.txt", "Creating a JAX Backend")
    on_any_machine, _, on_a_gpu = block.partition("# Create a JAX backend for a specific device")
    # In a separate process: float64 switches JAX for the whole of it.
    out = run_fresh(on_any_machine + "\nprint(backend.jit, ml.JaxBackend(dtype=ml.float64).ones(2).dtype)")
    assert out == "True float64\n"
    with pytest.raises(DeviceNotFoundError, match="no device 'gpu' on backend 'jax'"):
        exec(on_a_gpu, {"ml": ml})


def test_002_the_mlp():
    ran = run("002_migrating.txt", "Mithril Style")
    assert list(ran["params"]) == [
        "linear_0.weight", "linear_0.bias", "linear_1.weight", "linear_1.bias", "linear_2.weight", "linear_2.bias",
    ]  # fmt: skip
    assert [tuple(ran["params"][f"linear_{i}.weight"].shape) for i in range(3)] == [(784, 512), (512, 256), (256, 10)]
    hidden = np.asarray(ran["inputs"]["input"])
    for i in range(3):
        hidden = hidden @ np.asarray(ran["params"][f"linear_{i}.weight"]) + np.asarray(
            ran["params"][f"linear_{i}.bias"]
        )
        hidden = np.maximum(hidden, 0) if i < 2 else hidden
    np.testing.assert_allclose(ran["output"], hidden, rtol=1e-4, atol=1e-4)


def test_004_backend_operations():
    ran = run("004_backends.txt", "Backend Operations", backend=ml.JaxBackend())
    np.testing.assert_array_equal(ran["z"], [5, 7, 9])
    assert float(ran["w"]) == 32.0
    np.testing.assert_array_equal(ran["a"], [5, 7, 9])
    assert float(ran["b"]) == pytest.approx(1.0)
    assert float(ran["c"]) == 21.0
    assert float(ran["d"]) == pytest.approx(1.0)


@each_kind
def test_004_operations_on_every_backend(kind: Any) -> None:
    backend = kind()
    ran = run("004_backends.txt", "Backend Operations", backend=backend)
    expected = {"z": [5, 7, 9], "w": 32.0, "a": [5, 7, 9], "b": 1.0, "c": 21.0, "d": 1.0}
    for name, value in expected.items():
        np.testing.assert_allclose(backend.to_numpy(ran[name]), value, rtol=1e-6, err_msg=name)
    ran = run("004_backends.txt", "Backend Utilities", backend=backend, tensor=backend.ones(3, 4))
    assert (ran["shape"], ran["dtype"], backend.shape(ran["random_tensor"])) == ((3, 4), "float32", (3, 4))


@each_kind
def test_004_gradients_of_the_backends_with_autograd(kind: Any) -> None:
    (block,) = blocks("004_backends.txt", "Automatic Differentiation")
    block = block.replace("JaxBackend()", "ml_backend()")
    block = block.replace("from mithril_nb.backends.with_autograd.jax_backend import JaxBackend", "")
    names: dict[str, Any] = {"ml_backend": kind}
    if kind in (ml.TorchBackend, ml.MlxBackend):
        exec(block, names)
        np.testing.assert_allclose(names["backend"].to_numpy(names["grad_x"]), [2, 4, 6], rtol=1e-6)
    else:
        with pytest.raises(AttributeError, match="has no function 'grad'"):
            exec(block, names)


@pytest.mark.parametrize("kind", [ml.NumpyBackend, ml.CBackend])
def test_002_training_on_backends_with_numpy_arrays(kind: Any) -> None:
    backend = kind()
    model = ml.models.MLP(6, [5], 4)
    pm = ml.compile(model, backend, shapes={"input": [3, 6]})
    batches = [(np.ones((3, 6), "float32"), np.arange(3))] * 2
    names = {"backend": backend, "compiled_model": pm, "params": pm.randomize_params(seed=0), "data_loader": batches}
    block = blocks("002_migrating.txt", "Mithril Training")[0].replace("range(10)", "range(2)")
    with contextlib.redirect_stdout(io.StringIO()):
        exec(block, names)
    assert float(names["loss"]) < 3


def test_004_import_paths():
    ran = run("004_backends.txt", "Automatic Differentiation Backends", "Manual Differentiation Backends")
    assert ran["JaxBackend"] is ml.JaxBackend
    for name in ("TorchBackend", "MlxBackend", "NumpyBackend", "CBackend", "GGMLBackend"):
        assert ran[name] is getattr(ml, name)
