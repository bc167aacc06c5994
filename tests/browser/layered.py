"""A program of two layers: as a function, and as a cell that explores it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from mithril_nb.inspection import Inspection
from mithril_nb.inspection import inspect_function as inspect

EXPLORED = """
import jax, jax.numpy as jnp
import mithril_nb as ml
def net(params, x):
    for at, w in enumerate(params):
        with jax.named_scope(f"layer_{at}"):
            x = jnp.tanh(x @ w)
    return x.sum()
spec = lambda *shape: jax.ShapeDtypeStruct(shape, "float32")
e = ml.explore(jax.grad(net), [spec(29, 37), spec(37, 53)], spec(7, 29))
e
"""


def net(params: Any, x: Any) -> Any:
    for at, w in enumerate(params):
        with jax.named_scope(f"layer_{at}"):
            x = jnp.tanh(x @ w)
    return x.sum()


def inspected() -> Inspection:
    """Return the inspection of the gradient."""
    return inspect(jax.grad(net), [jnp.zeros((29, 37)), jnp.zeros((37, 53))], jnp.zeros((7, 29)), name="net")
