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


def test_000_creating_a_backend():
    (block,) = blocks("000_jax_backend.txt", "Creating a JAX Backend")
    on_any_machine, _, on_a_gpu = block.partition("# Create a JAX backend for a specific device")
    # In a separate process: float64 switches JAX for the whole of it.
    out = run_fresh(on_any_machine + "\nprint(backend.jit, ml.JaxBackend(dtype=ml.float64).ones(2).dtype)")
    assert out == "True float64\n"
    with pytest.raises(DeviceNotFoundError, match="no device 'gpu' on backend 'jax'"):
        exec(on_a_gpu, {"ml": ml})


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
