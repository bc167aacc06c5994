"""How parameters start: `jax.nn.initializers`, by the names that blocks use."""

from __future__ import annotations

import jax
from jax.nn import initializers

from mithril_nb.models.op import Initializer


def initial(initializer: Initializer, key: jax.Array, shape: tuple[int, ...], dtype: str) -> jax.Array:
    """Return the starting value of a parameter, of the given shape and dtype."""
    axes = {"in_axis": initializer.in_axis, "out_axis": initializer.out_axis}
    match initializer.name:
        case "zeros":
            make = initializers.zeros
        case "ones":
            make = initializers.ones
        case "normal":
            make = initializers.normal(initializer.scale)
        case "glorot_uniform":
            make = initializers.glorot_uniform(**axes)
        case "he_normal":
            make = initializers.he_normal(**axes)
        case "lecun_normal":
            make = initializers.lecun_normal(**axes)
        case other:
            raise ValueError(f"unknown initializer {other!r}")
    return make(key, shape, dtype)
