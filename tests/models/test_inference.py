"""Shape inference agrees with JAX, for numbers and names, and finds every mismatch."""

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import WIDTH, models, modest

import mithril_nb as ml
from mithril_nb.backends.jax import JaxBackend
from mithril_nb.errors import UnknownOpError
from mithril_nb.graph.edit import add, alone
from mithril_nb.graph.records import Block, LogicalGraph, Port
from mithril_nb.graph.spec import TensorSpec
from mithril_nb.models import (
    L2,
    MLP,
    Add,
    Conv2d,
    Dropout,
    Embedding,
    Flatten,
    Gelu,
    LayerNorm,
    Linear,
    MatrixMultiply,
    MaxPool2d,
    Model,
    Relu,
    Sigmoid,
    Softmax,
    Tanh,
    Transpose,
)
from mithril_nb.models.shape_inference.dims import broadcast, product, same_padding, window_size
from mithril_nb.models.shape_inference.infer import Inference, infer
from mithril_nb.program import run

BACKEND = JaxBackend()


def by_jax(graph: LogicalGraph, found: Inference) -> dict[str, jax.ShapeDtypeStruct]:
    """Return JAX's output specs for the parameters and inputs of an inference."""
    params = {p.name: jax.ShapeDtypeStruct(p.spec.shape, p.spec.dtype) for p in found.parameters}
    inputs = {name: jax.ShapeDtypeStruct(spec.shape, spec.dtype) for name, spec in found.inputs.items()}
    return jax.eval_shape(lambda params, inputs: run(graph, BACKEND.toolkit, params, inputs), params, inputs)


def assert_agrees_with_jax(graph: LogicalGraph, inputs: dict[str, TensorSpec]) -> Inference:
    found = infer(graph, inputs)
    assert found.problems == ()
    assert found.is_concrete
    assert {name: (spec.shape, spec.dtype) for name, spec in found.outputs.items() if spec} == {
        name: (struct.shape, str(struct.dtype)) for name, struct in by_jax(graph, found).items()
    }
    return found


dims = st.integers(1, 5)
shapes = st.lists(dims, min_size=1, max_size=4).map(tuple)
flags = st.booleans()
windows = st.one_of(st.integers(1, 4), st.tuples(st.integers(1, 4), st.integers(1, 4)))
paddings = st.sampled_from(("same", "valid"))
images = st.tuples(st.integers(0, 3), dims, st.integers(4, 9), st.integers(4, 9))

ANY_SHAPE = st.one_of(
    st.sampled_from((Relu(), Gelu(), Gelu(True), Sigmoid(), Tanh(), Softmax(), Flatten(), Dropout(0.3))),
    st.builds(Softmax, st.just(0)),
    st.builds(LayerNorm, flags, flags),
    st.builds(Linear, dims, flags),
    st.builds(MLP, st.none(), st.lists(dims, max_size=2), dims),
)
ON_IMAGES = st.one_of(
    st.builds(Conv2d, dims, windows, st.none(), windows, paddings, flags),
    st.builds(MaxPool2d, windows, st.none() | windows, paddings),
)


@given(ANY_SHAPE, shapes)
def test_blocks_of_any_rank_agree_with_jax(block, shape):
    assert_agrees_with_jax(block.graph, {"input": TensorSpec(shape)})


@given(ON_IMAGES, images)
def test_blocks_on_images_agree_with_jax(block, shape):
    assert_agrees_with_jax(block.graph, {"input": TensorSpec(shape)})


@given(shapes, dims, dims)
def test_an_embedding_agrees_with_jax(shape, rows, length):
    found = assert_agrees_with_jax(Embedding(rows, length).graph, {"input": TensorSpec(shape, "int32")})
    assert found.outputs["output"] == TensorSpec((*shape, length))


@given(st.lists(st.sampled_from((1, 2, 3)), max_size=4).map(tuple), st.data())
def test_broadcasting_agrees_with_jax(left, data):
    kept = data.draw(st.integers(0, len(left)))
    right = tuple(data.draw(st.sampled_from((1, dim))) if dim > 1 else data.draw(dims) for dim in left[kept:])
    assert_agrees_with_jax(Add().graph, {"left": TensorSpec(left), "right": TensorSpec(right)})


@modest
@given(models(), st.integers(0, 3))
def test_random_models_agree_with_jax(model, batch):
    graph = model.graph
    data_inputs = [port.name for port in graph.inputs if port.role == "data"]
    found = assert_agrees_with_jax(graph, {name: TensorSpec((batch, WIDTH)) for name in data_inputs})
    assert set(found.outputs) == {port.name for port in graph.outputs}
    assert set(found.blocks) == {path for path, _ in graph.walk()}


@modest
@given(models())
def test_named_dims_agree_with_numbers(model):
    graph = model.graph
    names = [port.name for port in graph.inputs if port.role == "data"]
    named = infer(graph, {name: TensorSpec(("batch", WIDTH)) for name in names})
    in_numbers = infer(graph, {name: TensorSpec((7, WIDTH)) for name in names})
    assert {path: substituted(specs.outputs, batch=7) for path, specs in named.blocks.items()} == {
        path: substituted(specs.outputs) for path, specs in in_numbers.blocks.items()
    }
    assert named.parameters == in_numbers.parameters


def substituted(specs, **sizes):
    """Return shapes with names, and expressions of names, replaced by numbers."""
    return {
        name: tuple(eval(dim, {}, sizes) if isinstance(dim, str) else dim for dim in spec.shape)
        for name, spec in specs.items()
    }


@given(st.lists(ON_IMAGES, min_size=1, max_size=3), st.integers(0, 3), st.integers(16, 24), st.integers(16, 24))
def test_named_images_agree_with_numbers(blocks, batch, height, width):
    model = Model()
    for block in blocks:
        model += block
    model += Flatten()
    named = infer(model.graph, {"input": TensorSpec(("n", "c", "h", "w"))})
    numbers = infer(model.graph, {"input": TensorSpec((batch, 2, height, width))})
    if numbers.problems:
        return  # windows that are larger than the input
    assert substituted(named.outputs, n=batch, c=2, h=height, w=width) == substituted(numbers.outputs)


@given(st.integers(1, 60), st.integers(1, 9), st.integers(1, 5))
def test_same_padding_keeps_every_window(size, window, stride):
    before, after = same_padding(size, window, stride)
    assert window_size(size, window, stride, before, after) == -(-size // stride)
    assert 0 <= after - before <= 1


def test_arithmetic_on_named_dims():
    assert product(("a", "b-1", 3)) == "a*(b-1)*3"
    assert product(("a", 1)) == "a"
    assert product(()) == 1
    assert product(("a", 0)) == 0
    assert window_size("h", 3, 1, 0, 0) == "h-2"
    assert window_size("h-2", 2, 2, 0, 0) == "(h-2-2)//2+1"
    assert window_size("h", 3, 1, 1, 1) == "h"
    assert window_size("h", 2, 1, 1, 1) == "h+1"


@pytest.mark.parametrize(
    ("left", "right", "result"),
    [
        (("...", 3), ("n", 3), ("...", 3)),
        (("...",), (4, 3), ("...", 4, 3)),
        (("...",), (4, 1), ("...",)),
        (("...",), ("n", 3), ("...", 3)),
        (("...", 1), (5,), ("...", 5)),
        (("...", 3), (2, 5, 1), ("...", 2, 5, 3)),
        ((), ("...", 3), ("...", 3)),
        (("n", 3), (3,), ("n", 3)),
        (("n",), (4,), (4,)),
        (("n",), (1,), ("n",)),
    ],
)
def test_broadcasting_of_partly_known_shapes(left, right, result):
    assert broadcast(TensorSpec(left), TensorSpec(right)) == result
    assert broadcast(TensorSpec(right), TensorSpec(left)) == result


def test_unknown_shapes_are_no_problem():
    model = Model()
    for block in (Conv2d(4), MaxPool2d(), Flatten(), Linear(8), LayerNorm(), Relu(), Softmax(3)):
        model += block
    found = infer(model.graph, {})
    assert found.problems == ()
    assert not found.is_concrete
    assert [str(parameter.spec) for parameter in found.parameters] == [
        "(4, 'in_channels', 3, 3) float32", "(4,) float32", "('input_size', 8) float32", "(8,) float32", "(8,) float32",
        "(8,) float32",
    ]  # fmt: skip


def test_a_shared_weight_is_one_parameter():
    model = Model()
    model |= Linear(4, use_bias=False)(input="x", weight="w", output="h")
    model |= Linear(4, use_bias=False)(input="h", weight="w")
    found = infer(model.graph, {"x": TensorSpec((2, 4))})
    assert [(parameter.name, parameter.spec.shape) for parameter in found.parameters] == [("w", (4, 4))]
    outer = Model()
    outer += Model.of(model.graph, "tied")
    found = infer(outer.graph, {"input": TensorSpec((2, 4))})
    assert [parameter.name for parameter in found.parameters] == ["tied.w"]
    twice = Model()
    twice += Model.of(model.graph, "a")(w="v")
    twice += Model.of(model.graph, "b")(w="v")
    assert [parameter.name for parameter in infer(twice.graph, {"input": TensorSpec((2, 4))}).parameters] == ["v"]


@pytest.mark.parametrize("is_read_first", [True, False])
def test_a_weight_read_by_other_blocks_keeps_its_initializer(is_read_first):
    model = Model()
    if is_read_first:
        model |= L2()(input="w", output="penalty")
    model |= Embedding(10, 6)(input="x", weight="w", output="y")
    if not is_read_first:
        model |= L2()(input="w", output="penalty")
    found = infer(model.graph, {"x": TensorSpec((5,), "int32")})
    (weight,) = found.parameters
    assert (weight.name, weight.path, weight.spec.shape) == ("w", "embedding_0", (10, 6))
    assert weight.initializer == Embedding.initializers["weight"]
    assert [port.name for port in model.inputs if port.role == "data"] == ["x"]
    assert found.outputs["penalty"] == TensorSpec(())


@pytest.mark.parametrize("is_turned_first", [True, False])
def test_an_embedding_may_be_tied(is_turned_first):
    model = Model()
    if is_turned_first:
        model |= Transpose()(input="w", output="turned")
    model |= Embedding(10, 6)(input="x", weight="w", output="read")
    if not is_turned_first:
        model |= Transpose()(input="w", output="turned")
    model |= MatrixMultiply()(left="read", right="turned", output="scores")
    found = assert_agrees_with_jax(model.graph, {"x": TensorSpec((5,), "int32")})
    assert found.outputs["scores"] == TensorSpec((5, 10))


def test_an_embedding_may_be_tied_by_its_connection():
    model = Model()
    model |= (words := Embedding(10, 6))(input="x", output="read")
    model |= MatrixMultiply()(left=model.read, right=words.weight.T, output="scores")
    found = infer(model.graph, {"x": TensorSpec((5,), "int32")})
    assert [parameter.name for parameter in found.parameters] == ["embedding_0_weight"]
    assert found.outputs["scores"] == TensorSpec((5, 10))


def test_a_shared_weight_is_known_if_one_block_determines_it():
    model = Model()
    model |= Linear(4, use_bias=False)(input="x", weight="w")
    model |= Linear(4, use_bias=False, input_size=3)(input="y", weight="w")
    assert infer(model.graph, {}).parameters[0].spec == TensorSpec((3, 4))


def test_a_weight_may_be_computed():
    model = Model()
    model |= Linear(4, use_bias=False)(input="z", output="made")
    model |= Linear(4, use_bias=False)(input="x", weight="made")
    specs = {"z": TensorSpec((3, 2)), "x": TensorSpec((5, 3))}
    found = assert_agrees_with_jax(model.graph, specs)
    assert [parameter.name for parameter in found.parameters] == ["linear_0.weight"]
    (problem,) = infer(model.graph, specs | {"z": TensorSpec((9, 2))}).problems
    assert str(problem) == (
        "cannot connect 'linear_0.output' to 'linear_1.weight'.\n"
        "    output  (9, 4) float32\n"
        "    weight  needs (3, 4)\n"
        "    Try: connect an array of shape (3, 4), or leave 'weight' open."
    )
    assert problem.edge == ("linear_0.output", "linear_1.weight")


def test_dtypes_follow_the_blocks():
    model = Model()
    model |= Embedding(10, 4)(input="tokens", output="rows")
    model |= Add()(left="rows", right="bias")
    found = infer(model.graph, {}, "float16")
    assert {name: spec.dtype for name, spec in found.inputs.items()} == {"tokens": "int32", "bias": "float16"}
    assert found.parameters[0].spec.dtype == "float16"
    assert found.outputs["output"] is not None
    assert found.outputs["output"].dtype == "float16"
    nested = Model() + model
    assert [spec.dtype for spec in infer(nested.graph, {}, "float16").inputs.values()] == ["int32", "float16"]


def test_an_op_without_a_rule():
    block = Block("Fft", (), (Port("input"),), (Port("output"),), op="fft")
    graph, _ = add(LogicalGraph(), block)
    with pytest.raises(UnknownOpError) as error:
        infer(graph, {})
    assert str(error.value) == (
        "block 'fft_0' has an unknown op 'fft'.\n    known ops  list(mithril_nb.models.op.OPS)\n"
        "    Try: list(ml.models.op.OPS)  # one of these names"
    )


def test_forward_agrees_with_inference():
    pm = ml.compile(alone(Linear(3).block), shapes={"input": ["batch", 5]})
    struct = jax.eval_shape(pm.forward, pm.randomize_params(0), {"input": jnp.ones((7, 5))})["output"]
    assert (struct.shape, str(struct.dtype)) == ((7, 3), "float32")
