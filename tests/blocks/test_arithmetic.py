"""Arithmetic beyond single blocks: expressions, robust forms, connected numbers, backward shape inference."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mithril_nb as ml
from mithril_nb.backends.jax import JaxBackend
from mithril_nb.errors import ShapeError
from mithril_nb.models import (
    Absolute,
    Buffer,
    Clamp,
    FloorDivide,
    IOKey,
    LeakyRelu,
    Linear,
    Log,
    MatrixMultiply,
    Mod,
    Model,
    Multiply,
    NanToNum,
    Power,
    Sine,
    Sqrt,
    StableReciprocal,
)
from mithril_nb.models.connection import Expression
from mithril_nb.program import run
from tests.blocks.running import apply, back

X = np.array([[1.5, -2.0, 3.0], [0.5, 2.0, -1.0]], "float32")
Y = np.array([[2.0, -2.0, 1.0], [0.25, 3.0, 4.0]], "float32")
EXPRESSIONS = [
    "x + y", "x + 2", "2 + x", "x - y", "x - 0.5", "0.5 - x", "x * y", "x * 3", "3 * x", "x / y", "x / 4", "4 / x",
    "x // y", "x // 2", "7 // x", "x ** 2", "2 ** x", "(x * x) ** y", "-x", "abs(x)",
    "x @ [[1.0, 0.0], [2.0, 1.0], [0.0, 3.0]]", "[[1.0, 2.0]] @ x",
    "x < y", "x < 1", "1 < x", "x <= y", "2 <= x", "x > y", "2 > x", "x >= y", "x >= 2",
    "x == y", "x == 3", "3 == x", "x != y", "3 != x",
    "(x > 0) & (y > 0)", "(x > 0) | (y > 0)", "(x > 0) ^ (y > 0)", "~(x > 0)", "(2 * x - y / 3) * -abs(x) + 1",
    "x.sum()", "x.sum((0, 1))", "x.mean(axis=0)", "x.max(-1)", "x.min()", "x.prod(0)", "x.argmax(0)", "x.argmin()",
]  # fmt: skip
METHODS = {
    "x.sum(1, keepdim=True)": X.sum(1, keepdims=True),
    "x.var(1, correction=1)": X.var(1, ddof=1),
    "x.abs()": np.abs(X),
    "x.exp()": np.exp(X),
    "x.abs().sqrt()": np.sqrt(np.abs(X)),
}
"""Methods that NumPy spells in another way."""


@pytest.fixture(scope="module")
def results() -> dict[str, np.ndarray]:
    """Return the results of all expressions, from one model that is compiled once."""
    model = Model()
    x, y = Buffer(), Buffer()
    model |= x(input="x")
    model |= y(input="y")
    names = {code: f"out{number}" for number, code in enumerate((*EXPRESSIONS, *METHODS))}
    for code, name in names.items():
        model |= Buffer()(input=eval(code, {"x": x.output, "y": y.output}), output=IOKey(name, expose=True))
    compiled = ml.compile(model, JaxBackend(), shapes={"x": [2, 3], "y": [2, 3]})
    outputs = compiled.evaluate({}, {"x": X, "y": Y})
    return {code: np.asarray(outputs[name]) for code, name in names.items()}


@pytest.mark.parametrize("code", [*EXPRESSIONS, *METHODS])
def test_an_expression_on_connections_agrees_with_numpy(code: str, results: dict[str, np.ndarray]):
    expected = METHODS[code] if code in METHODS else eval(code, {"x": X, "y": Y})
    np.testing.assert_allclose(results[code], expected, 1e-5)
    if expected.dtype != "int64":  # positions are int32
        # A list is float64 in NumPy.
        assert results[code].dtype == ("float32" if "@" in code else expected.dtype)


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
    limits = jnp.finfo(dtype)
    # Also exactly where the form changes.
    x = jnp.array([*HARD, limits.tiny, limits.eps, -limits.tiny, -limits.eps], dtype)
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


def test_the_gradient_of_a_square_by_power_is_exact():
    assert jax.grad(lambda x: apply(Power(), x, 2))(0.0) == 0.0
    assert jax.grad(lambda x: apply(Power(robust=True), x, 2))(-3.0) == -6.0


# Connected numbers, and edge cases


def test_a_threshold_may_be_connected():
    model = Model() | StableReciprocal()(input="x", threshold="t", output="y")
    compiled = ml.compile(model, JaxBackend(), shapes={"x": [2]})
    outputs = compiled.evaluate({}, {"x": np.array([0.0, 4.0], "float32"), "t": np.float32(0.5)})
    assert np.asarray(outputs["y"]).tolist() == [2.0, 0.25]


def test_connected_bounds_must_be_one_number():
    model = Model() | Clamp(max_val=2.0)(input="x", min_val="low", output="y")
    outputs = ml.compile(model, JaxBackend()).evaluate({}, {"x": np.arange(4.0, dtype="float32"), "low": np.float32(1)})
    assert np.asarray(outputs["y"]).tolist() == [1.0, 1.0, 2.0, 2.0]
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


def test_nan_to_num_has_the_limits_of_the_dtype():
    for dtype in DTYPES:
        numbers = apply(NanToNum(), jnp.array([np.nan, np.inf, -np.inf, 2.0], dtype))
        limits = jnp.finfo(dtype)
        assert numbers.dtype == dtype
        assert numbers.tolist() == [0.0, float(limits.max), float(limits.min), 2.0]


def test_integers_are_divided_towards_minus_infinity():
    assert apply(FloorDivide(), jnp.array([-7, 7, -7]), jnp.array([2, -2, -2])).tolist() == [-4, -4, 3]
    assert apply(Mod(), jnp.array([-7, 7]), -2).tolist() == [-1, -1]


# Shapes that flow back


def test_shapes_flow_back_through_arithmetic():
    assert back(Model() + Sine()(input="x") + Absolute() + Linear(3, input_size=8)) == {"x": ("...", 8)}
    model, x = Model(), Buffer()
    model |= x(input="x")
    model |= Linear(3, input_size=8)(input=2 * x.output - 1)
    assert back(model) == {"x": ("...", 8)}
    model = Model() | LeakyRelu()(input="x", slope="s", output="y")
    assert back(model, x=(2, 3)) == {"x": (2, 3), "s": ()}


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
