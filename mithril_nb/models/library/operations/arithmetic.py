"""Arithmetic on arrays, item by item, and matrix products."""

from __future__ import annotations

from typing import Annotated, ClassVar

from mithril_nb.graph.spec import LEADING, Dim, TensorSpec
from mithril_nb.models.dims import MismatchError, broadcast
from mithril_nb.models.dtypes import promoted
from mithril_nb.models.fields import Range
from mithril_nb.models.library.operations.elementwise import (
    ANY,
    NUMBERS,
    Broadcasting,
    Elementwise,
)
from mithril_nb.models.op import Inferred, Operator, Options, Shapes, Specs

__all__ = [
    "Add",
    "Clamp",
    "Divide",
    "FloorDivide",
    "Log",
    "MatMul",
    "MatrixMultiply",
    "Maximum",
    "Minimum",
    "Mod",
    "Multiply",
    "NanToNum",
    "Power",
    "Sqrt",
    "StableReciprocal",
    "Subtract",
]

Threshold = Annotated[float, Range(0.0, 1.0)]


class Add(Broadcasting):
    """Adds two arrays item by item, by NumPy's broadcasting.

    Examples:
        >>> Add().inputs
        (Port(name='left', role='data'), Port(name='right', role='data'))
    """

    op = "add"
    formula = "y = left + right"
    takes = ANY


class Subtract(Broadcasting):
    """Takes the right array from the left one, by NumPy's broadcasting.

    Examples:
        >>> Subtract().inputs
        (Port(name='left', role='data'), Port(name='right', role='data'))
    """

    op = "subtract"
    formula = "y = left - right"
    takes = NUMBERS


class Multiply(Broadcasting):
    """Multiplies two arrays item by item, by NumPy's broadcasting.

    Examples:
        >>> Multiply()
        Multiply()
    """

    op = "multiply"
    formula = "y = left · right"
    takes = ANY


class Divide(Broadcasting):
    """Divides two arrays item by item, by NumPy's broadcasting; whole numbers give floating ones.

    Examples:
        >>> [port.name for port in Divide().inputs]
        ['numerator', 'denominator']
    """

    op = "divide"
    input_ports = ("numerator", "denominator")
    formula = "y = numerator / denominator"
    takes = NUMBERS
    gives = "floating"


class FloorDivide(Broadcasting):
    """Divides two arrays item by item and rounds down. The gradient is 0 everywhere.

    Examples:
        >>> FloorDivide()
        FloorDivide()
    """

    op = "floor_divide"
    input_ports = ("numerator", "denominator")
    formula = "y = ⌊numerator / denominator⌋"


class Mod(Broadcasting):
    """Gives what is left over by `FloorDivide`; it has the sign of the denominator.

    Examples:
        >>> Mod()
        Mod()
    """

    op = "mod"
    input_ports = ("numerator", "denominator")
    formula = "y = numerator - denominator ⌊numerator / denominator⌋"


class Minimum(Broadcasting):
    """Takes the lesser of each pair of items; NaN where one is NaN. Two that are equal share the gradient.

    Examples:
        >>> Minimum()
        Minimum()
    """

    op = "minimum"
    formula = "y = min(left, right)"
    takes = ("floating", "whole", "truth")


class Maximum(Broadcasting):
    """Takes the greater of each pair of items; NaN where one is NaN. Two that are equal share the gradient.

    Examples:
        >>> Maximum()
        Maximum()
    """

    op = "maximum"
    formula = "y = max(left, right)"
    takes = ("floating", "whole", "truth")


class Power(Broadcasting):
    """Raises the items of one array to those of another.

    At a base of 0 the gradient by the base is 0 for an exponent of 0 and infinite for one below 1, as in PyTorch.
    With `robust`, values and gradients are finite for every finite base, at zero and below too. With the threshold t:
    `sign(b) |b|ᵉ` where `|b| >= t`; nearer to zero `b tᵉ⁻¹` if `e > 0`, a line through zero, and `sign(b) tᵉ` else.
    For an even whole e, b stands for `|b|`; `sign(0) = 1`. So `b ** 2` and `b ** 3` are as ever, and no power of
    a negative base is NaN.

    Args:
        robust: Whether to use the form above.
        threshold: The t above. By default the dtype's least normal number t₀ for `e > 0`, and `t₀ ** (1 / (2 - 2e))`
            else, so that even `|b|ᵉ⁻¹` does not overflow.

    Examples:
        >>> Power(robust=True)
        Power(robust=True, threshold=None)
    """

    op = "power"
    input_ports = ("base", "exponent")
    formula = "y = base ^ exponent"

    def __init__(self, robust: bool = False, threshold: Threshold | None = None, name: str | None = None):
        Operator.__init__(self, name, robust=robust, threshold=threshold)


class Sqrt(Elementwise):
    """Takes the square root of each item.

    With `robust`, values and gradients are finite for every finite x, at zero and below too: with t, the dtype's least
    normal number, it is `sign(x) √|x|` where `|x| >= t`, and the line `x / √t` between. Otherwise the gradient at 0 is
    infinite, and the root of a negative item is NaN.

    Args:
        robust: Whether to use the form above.
        threshold: The t above; by default, and at least, the dtype's least normal number.

    Examples:
        >>> Sqrt(robust=True, threshold=1e-6)
        Sqrt(robust=True, threshold=1e-06)
    """

    op = "sqrt"
    formula = "y = √x"
    gives = "floating"

    def __init__(self, robust: bool = False, threshold: Threshold | None = None, name: str | None = None):
        Operator.__init__(self, name, robust=robust, threshold=threshold)


class Log(Elementwise):
    """Takes the natural logarithm of each item.

    With `robust`, values and gradients are finite for every finite x, at zero and below too: with t, the dtype's least
    normal number, it is `2 log t - log(2t - x)` where `x < t`: the curve, turned by 180° around its point at t. Its
    slope has no jump there, and stays above zero, so that training finds its way back. Otherwise it is -∞ at 0, where
    the gradient is infinite, and NaN below.

    Args:
        robust: Whether to use the form above.
        threshold: The t above; by default, and at least, the dtype's least normal number.

    Examples:
        >>> Log(robust=True)
        Log(robust=True, threshold=None)
    """

    op = "log"
    formula = "y = log x"
    gives = "floating"

    def __init__(self, robust: bool = False, threshold: Threshold | None = None, name: str | None = None):
        Operator.__init__(self, name, robust=robust, threshold=threshold)


class StableReciprocal(Elementwise):
    """Divides one by each item; values and gradients are finite at zero too.

    Nearer to zero than the threshold the result is that at the threshold, of the item's sign, and its gradient zero.

    Args:
        threshold: By default the dtype's epsilon. It is at least `2 / √max`, with the dtype's largest number: below
            that the derivative overflows.

    Examples:
        >>> StableReciprocal()
        StableReciprocal(threshold=None)
    """

    op = "stable_reciprocal"
    option_ports = ("threshold",)
    formula = "y = sign(x) / max(|x|, threshold), sign(0) = 1"
    gives = "floating"

    def __init__(self, threshold: Threshold | None = None, name: str | None = None):
        Operator.__init__(self, name, threshold=threshold)


class Clamp(Elementwise):
    """Keeps items within bounds: what is beyond a bound becomes the bound. NaN stays NaN.

    At a bound the gradient is ½, as that of `jnp.clip`.

    Whole numbers stay whole: the bounds then move inwards to whole ones.

    Args:
        min_val: The least; `None` for no such bound.
        max_val: The greatest; `None` for no such bound.

    Examples:
        >>> Clamp(0.0, 1.0)
        Clamp(min_val=0.0, max_val=1.0)
    """

    op = "clamp"
    option_ports = ("min_val", "max_val")
    formula = "y = min(max(x, min_val), max_val)"

    def __init__(self, min_val: float | None = None, max_val: float | None = None, name: str | None = None):
        Operator.__init__(self, name, min_val=min_val, max_val=max_val)


class NanToNum(Elementwise):
    """Puts numbers in the place of NaN and the infinities.

    Args:
        nan: What stands in for NaN.
        posinf: What stands in for +∞; by default the dtype's greatest number.
        neginf: What stands in for -∞; by default the dtype's least number.

    Examples:
        >>> NanToNum()
        NanToNum(nan=0.0, posinf=None, neginf=None)
    """

    op = "nan_to_num"
    option_ports = ("nan", "posinf", "neginf")
    formula = "y = x where it is finite"

    def __init__(
        self,
        nan: float = 0.0,
        posinf: float | None = None,
        neginf: float | None = None,
        name: str | None = None,
    ):
        Operator.__init__(self, name, nan=nan, posinf=posinf, neginf=neginf)


class MatrixMultiply(Operator):
    """Multiplies matrices: the last axis of the left array meets the last but one of the right one.

    The axes before are batches, and broadcast. A vector on the left is a row, one on the right a column, and the axis
    that makes it a matrix is left out of the result.

    Examples:
        >>> MatrixMultiply().inputs
        (Port(name='left', role='data'), Port(name='right', role='data'))
    """

    op = "matrix_multiply"
    input_ports = ("left", "right")
    category = "Arithmetic"
    formula = "y[i, j] = Σ_k left[i, k] right[k, j]"
    input_dtypes: ClassVar = {"*": "any"}

    def __init__(self, name: str | None = None):
        super().__init__(name)

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """`(*batch, n, k)` and `(*batch, k, m)` give `(*batch, n, m)`."""
        left, right = inputs["left"].shape, inputs["right"].shape
        for port, spec in inputs.items():
            if not spec.shape:
                raise MismatchError(port, "at least one axis", "Multiply()  # for a single number", "rank 0")
        one, other = _inner(left, "left"), _inner(right, "right")
        if isinstance(one, int) and isinstance(other, int) and one != other:
            place = -1 if len(right) == 1 else -2
            raise MismatchError(
                "right",
                f"({one},)" if len(right) == 1 else f"(..., {one}, {right[-1]})",
                f"{one} on axis {place} of right, or {other} on axis -1 of left.",
                f"axis {place}: {other} != {one}, which is axis -1 of left {left}",
            )
        dtype = promoted([inputs["left"].dtype, inputs["right"].dtype])
        return Inferred({"output": TensorSpec(_product_shape(left, right), dtype)})

    @classmethod
    def refine(cls, options: Options, inputs: Specs, outputs: Specs) -> Shapes:
        """The inner sizes are the same; rows and columns are those of the output."""
        left, right, output = inputs["left"].shape, inputs["right"].shape, outputs["output"].shape
        found: dict[str, tuple[Dim, ...]] = {}
        inner = _inner(right, "right")
        if isinstance(inner, int):
            found["left"] = (LEADING, inner)
        inner = _inner(left, "left")
        if _is_matrix(right):
            column = output[-1] if output[-1:] not in ((), (LEADING,)) else right[-1]
            found["right"] = (LEADING, inner if isinstance(inner, int) else right[-2], column)
        elif len(right) == 1 and right != (LEADING,) and isinstance(inner, int):
            found["right"] = (inner,)
        if _is_matrix(left) and _is_matrix(right) and len(output) > 1 and output[-2] != LEADING:
            found["left"] = (LEADING, output[-2], found["left"][-1] if "left" in found else left[-1])
        return found


MatMul = MatrixMultiply
"""Today's habit."""


def _is_matrix(shape: tuple[Dim, ...]) -> bool:
    """Whether an array is known to have at least two axes, of which the last two have a name or a size."""
    return len(shape) >= 2 and shape[-2] != LEADING


def _inner(shape: tuple[Dim, ...], side: str) -> Dim | None:
    """The dim that is summed over; `None` if it is not known which that is."""
    if shape == (LEADING,):
        return None
    if side == "left" or len(shape) == 1:
        return shape[-1]
    return shape[-2] if _is_matrix(shape) else None


def _product_shape(left: tuple[Dim, ...], right: tuple[Dim, ...]) -> tuple[Dim, ...]:
    if LEADING not in right and len(right) == 1:
        return left if left == (LEADING,) else left[:-1]
    if LEADING not in left and len(left) == 1:
        return (*right[:-2], right[-1]) if _is_matrix(right) else (LEADING,)
    if not _is_matrix(right):
        return (LEADING,)  # it may be a vector
    if not _is_matrix(left):
        return (LEADING, right[-1])  # here the left one may be
    try:  # with 1 for the last two axes, so that a message counts axes right
        batch = broadcast(TensorSpec((*left[:-2], 1, 1)), TensorSpec((*right[:-2], 1, 1)))[:-2]
    except MismatchError as found:
        need = f"batch axes that broadcast with those of left {left}"
        raise MismatchError("right", need, found.advice, found.detail) from None
    return (*batch, left[-2], right[-1])
