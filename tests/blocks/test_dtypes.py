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
    KINDS,
    Add,
    Arange,
    ClassCounts,
    Concat,
    ConfusionCounts,
    Constant,
    Conv2d,
    ConvTranspose2d,
    CosineSimilarity,
    CrossEntropy,
    Embedding,
    Eye,
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
    Ones,
    PermuteTensor,
    Randn,
    RNNCell,
    Stack,
    Take,
    TopKHits,
    ToTensor,
    Unembedding,
    Value,
)
from mithril_nb.models.shape_inference.infer import infer
from mithril_nb.program import run
from tests.blocks.running import outputs

SCORES = np.random.default_rng(0).normal(size=(5, 256)).astype("float32")
CLASSES = np.int32([0, 1, 127, 200, 255])
ROWS = np.arange(300, dtype="float32")
INDICES = np.int32([-1, 5, 127])


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
        (PermuteTensor(), "int8", {"input": ROWS, "indices": INDICES}),
        (Take(0), "int8", {"input": ROWS, "indices": INDICES}),
        (Gather(0), "int8", {"input": ROWS, "indices": INDICES}),
        (indexed(), "int8", {"input": ROWS, "index": INDICES}),
        (OneHot(300), "uint8", {"input": CLASSES}),
        (Embedding(), "uint8", {"input": CLASSES, "weight": ROWS[:, None]}),
        (Embedding(), "int8", {"input": INDICES, "weight": ROWS[:, None]}),
        (Embedding(), "int16", {"input": INDICES, "weight": ROWS[:, None]}),
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


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_numbers_in_a_model_have_its_dtype(dtype: str):
    backend = ml.JaxBackend(dtype=dtype)
    added = Model() | Add()(left="input", right=[1.0, 2.0], output="output")
    scaled = Model() | Value(0.5)(output="half")
    scaled |= Multiply()(left="input", right=scaled.half, output="output")
    made = Model() | Value((0.5, 1.5))(output="halves")
    made |= ToTensor()(input=made.halves, output="output")
    numbers = (Constant([1.0, 2.0]), Full((2,), 0.5), Ones((2,)), Eye(2), Arange(0.0, 2.0, 0.5), Randn((2,)))
    for model in (added, scaled, made, *numbers, OneHot(3)):
        shapes = {"input": (2,)} if model.inputs and model.inputs[0].name == "input" else {}
        pm = ml.compile(model, backend, shapes=shapes)
        inputs = {"input": np.array([0, 1]) if model.kind == "OneHot" else backend.ones(2)} if shapes else {}
        output = pm.evaluate({}, inputs)["output"]
        assert str(output.dtype) == pm.output_specs["output"].dtype == dtype, model


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


# Inference agrees with JAX

ALL = ("bool", "int8", "uint8", "int16", "uint16", "uint32", "int32", "float16", "bfloat16", "float32", "complex64")
MIXED = [dtype for dtype in ALL if dtype not in ("int8", "uint16", "complex64")]
REDUCTIONS = ("Mean", "Sum", "Max", "Min", "Prod", "Variance")
OF_PAIRS = (
    "Add Subtract Multiply Minimum Maximum MatrixMultiply Divide FloorDivide Mod Power Greater Less Equal NotEqual "
    "LessEqual GreaterEqual LogicalAnd LogicalOr LogicalXOr ShiftLeft ShiftRight Where"
).split()
OF_ONE = (
    "Log Sign Square StopGradient Absolute Negate Exponential Sqrt Sine Cosine Floor Buffer StableReciprocal Clamp "
    "NanToNum Ceil Round Rsqrt Erf Expm1 IsNan LogicalNot ArgMax ArgMin LogSumExp Norm Cumsum"
).split()


def agrees(block: Model, specs: dict[str, TensorSpec]) -> bool:
    """Return whether a block accepts inputs; if so, compare the outputs that it infers with JAX, in x64 mode too."""
    inference = infer(block.graph, specs)
    if inference.problems:
        return False
    toolkit = ml.JaxBackend().toolkit
    given = [
        {name: jax.ShapeDtypeStruct(spec.shape, spec.dtype) for name, spec in group.items()}
        for group in ({one.name: one.spec for one in inference.parameters}, specs)
    ]
    for x64 in (False, True):
        with jax.enable_x64(x64):
            real = jax.eval_shape(lambda params, inputs: run(block.graph, toolkit, params, inputs), *given)
        real = {port: TensorSpec(array.shape, str(array.dtype)) for port, array in real.items()}
        assert dict(inference.outputs) == real, (specs, x64)
    return True


@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize("kind", [*OF_PAIRS, *OF_ONE, *REDUCTIONS])
def test_each_dtype_agrees_with_jax_or_is_rejected(kind: str, dtype: str):
    block = KINDS[kind](axis=0) if kind in (*REDUCTIONS, "ArgMax", "ArgMin", "LogSumExp", "Norm") else KINDS[kind]()
    ports = [port.name for port in block.inputs if port.role == "data" and port.name != "cond"]
    for second in ALL if len(ports) == 2 else ("float32",):
        dtypes = {"cond": "bool"} if kind == "Where" else {}
        dtypes |= dict(zip(ports, (dtype, second), strict=False))
        if not agrees(block, {port: TensorSpec((2, 2), dtype) for port, dtype in dtypes.items()}):
            refused = {"complex64"} if kind in REDUCTIONS else {"bool", "complex64"}
            assert kind.startswith(("Logical", "Shift")) or {dtype, second} & refused, dtypes


@pytest.mark.parametrize("dtype", [dtype for dtype in ALL if dtype != "complex64"])
@pytest.mark.parametrize("kind", REDUCTIONS)
def test_a_reduction_has_the_dtype_of_jax(kind: str, dtype: str):
    inferred = infer(KINDS[kind](axis=0).graph, {"input": TensorSpec((2, 3), dtype)}).outputs["output"].dtype
    plain = jnp.var if kind == "Variance" else getattr(jnp, kind.lower())
    assert str(jax.eval_shape(plain, jax.ShapeDtypeStruct((2, 3), dtype)).dtype) == inferred


@pytest.mark.parametrize(
    ("block", "shapes", "mixed"),
    [
        (Concat(2), {"input1": (2,), "input2": (2,)}, 2),
        (Stack(2), {"input1": (2,), "input2": (2,)}, 2),
        (CosineSimilarity(), {"left": (2, 3), "right": (2, 3)}, 2),
        (Unembedding(5), {"input": (2, 3)}, 1),
        (Conv2d(3, 4), {"input": (1, 3, 8, 8)}, 1),
        (ConvTranspose2d(3, 4), {"input": (1, 3, 8, 8)}, 1),
        (RNNCell(4), {"input": (2, 3), "prev_hidden": (3, 4)}, 2),
        (GRUCell(4), {"input": (2, 3), "prev_hidden": (3, 4)}, 2),
        (LSTMCell(4), {"input": (2, 3), "prev_hidden": (3, 4), "prev_cell": (3, 4)}, 2),
    ],
    ids=lambda one: one.kind if isinstance(one, Model) else "",
)
def test_mixed_dtypes_agree_with_inference(block: Model, shapes: dict, mixed: int):
    for dtypes in product(MIXED, MIXED if mixed > 1 else ("float32",)):
        specs = {port: TensorSpec(shape, dtypes[number > 0]) for number, (port, shape) in enumerate(shapes.items())}
        if not agrees(block, specs):
            assert {*dtypes} & {"bool", "uint8", "int16", "uint32", "int32"}


def test_taking_nothing_has_the_shape_of_the_indices():
    for block, shape, indices, expected in (
        (Take(0), (0,), (0, 4), (0, 4)),
        (Take(1), (4, 0, 6), (0, 6), (4, 0, 6, 6)),
        (Take(None), (0, 3), (2, 0), (2, 0)),
        (Take(-1), (5, 3), (0,), (5, 0)),
        (PermuteTensor(), (0, 3), (0, 2), (0, 2, 3)),
    ):
        given = {"input": np.zeros(shape, "float32"), "indices": np.zeros(indices, "int32")}
        assert outputs(block, **given)["output"].shape == expected
        spec = infer(block.graph, {port: TensorSpec(one.shape, str(one.dtype)) for port, one in given.items()})
        assert spec.outputs["output"] == TensorSpec(expected, "float32")
