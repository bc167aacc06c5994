"""The table of JAX kernels. Each family of ops has its own module in this folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

from mithril_nb.backends.jax.kernels.dtypes import as_array, widened_whole
from mithril_nb.errors import ShapeError
from mithril_nb.models.op import OPS
from mithril_nb.models.shape_inference.folding import FOLDS
from mithril_nb.program import Arrays, Call, Kernel

KERNELS: dict[str, Kernel] = {}
"""Kernel of each op."""
DRAWS: dict[str, Callable[[Mapping[str, Any], bool], bool]] = {}
"""Functions of (attributes, training) that return whether an op draws random numbers. Other ops never draw."""


def kernel(op: str, widens: bool = True) -> Callable[[Kernel], Kernel]:
    """Register a pure function of arrays as the kernel of an op.

    Ops with `takes_values` receive plain Python values, such as sizes, unchanged. For other ops they are converted to
    arrays. But arithmetic on plain values only is computed in Python, so that its result can be a size again.

    Args:
        op: Name of the op.
        widens: True to cast integer inputs to at least 32 bits. They are counts or indices, which may not fit 8 bits.
            False if the result has the dtype of the inputs.
    """

    def register(function: Kernel) -> Kernel:
        @wraps(function)
        def run(call: Call, arrays: Arrays) -> Arrays:
            values = [one for one in arrays.values() if isinstance(one, int | float | tuple)]
            if op in OPS and OPS[op].takes_values:
                return function(call, arrays)
            if op in FOLDS and values and len(values) == len(arrays) and not any(isinstance(v, tuple) for v in values):
                return {"output": _folded(op, values)}
            whole = {port for port in arrays if widens and op in OPS and OPS[op].wanted_dtype(port, "") == "int32"}
            found = {port: as_array(call, one) for port, one in arrays.items()}
            return function(call, {port: widened_whole(one) if port in whole else one for port, one in found.items()})

        KERNELS[op] = run
        return function

    return register


def _folded(op: str, values: list[Any]) -> Any:
    try:
        return FOLDS[op](*values)
    except ArithmeticError as error:
        raise ShapeError(
            f"arithmetic of sizes has no result: {error}.",
            (("op", op), ("values", ", ".join(map(repr, values)))),
            "x.shape()[0] // 2  # or another number that is not 0",
        ) from None


def draws(op: str, options: Mapping[str, Any], training: bool) -> bool:
    """Return whether an op draws random numbers."""
    return op in DRAWS and DRAWS[op](options, training)
