"""A block at inputs where its formula has a kink, a pole or no value, compared with a float64 reference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mithril_nb import models
from mithril_nb.models import Model
from tests.blocks.case import Arrays, all_cases

CASES = {case.name: case for case in all_cases()}


@dataclass(frozen=True)
class Point:
    """One block at one set of inputs.

    Attributes:
        name: Unique: the call that makes the block, and after `;` what is special about the inputs.
        block: The block.
        given: Its inputs by port; floats in float64.
        values: The expected outputs by port, computed by NumPy in float64.
        slopes: The expected gradients of the weighted sum of the port `output`, by port. An input that is left out is
            not differentiated.
        weights: The factors of the items of `output` in that sum.
        tolerance: Relative and absolute.
    """

    name: str
    block: Model
    given: Arrays
    values: Mapping[str, Any]
    slopes: Mapping[str, Any] = field(default_factory=dict)
    weights: Any = 1.0
    tolerance: float = 2e-6


def rounded(array: Any) -> np.ndarray:
    """Return numbers rounded to float32, in float64; booleans and int32 numbers are unchanged."""
    array = np.asarray(array)
    return array if array.dtype in ("bool", "int32") else array.astype("float32").astype("float64")


def point(
    name: str,
    given: Mapping[str, Any],
    values: Any = None,
    weights: Any = 1.0,
    tolerance: float = 2e-6,
    block: Model | None = None,
    **slopes: Any,
) -> Point:
    """Return a point, for the block that its name makes by default. The reference of its case gives the values."""
    block = eval(name.partition(";")[0], dict(vars(models))) if block is None else block
    arrays = {port: rounded(array) for port, array in given.items()}
    if values is None:
        params = {port.name: arrays[port.name] for port in block.inputs if port.role == "param"}
        inputs = {port: array for port, array in arrays.items() if port not in params}
        values = CASES[block.kind].expected(block, params, inputs)
    return Point(name, block, arrays, values if isinstance(values, Mapping) else {"output": values}, slopes,
                 rounded(weights), tolerance)  # fmt: skip
