"""Arithmetic beyond single blocks: expressions, robust forms, dtypes, backward shape inference, messages."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mithril_nb as ml
from mithril_nb.backends.jax import JaxBackend
from mithril_nb.errors import ShapeError
from mithril_nb.graph.spec import TensorSpec
from mithril_nb.models import (
    KINDS,
    Absolute,
    Buffer,
    Clamp,
    Divide,
    FloorDivide,
    IOKey,
    LeakyRelu,
    Linear,
    Log,
    MatrixMultiply,
    Maximum,
    Mod,
    Model,
    Multiply,
    NanToNum,
    Negate,
    Power,
    Sine,
    Sqrt,
    StableReciprocal,
    StopGradient,
)
from mithril_nb.models.connection import Expression
from mithril_nb.models.shape_inference.infer import infer
from mithril_nb.program import run
from tests.blocks.running import apply

UNARY = ("input", "output")
BINARY = ("left", "right", "output")
QUOTIENT = ("numerator", "denominator", "output")
PORTS = {
    **dict.fromkeys(("Log", "Sign", "Square", "StopGradient", "Absolute", "Negate", "Exponential", "Sqrt"), UNARY),
    **dict.fromkeys(("Sine", "Cosine", "Floor", "Buffer"), UNARY),
    **dict.fromkeys(("Add", "Subtract", "Multiply", "Minimum", "Maximum", "MatrixMultiply"), BINARY),
    **dict.fromkeys(("Divide", "FloorDivide"), QUOTIENT),
    "StableReciprocal": ("input", "threshold", "output"),
    "Power": ("base", "exponent", "output"),
    "Clamp": ("input", "min_val", "max_val", "output"),
    "NanToNum": ("input", "nan", "posinf", "neginf", "output"),
}


@pytest.mark.parametrize("kind", PORTS)
def test_ports_agree_with_mithril(kind: str):
    block = KINDS[kind]()
    assert tuple(port.name for port in (*block.inputs, *block.outputs)) == PORTS[kind]


def test_arguments_agree_with_mithril():
    assert Log(robust=True, threshold=1e-6).options == {"robust": True, "threshold": 1e-6}
    assert Sqrt(robust=True, threshold=1e-6).options == {"robust": True, "threshold": 1e-6}
    assert [kind(True, name="root").name for kind in (Log, Sqrt)] == ["root", "root"]
    assert Power(robust=True, threshold=1e-6).options == {"robust": True, "threshold": 1e-6}
    assert StableReciprocal(threshold=1e-6).options == {"threshold": 1e-6}
    assert NanToNum(nan=1.0, posinf=2.0, neginf=3.0).options == {"nan": 1.0, "posinf": 2.0, "neginf": 3.0}


# Expressions on connections

X = np.array([[1.5, -2.0, 3.0], [0.5, 2.0, -1.0]], "float32")
Y = np.array([[2.0, -2.0, 1.0], [0.25, 3.0, 4.0]], "float32")
EXPRESSIONS = {
    "x + y": lambda x, y: x + y,
    "x + 2": lambda x, y: x + 2,
    "2 + x": lambda x, y: 2 + x,
    "x - y": lambda x, y: x - y,
    "x - 0.5": lambda x, y: x - 0.5,
    "0.5 - x": lambda x, y: 0.5 - x,
    "x * y": lambda x, y: x * y,
    "x * 3": lambda x, y: x * 3,
    "3 * x": lambda x, y: 3 * x,
    "x / y": lambda x, y: x / y,
    "x / 4": lambda x, y: x / 4,
    "4 / x": lambda x, y: 4 / x,
    "x // y": lambda x, y: x // y,
    "x // 2": lambda x, y: x // 2,
    "7 // x": lambda x, y: 7 // x,
    "x ** 2": lambda x, y: x**2,
    "2 ** x": lambda x, y: 2**x,
    "(x * x) ** y": lambda x, y: (x * x) ** y,
    "x @ transposed": lambda x, y: x @ [[1.0, 0.0], [2.0, 1.0], [0.0, 3.0]],
    "matrix @ x": lambda x, y: [[1.0, 2.0]] @ x,
    "x < y": lambda x, y: x < y,
    "x < 1": lambda x, y: x < 1,
    "1 < x": lambda x, y: 1 < x,
    "x <= y": lambda x, y: x <= y,
    "2 <= x": lambda x, y: 2 <= x,
    "x > y": lambda x, y: x > y,
    "2 > x": lambda x, y: 2 > x,
    "x >= y": lambda x, y: x >= y,
    "x >= 2": lambda x, y: x >= 2,
    "x == y": lambda x, y: x == y,
    "x == 3": lambda x, y: x == 3,
    "3 == x": lambda x, y: 3 == x,
    "x != y": lambda x, y: x != y,
    "3 != x": lambda x, y: 3 != x,
    "and": lambda x, y: (x > 0) & (y > 0),
    "or": lambda x, y: (x > 0) | (y > 0),
    "xor": lambda x, y: (x > 0) ^ (y > 0),
    "not": lambda x, y: ~(x > 0),
    "-x": lambda x, y: -x,
    "abs(x)": lambda x, y: abs(x),
    "both": lambda x, y: (2 * x - y / 3) * -abs(x) + 1,
}
NUMPY = {
    "x @ transposed": lambda x, y: x @ np.array([[1.0, 0.0], [2.0, 1.0], [0.0, 3.0]], "float32"),
    "matrix @ x": lambda x, y: np.array([[1.0, 2.0]], "float32") @ x,
}
METHODS = {
    "sum": (lambda x: x.sum(), lambda x: x.sum()),
    "sum(1)": (lambda x: x.sum(1, keepdim=True), lambda x: x.sum(1, keepdims=True)),
    "sum((0, 1))": (lambda x: x.sum((0, 1)), lambda x: x.sum((0, 1))),
    "mean(axis=0)": (lambda x: x.mean(axis=0), lambda x: x.mean(axis=0)),
    "max": (lambda x: x.max(-1), lambda x: x.max(-1)),
    "min": (lambda x: x.min(), lambda x: x.min()),
    "prod": (lambda x: x.prod(0), lambda x: x.prod(0)),
    "var": (lambda x: x.var(1, correction=1), lambda x: x.var(1, ddof=1)),
    "argmax": (lambda x: x.argmax(0), lambda x: x.argmax(0)),
    "argmin": (lambda x: x.argmin(), lambda x: x.argmin()),
    "abs": (lambda x: x.abs(), np.abs),
    "exp": (lambda x: x.exp(), np.exp),
    "sqrt": (lambda x: x.abs().sqrt(), lambda x: np.sqrt(np.abs(x))),
}


@pytest.fixture(scope="module")
def results() -> dict[str, np.ndarray]:
    """Return the results of all expressions, from one model that is compiled once."""
    model = Model()
    x, y = Buffer(), Buffer()
    model |= x(input="x")
    model |= y(input="y")
    wanted = {label: make(x.output, y.output) for label, make in EXPRESSIONS.items()}
    wanted |= {label: make(x.output) for label, (make, _) in METHODS.items()}
    names = {label: f"out{place}" for place, label in enumerate(wanted)}
    for label, expression in wanted.items():
        model |= Buffer()(input=expression, output=IOKey(names[label], expose=True))
    compiled = ml.compile(model, JaxBackend(), shapes={"x": [2, 3], "y": [2, 3]})
    found = compiled.evaluate({}, {"x": X, "y": Y})
    return {label: np.asarray(found[name]) for label, name in names.items()}


@pytest.mark.parametrize("label", EXPRESSIONS)
def test_an_expression_on_connections_agrees_with_numpy(label: str, results: dict[str, np.ndarray]):
    expected = NUMPY.get(label, EXPRESSIONS[label])(X, Y)
    np.testing.assert_allclose(results[label], expected, 1e-5)
    assert results[label].dtype == expected.dtype


@pytest.mark.parametrize("label", METHODS)
def test_a_method_of_a_connection_agrees_with_numpy(label: str, results: dict[str, np.ndarray]):
    np.testing.assert_allclose(results[label], METHODS[label][1](X), 1e-5)


def test_equality_of_connections_is_a_block():
    relu = Buffer()
    for made, kind in ((relu.output == relu.input, "Equal"), (relu.output != 1, "NotEqual")):
        assert isinstance(made, Expression)
        assert made.kind == kind


# Robust forms

DTYPES = ("float16", "bfloat16", "float32")
HARD = (0.0, -0.0, 1e-30, -1e-30, -1e-3, -1.0, -3e4, 1e-3, 1.0, 3e4)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("block", [Log(robust=True), Sqrt(robust=True), StableReciprocal()], ids=lambda one: one.kind)
def test_robust_forms_are_finite_with_finite_gradients(block: Model, dtype: str):
    x = jnp.array(HARD, dtype)
    # Also exactly where the form changes.
    limits = jnp.finfo(dtype)
    x = jnp.concatenate([x, jnp.array([limits.tiny, limits.eps, -limits.tiny, -limits.eps], dtype)])
    value, gradient = jax.vmap(jax.value_and_grad(lambda one: apply(block, one)))(x)
    assert value.dtype == gradient.dtype == dtype
    assert jnp.isfinite(value).all(), value
    assert jnp.isfinite(gradient).all(), gradient


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("exponent", [-2.0, -1.0, -0.5, 0.0, 0.25, 0.5, 1.0, 1.5, 2.0])
def test_robust_powers_are_finite_with_finite_gradients(exponent: float, dtype: str):
    base = jnp.array([0.0, -0.0, 1e-30, -1e-30, -1e-3, -1.0, 1e-3, 1.0, 30.0, -30.0], dtype)
    if exponent < 0:  # 0.001 ** -2 has no gradient in 16 bits
        base = jnp.where(jnp.abs(base) == jnp.array(1e-3, dtype), 0, base)

    def power(one: jax.Array, e: jax.Array) -> jax.Array:
        return apply(Power(robust=True), one, e)

    value, gradients = jax.vmap(jax.value_and_grad(power, (0, 1)), (0, None))(base, jnp.array(exponent, dtype))
    assert value.dtype == dtype
    assert jnp.isfinite(value).all(), value
    assert all(jnp.isfinite(gradient).all() for gradient in gradients), gradients


def test_robust_forms_equal_plain_forms_away_from_singularities():
    x = jnp.array([1e-30, 0.3, 2.0, 1e30])
    np.testing.assert_allclose(apply(Log(robust=True), x), np.log(x), 1e-6)
    np.testing.assert_allclose(apply(Sqrt(robust=True), x), np.sqrt(x), 1e-6)
    np.testing.assert_allclose(apply(StableReciprocal(), x[1:]), 1 / x[1:], 1e-6)
    np.testing.assert_allclose(apply(Power(robust=True), x, 0.7), np.power(x, 0.7), 1e-6)


def test_robust_forms_follow_their_formulas():
    t = np.finfo("float32").tiny
    x = jnp.array([0.0, -2.0])
    np.testing.assert_allclose(apply(Log(robust=True), x), 2 * np.log(t) - np.log(2 * t - x), 1e-6)
    np.testing.assert_allclose(jax.grad(lambda x: apply(Log(robust=True), x))(-2.0), 0.5, 1e-6)
    np.testing.assert_allclose(apply(Sqrt(robust=True), jnp.array([0.0, -4.0])), [0.0, -2.0], 1e-6)
    np.testing.assert_allclose(apply(StableReciprocal(0.01), jnp.array([0.0, -0.0, 0.001, -0.001, 4.0])),
                               [100, 100, 100, -100, 0.25], 1e-6)  # fmt: skip
    powers = apply(Power(True, 0.25), jnp.array([0.0, 0.0625, -0.0625, -4.0, -3.0, -3.0]), [0.5, 0.5, 0.5, 0.5, 2, 3])
    np.testing.assert_allclose(powers, [0.0, 0.125, -0.125, -2.0, 9.0, -27.0], 1e-6)
    inverse = apply(Power(True, 0.25), jnp.array([0.0, -0.125, 0.125, -4.0, 0.1]), [-1.0, -1, -2, -2, 0])
    np.testing.assert_allclose(inverse, [4.0, -4.0, 16.0, 0.0625, 1.0], 1e-6)


def test_plain_forms_agree_with_numpy_at_singularities():
    assert np.asarray(apply(Log(), [0.0, -1.0, np.inf])).tolist()[::2] == [-np.inf, np.inf]
    assert np.isnan(apply(Log(), -1.0))
    assert np.isnan(apply(Sqrt(), -1.0))
    assert np.asarray(apply(Divide(), [1.0, -1.0], 0.0)).tolist() == [np.inf, -np.inf]
    assert np.isnan(apply(Power(), -8.0, 1 / 3))


def test_the_gradient_of_a_square_by_power_is_exact():
    assert jax.grad(lambda x: apply(Power(), x, 2))(0.0) == 0.0
    assert jax.grad(lambda x: apply(Power(robust=True), x, 2))(-3.0) == -6.0


# Connected numbers, and edge cases


def test_a_threshold_may_be_connected():
    model = Model() | StableReciprocal()(input="x", threshold="t", output="y")
    compiled = ml.compile(model, JaxBackend(), shapes={"x": [2]})
    found = compiled.evaluate({}, {"x": np.array([0.0, 4.0], "float32"), "t": np.float32(0.5)})
    assert np.asarray(found["y"]).tolist() == [2.0, 0.25]


def test_connected_bounds_must_be_one_number():
    model = Model() | Clamp(max_val=2.0)(input="x", min_val="low", output="y")
    found = ml.compile(model, JaxBackend()).evaluate({}, {"x": np.arange(4.0, dtype="float32"), "low": np.float32(1)})
    assert np.asarray(found["y"]).tolist() == [1.0, 1.0, 2.0, 2.0]
    with pytest.raises(ShapeError) as caught:
        run(model.graph, JaxBackend().toolkit, {}, {"x": jnp.zeros(4), "low": jnp.zeros(3)})
    assert str(caught.value) == (
        "'min_val' expects a scalar but receives an array.\n    min_val  (3,) float32\n    needs    ()"
    )


def test_clamped_integers_stay_integers_within_bounds():
    x = jnp.array([-5, 0, 3, 2**31 - 1])
    assert apply(Clamp(-1.5, 2.5), x).tolist() == [-1, 0, 2, 2]
    assert apply(Clamp(-1e20, 1e20), x).tolist() == x.tolist()
    assert apply(Clamp(max_val=255.0), jnp.array([7], "uint8")).tolist() == [7]
    assert np.isnan(apply(Clamp(0.0, 1.0), np.nan))


def test_nan_to_num_has_the_limits_of_the_dtype():
    for dtype in DTYPES:
        found = apply(NanToNum(), jnp.array([np.nan, np.inf, -np.inf, 2.0], dtype))
        limits = jnp.finfo(dtype)
        assert found.dtype == dtype
        assert found.tolist() == [0.0, float(limits.max), float(limits.min), 2.0]


def test_nan_and_infinity_propagate():
    assert np.isnan(apply(Maximum(), np.nan, 1.0))
    assert apply(Negate(), np.inf) == -np.inf
    assert apply(FloorDivide(), jnp.array([-7, 7, -7]), jnp.array([2, -2, -2])).tolist() == [-4, -4, 3]
    assert apply(Mod(), jnp.array([-7.0, 7.0]), 2.0).tolist() == [1.0, 1.0]
    assert apply(Mod(), jnp.array([-7, 7]), -2).tolist() == [-1, -1]


def test_no_gradient_goes_through_stop_gradient():
    assert jax.grad(lambda x: apply(StopGradient(), x) * x)(3.0) == 3.0


# Dtypes

ALL = ("bool", "int8", "uint8", "uint32", "int32", "float16", "bfloat16", "float32", "complex64")
ARITHMETIC = [kind for kind in PORTS if kind in KINDS]


@pytest.mark.parametrize("kind", [*ARITHMETIC, "Mod", "Ceil", "Round", "Rsqrt", "Erf", "Expm1"])
@pytest.mark.parametrize("dtype", ALL)
def test_each_dtype_agrees_with_jax_or_is_rejected(kind: str, dtype: str):
    block = KINDS[kind]()
    ports = [port.name for port in block.inputs if port.role == "data"]
    for second in ALL if len(ports) == 2 else ("float32",):
        dtypes = dict(zip(ports, (dtype, second), strict=False))
        found = infer(block.graph, {port: TensorSpec((2, 2), one) for port, one in dtypes.items()})
        if found.problems:
            assert {dtype, second} & {"bool", "complex64"}
            continue
        for x64 in (False, True):
            with jax.enable_x64(x64):
                given = {port: jax.ShapeDtypeStruct((2, 2), one) for port, one in dtypes.items()}
                real = jax.eval_shape(lambda given: run(block.graph, JaxBackend().toolkit, {}, given), given)["output"]
            assert found.outputs["output"] == TensorSpec(real.shape, str(real.dtype)), (dtypes, x64)


# Shapes that flow back


def back(model: Model, **given: tuple) -> dict:
    found = infer(model.graph, {port: TensorSpec(shape) for port, shape in given.items()})
    assert found.problems == ()
    return {port: spec.shape for port, spec in found.inputs.items()}


def test_a_shape_flows_back_through_elementwise_blocks():
    model = Model() + Sine()(input="x") + Absolute() + Linear(3, input_size=8)
    assert back(model) == {"x": ("...", 8)}


def test_a_shape_flows_back_through_a_number():
    model, x = Model(), Buffer()
    model |= x(input="x")
    model |= Linear(3, input_size=8)(input=2 * x.output - 1)
    assert back(model) == {"x": ("...", 8)}


def test_a_shape_flows_back_where_the_other_side_is_1():
    model = Model() | Multiply()(left="a", right="b", output="c")
    model |= Linear(3, input_size=8)(input="c")
    assert back(model, a=("n", "m"), b=(4, 1)) == {"a": ("n", 8), "b": (4, 1)}
    assert back(model, a=("n", "m"), b=(4, 8)) == {"a": ("n", "m"), "b": (4, 8)}


def test_the_inner_size_of_a_product_follows_from_either_side():
    model = Model() | MatrixMultiply()(left="a", right="b", output="c")
    assert back(model, a=("batch", "k"), b=(4, 3))["a"] == ("batch", 4)
    assert back(model, a=("...",), b=(4, 3))["a"] == ("...", 4)
    assert back(model, a=(5, 4), b=("k", "m"))["b"] == (4, "m")
    assert back(model, a=(5, 4), b=("k",))["b"] == (4,)
    model |= Linear(3, input_size=8)(input="c")
    assert back(model, a=("n", 4), b=("k", "m"))["b"] == (4, 8)


@pytest.mark.parametrize(
    ("left", "right", "output"),
    [
        ((3,), (3,), ()),
        ((3,), ("k", 4), (4,)),
        (("b", 2, 3), (3,), ("b", 2)),
        (("b", 1, 2, 3), (5, 3, 4), ("b", 5, 2, 4)),
        (("...", 2, 3), (3, 4), ("...", 2, 4)),
        (("...",), (3, 4), ("...", 4)),
        (("...",), (3,), ("...",)),
        ((2, 3), ("...",), ("...",)),
        ((0, 3), (3, 0), (0, 0)),
    ],
)
def test_shapes_of_products(left: tuple, right: tuple, output: tuple):
    found = infer(MatrixMultiply().graph, {"left": TensorSpec(left), "right": TensorSpec(right)})
    assert found.outputs["output"].shape == output


def test_a_named_slope_is_an_input_of_the_model():
    model = Model() | LeakyRelu()(input="x", slope="s", output="y")
    assert back(model, x=(2, 3)) == {"x": (2, 3), "s": ()}
