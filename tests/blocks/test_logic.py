"""Comparisons, booleans and selection: ports, dtypes, NaN, messages."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from mithril_nb.backends.jax import JaxBackend
from mithril_nb.graph.spec import TensorSpec
from mithril_nb.models import KINDS, Equal, Greater, IsNan, LogicalAnd, NotEqual, ShiftLeft, ShiftRight, Where
from mithril_nb.models.shape_inference.dtypes import input_dtype
from mithril_nb.models.shape_inference.infer import infer
from mithril_nb.program import run
from tests.blocks.running import apply

PORTS = {
    **dict.fromkeys(("Greater", "Less", "Equal", "NotEqual", "LessEqual", "GreaterEqual"), ("left", "right", "output")),
    **dict.fromkeys(("LogicalAnd", "LogicalOr", "LogicalXOr"), ("left", "right", "output")),
    **dict.fromkeys(("ShiftLeft", "ShiftRight"), ("input", "shift", "output")),
    **dict.fromkeys(("IsNan", "LogicalNot"), ("input", "output")),
    "Where": ("cond", "input1", "input2", "output"),
}


@pytest.mark.parametrize("kind", PORTS)
def test_ports_agree_with_mithril(kind: str):
    block = KINDS[kind]()
    assert tuple(port.name for port in (*block.inputs, *block.outputs)) == PORTS[kind]
    assert block.options == {}


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int32", "float16", "float32", "complex64"])
@pytest.mark.parametrize("kind", PORTS)
def test_each_dtype_agrees_with_jax_or_is_rejected(kind: str, dtype: str):
    block = KINDS[kind]()
    dtypes = {port.name: "bool" if port.name == "cond" else dtype for port in block.inputs}
    found = infer(block.graph, {port: TensorSpec((2,), one) for port, one in dtypes.items()})
    if found.problems:
        assert dtype == "complex64" or kind.startswith(("Logical", "Shift"))
        return
    given = {port: jax.ShapeDtypeStruct((2,), one) for port, one in dtypes.items()}
    real = jax.eval_shape(lambda given: run(block.graph, JaxBackend().toolkit, {}, given), given)["output"]
    assert found.outputs["output"] == TensorSpec(real.shape, str(real.dtype))


def test_nan_is_not_equal_to_itself():
    nan = float("nan")
    assert not apply(Equal(), nan, nan)
    assert apply(NotEqual(), nan, nan)
    assert not apply(Greater(), nan, 1.0)
    assert apply(IsNan(), [nan, 1.0, float("inf")]).tolist() == [True, False, False]
    assert apply(IsNan(), [1, 2]).tolist() == [False, False]


def test_shifts_keep_the_sign_and_the_dtype():
    assert apply(ShiftRight(), [-8, 8], 1).tolist() == [-4, 4]
    assert apply(ShiftLeft(), jnp.array([200], "uint8"), jnp.array(1, "uint8")).tolist() == [144]
    assert apply(ShiftLeft(), jnp.array([1], "int8"), jnp.array(3, "int32")).dtype == "int32"


def test_gradients_flow_to_the_selected_array():
    cond = jnp.array([True, False])
    left, right = jax.grad(lambda a, b: apply(Where(), cond, a, b).sum(), (0, 1))(jnp.ones(2), jnp.ones(2))
    assert (left.tolist(), right.tolist()) == ([1, 0], [0, 1])


def test_open_inputs_have_the_dtype_of_the_block():
    assert input_dtype(LogicalAnd().graph, "left", "float32") == "bool"
    assert input_dtype(ShiftLeft().graph, "shift", "float32") == "int32"
    assert input_dtype(Where().graph, "cond", "float32") == "bool"
    assert input_dtype(Where().graph, "input1", "float32") == "float32"
