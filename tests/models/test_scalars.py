"""Scalars: shape inference treats the shape `()` as known."""

import jax.numpy as jnp
import numpy as np
import pytest

import mithril_nb as ml
from mithril_nb.errors import UnknownDtypeError
from mithril_nb.graph.spec import TensorSpec
from mithril_nb.models import IOKey, Linear, Model, Multiply, Relu, Repeat
from mithril_nb.models.shape_inference.infer import infer


def scaled(**declared: object) -> Model:
    """Return a model that multiplies by a scalar `scale`."""
    model = Model()
    model |= Linear(3)(input="input", output="hidden")
    model |= Multiply()(left=model.hidden, right=IOKey("scale", **declared), output=IOKey("output"))
    return model


def by_setting() -> Model:
    model = scaled()
    model.set_shapes({"scale": []})
    model.set_differentiability({"scale": True})
    return model


@pytest.mark.parametrize("make", [by_setting, lambda: scaled(shape=[], differentiable=True)])
def test_a_scalar_parameter_is_trained(make):
    pm = ml.compile(make(), shapes={"input": [4, 5]})
    params = pm.randomize_params()
    assert params["scale"].shape == ()
    _, gradients = pm.evaluate(params, {"input": jnp.ones((4, 5))}, output_gradients={"output": jnp.ones((4, 3))})
    hidden = jnp.ones((4, 5)) @ params["linear_0.weight"] + params["linear_0.bias"]
    np.testing.assert_allclose(gradients["scale"], hidden.sum(), rtol=1e-5)
    run = ml.fit(pm, (np.ones((8, 5)), np.zeros((8, 3))), loss="mean_squared_error", batch_size=4, epochs=1)
    list(run)
    assert run.params["scale"].shape == ()
    assert run.params["scale"] != pm.randomize_params(seed=0)["scale"]


def test_a_scalar_input_gives_a_scalar():
    model = Model()
    model |= Relu()(input=IOKey("input", shape=[]), output=IOKey("output"))
    assert infer(model.graph, {}).outputs["output"] == TensorSpec(())
    assert infer(scaled(shape=[]).graph, {"input": TensorSpec((2, 5))}).outputs["output"] == TensorSpec((2, 3))


def test_a_scalar_array_of_a_repeated_block():
    body = Model()
    body |= Multiply()(left=IOKey("input"), right=IOKey("s", shape=[], differentiable=True), output=IOKey("output"))
    pm = ml.compile(Repeat(body, 2), shapes={"input": []})
    params = pm.randomize_params()
    assert {name: array.shape for name, array in params.items()} == {"repeat.body.s": (2,)}
    made = pm.evaluate(params, {"input": jnp.float32(3)})["output"]
    np.testing.assert_allclose(made, 3 * params["repeat.body.s"].prod(), rtol=1e-6)


def test_an_empty_dtype_is_rejected():
    with pytest.raises(UnknownDtypeError, match=r"^unknown dtype ''\.\n"):
        ml.JaxBackend(dtype="")
