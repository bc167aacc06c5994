"""What dtype kernels compute in, where it is not that of what they are given."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from mithril_nb.models.constants import dtype_of
from mithril_nb.models.library.operations.elementwise import floating
from mithril_nb.program import Array, Call


def widened(x: Array) -> Array:
    """Return floating numbers in float32 if they are narrower: sums and exponentials need more than 8 bits."""
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def widened_whole(x: Array) -> Array:
    """Return whole numbers in int32 if they are narrower: 8 bits do not hold the number of classes or of rows.

    A count that is a Python number would be computed in the dtype of the array, and wrap round.
    """
    return x.astype(jnp.int32) if jnp.issubdtype(x.dtype, jnp.integer) and x.dtype.itemsize < 4 else x


def in_floating(x: Array) -> Array:
    """Return an array as floating numbers, in the dtype that the shape rules say."""
    return x.astype(floating(str(x.dtype)))


def promoted_all(*arrays: Array) -> tuple[Array, ...]:
    """Return arrays in the one dtype that they promote to, as functions of `lax` want them."""
    dtype = jnp.result_type(*arrays)
    return tuple(array.astype(dtype) for array in arrays)


def narrowed(found: Array, *given: Array) -> Array:
    """Return a result in 32 bits where nothing of 64 went into it.

    With x64 on, JAX promotes `uint32` and `int32` to `int64`: shape inference says one dtype, whether it is on or not.
    """
    if found.dtype.itemsize == 8 and all(array.dtype.itemsize < 8 for array in given):
        return found.astype(_IN_32_BITS.get(str(found.dtype), found.dtype))
    return found


_IN_32_BITS = {"int64": "int32", "uint64": "uint32", "float64": "float32"}


def as_array(call: Call, value: Any) -> Array:
    """Return an array, made of a value if it is none: floating numbers in the model's dtype, as inference says."""
    if is_value(value):
        return jnp.asarray(value, dtype_of(value) or call.dtype)
    return jnp.asarray(value) if isinstance(value, tuple) else value


def is_value(value: Any) -> bool:
    """Return whether something is a plain value, through and through, and no array."""
    if isinstance(value, tuple):
        return all(is_value(one) for one in value)
    return value is None or isinstance(value, bool | int | float | str)
