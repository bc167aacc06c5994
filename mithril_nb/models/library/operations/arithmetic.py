"""Elementwise arithmetic and matrix products."""

from __future__ import annotations

from typing import Annotated, ClassVar

from mithril_nb.graph.spec import LEADING, Dim, TensorSpec
from mithril_nb.models.fields import Range
from mithril_nb.models.library.operations.elementwise import ANY, NUMBERS, Broadcasting, Elementwise
from mithril_nb.models.op import Inferred, Operator, Options, Shapes, Specs
from mithril_nb.models.shape_inference.dims import MismatchError, broadcast
from mithril_nb.models.shape_inference.dtypes import promoted

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
    """Sum of two arrays, with NumPy broadcasting.

    Examples:
        >>> Add().inputs
        (Port(name='left', role='data'), Port(name='right', role='data'))
    """

    op = "add"
    formula = "y = left + right"
    takes = ANY


class Subtract(Broadcasting):
    """Difference of two arrays, left minus right, with NumPy broadcasting.

    Examples:
        >>> Subtract().inputs
        (Port(name='left', role='data'), Port(name='right', role='data'))
    """

    op = "subtract"
    formula = "y = left - right"
    takes = NUMBERS


class Multiply(Broadcasting):
    """Elementwise product of two arrays, with NumPy broadcasting.

    Examples:
        >>> Multiply()
        Multiply()
    """

    op = "multiply"
    formula = "y = left · right"
    takes = ANY


class Divide(Broadcasting):
    """Elementwise quotient of two arrays, with NumPy broadcasting. The quotient of integers is a float.

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
    """Elementwise quotient, rounded down. The gradient is 0 everywhere.

    Examples:
        >>> FloorDivide()
        FloorDivide()
    """

    op = "floor_divide"
    input_ports = ("numerator", "denominator")
    formula = "y = ⌊numerator / denominator⌋"


class Mod(Broadcasting):
    """Remainder of `FloorDivide`, with the sign of the denominator.

    Examples:
        >>> Mod()
        Mod()
    """

    op = "mod"
    input_ports = ("numerator", "denominator")
    formula = "y = numerator - denominator ⌊numerator / denominator⌋"


class Minimum(Broadcasting):
    """Elementwise minimum; NaN if either item is NaN. Equal items share the gradient.

    Examples:
        >>> Minimum()
        Minimum()
    """

    op = "minimum"
    formula = "y = min(left, right)"
    takes = ("floating", "whole", "truth")


class Maximum(Broadcasting):
    """Elementwise maximum; NaN if either item is NaN. Equal items share the gradient.

    Examples:
        >>> Maximum()
        Maximum()
    """

    op = "maximum"
    formula = "y = max(left, right)"
    takes = ("floating", "whole", "truth")


class Power(Broadcasting):
    """Raises the items of `base` to the powers in `exponent`, with NumPy broadcasting.

    At a base of 0, the gradient of the base is 0 for an exponent of 0. For any other exponent below 1 it is infinite,
    as in PyTorch.

    With `robust=True`, values and gradients are finite for every finite base b, also for zero and negative bases. For
    an exponent e and a threshold t, the result is:

    - `sign(b) |b|ᵉ` if `|b| >= t`,
    - `b tᵉ⁻¹` if `|b| < t` and `e > 0`,
    - `sign(b) tᵉ` if `|b| < t` and `e <= 0`.

    In these formulas, `sign(0) = 1`. For an even integer e, they use `|b|` instead of b: `(-2) ** 2` is 4.

    Args:
        robust: If true, use the formulas above.
        threshold: The threshold t of the formulas. Default: the dtype's smallest normal number t₀ for `e > 0`, and
            `t₀ ** (1 / (2 - 2e))` for other exponents, so that the gradient does not overflow.

    Examples:
        >>> Power(robust=True)
        Power(robust=True, threshold=None)
    """

    op = "power"
    input_ports = ("base", "exponent")
    formula = "y = base ^ exponent"

    def __init__(self, robust: bool = False, threshold: Threshold | None = None, name: str | None = None):
        super().__init__(name, robust=robust, threshold=threshold)


class Sqrt(Elementwise):
    """Elementwise square root.

    By default, the gradient at 0 is infinite, and the root of a negative item is NaN.

    With `robust=True`, values and gradients are finite for every finite item x. For a threshold t, the result is:

    - `sign(x) √|x|` if `|x| >= t`,
    - `x / √t` if `|x| < t`.

    Args:
        robust: If true, use the formulas above.
        threshold: The threshold t of the formulas. The default is the dtype's smallest normal number, which replaces
            any smaller threshold.

    Examples:
        >>> Sqrt(robust=True, threshold=1e-6)
        Sqrt(robust=True, threshold=1e-06)
    """

    op = "sqrt"
    formula = "y = √x"
    gives = "floating"

    def __init__(self, robust: bool = False, threshold: Threshold | None = None, name: str | None = None):
        super().__init__(name, robust=robust, threshold=threshold)


class Log(Elementwise):
    """Elementwise natural logarithm.

    By default, the logarithm of 0 is -∞ with an infinite gradient, and that of a negative item is NaN.

    With `robust=True`, values and gradients are finite for every finite item x. If x is below a threshold t, the result
    is `2 log t - log(2t - x)`. This formula and its slope equal those of the logarithm at t. The slope is positive, so
    training can move x back above t.

    Args:
        robust: If true, use the formula above.
        threshold: The threshold t of the formula. The default is the dtype's smallest normal number, which replaces any
            smaller threshold.

    Examples:
        >>> Log(robust=True)
        Log(robust=True, threshold=None)
    """

    op = "log"
    formula = "y = log x"
    gives = "floating"

    def __init__(self, robust: bool = False, threshold: Threshold | None = None, name: str | None = None):
        super().__init__(name, robust=robust, threshold=threshold)


class StableReciprocal(Elementwise):
    """Elementwise reciprocal, with finite values and gradients at zero too.

    For `|x|` below a threshold t, the result is 1/t with the sign of x, and the gradient is 0.

    Args:
        threshold: The threshold t; by default the dtype's epsilon. A value below 2 / √max is replaced by 2 / √max,
            where max is the dtype's largest number, so that the gradient does not overflow.

    Examples:
        >>> StableReciprocal()
        StableReciprocal(threshold=None)
    """

    op = "stable_reciprocal"
    option_ports = ("threshold",)
    formula = "y = sign(x) / max(|x|, threshold), sign(0) = 1"
    gives = "floating"

    def __init__(self, threshold: Threshold | None = None, name: str | None = None):
        super().__init__(name, threshold=threshold)


class Clamp(Elementwise):
    """Clips items to a lower and an upper bound. NaN stays NaN.

    The gradient of an item that equals a bound is ½, as in `jnp.clip`. Integers stay integers: for integer items, a
    fractional lower bound is rounded up and a fractional upper bound down.

    Args:
        min_val: The lower bound; `None` for no bound.
        max_val: The upper bound; `None` for no bound.

    Examples:
        >>> Clamp(0.0, 1.0)
        Clamp(min_val=0.0, max_val=1.0)
    """

    op = "clamp"
    option_ports = ("min_val", "max_val")
    formula = "y = min(max(x, min_val), max_val)"

    def __init__(self, min_val: float | None = None, max_val: float | None = None, name: str | None = None):
        super().__init__(name, min_val=min_val, max_val=max_val)


class NanToNum(Elementwise):
    """Replaces NaN and infinities by numbers.

    Args:
        nan: Replacement for NaN.
        posinf: Replacement for +∞; by default the dtype's largest number.
        neginf: Replacement for -∞; by default the dtype's lowest number.

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
        super().__init__(name, nan=nan, posinf=posinf, neginf=neginf)


class MatrixMultiply(Operator):
    """Matrix product, as NumPy's `@`: sums over the last axis of `left` and the last but one of `right`.

    The axes before the last two are batch axes, which broadcast. A vector on the left is used as a matrix with one row,
    a vector on the right as a matrix with one column. The result does not have the axis of that row or column.

    Examples:
        >>> MatrixMultiply().inputs
        (Port(name='left', role='data'), Port(name='right', role='data'))
    """

    op = "matrix_multiply"
    input_ports = ("left", "right")
    category = "Arithmetic"
    formula = "y[i, j] = Σ_k left[i, k] right[k, j]"
    input_dtypes: ClassVar = {"*": "any"}

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Map `(*batch, n, k)` and `(*batch, k, m)` to `(*batch, n, m)`."""
        left, right = inputs["left"].shape, inputs["right"].shape
        for port, spec in inputs.items():
            if not spec.shape:
                raise MismatchError(port, "at least one axis", "Multiply()  # for a single number", "rank 0")
        size, other = _inner(left, "left"), _inner(right, "right")
        if isinstance(size, int) and isinstance(other, int) and size != other:
            axis = -1 if len(right) == 1 else -2
            raise MismatchError(
                "right",
                f"({size},)" if len(right) == 1 else f"(..., {size}, {right[-1]})",
                f"{size} on axis {axis} of right, or {other} on axis -1 of left.",
                f"axis {axis}: {other} != {size}, which is axis -1 of left {left}",
            )
        dtype = promoted([inputs["left"].dtype, inputs["right"].dtype])
        return Inferred({"output": TensorSpec(_product_shape(left, right), dtype)})

    @classmethod
    def refine(cls, options: Options, inputs: Specs, outputs: Specs) -> Shapes:
        """Infer the summed size of each input from the other, and the rows and columns from the output."""
        left, right, output = inputs["left"].shape, inputs["right"].shape, outputs["output"].shape
        shapes: dict[str, tuple[Dim, ...]] = {}
        inner = _inner(right, "right")
        if isinstance(inner, int):
            shapes["left"] = (LEADING, inner)
        inner = _inner(left, "left")
        if _is_matrix(right):
            column = output[-1] if output[-1:] not in ((), (LEADING,)) else right[-1]
            shapes["right"] = (LEADING, inner if isinstance(inner, int) else right[-2], column)
        elif len(right) == 1 and right != (LEADING,) and isinstance(inner, int):
            shapes["right"] = (inner,)
        if _is_matrix(left) and _is_matrix(right) and len(output) > 1 and output[-2] != LEADING:
            shapes["left"] = (LEADING, output[-2], shapes["left"][-1] if "left" in shapes else left[-1])
        return shapes


MatMul = MatrixMultiply
"""PyTorch's and NumPy's name of `MatrixMultiply`."""


def _is_matrix(shape: tuple[Dim, ...]) -> bool:
    """Return whether a shape ends with at least two known axes."""
    return len(shape) >= 2 and shape[-2] != LEADING


def _inner(shape: tuple[Dim, ...], side: str) -> Dim | None:
    """Return the size of the axis of an operand that the product sums over; `None` if it is unknown."""
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
        return (LEADING,)  # right may be a vector
    if not _is_matrix(left):
        return (LEADING, right[-1])  # left may be a vector
    try:  # The last two axes are replaced by 1, so that an error counts axes as in the inputs.
        batch = broadcast(TensorSpec((*left[:-2], 1, 1)), TensorSpec((*right[:-2], 1, 1)))[:-2]
    except MismatchError as error:
        need = f"batch axes that broadcast with those of left {left}"
        raise MismatchError("right", need, error.advice, error.detail) from None
    return (*batch, left[-2], right[-1])
