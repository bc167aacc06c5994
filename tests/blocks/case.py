"""Test cases of blocks: how to draw a block with its inputs, and its reference output."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from mithril_nb.models import Model

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Case:
    """The test case of one kind of block.

    Attributes:
        name: Unique; usually the kind of the block.
        draw: Draws a block with random attributes, and an array for each of its data inputs: floating ones as float64.
            Shapes vary, sizes of 1 and 0 included where they make sense.
        reference: From the block, its params and its inputs (all float64) to its outputs, by NumPy, SciPy, Flax, ...:
            not by our own code, and not by the function that the kernel calls. `None` for blocks that draw random
            numbers, which have separate tests.
        is_differentiable: True if its gradient is compared with finite differences.
        tolerance: Relative and absolute, in float32.
        tolerance64: The same in float64.
    """

    name: str
    draw: Callable[[st.DrawFn], tuple[Model, Arrays]]
    reference: Callable[[Model, Arrays, Arrays], dict[str, Any]] | None
    is_differentiable: bool = True
    tolerance: float = 1e-5
    tolerance64: float = 1e-9


def all_cases() -> list[Case]:
    """Return every case of every module in `tests/blocks/cases`; each module has a list `CASES`."""
    package = importlib.import_module("tests.blocks.cases")
    modules = [
        importlib.import_module(f"{package.__name__}.{found.name}") for found in pkgutil.iter_modules(package.__path__)
    ]
    return [case for module in modules for case in module.CASES]


@st.composite
def arrays(draw: st.DrawFn, shape: tuple[int, ...], least: float = -3.0, most: float = 3.0) -> np.ndarray:
    """Return spread-out floats: no two are so close that a finite difference would see a tie."""
    seed = draw(st.integers(0, 2**16))
    random = np.random.default_rng(seed)
    return random.uniform(least, most, shape)


shapes = st.lists(st.integers(1, 4), min_size=0, max_size=4).map(tuple)
"""Shapes of rank 0 to 4."""
filled_shapes = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple)
"""The same of rank 1 to 4."""
