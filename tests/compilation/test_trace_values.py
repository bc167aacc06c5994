"""`trace_values`: the output of each block and its gradient, and the first block and equation with NaN or infinity."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import WIDTH, models

import mithril_nb as ml
from mithril_nb.backends.jax.watch import around_blocks
from mithril_nb.compilation.values import Statistics
from mithril_nb.errors import MissingInputError
from mithril_nb.graph.paths import component
from mithril_nb.models import MLP, Abs, Add, Linear, Log, Model, Multiply, Relu, Softmax, Sqrt, Sum, Tanh
from mithril_nb.models.shape_inference.flat import flat
from mithril_nb.program import Call, run

ROWS = 3
few = settings(max_examples=12)  # each example compiles a model


def compiled(model):
    names = [port.name for port in model.graph.inputs if port.role == "data"]
    pm = ml.compile(model, ml.JaxBackend(dtype="float32"), shapes={name: [ROWS, WIDTH] for name in names})
    random = np.random.default_rng(0)
    params = {one.name: random.normal(size=one.spec.shape).astype("float32") for one in pm.parameters}
    return pm, params, {name: random.normal(size=(ROWS, WIDTH)).astype("float32") for name in names}


@few
@given(models(most=4))
def test_each_block_has_its_output_and_its_gradient(model):
    pm, params, inputs = compiled(model)
    slopes = {name: jnp.ones(spec.shape) for name, spec in pm.output_specs.items()}
    trace = pm.trace_values(inputs, params, gradients=slopes)
    expected, _ = pm.evaluate(params, inputs, slopes)
    for name, output in trace.outputs.items():
        np.testing.assert_allclose(output, expected[name], rtol=1e-5, atol=1e-6)
    assert set(trace.values) == {
        path if len(node.block.outputs) == 1 else f"{path}.{component(port.name)}"
        for path, node in pm.graph.walk()
        for port in node.block.outputs
    }
    assert trace.first_bad is None
    assert trace.first_bad_gradient is None
    order = {path: index for index, path in enumerate(trace.values)}
    for op in flat(pm.graph).ops:
        reference = in_float64(
            op, params, {end: trace.values[end.node] if end.node else inputs[end.port] for end in op.sources.values()}
        )
        np.testing.assert_allclose(trace.values[op.path], reference, rtol=1e-4, atol=1e-5)
        assert all(order[end.node] < order[op.path] for end in op.sources.values() if end.node)
        np.testing.assert_allclose(
            trace.gradients[op.path], gradient_by_addition(pm, op.path, params, inputs), rtol=1e-4, atol=1e-5
        )


def in_float64(op, params, values):
    """Return the output of a block in float64, from the recorded values of its sources."""
    arrays = {port: np.asarray(values[end], "float64") for port, end in op.sources.items()}
    arrays |= {port: np.asarray(params[name], "float64") for port, name in op.arrays.items()}
    x = arrays.get("input")
    match op.block.op:
        case "linear":
            return x @ arrays["weight"] + arrays.get("bias", 0)
        case "relu":
            return np.maximum(x, 0)
        case "tanh":
            return np.tanh(x)
        case "add":
            return arrays["left"] + arrays["right"]
        case "dropout":
            return x
        case _:  # another function, whose kernel has its own tests
            kernel = ml.JaxBackend().toolkit.kernels[op.block.op]
            call = Call(op.block.options, False, None)
            return kernel(call, {port: jnp.asarray(array, "float32") for port, array in arrays.items()})["output"]


def gradient_by_addition(pm, path, params, inputs):
    """Return the gradient of the sum of all outputs with respect to an array added to the output of a block."""

    def loss(addend):
        def around(at, arrays, kernel):
            return {port: array + addend if at == path else array for port, array in kernel(arrays).items()}

        outputs = run(pm.graph, around_blocks(pm.backend.toolkit, around), params, inputs)
        return sum(output.sum() for output in outputs.values())

    return jax.grad(loss)(jnp.zeros((ROWS, op_width(pm, path))))


def op_width(pm, path):
    return pm.inference.blocks[path].outputs["output"].shape[-1]


def test_other_samples_compile_nothing():
    pm = ml.compile(MLP(4, [8], 3), shapes={"input": [1, 4]})
    random = np.random.default_rng(0)
    for _ in range(5):
        pm.trace_values({"input": random.normal(size=(1, 4)).astype("float32")})
    pm.trace_values({"input": np.full((1, 4), np.nan, "float32")})
    assert pm._tapping._cache_size() == 1


numbers = st.floats(width=32) | st.sampled_from((0.0, -0.0, np.nan, np.inf, -np.inf))


@given(st.lists(numbers, max_size=12), st.sampled_from(("float32", "bfloat16", "float16", "int32", "bool")))
def test_statistics_are_those_of_numpy_in_float64(elements, dtype):
    if dtype in ("int32", "bool"):
        elements = [int(max(-9, min(9, x))) if np.isfinite(x) else 1 for x in elements]
    with np.errstate(over="ignore"):
        array = np.asarray(jnp.asarray(np.array(elements, "float32"), dtype))
    exact = array.astype("float64")
    finite = exact[np.isfinite(exact)]
    got = Statistics.of(array)
    assert (got.nan, got.inf) == (np.isnan(exact).sum(), np.isinf(exact).sum())
    assert got.zeros == (np.mean(exact == 0) if exact.size else None)
    assert (got.min, got.max) == ((finite.min(), finite.max()) if finite.size else (None, None))
    if finite.size:
        np.testing.assert_allclose((got.mean, got.std), (finite.mean(), finite.std()), rtol=1e-12)
    else:
        assert got.mean is None
        assert got.std is None


@st.composite
def chains(draw):
    """Draw a chain of blocks that keep finite numbers finite, and between them one that may not."""
    parts = [draw(st.sampled_from((Relu, Tanh, Abs, Softmax)))() for _ in range(draw(st.integers(0, 5)))]
    at = draw(st.integers(0, len(parts)))
    return [*parts[:at], draw(st.sampled_from((Log, Sqrt)))(), *parts[at:]]


@few
@given(chains(), st.booleans())
def test_the_first_block_with_nan_is_named_with_its_equation(parts, nested):
    model = Model() + Add()(right="shift")
    for part in parts:
        model += Model(name=f"group_{len(model.graph.nodes)}") + part if nested else part
    pm = ml.compile(model, shapes={"input": [1, 2], "shift": [1, 2]})
    x, shift = np.zeros((1, 2), "float32"), np.full((1, 2), -100.0, "float32")
    trace = pm.trace_values({"input": x, "shift": shift})
    bad = [path for path, value in trace.values.items() if not np.isfinite(value).all()]
    if not bad:
        assert trace.first_bad is None
        return
    first = next(path for path in bad if path in flat(pm.graph).op_at)
    facts = dict(trace.first_bad.facts)
    assert trace.first_bad.block == first
    assert facts["equation"].partition(" ")[0] in ("log", "sqrt")
    assert facts["block"].endswith(("Log()", "Sqrt()"))


def test_bad_inputs_and_parameters_are_named():
    pm = ml.compile(Model() + Linear(2) + Relu(), shapes={"input": [1, 3]})
    params = {"linear_0.weight": np.ones((3, 2), "float32"), "linear_0.bias": np.array([np.nan, 1], "float32")}
    ones = np.ones((1, 3), "float32")
    trace = pm.trace_values({"input": ones}, params)
    assert trace.first_bad.block == "linear_0"
    assert dict(trace.first_bad.facts)["linear_0.bias"] == "(2,) from 1 to 1, and NaN"
    trace = pm.trace_values({"input": ones * np.inf}, params)
    assert trace.first_bad.summary == "input 'input' has inf."


def test_the_line_of_a_custom_op_is_named():
    backend = ml.JaxBackend()

    def shrink(x):
        y = x - x.max()
        return y / y.sum()  # the bad line

    backend.register_op("shrink")(shrink)
    line = shrink.__code__.co_firstlineno + 2
    pm = ml.compile(Model() + ml.op("shrink"), backend, shapes={"input": [2]})
    trace = pm.trace_values({"input": np.ones(2, "float32")})
    assert dict(trace.first_bad.facts)["line"] == f"test_trace_values.py:{line}"


def test_the_first_bad_gradient_is_named():
    pm = ml.compile(Model() + Linear(2) + Sqrt() + Tanh() + Sum(), shapes={"input": [1, 3]})
    params = {"linear_0.weight": np.zeros((3, 2), "float32"), "linear_0.bias": np.zeros(2, "float32")}
    trace = pm.trace_values({"input": np.ones((1, 3), "float32")}, params, gradients=True)
    assert trace.first_bad is None
    assert trace.first_bad_gradient.block == "sqrt_0"
    assert dict(trace.first_bad_gradient.facts)["equation"].startswith("div of")
    assert trace.gradient_statistics["linear_0"].inf == 2
    assert trace.gradient_statistics["tanh_0"].inf == 0


def test_gradients_need_a_scalar():
    pm = ml.compile(Linear(3), shapes={"input": [2, 4]})
    with pytest.raises(MissingInputError, match="trace_values needs gradients") as error:
        pm.trace_values({"input": np.ones((2, 4), "float32")}, gradients=True)
    assert error.value.diagnostics[0].advice.startswith("pm.trace_values(inputs, gradients={'output': ")


@pytest.mark.parametrize("jit", [True, False])
def test_blocks_with_inner_blocks_state_and_values_that_are_no_arrays(jit):
    model = Model()
    model |= ml.models.BatchNorm()(input="x", output="normal")
    model |= ml.models.Shape()(input="normal", output="shape")
    model |= ml.models.Reshape()(input="normal", shape="shape", output="same")
    model |= Multiply()(left="same", right="same", output="output")
    pm = ml.compile(model, shapes={"x": [4, 3]}, jit=jit)
    trace = pm.trace_values({"x": np.ones((4, 3), "float32")})
    assert tuple(trace.values["shape_0"]) == (4, 3)
    assert "shape_0" not in trace.statistics
    np.testing.assert_array_equal(trace.values["reshape_0"], trace.values["batch_norm_0"])


def test_the_display_has_a_table_and_pictures():
    pm = ml.compile(MLP(4, [8], 3), shapes={"input": [2, 4]})
    trace = pm.trace_values({"input": np.ones((2, 4), "float32")})
    shown = trace._repr_mimebundle_()
    assert shown["text/html"].count("<svg") == len(trace.values)
    assert all(path in shown["text/plain"] for path in trace.values)
