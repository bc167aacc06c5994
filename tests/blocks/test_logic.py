"""Shifts, and the dtypes of open inputs."""

from __future__ import annotations

import jax.numpy as jnp

from mithril_nb.models import LogicalAnd, ShiftLeft, ShiftRight, Where
from mithril_nb.models.shape_inference.dtypes import input_dtype
from tests.blocks.running import apply


def test_shifts_keep_the_sign_and_the_dtype():
    assert apply(ShiftRight(), [-8, 8], 1).tolist() == [-4, 4]
    assert apply(ShiftLeft(), jnp.array([200], "uint8"), jnp.array(1, "uint8")).tolist() == [144]
    assert apply(ShiftLeft(), jnp.array([1], "int8"), jnp.array(3, "int32")).dtype == "int32"


def test_open_inputs_have_the_dtype_of_the_block():
    assert input_dtype(LogicalAnd().graph, "left", "float32") == "bool"
    assert input_dtype(ShiftLeft().graph, "shift", "float32") == "int32"
    assert input_dtype(Where().graph, "cond", "float32") == "bool"
    assert input_dtype(Where().graph, "input1", "float32") == "float32"
