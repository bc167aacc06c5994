"""Blocks without inputs: values that are always the same."""

from __future__ import annotations

from typing import Any

from mithril_nb.graph.records import Value
from mithril_nb.graph.spec import TensorSpec, as_dtype
from mithril_nb.models.op import Inferred, Operator, Options, Specs


class Constant(Operator):
    """Always gives the same array.

    Args:
        value: A number, or numbers in lists in lists, all of one length at each depth.
        dtype: Its dtype; by default the model's for floating numbers, `"int32"` for whole ones, `"bool"` for truth
            values.

    Examples:
        >>> Constant([1.0, 2.0])
        Constant(value=(1.0, 2.0), dtype=None)
    """

    op = "constant"
    input_ports = ()
    category = "Values"
    formula = "y = value"

    def __init__(self, value: Any = 0.0, dtype: str | None = None, name: str | None = None):
        super().__init__(name, value=value, dtype=None if dtype is None else str(as_dtype(dtype)))

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """The shape of the value."""
        value = options["value"]
        shape, dtype = shape_of(value), options["dtype"] or dtype_of(value)
        return Inferred({"output": TensorSpec(shape, str(dtype)) if dtype else shape})


def shape_of(value: Value) -> tuple[int, ...]:
    """Return the shape of numbers in tuples in tuples.

    Examples:
        >>> shape_of(((1, 2, 3), (4, 5, 6)))
        (2, 3)
    """
    if not isinstance(value, tuple):
        return ()
    return (len(value), *(shape_of(value[0]) if value else ()))


def dtype_of(value: Value) -> str | None:
    """Return the dtype of whole numbers or truth values; `None` for floating numbers, which take the model's.

    Examples:
        >>> dtype_of((1, 2)), dtype_of((1, 2.0)), dtype_of(True)
        ('int32', None, 'bool')
    """
    kinds = _kinds(value)
    if float in kinds or not kinds:
        return None
    return "bool" if kinds == {bool} else "int32"


def _kinds(value: Value) -> set[type]:
    return {kind for one in value for kind in _kinds(one)} if isinstance(value, tuple) else {type(value)}
