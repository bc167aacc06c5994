"""Compute statements whose operands are all numbers."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from mithril_nb.emission.program import Number, Statement

_OPERATIONS: dict[str, Callable[..., Any]] = {
    "add": operator.add, "add_any": operator.add, "sub": operator.sub, "mul": operator.mul,
    "max": np.maximum, "min": np.minimum, "neg": operator.neg, "abs": np.abs, "sqrt": np.sqrt, "square": np.square,
    "sign": np.sign, "floor": np.floor, "ceil": np.ceil, "not": np.logical_not, "and": np.bitwise_and,
    "or": np.bitwise_or, "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le,
    "gt": operator.gt, "ge": operator.ge,
}  # fmt: skip
"""Operations that every library rounds in the same way, by primitive."""
_DTYPES = frozenset("bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64".split())


def fold(statement: Statement) -> Number | None:
    """Return the number that a statement computes.

    The result is `None` if an operand or the result is an array, or if libraries may compute different numbers.

    Examples:
        >>> from mithril_nb.emission.program import Value
        >>> half, two = Number(0.5, "float32"), Number(2.0, "float32")
        >>> fold(Statement("mul", (half, two), (Value("scaled", (), "float32"),)))
        Number(value=1.0, dtype='float32')
    """
    inputs, (output,) = statement.inputs, statement.outputs
    numbers = [one for one in inputs if isinstance(one, Number)]
    if output.shape != () or len(numbers) != len(inputs) or not {output.dtype, *(x.dtype for x in numbers)} <= _DTYPES:
        return None
    values = [np.dtype(one.dtype).type(one.value) for one in numbers]
    dtype = np.dtype(output.dtype)
    with np.errstate(all="ignore"):
        if statement.primitive in ("convert_element_type", "reshape", "squeeze", "broadcast_in_dim", "copy"):
            is_exact = statement.primitive != "convert_element_type" or _converts(values[0], dtype)
            return Number(values[0].astype(dtype).item(), output.dtype) if is_exact else None
        if statement.primitive == "div" and dtype.kind == "f":
            return Number((values[0] / values[1]).item(), output.dtype)
        if statement.primitive == "select_n" and len(values) == 3:
            return Number(values[1 + int(values[0])].item(), output.dtype)
        operation = _OPERATIONS.get(statement.primitive)
        if operation is None or (statement.primitive == "not" and dtype.kind != "b"):
            return None
        return Number(dtype.type(operation(*values)).item(), output.dtype)


def _converts(value: Any, dtype: np.dtype) -> bool:
    """Return whether all libraries convert a number equally. They differ for floats out of the range of integers."""
    if value.dtype.kind == "f" and dtype.kind in "iu":
        return bool(np.isfinite(value)) and np.iinfo(dtype).min <= value <= np.iinfo(dtype).max
    return value.dtype.kind != "f" or dtype.kind == "f" or dtype.kind == "b"
