"""Dtypes: labels of few bits, models in half precision, inputs of several dtypes at once."""

import textwrap

import jax.numpy as jnp
import numpy as np
import pytest

import mithril_nb as ml
from mithril_nb.errors import MithrilError
from mithril_nb.models import (
    Add,
    Cast,
    ClassCounts,
    ConfusionCounts,
    Constant,
    Conv2d,
    ConvTranspose2d,
    CrossEntropy,
    Embedding,
    Full,
    Gather,
    Identity,
    Indexer,
    IOKey,
    Model,
    Multiply,
    OneHot,
    PermuteTensor,
    ShiftLeft,
    Take,
    TopKHits,
    ToTensor,
    Value,
)
from tests.blocks.running import outputs

SCORES = np.random.default_rng(0).normal(size=(5, 256)).astype("float32")
CLASSES = np.int32([0, 1, 127, 200, 255])
ROWS = np.arange(300, dtype="float32")
PLACES = np.int32([-1, 5, 127])


def indexed() -> Model:
    """An Indexer whose index is connected."""
    model = Model()
    model |= Identity()(input=IOKey("index", type="int32"), output="places")
    model |= Indexer()(input="input", index=model.places, output="output")
    return model


@pytest.mark.parametrize(
    ("block", "dtype", "given"),
    [
        (CrossEntropy(), "uint8", {"input": SCORES, "target": CLASSES}),
        (CrossEntropy(label_smoothing=0.1), "uint8", {"input": SCORES, "target": CLASSES}),
        (CrossEntropy(weights="auto"), "uint8", {"input": SCORES, "target": CLASSES}),
        (ConfusionCounts(20), "uint8", {"pred": np.int32([19, 3]), "label": np.int32([19, 17])}),
        (ConfusionCounts(20), "int8", {"pred": np.int32([19, 3]), "label": np.int32([19, 17])}),
        (ClassCounts(256), "uint8", {"pred": CLASSES[::-1], "label": CLASSES}),
        (TopKHits(3), "uint8", {"pred": SCORES, "label": CLASSES}),
        (PermuteTensor(), "int8", {"input": ROWS, "indices": PLACES}),
        (Take(0), "int8", {"input": ROWS, "indices": PLACES}),
        (Gather(0), "int8", {"input": ROWS, "indices": PLACES}),
        (indexed(), "int8", {"input": ROWS, "index": PLACES}),
        (OneHot(300), "uint8", {"input": CLASSES}),
    ],
    ids=lambda one: one.kind if isinstance(one, Model) else "",
)
def test_whole_numbers_of_8_bits_give_what_those_of_32_do(block: Model, dtype: str, given: dict[str, np.ndarray]):
    narrow = {port: array.astype(dtype) if array.dtype == "int32" else array for port, array in given.items()}
    expected = outputs(block, **given)
    for port, value in outputs(block, **narrow).items():
        np.testing.assert_array_equal(value, expected[port])
        assert value.dtype == expected[port].dtype
        assert jnp.isfinite(value).all()


def test_an_embedding_takes_tokens_of_8_bits():
    pm = ml.compile(Embedding(300, 4), shapes={"input": [2]})
    weight = np.random.default_rng(0).normal(size=(300, 4)).astype("float32")
    for places, dtype in (([200, 255], "uint8"), ([127, -1], "int8")):
        found = pm.evaluate({"weight": weight}, {"input": np.array(places, dtype)})["output"]
        np.testing.assert_array_equal(found, weight[places])


def test_bits_are_moved_in_the_dtype_that_they_have():
    found = outputs(ShiftLeft(), input=np.uint8([255]), shift=np.uint8([1]))["output"]
    assert (found.dtype, found.tolist()) == ("uint8", [254])


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_numbers_in_a_model_take_its_dtype(dtype: str):
    backend = ml.JaxBackend(dtype=dtype)
    added = Model()
    added |= Add()(left="input", right=[1.0, 2.0], output="output")
    scaled = Model()
    scaled |= Value(0.5)(output="half")
    scaled |= Multiply()(left="input", right=scaled.half, output="output")
    made = Model()
    made |= Value((0.5, 1.5))(output="halves")
    made |= ToTensor()(input=made.halves, output="output")
    for model in (added, scaled, made, Constant([1.0, 2.0]), Full((2,), 0.5)):
        shapes = {"input": (2,)} if model.inputs and model.inputs[0].name == "input" else {}
        pm = ml.compile(model, backend, shapes=shapes)
        found = pm.evaluate({}, {port: backend.ones(*shape) for port, shape in shapes.items()})["output"]
        assert str(found.dtype) == pm.output_specs["output"].dtype == dtype, model


@pytest.mark.parametrize("block", [Conv2d(3, 4), ConvTranspose2d(3, 4)])
def test_a_convolution_takes_other_floating_numbers_than_those_of_its_weight(block: Model):
    pm = ml.compile(Model() + Cast("float16") + block, shapes={"input": (1, 3, 8, 8)})
    found = pm.evaluate(pm.randomize_params(), {"input": np.ones((1, 3, 8, 8), "float32")})["output"]
    assert (found.shape, str(found.dtype)) == (pm.output_specs["output"].shape, pm.output_specs["output"].dtype)


def test_sizes_divided_by_zero_are_refused():
    model = Model()
    model |= Identity()(input="input", output="x")
    model |= Identity()(input=model.x.reshape(model.x.shape()[0] // 0, -1), output="output")
    pm = ml.compile(model, shapes={"input": (4, 2)})
    with pytest.raises(MithrilError) as caught:
        pm.evaluate({}, {"input": np.ones((4, 2), "float32")})
    assert type(caught.value).__name__ == "ShapeError"
    assert str(caught.value) == textwrap.dedent("""\
        arithmetic of sizes has no result: integer division or modulo by zero.
            op      floor_divide
            values  4, 0
            Try: x.shape()[0] // 2, or another number that is not 0.""")
