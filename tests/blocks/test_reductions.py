"""Reductions beyond single blocks: ports, axes, empty arrays, dtypes, backward shape inference, messages."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mithril_nb as ml
from mithril_nb.backends.jax import JaxBackend
from mithril_nb.graph.spec import TensorSpec
from mithril_nb.models import (
    KINDS,
    ArgMax,
    Cumsum,
    Linear,
    LogSumExp,
    Max,
    Mean,
    Model,
    Norm,
    Prod,
    Sum,
    Trapezoid,
    Unique,
    Variance,
)
from mithril_nb.models.shape_inference.infer import infer
from mithril_nb.program import run
from tests.blocks.running import apply, error_of

REDUCTIONS = ("Mean", "Sum", "Max", "Min", "Prod")
PLACES = ("ArgMax", "ArgMin")


def shape(block: Model, given: tuple) -> tuple:
    found = infer(block.graph, {"input": TensorSpec(given)})
    assert found.problems == ()
    return found.outputs["output"].shape


@pytest.mark.parametrize("kind", [*REDUCTIONS, *PLACES, "Variance"])
def test_ports_and_arguments_agree_with_mithril(kind: str):
    block = KINDS[kind](axis=-1, keepdim=True)
    more = ("correction",) if kind == "Variance" else ()
    assert tuple(port.name for port in (*block.inputs, *block.outputs)) == ("input", *more, "output")
    assert tuple(block.options) == ("axis", "keepdim", *more)


def test_a_correction_may_be_connected():
    model = Model() | Variance()(input="x", correction="c", output="y")
    found = ml.compile(model, JaxBackend()).evaluate({}, {"x": np.arange(4.0, dtype="float32"), "c": np.float32(1)})
    np.testing.assert_allclose(found["y"], np.var(np.arange(4.0), ddof=1), 1e-6)


@pytest.mark.parametrize(
    ("block", "given", "output"),
    [
        (Sum(), ("batch", 3), ()),
        (Sum(0), ("batch", 3), (3,)),
        (Sum([0, -1]), ("batch", 3, 4), (3,)),
        (Sum(-1, keepdim=True), ("batch", 3), ("batch", 1)),
        (Sum(keepdim=True), ("batch", 3), (1, 1)),
        (Sum([]), ("batch", 3), ("batch", 3)),
        (Sum(-1), ("...", 3), ("...",)),
        (Sum(-2, keepdim=True), ("...", "n", 3), ("...", 1, 3)),
        (Sum(0), ("...", 3), ("...",)),
        (Sum(), ("...", 3), ()),
        (Sum(keepdim=True), ("...", 3), ("...",)),
        (Sum(0), (0, 3), (3,)),
        (Max(1), (0, 3), (0,)),
        (ArgMax(1, keepdim=True), ("n", 3), ("n", 1)),
        (Cumsum(0), ("n", 3), ("n", 3)),
        (Unique(5), ("n", 3), (5,)),
    ],
)
def test_shapes(block: Model, given: tuple, output: tuple):
    assert shape(block, given) == output


def test_reductions_of_empty_arrays_agree_with_numpy():
    nothing = np.zeros((0, 2), "float32")
    assert apply(Sum(0), nothing).tolist() == [0, 0]
    assert apply(Prod(0), nothing).tolist() == [1, 1]
    assert np.isnan(apply(Mean(0), nothing)).all()
    assert np.isnan(apply(Variance(0), nothing)).all()
    assert apply(LogSumExp(0), nothing).tolist() == [-np.inf, -np.inf]
    assert apply(Norm(axis=0), nothing).tolist() == [0, 0]
    assert apply(Max(1), nothing).shape == (0,)
    assert apply(Trapezoid(), np.zeros((2, 0)), np.zeros(0)).tolist() == [0, 0]


@pytest.mark.parametrize("kind", ["Max", "Min", "ArgMax", "ArgMin"])
def test_the_maximum_of_an_empty_array_is_rejected(kind: str):
    name = {"ArgMax": "arg_max", "ArgMin": "arg_min"}.get(kind, kind.lower())
    assert error_of(f"fit_or_raise({kind}(0), input=(0, 2))") == (
        f"ShapeError: the input 'input' does not fit '{name}.input'.\n"
        "    given  (0, 2) float32\n"
        "    input  needs at least one item along axis -2\n"
        "    found  axis -2: size 0\n"
        "    Try: use an array with at least one item along axis -2."
    )


def test_nan_and_ties():
    assert np.isnan(apply(Max(), [1.0, np.nan]))
    assert apply(ArgMax(), [1.0, np.nan, 3.0]) == 1
    assert apply(ArgMax(), [1.0, 3.0, 3.0]) == 1
    assert apply(ArgMax(), [[1.0, 3.0], [4.0, 2.0]]) == 2
    assert apply(LogSumExp(), [-np.inf, -np.inf]) == -np.inf
    assert apply(LogSumExp(), [1e4, 1e4]) == pytest.approx(1e4 + np.log(2))


def test_short_floats_are_summed_in_longer_ones():
    ones = jnp.ones(4096, "float16")
    for block in (Sum(), Mean(), Norm(1.0)):
        assert apply(block, ones).dtype == "float16"
    assert apply(Sum(), ones) == 4096  # a sequential sum would stop at 2048
    assert apply(Cumsum(), ones)[-1] == 4096
    assert apply(Mean(), jnp.full(4096, 60000, "float16")) == 60000
    assert apply(Norm(), jnp.full(4, 1e-4, "float16")) == jnp.float16(2e-4)


def test_norms_do_not_overflow_and_have_a_gradient_at_zero():
    assert apply(Norm(), jnp.array([3e30, 4e30], "float32")) == pytest.approx(5e30)
    assert apply(Norm(), [np.inf, 1.0]) == np.inf
    assert np.isnan(apply(Norm(), [np.nan, 1.0]))
    x = jnp.array([[0.0, 0.0], [3.0, 4.0]])
    of_each = [jax.grad(lambda x, p=p: apply(Norm(p, axis=-1), x).sum()) for p in (1.0, 2.0, 3.0)]
    for gradient in jax.jit(lambda x: [one(x) for one in of_each])(x):
        assert gradient[0].tolist() == [0, 0]
        assert jnp.isfinite(gradient).all()
    np.testing.assert_allclose(jax.jit(jax.grad(lambda x: apply(Norm(), x)))(x[1]), [0.6, 0.8], 1e-6)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int32", "uint32", "float16", "bfloat16", "complex64"])
@pytest.mark.parametrize("kind", [*REDUCTIONS, *PLACES, "Variance", "LogSumExp", "Norm"])
def test_each_dtype_agrees_with_jax_or_is_rejected(kind: str, dtype: str):
    block = KINDS[kind](axis=0)
    found = infer(block.graph, {"input": TensorSpec((2, 3), dtype)})
    if found.problems:
        assert dtype == "complex64" or (kind == "Norm" and dtype == "bool")
        return
    given = {"input": jax.ShapeDtypeStruct((2, 3), dtype)}
    real = jax.eval_shape(lambda given: run(block.graph, JaxBackend().toolkit, {}, given), given)["output"]
    assert found.outputs["output"] == TensorSpec(real.shape, str(real.dtype))
    if kind in (*REDUCTIONS, "Variance"):  # as JAX itself gives
        plain = {"Variance": jnp.var}.get(kind) or getattr(jnp, kind.lower())
        assert str(jax.eval_shape(plain, given["input"]).dtype) == str(real.dtype)


@pytest.mark.parametrize("dtype", ["bool", "int8", "int32", "uint16"])
def test_dtypes_are_the_same_in_x64_mode(dtype: str):
    with jax.enable_x64(True):
        for kind in (*REDUCTIONS, *PLACES, "Variance", "LogSumExp", "Cumsum"):
            expected = infer(KINDS[kind]().graph, {"input": TensorSpec((3,), dtype)}).outputs["output"]
            assert str(apply(KINDS[kind](), jnp.ones(3, dtype)).dtype) == expected.dtype, kind


@pytest.mark.parametrize(
    ("block", "needed"),
    [
        (Sum(0), ("...", "n", 8)),
        (Sum(-2, keepdim=True), ("...", 8)),
        (Sum([0, 1]), ("...", "n", 8)),
    ],
)
def test_a_shape_flows_back_after_the_reduced_axes(block: Model, needed: tuple):
    model = Model() | block(input="x", output="y")
    model |= Linear(3, input_size=8)(input="y")
    model.set_shapes(y=["n", 8] if len(needed) == 3 else ["m", 1, 8])
    found = infer(model.graph, {})
    assert found.problems == ()
    assert found.inputs["x"].shape == needed


def test_unique_needs_a_size():
    model = Model() | Unique(4)(input="x", output="y")
    found = ml.compile(model, JaxBackend()).evaluate({}, {"x": np.array([3.0, 1.0, 3.0], "float32")})
    assert np.asarray(found["y"]).tolist() == [1.0, 3.0, 1.0, 1.0]
    assert apply(Unique(3, 9.0), np.zeros(0, "float32")).tolist() == [9, 9, 9]
