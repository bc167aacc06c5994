"""Initial values: their distributions, streams and scale; ten layers neither vanish nor explode."""

from __future__ import annotations

import os
import textwrap

import jax
import numpy as np
import pytest
from jax.nn import initializers as reference

import mithril_nb as ml
from mithril_nb import models
from mithril_nb.backends.jax import initializers
from mithril_nb.backends.jax.initializers import Request, drawn, stream
from mithril_nb.errors import ShapeError
from mithril_nb.models import MLP, Conv2d, LayerNorm, Linear, Model, Repeat
from mithril_nb.models.initializers import INITIALIZERS
from mithril_nb.models.op import Initializer
from mithril_nb.models.shape_inference.infer import infer

FANS = ("glorot_uniform", "glorot_normal", "he_uniform", "he_normal", "lecun_uniform", "lecun_normal")
CASES = [
    *((Initializer(name), (300, 500), getattr(reference, name)()) for name in FANS),
    *((Initializer(name, 1, 0), (64, 32, 5, 5), getattr(reference, name)(in_axis=1, out_axis=0)) for name in FANS),
    (Initializer("normal", scale=0.02), (400, 300), reference.normal(0.02)),
    (Initializer("truncated_normal", scale=0.5), (400, 300), reference.truncated_normal(0.5)),
    (Initializer("uniform", scale=3.0), (400, 300), reference.uniform(3.0)),
    (Initializer("orthogonal", scale=2.0), (400, 300), reference.orthogonal(2.0)),
    (Initializer("orthogonal"), (300, 400), reference.orthogonal()),
    (Initializer("orthogonal", 1, 0), (64, 32, 5, 5), reference.orthogonal(column_axis=0)),
]


def initial(*wanted):
    """Return the initial value of one parameter: its initializer, stream, shape and name."""
    return next(drawn([Request(*wanted)]))


def names(case):
    return f"{case[0].name}-{'x'.join(map(str, case[1]))}"


@pytest.mark.parametrize(("initializer", "shape", "made_by"), CASES, ids=map(names, CASES))
def test_distribution_equals_jax(initializer, shape, made_by):
    mine = initial(initializer, stream([3], "w"), shape)
    theirs = np.asarray(made_by(jax.random.key(0), shape))
    assert (mine.shape, mine.dtype) == (shape, np.dtype("float32"))
    # 50,000 draws or more: the quantiles of two samples of one distribution differ by about 1 % of the spread.
    at = np.linspace(0.01, 0.99, 25)
    np.testing.assert_allclose(np.quantile(mine, at), np.quantile(theirs, at), atol=0.03 * theirs.std())
    assert mine.mean() == pytest.approx(theirs.mean(), abs=0.02 * float(theirs.std()))
    assert mine.std() == pytest.approx(theirs.std(), rel=0.01)
    if initializer.name not in ("normal", "orthogonal"):  # all others end somewhere, and 50,000 draws come near to it
        assert np.abs(mine).max() == pytest.approx(np.abs(theirs).max(), rel=0.001)


@pytest.mark.parametrize("shape", [(400, 300), (300, 400), (1, 5), (5, 1), (64, 64), (16, 8, 3, 3)], ids=str)
def test_orthogonal_initializer_is_orthogonal(shape):
    initializer = Initializer("orthogonal", 1, 0) if len(shape) == 4 else Initializer("orthogonal")
    q = initial(initializer, stream([3], "w"), shape).astype("float64").reshape(shape[0], -1)
    gram = q.T @ q if q.shape[0] >= q.shape[1] else q @ q.T
    np.testing.assert_allclose(gram, np.eye(min(q.shape)), atol=1e-6)


def test_orthogonal_determinant_has_either_sign():
    starts = [initial(Initializer("orthogonal"), stream([seed], "w"), (3, 3)) for seed in range(20)]
    signs = {round(float(np.linalg.det(start))) for start in starts}
    assert signs == {-1, 1}


def test_constant_initializers():
    def start(**given):
        return initial(Initializer(**given), stream([0], "b"), (3,)).tolist()

    assert start(name="zeros") == [0, 0, 0]
    assert start(name="ones") == [1, 1, 1]
    assert start(name="constant", scale=0.5) == [0.5, 0.5, 0.5]
    assert start(name="constant", scale=0.5, shift=2) == [2.5, 2.5, 2.5]
    with pytest.raises(ValueError, match="unknown initializer 'magic'"):
        initial(Initializer("magic"), stream([0], "b"), (3, 3))


@pytest.mark.parametrize("name", sorted(set(INITIALIZERS) - {"zeros", "ones"}))
def test_every_initializer_scales_and_shifts(name):
    plain, moved = (initial(Initializer(name, scale=s, shift=b), stream([0], "w"), (4, 3)) for s, b in ((1, 0), (3, 2)))
    np.testing.assert_allclose(moved, 3 * plain + 2, rtol=1e-5)


def test_seed_is_reproducible_and_the_stream_advances():
    def start(backend, seed=None):
        return np.asarray(ml.compile(Linear(4, input_size=3), backend).randomize_params(seed)["weight"])

    backend = ml.JaxBackend(seed=42)
    first, second = start(backend), start(backend)
    assert not np.array_equal(first, second)
    backend.set_seed(42)
    np.testing.assert_array_equal(start(backend), first)
    np.testing.assert_array_equal(start(backend, 7), start(ml.JaxBackend(), 7))
    assert start(ml.JaxBackend(seed=-1)).shape == (3, 4)


def test_the_numbers_are_the_same_on_every_machine():
    shape = (2, 3)
    uniform = initial(Initializer("uniform"), stream([7], "linear_0.weight"), shape)
    normal = initial(Initializer("normal"), stream([7], "linear_0.weight"), shape)
    np.testing.assert_allclose(uniform, UNIFORM, rtol=1e-6)
    np.testing.assert_allclose(normal, NORMAL, rtol=1e-6)


UNIFORM = [[0.38028365, 0.90392542, 0.29606366], [0.81693226, 0.19427943, 0.89573854]]
NORMAL = [[-0.49192980, 1.71253967, 0.41481325], [-1.21568537, 0.09897047, -1.25501454]]


PIECE = 2**12
"""Fewer numbers than in the package, so that the test is quick."""


@pytest.mark.parametrize("initializer", [Initializer("normal"), Initializer("he_uniform"), Initializer("orthogonal")])
def test_numbers_do_not_depend_on_threads(initializer, monkeypatch):
    monkeypatch.setattr(initializers, "PIECE", PIECE)
    shape = (3 * PIECE // 128, 128) if initializer.name != "orthogonal" else (110, 100)
    wanted = [Request(initializer, stream([1], name), shape, name) for name in ("a", "b")]
    starts = []
    for count in (1, 3):
        monkeypatch.setattr(os, "cpu_count", lambda count=count: count)
        starts.append(list(drawn(wanted)))
    for other in starts[1:]:
        for one, same in zip(starts[0], other, strict=True):
            np.testing.assert_array_equal(one, same)
    flat = starts[0][0].reshape(-1)
    assert not np.array_equal(flat[:1000], flat[PIECE : PIECE + 1000])


def test_values_do_not_depend_on_other_blocks():
    short, long = (ml.compile(MLP(5, hidden, 2)).randomize_params(0) for hidden in ([4], [4, 6]))
    np.testing.assert_array_equal(short["linear_0.weight"], long["linear_0.weight"])
    assert not np.array_equal(long["linear_0.weight"][:4, :4], long["linear_1.weight"][:4, :4])


def test_empty_parameter():
    for name in INITIALIZERS:
        assert initial(Initializer(name), stream([0], "w"), (0, 3)).shape == (0, 3)
        assert initial(Initializer(name), stream([0], "w"), (3, 0)).shape == (3, 0)


@pytest.mark.parametrize("name", ["he_normal", "orthogonal"])
def test_repeated_block_initializes_like_single_blocks(name):
    model = Repeat(Linear(64), 50)
    model.set_initializers({"repeat.body.weight": name})
    start = np.asarray(ml.compile(model, shapes={"input": [2, 64]}).randomize_params(0)["repeat.body.weight"])
    assert start.shape == (50, 64, 64)
    assert start.std() == pytest.approx(np.sqrt((2 if name == "he_normal" else 1) / 64), rel=0.01)
    if name == "orthogonal":
        np.testing.assert_allclose(start[7].T @ start[7], np.eye(64), atol=1e-5)


def test_formula_needs_two_axes():
    with pytest.raises(ShapeError) as caught:
        initial(Initializer("he_normal"), stream([0], "b"), (3,), "linear_0.bias")
    assert f"{type(caught.value).__name__}: {caught.value}" == textwrap.dedent("""\
        ShapeError: cannot initialize 'linear_0.bias' of shape (3,) with 'he_normal'.
            needs  an input axis and an output axis: axes -2 and -1""")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_initial_values_have_the_model_dtype(dtype):
    start = ml.compile(Linear(4, input_size=3), ml.JaxBackend(dtype=dtype)).randomize_params(0)
    assert {str(array.dtype) for array in start.values()} == {dtype}


def test_nested_repeats_initialize_separately():
    pm = ml.compile(Repeat(Repeat(Linear(64, input_size=64), 5), 3), shapes={"input": [2, 64]})
    weight = next(value for name, value in pm.randomize_params(0).items() if name.endswith("weight"))
    assert weight.shape == (3, 5, 64, 64)
    alone = ml.compile(Linear(64, input_size=64)).randomize_params(0)["weight"]
    np.testing.assert_allclose(np.std(weight, axis=(2, 3)), np.std(alone), rtol=0.1)


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
    model = Model() | Linear(8)(input="input", output="hidden")
    model |= models.Relu()(input="hidden", output="bent")
    model |= Linear(8)(input="hidden", output="straight")
    assert starts(model) == ["he_uniform", "lecun_uniform"]


def test_user_initializer_takes_precedence():
    model = models.Sequential(Linear(8), Linear(8)).set_initializers({"linear_0.weight": "he_normal"})
    assert starts(model)[0] == "he_normal"


def test_custom_function_may_be_an_activation():
    class Bent(models.Operator):
        def compute(self, inputs):
            return {"output": abs(inputs["input"])}

    assert starts(Linear(8), Bent(), Linear(8)) == ["he_uniform", "lecun_uniform"]


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
    (array,) = drawn([Request(initializer, stream((0,), "w"), shape, "w", 1)])
    expected = np.expand_dims(np.float32([0, 0, 1, 1]), (0, 2) if axis in (0, -2) else (0, 1))
    np.testing.assert_array_equal(array, np.broadcast_to(expected, shape))


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
