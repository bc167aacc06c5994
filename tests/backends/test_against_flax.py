"""Blocks compared with Flax and Equinox: parameters are copied unchanged (Equinox's transposed)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from references import close, run_quickly

import mithril_nb as ml
from mithril_nb.models import MLP, Conv2d, Gelu, LayerNorm, Linear, MaxPool2d

linen = pytest.importorskip("flax.linen")
nnx = pytest.importorskip("flax.nnx")
eqx = pytest.importorskip("equinox")

KEY = jax.random.key(0)


def output(model: ml.Model, params, x):
    pm = ml.compile(model, shapes={"input": x.shape})
    return pm.forward(params, {"input": x})["output"]


def of_flax(x):
    linear, norm = nnx.Linear(6, 5, rngs=nnx.Rngs(0)), nnx.LayerNorm(5, epsilon=1e-5, rngs=nnx.Rngs(1))
    params = {
        "linear_0.weight": linear.kernel[...],
        "linear_0.bias": linear.bias[...],
        "layer_norm_0": {"weight": norm.scale[...], "bias": norm.bias[...]},
    }
    return output(Linear(5) + LayerNorm() + Gelu(), params, x), nnx.gelu(norm(linear(x)), approximate=False)


def of_linen(kernel, stride, padding):
    def both(image):
        conv = linen.Conv(4, kernel, stride, padding=padding.upper())
        weights = conv.init(KEY, image)
        expected = linen.max_pool(conv.apply(weights, image), kernel, stride, padding.upper())
        params = {"conv2d_0.weight": weights["params"]["kernel"].transpose(3, 2, 0, 1), "conv2d_0.bias": jnp.zeros(4)}
        model = Conv2d(4, kernel, stride=stride, padding=padding) + MaxPool2d(kernel, stride, padding)
        return output(model, params, image.transpose(0, 3, 1, 2)).transpose(0, 2, 3, 1), expected

    return both


def of_equinox(x):
    reference = eqx.nn.MLP(3, 2, 5, 2, activation=jax.nn.relu, key=KEY)
    params = {}
    for number, layer in enumerate(reference.layers):
        params[f"linear_{number}"] = {"weight": layer.weight.T, "bias": layer.bias}
    return output(MLP(3, [5, 5], 2), params, x), jax.vmap(reference)(x)


def test_imported_parameters_give_equal_outputs():
    random = np.random.default_rng(0)
    images = random.normal(size=(2, 7, 8, 3)).astype("float32")
    cases = {
        "flax": (of_flax, random.normal(size=(4, 6)).astype("float32")),
        "linen same": (of_linen((2, 4), (2, 3), "same"), images),
        "linen valid": (of_linen((3, 2), (1, 2), "valid"), images),
        "equinox": (of_equinox, random.normal(size=(4, 3)).astype("float32")),
    }
    results = run_quickly(lambda: {name: both(x) for name, (both, x) in cases.items()})
    for name, (got, expected) in results.items():
        close(got, expected, "float32", name)
