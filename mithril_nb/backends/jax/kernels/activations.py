"""Activations, Dropout, and a sum."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp

from mithril_nb.backends.jax.kernels.registry import DRAWS, kernel
from mithril_nb.graph.records import Value
from mithril_nb.program import Arrays, Call


@kernel("softmax")
def _softmax(call: Call, arrays: Arrays) -> Arrays:
    axis = call.options["axis"]
    assert isinstance(axis, int)
    return {"output": jax.nn.softmax(arrays["input"], axis=axis)}


@kernel("dropout")
def _dropout(call: Call, arrays: Arrays) -> Arrays:
    x, p = arrays["input"], call.options["p"]
    if not dropout_draws(call.options, call.training):
        return {"output": x}
    assert isinstance(p, float)
    assert call.key is not None
    kept = jax.random.bernoulli(call.key, 1.0 - p, x.shape)
    return {"output": jnp.where(kept, x / (1.0 - p), 0.0)}


def dropout_draws(options: Mapping[str, Value], training: bool) -> bool:
    """Return whether a Dropout block drops: its own say, or else the program's."""
    says = options["training"]
    return (training if says is None else bool(says)) and options["p"] != 0.0


DRAWS["dropout"] = dropout_draws


@kernel("add")
def _add(call: Call, arrays: Arrays) -> Arrays:
    return {"output": arrays["left"] + arrays["right"]}


@kernel("relu")
def _relu(call: Call, arrays: Arrays) -> Arrays:
    return {"output": jax.nn.relu(arrays["input"])}


@kernel("gelu")
def _gelu(call: Call, arrays: Arrays) -> Arrays:
    return {"output": jax.nn.gelu(arrays["input"], approximate=bool(call.options["approximate"]))}


@kernel("sigmoid")
def _sigmoid(call: Call, arrays: Arrays) -> Arrays:
    return {"output": jax.nn.sigmoid(arrays["input"])}


@kernel("tanh")
def _tanh(call: Call, arrays: Arrays) -> Arrays:
    return {"output": jnp.tanh(arrays["input"])}
