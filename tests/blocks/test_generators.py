"""Generated arrays: connected shapes, dtypes, keys, and the distribution of random numbers."""

import jax
import numpy as np
import pytest
from scipy import stats

import mithril_nb as ml
from mithril_nb.graph.spec import TensorSpec
from mithril_nb.models import (
    Arange,
    Eye,
    EyeComplement,
    Full,
    Identity,
    Model,
    Ones,
    PrimitiveRandInt,
    PrimitiveRandn,
    RandInt,
    Randn,
    Zeros,
)

X = np.zeros((2, 3), "float32")


def shaped_like_x(block, **options) -> Model:
    model = Model()
    model |= Identity()(input="input", output="x")
    model |= block()(shape=model.x.shape(), output="output", **options)
    return model


@pytest.mark.parametrize("block", [Ones, Zeros, Full, Randn, RandInt, PrimitiveRandn, PrimitiveRandInt])
def test_a_shape_may_be_connected(block):
    pm = ml.compile(shaped_like_x(block), shapes={"input": ["batch", 3]})
    assert pm.output_specs["output"].shape == ("batch", 3)
    for batch in (2, 0):
        assert pm.evaluate({}, {"input": np.zeros((batch, 3))})["output"].shape == (batch, 3)


def test_sizes_may_be_connected():
    model = Model()
    model |= Identity()(input="input", output="x")
    model |= Arange()(stop=model.x.shape()[0], output="row")
    model |= Eye()(N=model.x.shape()[0], M=model.x.shape()[1], output="eye")
    model |= EyeComplement()(N=model.x.size(1), output="others")
    found = ml.compile(model, shapes={"input": ["batch", 3]})
    assert found.output_specs["row"] == TensorSpec(("batch",), "int32")
    assert found.output_specs["eye"] == TensorSpec(("batch", 3))
    outputs = found.evaluate({}, {"input": X})
    np.testing.assert_array_equal(outputs["row"], np.arange(2))
    np.testing.assert_array_equal(outputs["eye"], np.eye(2, 3))
    np.testing.assert_array_equal(outputs["others"], 1 - np.eye(3))


def test_with_a_key_the_numbers_are_a_function_of_it():
    model = Model() | Randn((1000,))(key="key", output="output")
    pm = ml.compile(model)
    first = pm.evaluate({}, {"key": np.array([0, 7], "uint32")})["output"]
    again = pm.evaluate({}, {"key": np.array([0, 7], "uint32")})["output"]
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(first, jax.random.normal(jax.random.key(7), (1000,)))
    assert np.corrcoef(first, pm.evaluate({}, {"key": np.array([0, 8], "uint32")})["output"])[0, 1] < 0.1
    np.testing.assert_array_equal(pm.forward({}, {"key": np.array([0, 7], "uint32")})["output"], first)
    fixed = ml.compile(Randn((1000,), key=7))
    np.testing.assert_array_equal(fixed.evaluate({}, {})["output"], first)
    assert not fixed.needs_key


def test_without_a_key_each_call_draws_new_numbers_from_the_seed():
    pm = ml.compile(Randn((4,)), ml.JaxBackend(seed=3))
    one, two = (pm.evaluate({}, {})["output"] for _ in range(2))
    assert not np.allclose(one, two)
    pm.backend.set_seed(3)
    np.testing.assert_array_equal(pm.evaluate({}, {})["output"], one)


def test_two_blocks_draw_different_numbers():
    model = Model() | Randn((50,))(output="a") | Randn((50,))(output="b")
    found = ml.compile(model).evaluate({}, {})
    assert not np.allclose(found["a"], found["b"])


@pytest.mark.parametrize("block", [Randn, PrimitiveRandn])
def test_normal_numbers_are_normal(block):
    drawn = np.asarray(ml.compile(block((20_000,), key=0)).evaluate({}, {})["output"])
    assert stats.kstest(drawn, "norm").pvalue > 0.001


@pytest.mark.parametrize("block", [RandInt, PrimitiveRandInt])
def test_integers_are_equally_likely(block):
    pm = ml.compile(block((20_000,), -2, 3, key=0))
    drawn = np.asarray(pm.evaluate({}, {})["output"])
    values, counts = np.unique(drawn, return_counts=True)
    assert (drawn.dtype, values.tolist()) == ("int32", [-2, -1, 0, 1, 2])
    assert stats.chisquare(counts).pvalue > 0.001
