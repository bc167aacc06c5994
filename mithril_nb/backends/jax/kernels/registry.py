"""The table of kernels: what runs each op on JAX. Each family of ops has a module beside this one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

import jax.numpy as jnp

from mithril_nb.models.folding import FOLDS
from mithril_nb.models.op import OPS
from mithril_nb.program import Arrays, Call, Kernel

KERNELS: dict[str, Kernel] = {}
"""Kernel of each op."""
DRAWS: dict[str, Callable[[Mapping[str, Any], bool], bool]] = {}
"""Whether an op draws random numbers, given its attributes and whether the program trains; others are not here."""


def kernel(op: str) -> Callable[[Kernel], Kernel]:
    """Register a function as what runs an op; a pure function of arrays, traced once.

    A value that is no array, as a size, reaches those that take such. For others it is made an array; but arithmetic
    on nothing else stays plain, so that its result can be a size again.
    """

    def register(function: Kernel) -> Kernel:
        @wraps(function)
        def run(call: Call, arrays: Arrays) -> Arrays:
            values = [one for one in arrays.values() if isinstance(one, int | float | tuple)]
            if not values or (op in OPS and OPS[op].takes_values):
                return function(call, arrays)
            if op in FOLDS and len(values) == len(arrays) and not any(isinstance(one, tuple) for one in values):
                return {"output": FOLDS[op](*values)}
            return function(call, {port: jnp.asarray(one) for port, one in arrays.items()})

        KERNELS[op] = run
        return function

    return register


def draws(op: str, options: Mapping[str, Any], training: bool) -> bool:
    """Return whether an op draws random numbers."""
    return op in DRAWS and DRAWS[op](options, training)
