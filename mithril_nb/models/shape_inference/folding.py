"""Arithmetic on static values during shape inference, such as `x.shape()[0] * 2`."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from mithril_nb.graph.records import Value
from mithril_nb.graph.spec import (
    ITEM_BYTES,
    LEADING,
    UNKNOWN_SHAPE,
    Dim,
    Spec,
    StaticSpec,
    TensorSpec,
)
from mithril_nb.models.shape_inference.dims import MismatchError, plus, product, quotient, times

# Python's integers are exact for products of sizes, where the 32 bits of a program would overflow.
FOLDS: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "floor_divide": operator.floordiv,
    "divide": operator.truediv,
    "power": operator.pow,
    "negate": operator.neg,
    "absolute": operator.abs,
    "minimum": min,
    "maximum": max,
}
"""The function that computes each arithmetic op if all its inputs are static values."""
_BY_NAME: dict[str, Callable[..., Dim | None]] = {
    "add": lambda a, b: plus(a, b),
    "subtract": lambda a, b: plus(a, times(b, -1)),
    "multiply": lambda a, b: product((a, b)),
    "floor_divide": lambda a, b: quotient((a,), (b,)),
}
"""The functions for sizes that are names, such as `"batch"`. The other ops of `FOLDS` give an unknown result."""


def folded(op: str, inputs: Mapping[str, Spec]) -> StaticSpec:
    """Return the result of an arithmetic op on static values, such as sizes.

    If an input is unknown or the result does not exist, as for `1 / 0`, the result is an unknown static value.

    Args:
        op: Name of the op.
        inputs: The static value of each input, by port.

    Examples:
        >>> folded("multiply", {"left": StaticSpec("batch"), "right": StaticSpec(2)})
        static 'batch*2'
    """
    specs = [spec for spec in inputs.values() if isinstance(spec, StaticSpec)]
    values = [spec.value for spec in specs]
    if not all(spec.is_known for spec in specs):
        return StaticSpec(is_known=False)
    if all(isinstance(value, int | float) for value in values):
        try:
            return StaticSpec(FOLDS[op](*values))
        # A division by 0 is no mismatch of shapes. The program reports it if it runs.
        except ArithmeticError:
            return StaticSpec(is_known=False)
    if op in _BY_NAME and all(isinstance(value, int | str) for value in values):
        result = _BY_NAME[op](*values)
        return StaticSpec(result, is_known=result is not None)
    return StaticSpec(is_known=False)


def as_arrays(inputs: Mapping[str, Spec], dtype: str) -> dict[str, TensorSpec]:
    """Apply `as_array` to the spec of each input."""
    return {port: as_array(port, spec, dtype) for port, spec in inputs.items()}


def as_array(port: str, spec: Spec, dtype: str) -> TensorSpec:
    """Return the spec of an input as the spec of an array: a static value becomes an array of this value.

    Args:
        port: The input that receives the value, for the error message.
        spec: The spec.
        dtype: The dtype of an array of floats.

    Examples:
        >>> as_array("input", StaticSpec(("batch", 3)), "float32")
        (2,) int32
    """
    if isinstance(spec, TensorSpec):
        return spec
    if not spec.is_known:
        return TensorSpec(UNKNOWN_SHAPE, dtype)
    # A shape of unknown rank has an unknown number of sizes.
    if isinstance(spec.value, tuple) and LEADING in spec.value:
        return TensorSpec(UNKNOWN_SHAPE, "int32")
    if spec.value is None or not _is_numeric(spec.value):
        raise MismatchError(port, "an array", "connect an array, or numbers.", f"{spec.value!r} is not an array")
    return TensorSpec(shape_of(spec.value), dtype_of(spec.value) or dtype)


def _is_numeric(value: Value) -> bool:
    if isinstance(value, tuple):
        return all(_is_numeric(entry) for entry in value)
    # A text is the name of a size, and so a number, unless it is the name of a dtype.
    return value is not None and not (isinstance(value, str) and value in ITEM_BYTES)


def shape_of(value: Value) -> tuple[int, ...]:
    """Return the shape of nested tuples of numbers. At each depth, the first tuple determines the size.

    Examples:
        >>> shape_of(((1, 2, 3), (4, 5, 6)))
        (2, 3)
    """
    if not isinstance(value, tuple):
        return ()
    return (len(value), *(shape_of(value[0]) if value else ()))


def dtype_of(value: Value) -> str | None:
    """Return `"int32"` or `"bool"` for a number or nested tuples; `None` with a float, for the model's dtype.

    Examples:
        >>> dtype_of((1, 2)), dtype_of((1, 2.0)), dtype_of(True)
        ('int32', None, 'bool')
    """
    kinds = _kinds(value)
    if float in kinds or not kinds:
        return None
    return "bool" if kinds == {bool} else "int32"


def _kinds(value: Value) -> set[type]:
    return {kind for entry in value for kind in _kinds(entry)} if isinstance(value, tuple) else {type(value)}
