"""A model as a `torch.nn.Module`, and the options of the backends with autograd."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from transcript import facts_of

import mithril_nb as ml
from mithril_nb import models

torch = pytest.importorskip("torch")


def noisy() -> models.Model:
    model = models.Model() + models.Linear(6) + models.BatchNorm() + models.Relu()
    return model + models.Dropout(0.3) + models.Linear(3)


@pytest.fixture(scope="module")
def pm() -> Any:
    return ml.compile(noisy(), ml.TorchBackend(), shapes={"input": ["batch", 4]})


def test_parameters_have_the_names_of_the_model(pm: Any) -> None:
    params = pm.randomize_params(seed=0)
    module = pm.as_module(params)
    assert {name: one.shape for name, one in module.named_parameters()} == {n: p.shape for n, p in params.items()}
    assert sorted(dict(module.named_buffers())) == ["batch_norm_0.running_mean", "batch_norm_0.running_var"]
    again = pm.as_module()
    again.load_state_dict(module.state_dict())
    x = torch.ones(2, 4)
    assert torch.equal(again.eval()(x), module.eval()(x))
    found = pm.evaluate(dict(module.named_parameters()), {"input": x}, state=dict(module.named_buffers()))
    assert torch.equal(module(input=x), found["output"])


def test_a_module_trains_with_an_optimizer_of_pytorch(pm: Any) -> None:
    torch.manual_seed(0)
    module, x, y = pm.as_module(pm.randomize_params(seed=0)), torch.randn(8, 4), torch.arange(8) % 3
    before = module.batch_norm_0.running_mean.clone()
    assert not torch.equal(module(x), module(x)), "Dropout draws from PyTorch's generator"
    optimizer = torch.optim.SGD(module.parameters(), 0.3)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(module(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 0.2
    assert not torch.equal(module.batch_norm_0.running_mean, before)


def test_a_module_runs_under_compile_and_autocast(pm: Any) -> None:
    module, x = pm.as_module().eval(), torch.randn(8, 4)
    expected = module(x)
    compiled = torch.compile(module, backend="eager", fullgraph=True)
    assert torch.equal(compiled(x), expected)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.allclose(module(x).float(), expected, atol=0.1)


def test_gradients_of_autograd_are_those_of_jax() -> None:
    model = models.Model() + models.Linear(3) + models.Relu() + models.Softmax()
    x, weights = np.zeros((2, 4), "float32"), {"output": np.arange(6, dtype="float32").reshape(2, 3)}
    reference = ml.compile(model, shapes={"input": [2, 4]})
    params = reference.randomize_params(seed=0)  # zeros reach relu: both gradients are 0 there
    outputs, gradients = reference.evaluate(params, {"input": x}, weights)
    for grads in ("autograd", "jax"):
        ours = ml.compile(model, ml.TorchBackend(grads=grads), shapes={"input": [2, 4]})
        found, slopes = ours.evaluate(params, {"input": x}, weights)
        np.testing.assert_allclose(found["output"], outputs["output"], rtol=1e-6)
        for name, value in gradients.items():
            assert not slopes[name].requires_grad
            np.testing.assert_allclose(slopes[name], value, rtol=1e-5, atol=1e-7)


def test_constants_and_frozen_parameters_get_no_gradient() -> None:
    model = models.Model() + models.Linear(3) + models.StopGradient()
    pm = ml.compile(model, ml.TorchBackend(), shapes={"input": [2, 4]})
    assert "output = linear_0_output.detach()" in pm.source()
    params, x = pm.randomize_params(seed=0), {"input": np.ones((2, 4))}
    assert (pm.evaluate(params, x, {"output": np.ones((2, 3))})[1]["linear_0.weight"] == 0).all()
    frozen = ml.compile(models.Linear(3), ml.TorchBackend(), shapes={"input": [2, 4]}, frozen=["weight"])
    gradients = frozen.evaluate(frozen.randomize_params(seed=0), x, {"output": np.ones((2, 3))})[1]
    assert (gradients["weight"] == 0).all()
    assert (gradients["bias"] == 2).all()
    assert [one.requires_grad for one in frozen.as_module().parameters()] == [False, True]


def test_hand_written_gradients_run_on_every_backend() -> None:
    ml.register_primitive("doubled_for_modules")(lambda backend, x: 2 * x)
    ml.register_primitive("doubled_for_modules_grad")(lambda backend, x, grad: 7 * grad)
    model = models.Model() + models.Linear(3) + ml.op("doubled_for_modules")
    for kind in [one for one in (ml.NumpyBackend, ml.TorchBackend, ml.MlxBackend, ml.CBackend) if one.available()]:
        pm = ml.compile(model, kind(), shapes={"input": [2, 4]})
        x, weights = {"input": np.ones((2, 4))}, {"output": np.ones((2, 3))}
        _, gradients = pm.evaluate(pm.randomize_params(seed=0), x, weights)
        np.testing.assert_array_equal(pm.backend.to_numpy(gradients["linear_0.bias"]), [14, 14, 14])
    module = ml.compile(model, ml.TorchBackend(), shapes={"input": [2, 4]}).as_module()
    assert facts_of(lambda: module(torch.ones(2, 4))) == (
        "UnknownOptionError: a module cannot run the hand-written gradients of this model: torch.autograd does not "
        "see them.\n"
        "    model  linear_0, doubled_for_modules_0"
    )


def test_results_of_mixed_precision_keep_their_dtypes() -> None:
    model, x = models.TransformerBlock(8, heads=2), np.random.default_rng(0).normal(size=(2, 5, 8))
    for grads in ("autograd", "jax"):
        backend = ml.TorchBackend(use_amp=True, grads=grads)
        pm = ml.compile(model, backend, shapes={"input": [2, 5, 8]})
        reference = ml.compile(model, ml.TorchBackend(), shapes={"input": [2, 5, 8]})
        params = pm.randomize_params(seed=0)
        outputs, gradients = pm.evaluate(params, {"input": x}, {"output": x})
        expected = reference.evaluate(params, {"input": x}, {"output": x})[1]
        assert {backend.dtype(one) for one in (*outputs.values(), *gradients.values())} == {"float32"}
        for name, value in expected.items():
            assert (gradients[name] - value).abs().max() <= 0.05 * value.abs().max(), name


def test_other_backends_have_no_module() -> None:
    pm = ml.compile(models.Linear(3), ml.NumpyBackend(), shapes={"input": [2, 4]})
    assert facts_of(pm.as_module) == (
        "UnknownOptionError: as_module needs PyTorch; this model is compiled for NumpyBackend."
    )
    assert facts_of(lambda: ml.TorchBackend(grads="numpy")) == (
        "UnknownOptionError: TorchBackend does not accept grads='numpy'.\n    known  'autograd', 'jax'"
    )
