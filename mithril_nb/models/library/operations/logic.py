"""Comparisons, truth values, choices, and bits."""

from __future__ import annotations

from typing import ClassVar

from mithril_nb.graph.spec import TensorSpec
from mithril_nb.models.dtypes import promoted
from mithril_nb.models.library.operations.elementwise import ANY, Broadcasting, Elementwise, broadcast_all
from mithril_nb.models.op import Inferred, Options, Specs

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
    """Says where the left item is above the right one.

    Examples:
        >>> Greater()
        Greater()
    """

    op = "greater"
    formula = "y = left > right"


class Less(_Comparison):
    """Says where the left item is below the right one.

    Examples:
        >>> Less()
        Less()
    """

    op = "less"
    formula = "y = left < right"


class GreaterEqual(_Comparison):
    """Says where the left item is at or above the right one.

    Examples:
        >>> GreaterEqual()
        GreaterEqual()
    """

    op = "greater_equal"
    formula = "y = left >= right"


class LessEqual(_Comparison):
    """Says where the left item is at or below the right one.

    Examples:
        >>> LessEqual()
        LessEqual()
    """

    op = "less_equal"
    formula = "y = left <= right"


class Equal(_Comparison):
    """Says where both items are the same; NaN is not the same as NaN.

    Examples:
        >>> Equal()
        Equal()
    """

    op = "equal"
    formula = "y = left == right"
    takes = ANY


class NotEqual(_Comparison):
    """Says where the items differ; NaN differs from NaN.

    Examples:
        >>> NotEqual()
        NotEqual()
    """

    op = "not_equal"
    formula = "y = left != right"
    takes = ANY


class IsNan(Elementwise):
    """Says where an item is not a number.

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
    """Turns truth values round.

    Examples:
        >>> LogicalNot()
        LogicalNot()
    """

    op = "logical_not"
    category = "Logic"
    formula = "y = not x"
    input_dtypes: ClassVar = {"*": "bool"}
    takes = ("truth",)


class _Truths(Broadcasting):
    category = "Logic"
    input_dtypes: ClassVar = {"*": "bool"}
    takes = ("truth",)


class LogicalAnd(_Truths):
    """Says where both are true.

    Examples:
        >>> LogicalAnd()
        LogicalAnd()
    """

    op = "logical_and"
    formula = "y = left and right"


class LogicalOr(_Truths):
    """Says where at least one is true.

    Examples:
        >>> LogicalOr()
        LogicalOr()
    """

    op = "logical_or"
    formula = "y = left or right"


class LogicalXOr(_Truths):
    """Says where exactly one is true.

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
    """Moves the bits of whole numbers to the left; what leaves the number is lost.

    Examples:
        >>> [port.name for port in ShiftLeft().inputs]
        ['input', 'shift']
    """

    op = "shift_left"
    formula = "y = input << shift"


class ShiftRight(_Shift):
    """Moves the bits of whole numbers to the right; the sign stays.

    Examples:
        >>> ShiftRight()
        ShiftRight()
    """

    op = "shift_right"
    formula = "y = input >> shift"


class Where(Broadcasting):
    """Takes items of one array where a condition holds, and of another elsewhere.

    Gradients go to the array that was taken from. What was not taken must still be finite for gradients to be.

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
        """The shape that all three broadcast to, the dtype that both arrays promote to."""
        dtype = promoted([inputs["input1"].dtype, inputs["input2"].dtype])
        return Inferred({"output": TensorSpec(broadcast_all(inputs), dtype)})
