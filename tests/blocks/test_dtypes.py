"""Dtypes: labels with few bits, models in half precision, inputs of mixed dtypes."""

import textwrap
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mithril_nb as ml
from mithril_nb.errors import MithrilError
from mithril_nb.graph.spec import TensorSpec
from mithril_nb.models import (
    Add,
    Cast,
    ClassCounts,
    Concat,
    ConfusionCounts,
    Constant,
    Conv2d,
    ConvTranspose2d,
    CosineSimilarity,
    CrossEntropy,
    Embedding,
    Full,
    Gather,
    GRUCell,
    Identity,
    Indexer,
    IOKey,
    LSTMCell,
    Model,
    Multiply,
    OneHot,
    PermuteTensor,
    RNNCell,
    ShiftLeft,
    Stack,
    Take,
    TopKHits,
    ToTensor,
    Unembedding,
    Value,
    Where,
)
from mithril_nb.models.shape_inference.infer import infer
from mithril_nb.program import run
from tests.blocks.running import outputs

SCORES = np.random.default_rng(0).normal(size=(5, 256)).astype("float32")
CLASSES = np.int32([0, 1, 127, 200, 255])
ROWS = np.arange(300, dtype="float32")
PLACES = np.int32([-1, 5, 127])


def indexed() -> Model:
    """Return an Indexer whose index is connected."""
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
def test_8_bit_integers_agree_with_32_bit_integers(block: Model, dtype: str, given: dict[str, np.ndarray]):
    narrow = {port: array.astype(dtype) if array.dtype == "int32" else array for port, array in given.items()}
    expected = outputs(block, **given)
    for port, value in outputs(block, **narrow).items():
        np.testing.assert_array_equal(value, expected[port])
        assert value.dtype == expected[port].dtype
        assert jnp.isfinite(value).all()


def test_an_embedding_accepts_8_bit_tokens():
    pm = ml.compile(Embedding(300, 4), shapes={"input": [2]})
    weight = np.random.default_rng(0).normal(size=(300, 4)).astype("float32")
    for places, dtype in (([200, 255], "uint8"), ([127, -1], "int8")):
        found = pm.evaluate({"weight": weight}, {"input": np.array(places, dtype)})["output"]
        np.testing.assert_array_equal(found, weight[places])


def test_shifts_keep_the_dtype():
    found = outputs(ShiftLeft(), input=np.uint8([255]), shift=np.uint8([1]))["output"]
    assert (found.dtype, found.tolist()) == ("uint8", [254])


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_numbers_in_a_model_have_its_dtype(dtype: str):
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
def test_a_convolution_accepts_another_float_dtype(block: Model):
    pm = ml.compile(Model() + Cast("float16") + block, shapes={"input": (1, 3, 8, 8)})
    found = pm.evaluate(pm.randomize_params(), {"input": np.ones((1, 3, 8, 8), "float32")})["output"]
    assert (found.shape, str(found.dtype)) == (pm.output_specs["output"].shape, pm.output_specs["output"].dtype)


def test_sizes_divided_by_zero_are_rejected():
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
            values  4, 0""")


DTYPES = ("bool", "uint8", "int16", "uint32", "int32", "bfloat16", "float16", "float32")
MIXED = [
    (Where(), {"input1": (2,), "input2": (2,), "cond": (2,)}, ("input1", "input2")),
    (Concat(2), {"input1": (2,), "input2": (2,)}, ("input1", "input2")),
    (Stack(2), {"input1": (2,), "input2": (2,)}, ("input1", "input2")),
    (CosineSimilarity(), {"left": (2, 3), "right": (2, 3)}, ("left", "right")),
    (Unembedding(5), {"input": (2, 3)}, ("input",)),
    (Conv2d(3, 4), {"input": (1, 3, 8, 8)}, ("input",)),
    (RNNCell(4), {"input": (2, 3), "prev_hidden": (3, 4)}, ("input", "prev_hidden")),
    (GRUCell(4), {"input": (2, 3), "prev_hidden": (3, 4)}, ("input", "prev_hidden")),
    (LSTMCell(4), {"input": (2, 3), "prev_hidden": (3, 4), "prev_cell": (3, 4)}, ("input", "prev_hidden", "prev_cell")),
]


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize(
    ("block", "shapes", "mixed"), MIXED, ids=lambda one: one.kind if isinstance(one, Model) else ""
)
def test_mixed_dtypes_agree_with_inference(block: Model, shapes: dict, mixed: tuple[str, ...], x64: bool):
    toolkit = ml.JaxBackend().toolkit
    for first, second in product(DTYPES, DTYPES if len(mixed) > 1 else ("float32",)):
        dtypes = dict.fromkeys(shapes, "bool") | dict.fromkeys(mixed, second) | {mixed[0]: first}
        found = infer(block.graph, {port: TensorSpec(shape, dtypes[port]) for port, shape in shapes.items()})
        if found.problems:
            assert {first, second} & {"bool", "uint8", "int16", "uint32", "int32"}
            continue
        with jax.enable_x64(x64):
            given = {port: jax.ShapeDtypeStruct(shape, dtypes[port]) for port, shape in shapes.items()}
            params = {one.name: jax.ShapeDtypeStruct(one.spec.shape, one.spec.dtype) for one in found.parameters}
            real = jax.eval_shape(lambda params, given: run(block.graph, toolkit, params, given), params, given)
        assert dict(found.outputs) == {port: TensorSpec(one.shape, str(one.dtype)) for port, one in real.items()}, (
            dtypes
        )


def test_taking_nothing_has_the_shape_of_the_indices():
    for shape, indices, axis, expected in (
        ((0,), (0, 4), 0, (0, 4)),
        ((4, 0, 6), (0, 6), 1, (4, 0, 6, 6)),
        ((0, 3), (2, 0), None, (2, 0)),
        ((5, 3), (0,), -1, (5, 0)),
    ):
        given = {"input": np.zeros(shape, "float32"), "indices": np.zeros(indices, "int32")}
        assert outputs(Take(axis), **given)["output"].shape == expected
        spec = infer(Take(axis).graph, {port: TensorSpec(one.shape, str(one.dtype)) for port, one in given.items()})
        assert spec.outputs["output"] == TensorSpec(expected, "float32")
    found = outputs(PermuteTensor(), input=np.zeros((0, 3), "float32"), indices=np.zeros((0, 2), "int32"))
    assert found["output"].shape == (0, 2, 3)
