"""Activations: extreme values, short floats, backward shape inference."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mithril_nb.graph.spec import TensorSpec
from mithril_nb.models import KINDS, Glu, Linear, Model
from mithril_nb.models.library.operations import activations as family
from mithril_nb.models.shape_inference.infer import infer
from tests.blocks.running import apply

KINDS_HERE = [kind for kind in family.__all__ if kind != "Dropout"]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("kind", KINDS_HERE)
def test_extreme_values_stay_finite_in_every_dtype(kind: str, dtype: str):
    x = jnp.array([[-100.0, -20.0, -1.0, 0.0], [0.5, 10.0, 50.0, 100.0]], dtype)
    value, gradient = jax.jit(jax.value_and_grad(lambda x: apply(KINDS[kind](), x).sum()))(x)
    assert value.dtype == gradient.dtype == dtype
    assert jnp.isfinite(value)
    assert jnp.isfinite(gradient).all()
    assert np.isnan(apply(KINDS[kind](), jnp.full((2, 2), jnp.nan, dtype))).all()
    assert apply(KINDS[kind](), jnp.zeros((0, 2), dtype)).shape[0] == 0


@pytest.mark.parametrize("kind", [kind for kind in KINDS_HERE if kind != "Glu"])
def test_a_shape_flows_back(kind: str):
    model = Model() + KINDS[kind]()(input="x") + Linear(3, input_size=8)
    found = infer(model.graph, {"x": TensorSpec(("...",))})
    assert found.inputs["x"].shape == ("...", 8)


def test_the_second_half_is_the_gate():
    assert apply(Glu("relu"), [2.0, 3.0, -1.0, 4.0]).tolist() == [0.0, 12.0]


def test_a_gate_needs_twice_the_size():
    model = Model() + Glu()(input="x") + Linear(3, input_size=8)
    assert infer(model.graph, {"x": TensorSpec(("...",))}).inputs["x"].shape == ("...", 16)
