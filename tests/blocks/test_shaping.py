"""Shapes, axes and indices: expressions compared with NumPy, names with numbers, and rejected inputs."""

import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mithril_nb as ml
from mithril_nb.backends.jax import JaxBackend
from mithril_nb.errors import MithrilError
from mithril_nb.graph.spec import TensorSpec
from mithril_nb.models import (
    Concat,
    ExpandDims,
    Flatten,
    Indexer,
    Linear,
    Model,
    Pad,
    Reshape,
    Roll,
    Stack,
    SwapAxes,
    Tile,
    Transpose,
    TransposedDiagonal,
    Triu,
)
from mithril_nb.models.shape_inference.infer import infer
from mithril_nb.program import run
from tests.blocks.cases.shaping import as_data, draw_index
from tests.blocks.running import of_x

X = np.arange(2 * 4 * 6, dtype="float32").reshape(2, 4, 6)
BOTH = [
    "x.reshape(8, -1)", "x.reshape((8, 6))", "x.transpose()", "x.transpose(0, 2, 1)", "x.transpose((1, 0, -1))", "x.T",
    "x[-1]", "x[:, 1:3, ::-2]", "x[..., None, 0]", "x[:, [0, 3]]", "x[:, :, np.array([[0, 5], [1, 1]])]",
    "x[[True, False]]",
]  # fmt: skip
"""Expressions that NumPy spells in the same way."""
EXPRESSIONS = {
    **{code: code for code in BOTH},
    "x.reshape(x.shape()[0], -1)": "x.reshape(2, -1)",
    "x.reshape('batch', -1)": "x.reshape(2, -1)",
    "x.reshape(x.T.shape())": "x.reshape(6, 4, 2)",
    "x.reshape(x.shape()[0] * x.shape()[1] // 2, 2 * x.shape()[-1])": "x.reshape(4, 12)",
    "x.cast('int32')": "x.astype('int32')",
    "x.cast(ml.float16)": "x.astype('float16')",
    "x.shape()": "x.shape",
    "x.size()": "x.size",
    "x.size(-1)": "x.shape[-1]",
    "x.split(3, axis=-1)": "np.stack(np.split(x, 3, -1))",
    "x.split(2)[1]": "np.split(x, 2)[1]",
    "x[:, : x.shape()[0]]": "x[:, :2]",
    "x[x.shape()[0] - 1, 1:]": "x[1, 1:]",
    "x / x.shape()[1]": "x / 4",
}


@pytest.mark.parametrize("code", EXPRESSIONS)
@pytest.mark.parametrize("jit", [True, False])
def test_expressions_agree_with_numpy(code: str, jit: bool):
    model = of_x(lambda x: eval(code, {**globals(), "x": x}))
    pm = ml.compile(model, shapes={"input": ["batch", 4, 6]}, jit=jit)
    output, expected = pm.evaluate({}, {"input": X})["output"], eval(EXPRESSIONS[code], {**globals(), "x": X})
    np.testing.assert_array_equal(np.asarray(output), expected)
    if isinstance(expected, np.ndarray):
        assert output.dtype == expected.dtype


def test_a_shape_is_read_once_per_size_and_stays_symbolic():
    model = Model() + of_x(lambda x: x.reshape(x.shape()[0], -1)) + Linear(3)
    pm = ml.compile(model, shapes={"input": ["batch", 4, 6]})
    assert pm.output_specs["output"] == TensorSpec(("batch", 3))
    params = pm.randomize_params(0)
    for batch in (2, 5, 0, 2):
        assert pm.evaluate(params, {"input": np.zeros((batch, 4, 6), "float32")})["output"].shape == (batch, 3)
    with jax.log_compiles(False):
        assert pm._run._cache_size() == 3


def test_an_index_may_be_data():
    model = Model() | Indexer()(input="input", index="index")
    for index in (1, np.array([1, 0]), np.array([[-1]])):
        shapes = {"input": [2, 4], "index": list(np.shape(index))}
        pm = ml.compile(model, shapes=shapes)
        table = np.arange(8.0, dtype="float32").reshape(2, 4)
        found = pm.evaluate({}, {"input": table, "index": np.asarray(index, "int32")})["output"]
        np.testing.assert_array_equal(found, table[index])
        assert pm.output_specs["output"] == TensorSpec(table[index].shape)


def test_a_data_dependent_shape_is_rejected_only_under_jit():
    model = Model() | Reshape()(input="input", shape="shape")
    given = {"input": np.arange(6.0, dtype="float32"), "shape": np.array([2, 3], "int32")}
    assert ml.compile(model, jit=False).evaluate({}, given)["output"].shape == (2, 3)
    with pytest.raises(MithrilError) as error:
        ml.compile(model).evaluate({}, given)
    assert (
        f"{type(error.value).__name__}: {error.value}"
        == textwrap.dedent("""
        ShapeError: 'shape' must be known before the program runs.
            given  an array that the program computes or receives
            Try: ml.compile(model, jit=False)
    """).strip()
    )


NAMED = {
    "reshape": lambda draw: Reshape((-1, 6)),
    "reshape by place": lambda draw: Reshape(("n", -1, 2)),
    "flatten": lambda draw: Flatten(draw(st.integers(0, 1)), draw(st.integers(1, 2))),
    "transpose": lambda draw: Transpose((2, 0, 1)),
    "swap": lambda draw: SwapAxes(0, -1),
    "concat": lambda draw: Concat(2, draw(st.sampled_from((0, -1, None)))),
    "stack": lambda draw: Stack(2, draw(st.integers(-4, 3))),
    "tile": lambda draw: Tile(draw(st.sampled_from((2, (0, 1, 3), (2, 1, 1, 1))))),
    "pad": lambda draw: Pad(draw(st.sampled_from((1, (0, 2), ((1, 0), (0, 0), (2, 2)))))),
    "expand": lambda draw: ExpandDims((0, -1)),
    "diagonal": lambda draw: Model() | Indexer(0)(output="row") | TransposedDiagonal()(input="row"),
    "index": lambda draw: Indexer(as_data(draw_index(draw, (3, 3, 6)))),
}


@pytest.mark.parametrize("name", NAMED)
@settings(max_examples=15)
@given(data=st.data())
def test_names_agree_with_jax_for_every_size(name, data):
    graph = NAMED[name](data.draw).graph
    ports = [port.name for port in graph.inputs if port.role == "data"]
    named = infer(graph, dict.fromkeys(ports, TensorSpec(("n", "m", 6)))).outputs["output"]
    for n, m in ((3, 3), (4, 3), (3, 7), (6, 6)):
        struct = jax.ShapeDtypeStruct((n, m, 6), "float32")
        real = jax.eval_shape(lambda given: run(graph, JaxBackend().toolkit, {}, given), dict.fromkeys(ports, struct))
        sizes = {"n": n, "m": m, "min": min, "max": max}
        assert tuple(eval(str(dim), sizes) for dim in named.shape) == real["output"].shape


@settings(max_examples=60)
@given(st.data())
def test_indexing_an_empty_or_short_axis_agrees_with_numpy(data):
    bound = st.none() | st.integers(-5, 5)
    index = (slice(data.draw(bound), data.draw(bound), data.draw(st.sampled_from((None, 1, -1, 2, -3)))),)
    named = infer(Indexer(as_data(index)).graph, {"input": TensorSpec(("n",))}).outputs["output"].shape
    for n in range(6):
        assert (eval(str(named[0]), {"n": n, "min": min, "max": max}),) == np.zeros(n)[index].shape


def test_special_numbers_are_unchanged():
    x = jnp.asarray([[jnp.nan, jnp.inf], [-jnp.inf, 0.0]])
    for dtype in ("float16", "bfloat16"):
        for block in (Reshape((4,)), Pad(1), Roll(1), Transpose(), Triu()):
            found = run(block.graph, JaxBackend().toolkit, {}, {"input": x.astype(dtype)})["output"]
            assert found.dtype == dtype
    np.testing.assert_array_equal(run(Triu().graph, JaxBackend().toolkit, {}, {"input": x})["output"][1, 0], 0.0)
