"""The table of JAX kernels, and functions that choose the dtypes in which kernels compute."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

import jax
import jax.numpy as jnp

from mithril_nb.errors import ShapeError
from mithril_nb.models.library.operations.elementwise import floating
from mithril_nb.models.op import OPS
from mithril_nb.models.shape_inference.folding import FOLDS, dtype_of
from mithril_nb.program import Array, Arrays, Call, Kernel


def widened(x: Array) -> Array:
    """Cast an array to float32, or to float64 if it is float64, because sums and exponentials need this precision."""
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def widened_whole(x: Array) -> Array:
    """Cast integers with fewer than 32 bits to int32. Other arrays are returned unchanged.

    When JAX compares indices with a count, such as the number of classes, it casts the count to the dtype of the
    indices. In 8 bits, a count such as 256 wraps around.
    """
    return x.astype(jnp.int32) if jnp.issubdtype(x.dtype, jnp.integer) and x.dtype.itemsize < 4 else x


def in_floating(x: Array) -> Array:
    """Cast an array to floating point. The shape rules determine the dtype."""
    return x.astype(floating(str(x.dtype)))


def promoted_all(*arrays: Array) -> tuple[Array, ...]:
    """Cast arrays to their common dtype, which functions of `lax` require."""
    dtype = jnp.result_type(*arrays)
    return tuple(array.astype(dtype) for array in arrays)


def narrowed(result: Array, *operands: Array) -> Array:
    """Cast a result to 32 bits if no input has 64 bits.

    In x64 mode, JAX promotes `uint32` and `int32` to `int64`, but shape inference returns the same dtype in both modes.
    """
    if result.dtype.itemsize == 8 and all(array.dtype.itemsize < 8 for array in operands):
        return result.astype(_IN_32_BITS.get(str(result.dtype), result.dtype))
    return result


# Not canonicalize_dtype, which changes nothing in x64 mode.
_IN_32_BITS = {"int64": "int32", "uint64": "uint32", "float64": "float32"}


def as_array(call: Call, value: Any) -> Array:
    """Convert a Python value to an array. Floats get the dtype of the model. Arrays are returned unchanged."""
    if is_value(value):
        return jnp.asarray(value, dtype_of(value) or call.dtype)
    return jnp.asarray(value) if isinstance(value, tuple) else value


def is_value(value: Any) -> bool:
    """Return whether a value is a plain Python value: a number, a text, `None`, or a tuple of such values."""
    if isinstance(value, tuple):
        return all(is_value(element) for element in value)
    return value is None or isinstance(value, bool | int | float | str)


def usual_promotion(function: Callable[..., Any]) -> Callable[..., Any]:
    """Run a function with JAX's defaults for shapes and dtypes that differ, whatever the user has configured.

    JAX's strict rank promotion would refuse a bias, its strict dtype promotion a step count.
    """

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
            return function(*args, **kwargs)

    return run


Result = Any
"""What a kernel returns: a dict of arrays by port, or the value of the port `"output"`."""
KERNELS: dict[str, Kernel] = {}
"""Kernel of each op."""
DRAWS: dict[str, Callable[[Mapping[str, Any], bool], bool]] = {}
"""Functions of (attributes, training) that return whether an op draws random numbers. Other ops never draw."""


def kernel(op: str, widens: bool = True) -> Callable[[Callable[[Call, Arrays], Result]], Any]:
    """Register a pure function of arrays as the kernel of an op.

    The inputs of an op may be plain Python values, such as sizes. If the class of the op sets `takes_values`, the
    function receives them unchanged. Otherwise they are converted to arrays. But arithmetic of only plain numbers is
    computed in Python, without the function, so that the result can be a size.

    Args:
        op: Name of the op.
        widens: True to cast counts and indices among the inputs to at least 32 bits.
    """

    def register(function: Callable[[Call, Arrays], Result]) -> Any:
        @wraps(function)
        @usual_promotion
        def run(call: Call, arrays: Arrays) -> Arrays:
            result = compute(call, arrays)
            return result if isinstance(result, dict) else {"output": result}

        def compute(call: Call, arrays: Arrays) -> Result:
            values = [value for value in arrays.values() if isinstance(value, int | float | tuple)]
            if op in OPS and OPS[op].takes_values:
                return function(call, arrays)
            # Sizes of a shape stay Python numbers, because `reshape` cannot take a traced array.
            if op in FOLDS and values and len(values) == len(arrays) and not any(isinstance(v, tuple) for v in values):
                return _folded(op, values)
            # 256 classes do not fit uint8: with labels of 8 bits, CrossEntropy was NaN.
            integer_ports = {
                port for port in arrays if widens and op in OPS and OPS[op].required_dtype(port, "") == "int32"
            }
            converted = {port: as_array(call, value) for port, value in arrays.items()}
            return function(call, {p: widened_whole(a) if p in integer_ports else a for p, a in converted.items()})

        KERNELS[op] = run
        return function

    return register


def register(functions: Mapping[str, Callable[[Call, Arrays], Result]]) -> None:
    """Register functions as the kernels of ops, by name."""
    for op, function in functions.items():
        kernel(op)(function)


def _folded(op: str, values: list[Any]) -> Any:
    try:
        return FOLDS[op](*values)
    except ArithmeticError as error:
        raise ShapeError(
            f"arithmetic of sizes has no result: {error}.",
            (("op", op), ("values", ", ".join(map(repr, values)))),
        ) from None


def draws(op: str, options: Mapping[str, Any], training: bool) -> bool:
    """Return whether an op draws random numbers."""
    return op in DRAWS and DRAWS[op](options, training)
