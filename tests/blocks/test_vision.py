"""Image models and containers: tests beyond the cases."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import mithril_nb as ml
from mithril_nb.models import CNN, Layer, Linear, Model, Relu, Residual, ResNet, Sequential


@pytest.mark.parametrize(
    ("model", "count"),
    [
        (ResNet((2, 2, 2, 2)), 11_689_512),
        (ResNet((3, 4, 6, 3)), 21_797_672),
        (ResNet((3, 4, 6, 3), bottleneck=True), 25_557_032),
    ],
    ids=["18", "34", "50"],
)
def test_residual_networks_have_the_parameters_of_torchvision(model: Model, count: int) -> None:
    pm = ml.compile(model, shapes={"input": ["batch", 3, 224, 224]})
    assert sum(parameter.spec.size or 0 for parameter in pm.parameters) == count
    assert str(pm.output_specs["output"]) == "('batch', 1000) float32"
    before_pool = next(specs for path, specs in pm.inference.blocks.items() if path.startswith("global"))
    assert str(before_pool.inputs["input"]).endswith("7, 7) float32")


def test_a_small_residual_network_overfits() -> None:
    random = np.random.default_rng(0)
    x, y = random.normal(size=(8, 3, 8, 8)).astype("float32"), random.integers(0, 3, 8)
    run = ml.fit(ResNet((1, 1), 3, width=4, small=True), (x, y), epochs=30, batch_size=8, learning_rate=0.02).wait()
    assert run.history["loss"][-1] < 0.1 < run.history["loss"][0]
    assert len(run.model_state) == 2 * 6


def test_the_output_of_a_deep_residual_network_has_scale() -> None:
    pm = ml.compile(ResNet((2, 2, 2), 10, width=8, small=True), shapes={"input": [4, 3, 16, 16]})
    x = np.random.default_rng(0).normal(size=(4, 3, 16, 16)).astype("float32")
    forward = jax.jit(lambda params, state: pm.forward_with_state(params, {"input": x}, state, training=True)[0])
    assert 0.1 < np.std(forward(pm.randomize_params(0), pm.initial_state())["output"]) < 10


@pytest.mark.parametrize(
    "model",
    [ResNet((1, 1), 3, width=4, small=True), CNN([4, 8], 3, use_norm=True), Residual(Linear(3)), Layer(Relu(), 4)],
    ids=["resnet", "cnn", "residual", "layer"],
)
def test_models_survive_a_dict(model: Model) -> None:
    whole = Model() | model
    assert Model.from_dict(whole.to_dict()) == whole


def test_a_block_may_be_in_a_sequence_twice() -> None:
    linear = Linear(4)
    pm = ml.compile(Sequential(linear, linear), shapes={"input": [2, 4]})
    assert [parameter.name for parameter in pm.parameters] == [
        "linear_0.weight",
        "linear_0.bias",
        "linear_1.weight",
        "linear_1.bias",
    ]


def test_a_layer_without_a_dimension_reads_its_weights() -> None:
    layer = Layer(Relu())
    assert [port.name for port in layer.inputs if port.role == "data"] == ["input", "weight", "bias"]
    random = np.random.default_rng(0)
    x, w, b = (random.normal(size=shape).astype("float32") for shape in ((2, 3), (3, 4), (4,)))
    pm = ml.compile(layer, shapes={"input": [2, 3], "weight": [3, 4], "bias": [4]})
    out = pm.evaluate({}, {"input": x, "weight": w, "bias": b})["output"]
    np.testing.assert_allclose(out, np.maximum(x @ w + b, 0), 1e-5, 1e-6)
