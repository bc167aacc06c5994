"""The table of kernels: what runs each op on JAX. Each family of ops has a module beside this one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

from mithril_nb.backends.jax.kernels.dtypes import as_array, widened_whole
from mithril_nb.errors import ShapeError
from mithril_nb.models.folding import FOLDS
from mithril_nb.models.op import OPS
from mithril_nb.program import Arrays, Call, Kernel

KERNELS: dict[str, Kernel] = {}
"""Kernel of each op."""
DRAWS: dict[str, Callable[[Mapping[str, Any], bool], bool]] = {}
"""Whether an op draws random numbers, given its attributes and whether the program trains; others are not here."""


def kernel(op: str, widens: bool = True) -> Callable[[Kernel], Kernel]:
    """Register a function as what runs an op; a pure function of arrays, traced once.

    A value that is no array, as a size, reaches those that take such. For others it is made an array; but arithmetic
    on nothing else stays plain, so that its result can be a size again.

    Args:
        op: Name of the op.
        widens: Whether inputs that must be whole numbers come in 32 bits at least: they count or name places, of which
            there may be more than 8 bits can say. Not where their dtype is that of the result.
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
            made = {port: as_array(call, one) for port, one in arrays.items()}
            return function(call, {port: widened_whole(one) if port in whole else one for port, one in made.items()})

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
