"""Activations and Dropout."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import jax
import jax.numpy as jnp

from mithril_nb.backends.jax.kernels.arithmetic import elementwise, scalar
from mithril_nb.backends.jax.kernels.registry import DRAWS, kernel
from mithril_nb.graph.records import Value
from mithril_nb.program import Arrays, Call


@kernel("softmax")
def _softmax(call: Call, arrays: Arrays) -> Arrays:
    axis = call.options["axis"]
    assert isinstance(axis, int)
    return {"output": jax.nn.softmax(arrays["input"], axis=axis)}


@kernel("log_softmax")
def _log_softmax(call: Call, arrays: Arrays) -> Arrays:
    return {"output": jax.nn.log_softmax(arrays["input"], axis=call.options["axis"])}


@kernel("dropout")
def _dropout(call: Call, arrays: Arrays) -> Arrays:
    x, p = arrays["input"], call.options["p"]
    if not dropout_draws(call.options, call.training):
        return {"output": x}
    assert isinstance(p, float)
    assert call.key is not None
    kept = jax.random.bernoulli(call.key, 1.0 - p, x.shape)
    # Not a product with the mask: infinity times 0 would be NaN.
    return {"output": jnp.where(kept, x / (1.0 - p), 0.0)}


def dropout_draws(options: Mapping[str, Value], training: bool) -> bool:
    """Return whether a Dropout block drops: by its own `training` option, otherwise by the program's."""
    own = options["training"]
    return (training if own is None else bool(own)) and options["p"] != 0.0


DRAWS["dropout"] = dropout_draws


for _op, _function in {
    "relu": jax.nn.relu,
    "relu6": jax.nn.relu6,
    "sigmoid": jax.nn.sigmoid,
    "log_sigmoid": jax.nn.log_sigmoid,
    "hard_sigmoid": jax.nn.hard_sigmoid,
    "tanh": jnp.tanh,
    "hard_tanh": jax.nn.hard_tanh,
    "softplus": jax.nn.softplus,
    "softsign": jax.nn.soft_sign,
    "silu": jax.nn.silu,
    "hard_swish": jax.nn.hard_silu,
    "mish": jax.nn.mish,
    "selu": jax.nn.selu,
}.items():
    elementwise(_op, _function, "input")


@kernel("gelu")
def _gelu(call: Call, arrays: Arrays) -> Arrays:
    return {"output": jax.nn.gelu(arrays["input"], approximate=bool(call.options["approximate"]))}


@kernel("leaky_relu")
def _leaky_relu(call: Call, arrays: Arrays) -> Arrays:
    x = arrays["input"]
    slope = scalar(call, "slope", x)
    # Unlike in jax.nn.leaky_relu, an infinite positive element adds 0 to the gradient of the slope, not NaN.
    return {"output": jnp.where(x >= 0, x, slope * jnp.where(x >= 0, 0, x))}


@kernel("elu")
def _elu(call: Call, arrays: Arrays) -> Arrays:
    return {"output": jax.nn.elu(arrays["input"], call.options["alpha"])}


@kernel("celu")
def _celu(call: Call, arrays: Arrays) -> Arrays:
    return {"output": jax.nn.celu(arrays["input"], call.options["alpha"])}


@kernel("glu")
def _glu(call: Call, arrays: Arrays) -> Arrays:
    value, gate = jnp.split(arrays["input"], 2, call.options["axis"])
    return {"output": value * _GATES[call.options["activation"]](gate)}


_GATES = {
    "sigmoid": jax.nn.sigmoid,
    "silu": jax.nn.silu,
    # JAX approximates GELU by default; GLU and Gelu do not.
    "gelu": partial(jax.nn.gelu, approximate=False),
    "relu": jax.nn.relu,
    "tanh": jnp.tanh,
}
