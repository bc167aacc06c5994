"""Parameters that a model declares without a shape take it from `shapes`, or from the first value."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import mithril_nb as ml
from mithril_nb.errors import ShapeError
from mithril_nb.models import IOKey, Model, Multiply

X = np.arange(12, dtype="float32").reshape(4, 3)
SHAPES = [(), (3,), (1, 3), (4, 1), (4, 3)]


@pytest.fixture
def model() -> Model:
    model = Model()
    model |= Multiply()(left="input", right=IOKey("scale", differentiable=True), output="output")
    return model


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("backend", [ml.JaxBackend, ml.NumpyBackend])
def test_shapes_declare_the_shape_of_a_parameter(model, shape, backend) -> None:
    pm = ml.compile(model, backend(), shapes={"input": [4, 3], "scale": list(shape)})
    params = pm.randomize_params()
    assert np.shape(params["scale"]) == shape
    np.testing.assert_allclose(pm.evaluate(params, {"input": X})["output"], X * np.asarray(params["scale"]), rtol=1e-6)
    with pytest.raises(ShapeError, match="parameter 'scale'"):
        pm.evaluate({"scale": np.ones((*shape, 2), "float32")}, {"input": X})
    inspection = ml.inspect(model, shapes={"input": [4, 3], "scale": list(shape)})
    assert next(one.spec.shape for one in inspection.inputs if one.is_param) == shape


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("shapes", [None, {"input": [4, 3]}])
def test_the_first_value_gives_the_shape(model, shape, shapes) -> None:
    scale = jnp.full(shape, 2.0)
    out = ml.compile(model, shapes=shapes).evaluate({"scale": scale}, {"input": X})["output"]
    np.testing.assert_allclose(out, 2 * X)


def test_another_batch_keeps_a_declared_shape(model) -> None:
    pm = ml.compile(model, shapes={"input": ["batch", 3], "scale": [3]})
    x = np.ones((9, 3), "float32")
    np.testing.assert_allclose(pm.evaluate({"scale": jnp.arange(3.0)}, {"input": x})["output"], x * np.arange(3.0))


def test_a_value_that_does_not_broadcast_is_refused(model) -> None:
    with pytest.raises(ShapeError, match="5"):
        ml.compile(model, shapes={"input": [4, 3]}).evaluate({"scale": jnp.ones(5)}, {"input": X})


def test_an_unknown_shape_is_reported_with_a_place_for_it(model) -> None:
    with pytest.raises(ShapeError) as caught:
        ml.compile(model, shapes={"input": [4, 3]}).randomize_params()
    assert "shapes={'input': [4, 3], 'scale': " in str(caught.value)
