"""Comparisons, boolean logic, selection and bit shifts."""

from __future__ import annotations

from typing import ClassVar

from mithril_nb.graph.spec import TensorSpec
from mithril_nb.models.library.operations.elementwise import ANY, Broadcasting, Elementwise
from mithril_nb.models.library.operations.shape_rules import broadcast_all
from mithril_nb.models.op import Inferred, Options, Specs
from mithril_nb.models.shape_inference.dtypes import promoted

__all__ = [
    "Equal",
    "Greater",
    "GreaterEqual",
    "IsNan",
    "Less",
    "LessEqual",
    "LogicalAnd",
    "LogicalNot",
    "LogicalOr",
    "LogicalXOr",
    "NotEqual",
    "ShiftLeft",
    "ShiftRight",
    "Where",
]


class _Comparison(Broadcasting):
    category = "Logic"
    gives = "truth"
    takes = ("floating", "whole", "truth")


class Greater(_Comparison):
    """True where the left item is greater than the right one.

    Examples:
        >>> Greater()
        Greater()
    """

    op = "greater"
    formula = "y = left > right"


class Less(_Comparison):
    """True where the left item is less than the right one.

    Examples:
        >>> Less()
        Less()
    """

    op = "less"
    formula = "y = left < right"


class GreaterEqual(_Comparison):
    """True where the left item is greater than or equal to the right one.

    Examples:
        >>> GreaterEqual()
        GreaterEqual()
    """

    op = "greater_equal"
    formula = "y = left >= right"


class LessEqual(_Comparison):
    """True where the left item is less than or equal to the right one.

    Examples:
        >>> LessEqual()
        LessEqual()
    """

    op = "less_equal"
    formula = "y = left <= right"


class Equal(_Comparison):
    """True where both items are equal; NaN is not equal to NaN.

    Examples:
        >>> Equal()
        Equal()
    """

    op = "equal"
    formula = "y = left == right"
    takes = ANY


class NotEqual(_Comparison):
    """True where the items differ; NaN differs from NaN.

    Examples:
        >>> NotEqual()
        NotEqual()
    """

    op = "not_equal"
    formula = "y = left != right"
    takes = ANY


class IsNan(Elementwise):
    """True where an item is NaN.

    Examples:
        >>> IsNan()
        IsNan()
    """

    op = "is_nan"
    category = "Logic"
    formula = "y = x is NaN"
    takes = ANY
    gives = "truth"


class LogicalNot(Elementwise):
    """True where an item is false, and false where it is true.

    Examples:
        >>> LogicalNot()
        LogicalNot()
    """

    op = "logical_not"
    category = "Logic"
    formula = "y = not x"
    input_dtypes: ClassVar = {"*": "bool"}
    takes = ("truth",)


class _Logical(Broadcasting):
    category = "Logic"
    input_dtypes: ClassVar = {"*": "bool"}
    takes = ("truth",)


class LogicalAnd(_Logical):
    """True where both items are true.

    Examples:
        >>> LogicalAnd()
        LogicalAnd()
    """

    op = "logical_and"
    formula = "y = left and right"


class LogicalOr(_Logical):
    """True where at least one of the two items is true.

    Examples:
        >>> LogicalOr()
        LogicalOr()
    """

    op = "logical_or"
    formula = "y = left or right"


class LogicalXOr(_Logical):
    """True where exactly one item is true.

    Examples:
        >>> LogicalXOr()
        LogicalXOr()
    """

    op = "logical_xor"
    formula = "y = left xor right"


class _Shift(Broadcasting):
    category = "Logic"
    input_ports = ("input", "shift")
    input_dtypes: ClassVar = {"*": "int32"}
    takes = ("whole",)


class ShiftLeft(_Shift):
    """Shifts the bits of integers to the left. Bits beyond the width of the dtype are lost.

    Examples:
        >>> [port.name for port in ShiftLeft().inputs]
        ['input', 'shift']
    """

    op = "shift_left"
    formula = "y = input << shift"


class ShiftRight(_Shift):
    """Shifts the bits of integers to the right. A negative number stays negative.

    Examples:
        >>> ShiftRight()
        ShiftRight()
    """

    op = "shift_right"
    formula = "y = input >> shift"


class Where(Broadcasting):
    """Selects items of `input1` where `cond` is true, and of `input2` elsewhere.

    The gradient of an item that is not selected is 0. But if the block that computed this item has an infinite
    derivative there, such as `Sqrt` at 0, the gradient of that block's input is NaN.

    Examples:
        >>> [port.name for port in Where().inputs]
        ['cond', 'input1', 'input2']
    """

    op = "where"
    category = "Logic"
    input_ports = ("cond", "input1", "input2")
    formula = "y = input1 if cond else input2"
    input_dtypes: ClassVar = {"cond": "bool", "*": "any"}

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Return the shape that all inputs broadcast to, and the promoted dtype of `input1` and `input2`."""
        dtype = promoted([inputs["input1"].dtype, inputs["input2"].dtype])
        return Inferred({"output": TensorSpec(broadcast_all(inputs), dtype)})
