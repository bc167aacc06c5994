"""Arrays of a constant, of a range, and of random numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from mithril_nb.backends.jax.kernels.registry import DRAWS, Result, kernel, register
from mithril_nb.backends.jax.kernels.shaping import static
from mithril_nb.models.shape_inference.folding import dtype_of
from mithril_nb.program import Arrays, Call


@kernel("constant")
def _constant(call: Call, arrays: Arrays) -> Result:
    value = call.options["value"]
    return jnp.asarray(value, call.options["dtype"] or dtype_of(value) or call.dtype)


@kernel("full")
def _full(call: Call, arrays: Arrays) -> Result:
    value = jnp.asarray(call.options["value"], _dtype(call))
    return jnp.full(static(call, "shape"), value)


@kernel("arange")
def _arange(call: Call, arrays: Arrays) -> Result:
    bounds = [static(call, bound) for bound in ("start", "stop", "step")]
    is_whole = all(isinstance(bound, int) for bound in bounds)
    return jnp.arange(*bounds, dtype=static(call, "dtype") or ("int32" if is_whole else call.dtype))


@kernel("randn")
@kernel("primitive_randn")
def _randn(call: Call, arrays: Arrays) -> Result:
    dtype = _dtype(call) or float
    return jax.random.normal(_key(call), static(call, "shape"), dtype)


@kernel("rand_int")
@kernel("primitive_rand_int")
def _rand_int(call: Call, arrays: Arrays) -> Result:
    low, high = call.options["low"], call.options["high"]
    dtype = static(call, "dtype") or "int32"
    return jax.random.randint(_key(call), static(call, "shape"), low, high, dtype)


def _draws(options: Mapping[str, Any], training: bool) -> bool:
    return options["key"] is None


DRAWS.update(dict.fromkeys(("randn", "primitive_randn", "rand_int", "primitive_rand_int"), _draws))


def _key(call: Call) -> jax.Array:
    key = call.options["key"]
    if key is None:
        assert call.key is not None
        return call.key
    # A number, an array of a number, the two words of a raw key, or a typed key: each is what `jax.random` accepts.
    if isinstance(key, int):
        return jax.random.key(key)
    if jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        return key
    return jax.random.key(key) if key.ndim == 0 else jax.random.wrap_key_data(key)


def _dtype(call: Call) -> Any:
    return static(call, "dtype") or call.dtype


register(
    {
        "ones": lambda call, arrays: jnp.ones(static(call, "shape"), _dtype(call)),
        "zeros": lambda call, arrays: jnp.zeros(static(call, "shape"), _dtype(call)),
        "eye": lambda call, arrays: jnp.eye(static(call, "N"), static(call, "M"), dtype=_dtype(call)),
        "eye_complement": lambda call, arrays: 1 - jnp.eye(static(call, "N"), static(call, "M"), dtype=_dtype(call)),
    }
)
