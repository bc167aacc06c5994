"""After ten layers, the output neither vanishes nor explodes: its standard deviation is between 0.1 and 10."""

from __future__ import annotations

import numpy as np
import pytest

import mithril_nb as ml
from mithril_nb import models
from mithril_nb.backends.jax.initializers import Wanted, drawn, stream
from mithril_nb.models import Conv2d, LayerNorm, Linear, Model
from mithril_nb.models.shape_inference.infer import infer

ACTIVATIONS = ("Relu", "Gelu", "Tanh", "Sigmoid", "SiLU", "Elu", "Selu", "LeakyRelu", "Softplus", "Mish")
ALONE = {
    "Linear": (lambda: models.Linear(256), (64, 256)),
    "Linear without bias": (lambda: models.Linear(256, use_bias=False), (64, 256)),
    "Conv1d": (lambda: models.Conv1d(32, 3, padding=1), (8, 32, 20)),
    "Conv2d": (lambda: models.Conv2d(32, 3, padding=1), (8, 32, 10, 10)),
    "Conv3d": (lambda: models.Conv3d(8, 3, padding=1), (4, 8, 6, 6, 6)),
    "ConvTranspose2d": (lambda: models.ConvTranspose2d(16, 3), (4, 16, 8, 8)),
    "MLP": (lambda: models.MLP(256, [256], 256), (64, 256)),
    "FeedForward": (lambda: models.FeedForward(64), (4, 16, 64)),
    "MultiHeadAttention": (lambda: models.MultiHeadAttention(64, 4), (4, 16, 64)),
    "TransformerBlock": (lambda: models.TransformerBlock(64, 4), (4, 16, 64)),
    "RNN": (lambda: models.RNN(64), (16, 16, 64)),
    "GRU": (lambda: models.GRU(64), (16, 16, 64)),
    "LSTM": (lambda: models.LSTM(64), (16, 16, 64)),
    "LayerNorm": (lambda: models.LayerNorm(), (64, 256)),
}
PAIRS = {
    **{name: (lambda make=make: (make(),), shape) for name, (make, shape) in ALONE.items()},
    **{f"Linear+{name}": (lambda name=name: (Linear(256), getattr(models, name)()), (64, 256)) for name in ACTIVATIONS},
    "Conv2d+Relu": (lambda: (Conv2d(32, 3), models.Relu()), (8, 32, 12, 12)),
    "Conv2d+Gelu": (lambda: (Conv2d(32, 3), models.Gelu()), (8, 32, 12, 12)),
    "Linear+LayerNorm": (lambda: (Linear(256), LayerNorm()), (64, 256)),
    "Linear+LayerNorm+Relu": (lambda: (Linear(256), LayerNorm(), models.Relu()), (64, 256)),
    "Linear+Dropout": (lambda: (Linear(256), models.Dropout()), (64, 256)),
    "Linear+Dropout+Relu": (lambda: (Linear(256), models.Dropout(), models.Relu()), (64, 256)),
}


@pytest.mark.parametrize("name", PAIRS)
def test_ten_layers_keep_the_scale(name):
    make, shape = PAIRS[name]
    model = Model()
    for _ in range(10):
        for block in make():
            model += block
    pm = ml.compile(model, ml.JaxBackend(seed=0), shapes={"input": list(shape)})
    x = np.random.default_rng(0).standard_normal(shape, "float32")
    assert 0.1 < float(np.std(pm.evaluate(pm.randomize_params(0), {"input": x})["output"])) < 10


def starts(*blocks) -> list[str]:
    """Return the initializers of the layers' weights, in execution order."""
    return [
        one.initializer.name for one in infer(models.Sequential(*blocks).graph, {}).parameters if one.port == "weight"
    ]


def test_layer_is_initialized_for_its_reader():
    Relu, Dropout, Softmax = models.Relu, models.Dropout, models.Softmax
    assert starts(Linear(8), Relu(), Linear(8)) == ["he_uniform", "lecun_uniform"]
    assert starts(Linear(8), Dropout(), models.BatchNorm(), Relu())[:1] == ["he_uniform"]
    assert starts(Linear(8), Linear(8), models.Tanh()) == ["lecun_uniform", "he_uniform"]
    assert starts(Linear(8), Dropout(), Linear(8), Softmax()) == ["lecun_uniform", "lecun_uniform"]
    assert starts(Conv2d(8), models.MaxPool2d(2), Relu(), Conv2d(4)) == ["he_normal", "lecun_normal"]


def test_one_of_several_readers_may_be_an_activation():
    model = Model()
    model |= Linear(8)(input="input", output="hidden")
    model |= models.Relu()(input="hidden", output="bent")
    model |= Linear(8)(input="hidden", output="straight")
    weights = [one for one in infer(model.graph, {}).parameters if one.port == "weight"]
    assert [one.initializer.name for one in weights] == ["he_uniform", "lecun_uniform"]


def test_user_initializer_takes_precedence():
    model = models.Sequential(Linear(8), Linear(8)).set_initializers({"linear_0.weight": "he_normal"})
    assert infer(model.graph, {}).parameters[0].initializer.name == "he_normal"


def test_custom_function_may_be_an_activation(op_of_my_own):
    assert starts(Linear(8), op_of_my_own(), Linear(8)) == ["he_uniform", "lecun_uniform"]


def test_custom_operator_attribute_takes_precedence():
    class Dense(models.Operator):
        initializers = {"weight": models.op.Initializer("he_normal")}  # noqa: RUF012

        def compute(self, inputs):
            return {"output": np.maximum(inputs["input"] @ inputs["weight"], 0)}

        @classmethod
        def infer(cls, options, inputs):
            return models.op.Inferred({"output": inputs["input"].shape}, {"weight": (8, 8)})

    assert starts(Dense(), Dense()) == ["he_normal", "he_normal"]


def test_loop_carried_values_count():
    Relu, Repeat, Sequential = models.Relu, models.Repeat, models.Sequential
    assert starts(Repeat(Sequential(Relu(), Linear(8)), 3)) == ["he_uniform"]
    assert starts(Repeat(Linear(8), 3), Relu()) == ["he_uniform"]
    assert starts(Repeat(Linear(8), 3)) == ["lecun_uniform"]
    assert starts(Linear(8), Repeat(Sequential(Relu(), Linear(8)), 3)) == ["he_uniform"] * 2
    either = Model() | Linear(8)(input="x", output="hidden")
    either |= models.Cond(Relu(), models.Tanh())(condition="is_so", input="hidden")
    assert starts(either) == ["he_uniform"]
    carry = Model() | models.Relu()(input="before", output="bent")
    carry |= Linear(8)(input="bent", output="mapped")
    carry |= models.Add()(left="mapped", right="x", output="sum")
    assert starts(models.Scan(carry, {"sum": "before"})) == ["lecun_uniform"], "an Add reads it"


def test_repeat_equals_separate_layers():
    def std(model):
        pm = ml.compile(model, shapes={"input": [64, 64]})
        x = np.random.default_rng(0).standard_normal((64, 64), "float32")
        return float(np.std(pm.evaluate(pm.randomize_params(0), {"input": x})["output"]))

    block = models.Sequential(models.Relu(), Linear(64))
    written = models.Sequential(*(models.Sequential(models.Relu(), Linear(64)) for _ in range(10)))
    assert std(models.Repeat(block, 10)) == pytest.approx(std(written), rel=0.8)


def test_concatenated_arrays_initialize_separately():
    model = models.Sequential(models.LSTM(8)).set_initializers({"lstm_0.w_hh": "orthogonal"})
    weight = ml.compile(model, shapes={"input": [2, 3, 16]}).randomize_params(0)["lstm_0.w_hh"]
    for one in np.split(np.asarray(weight), 4, axis=-1):
        np.testing.assert_allclose(one @ one.T, np.eye(8), atol=1e-6)
    with pytest.raises(ml.errors.UnknownOptionError, match="without parts"):
        model.set_initializers({"lstm_0.bias": models.op.Initializer("ones", parts=(0, 1, 0, 0))})


@pytest.mark.parametrize(("axis", "shape"), [(0, (3, 4, 2)), (-2, (3, 4, 2)), (1, (3, 2, 4)), (-1, (3, 2, 4))])
def test_factors_follow_the_axis_also_of_stacked_arrays(axis, shape):
    initializer = models.op.Initializer("ones", in_axis=1 - axis % 2, out_axis=axis, parts=(0, 1))
    (array,) = drawn([Wanted(initializer, stream((0,), "w"), shape, "w", 1)])
    expected = np.expand_dims(np.float32([0, 0, 1, 1]), (0, 2) if axis in (0, -2) else (0, 1))
    np.testing.assert_array_equal(array, np.broadcast_to(expected, shape))


@pytest.fixture
def op_of_my_own():
    class Bent(models.Operator):
        def compute(self, inputs):
            return {"output": abs(inputs["input"])}

    return Bent


def test_gates_initialize_separately():
    pm = ml.compile(models.LSTM(8), shapes={"input": [2, 3, 16]})
    params = pm.randomize_params(0)
    recurrent = np.split(np.asarray(params["w_hh"]), 4, axis=-1)
    for one in recurrent:
        np.testing.assert_allclose(one @ one.T, np.eye(8), atol=1e-6)
    limit = np.sqrt(3 / 16)
    largest = [np.abs(one).max() for one in np.split(np.asarray(params["w_ih"]), 4, axis=-1)]
    assert all(0.9 * factor * limit < one <= factor * limit for one, factor in zip(largest, (1, 1, 2, 1), strict=True))
    np.testing.assert_array_equal(params["bias"], np.repeat([0, 1, 0, 0], 8))
