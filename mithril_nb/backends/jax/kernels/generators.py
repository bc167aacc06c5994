"""Arrays of a constant, of a range, and of random numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from mithril_nb.backends.jax.kernels.registry import DRAWS, kernel
from mithril_nb.backends.jax.kernels.shaping import known
from mithril_nb.models.shape_inference.folding import dtype_of
from mithril_nb.program import Arrays, Call


@kernel("constant")
def _constant(call: Call, arrays: Arrays) -> Arrays:
    value = call.options["value"]
    return {"output": jnp.asarray(value, call.options["dtype"] or dtype_of(value) or call.dtype)}


@kernel("ones")
def _ones(call: Call, arrays: Arrays) -> Arrays:
    return {"output": jnp.ones(known(call, "shape"), _dtype(call))}


@kernel("zeros")
def _zeros(call: Call, arrays: Arrays) -> Arrays:
    return {"output": jnp.zeros(known(call, "shape"), _dtype(call))}


@kernel("full")
def _full(call: Call, arrays: Arrays) -> Arrays:
    value = jnp.asarray(call.options["value"], _dtype(call))
    return {"output": jnp.full(known(call, "shape"), value)}


@kernel("eye")
def _eye(call: Call, arrays: Arrays) -> Arrays:
    return {"output": jnp.eye(known(call, "N"), known(call, "M"), dtype=_dtype(call))}


@kernel("eye_complement")
def _eye_complement(call: Call, arrays: Arrays) -> Arrays:
    return {"output": 1 - jnp.eye(known(call, "N"), known(call, "M"), dtype=_dtype(call))}


@kernel("arange")
def _arange(call: Call, arrays: Arrays) -> Arrays:
    bounds = [known(call, bound) for bound in ("start", "stop", "step")]
    is_whole = all(isinstance(bound, int) for bound in bounds)
    return {"output": jnp.arange(*bounds, dtype=known(call, "dtype") or ("int32" if is_whole else call.dtype))}


@kernel("randn")
@kernel("primitive_randn")
def _randn(call: Call, arrays: Arrays) -> Arrays:
    dtype = _dtype(call) or float
    return {"output": jax.random.normal(_key(call), known(call, "shape"), dtype)}


@kernel("rand_int")
@kernel("primitive_rand_int")
def _rand_int(call: Call, arrays: Arrays) -> Arrays:
    low, high = call.options["low"], call.options["high"]
    dtype = known(call, "dtype") or "int32"
    return {"output": jax.random.randint(_key(call), known(call, "shape"), low, high, dtype)}


def _draws(options: Mapping[str, Any], training: bool) -> bool:
    return options["key"] is None


DRAWS.update(dict.fromkeys(("randn", "primitive_randn", "rand_int", "primitive_rand_int"), _draws))


def _key(call: Call) -> jax.Array:
    """Return the option `key` of a block as a typed key. It may be a seed, a typed key, or an array of uint32.

    If the option is `None`, return the key that the program passes to the block, `call.key`.
    """
    given = call.options["key"]
    if given is None:
        assert call.key is not None
        return call.key
    if isinstance(given, int):
        return jax.random.key(given)
    if jnp.issubdtype(given.dtype, jax.dtypes.prng_key):
        return given
    return jax.random.key(given) if given.ndim == 0 else jax.random.wrap_key_data(given)


def _dtype(call: Call) -> Any:
    return known(call, "dtype") or call.dtype
