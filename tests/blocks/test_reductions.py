"""Reductions beyond single blocks: connected attributes, 16 bits, backward shape inference."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import mithril_nb as ml
from mithril_nb.backends.jax import JaxBackend
from mithril_nb.models import (
    Cumsum,
    Linear,
    Mean,
    Model,
    Norm,
    Sum,
    Variance,
)
from mithril_nb.models.shape_inference.infer import infer
from tests.blocks.running import apply


def test_a_correction_may_be_connected():
    model = Model() | Variance()(input="x", correction="c", output="y")
    found = ml.compile(model, JaxBackend()).evaluate({}, {"x": np.arange(4.0, dtype="float32"), "c": np.float32(1)})
    np.testing.assert_allclose(found["y"], np.var(np.arange(4.0), ddof=1), 1e-6)


def test_short_floats_are_summed_in_longer_ones():
    ones = jnp.ones(4096, "float16")
    for block in (Sum(), Mean(), Norm(1.0)):
        assert apply(block, ones).dtype == "float16"
    assert apply(Sum(), ones) == 4096  # a sequential sum would stop at 2048
    assert apply(Cumsum(), ones)[-1] == 4096
    assert apply(Mean(), jnp.full(4096, 60000, "float16")) == 60000
    assert apply(Norm(), jnp.full(4, 1e-4, "float16")) == jnp.float16(2e-4)


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
