"""The table of kernels: what runs each op on JAX. Each family of ops has a module beside this one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mithril_nb.program import Kernel

KERNELS: dict[str, Kernel] = {}
"""Kernel of each op."""
DRAWS: dict[str, Callable[[Mapping[str, Any], bool], bool]] = {}
"""Whether an op draws random numbers, given its attributes and whether the program trains; others are not here."""


def kernel(op: str) -> Callable[[Kernel], Kernel]:
    """Register a function as what runs an op; a pure function of arrays, traced once."""

    def register(function: Kernel) -> Kernel:
        KERNELS[op] = function
        return function

    return register


def draws(op: str, options: Mapping[str, Any], training: bool) -> bool:
    """Return whether an op draws random numbers."""
    return op in DRAWS and DRAWS[op](options, training)
