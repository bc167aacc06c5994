"""Dtypes in which kernels compute, if they differ from those of the inputs."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from mithril_nb.models.library.operations.elementwise import floating
from mithril_nb.models.shape_inference.folding import dtype_of
from mithril_nb.program import Array, Call


def widened(x: Array) -> Array:
    """Cast narrower floats to float32: sums and exponentials need more than 8 bits of precision."""
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def widened_whole(x: Array) -> Array:
    """Cast narrower integers to int32: 8 bits cannot hold the number of classes or rows.

    JAX would cast a count that is a Python number to the dtype of the array, where it wraps around.
    """
    return x.astype(jnp.int32) if jnp.issubdtype(x.dtype, jnp.integer) and x.dtype.itemsize < 4 else x


def in_floating(x: Array) -> Array:
    """Cast an array to floating point, in the dtype of the shape rules."""
    return x.astype(floating(str(x.dtype)))


def promoted_all(*arrays: Array) -> tuple[Array, ...]:
    """Cast arrays to their common dtype, which functions of `lax` require."""
    dtype = jnp.result_type(*arrays)
    return tuple(array.astype(dtype) for array in arrays)


def narrowed(found: Array, *given: Array) -> Array:
    """Cast a result to 32 bits if no input has 64 bits.

    In x64 mode, JAX promotes `uint32` and `int32` to `int64`, but shape inference returns the same dtype in both modes.
    """
    if found.dtype.itemsize == 8 and all(array.dtype.itemsize < 8 for array in given):
        return found.astype(_IN_32_BITS.get(str(found.dtype), found.dtype))
    return found


_IN_32_BITS = {"int64": "int32", "uint64": "uint32", "float64": "float32"}


def as_array(call: Call, value: Any) -> Array:
    """Convert a value to an array, with floats in the model's dtype like in inference. Return arrays unchanged."""
    if is_value(value):
        return jnp.asarray(value, dtype_of(value) or call.dtype)
    return jnp.asarray(value) if isinstance(value, tuple) else value


def is_value(value: Any) -> bool:
    """Return whether a value, or each element of a tuple, is a plain Python value and not an array."""
    if isinstance(value, tuple):
        return all(is_value(one) for one in value)
    return value is None or isinstance(value, bool | int | float | str)
