"""Elementwise blocks, and the base class of blocks that broadcast several arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal

from mithril_nb.models.library.operations.reshaping import broadcast_all, broadcast_back
from mithril_nb.models.op import (
    LEADING,
    UNKNOWN_SHAPE,
    Dim,
    Dims,
    MismatchError,
    Operator,
    Range,
    TensorSpec,
    jnp,
    lax,
)
from mithril_nb.models.shape_inference.dims import broadcast, check_axis, differ
from mithril_nb.models.shape_inference.dtypes import promoted

__all__ = [
    "Abs",
    "Absolute",
    "Add",
    "Arctan",
    "Buffer",
    "Ceil",
    "Clamp",
    "Cos",
    "Cosine",
    "Divide",
    "Equal",
    "Erf",
    "Exp",
    "Expm1",
    "Exponential",
    "Floor",
    "FloorDivide",
    "Greater",
    "GreaterEqual",
    "IsNan",
    "Less",
    "LessEqual",
    "Log",
    "Log1p",
    "LogicalAnd",
    "LogicalNot",
    "LogicalOr",
    "LogicalXOr",
    "MatMul",
    "MatrixMultiply",
    "Maximum",
    "Minimum",
    "Mod",
    "Multiply",
    "NanToNum",
    "Negate",
    "NotEqual",
    "Power",
    "Round",
    "Rsqrt",
    "ShiftLeft",
    "ShiftRight",
    "Sign",
    "Sin",
    "Sine",
    "Sqrt",
    "Square",
    "StableReciprocal",
    "StopGradient",
    "Subtract",
    "Tan",
    "Where",
]

Kind = Literal["truth", "whole", "floating", "complex"]
_WORDS = {"truth": "truth values", "whole": "whole", "floating": "floating", "complex": "complex"}

ANY: tuple[Kind, ...] = ("floating", "whole", "complex", "truth")
NUMBERS: tuple[Kind, ...] = ("floating", "whole", "complex")
"""The kinds of dtypes of real and complex numbers."""


def kind_of(dtype: str) -> Kind:
    """Return the kind of a dtype: `"floating"`, `"whole"` for integers, `"complex"` or `"truth"` for booleans.

    Examples:
        >>> kind_of("uint8"), kind_of("bfloat16")
        ('whole', 'floating')
    """
    if dtype == "bool":
        return "truth"
    # "int" is also in the names of unsigned integers.
    return "whole" if "int" in dtype else "complex" if dtype.startswith("complex") else "floating"


def floating(dtype: str) -> str:
    """Return the dtype that a floating-point op, such as `Exp`, returns for inputs of a dtype.

    Examples:
        >>> floating("bool"), floating("int64"), floating("bfloat16")
        ('float32', 'float64', 'bfloat16')
    """
    if kind_of(dtype) in ("truth", "whole"):
        # JAX computes functions of integers in its default float type, and keeps a 64-bit operand wide.
        return "float64" if dtype.endswith("64") else "float32"
    return dtype


def check_kind(port: str, spec: TensorSpec, accepted: tuple[Kind, ...]) -> None:
    """Raise a `MismatchError` if the dtype of an input is not of one of the kinds `accepted`."""
    if kind_of(spec.dtype) not in accepted:
        # The message names booleans last, because they are no numbers.
        words = " or ".join(_WORDS[kind] for kind in accepted if kind != "truth") + " numbers"
        raise MismatchError(
            port,
            words + (", or booleans" if "truth" in accepted else ""),
            'x.cast("float32")  # before it',
            str(spec.dtype),
        )


class Broadcasting(Operator):
    """Base of the elementwise ops on several arrays, with NumPy broadcasting.

    Attributes:
        takes: The kinds of dtypes that the inputs may have, see `kind_of`.
        gives: The dtype of the output: `"same"` for the promoted dtype of the inputs, `"floating"` for the promoted
            floating-point dtype, or `"truth"` for booleans.
    """

    input_ports = ("left", "right")
    category = "Arithmetic"
    input_dtypes = {"*": "any"}
    # The common case. Complex numbers have no order and no remainder, and JAX refuses to negate or subtract booleans.
    takes: ClassVar[tuple[Kind, ...]] = ("floating", "whole")
    gives: ClassVar[Literal["same", "floating", "truth"]] = "same"

    @classmethod
    def infer(cls, options, inputs):
        """Return the shape that all inputs broadcast to."""
        for port, spec in inputs.items():
            check_kind(port, spec, cls.takes)
        dtype = promoted([spec.dtype for spec in inputs.values()])
        # The dtype is computed here and not traced, so that a model can be composed and checked without JAX.
        gives = {"same": dtype, "floating": floating(dtype), "truth": "bool"}
        return TensorSpec(broadcast_all(inputs), gives[cls.gives])

    @classmethod
    def refine(cls, options, inputs, outputs):
        """Infer the shapes of inputs from the output's shape. A connected attribute is a scalar."""
        # A connected attribute, such as the threshold of a loss, is one number for all items.
        return {**broadcast_back(inputs, outputs["output"].shape), **dict.fromkeys(cls.option_ports, ())}


class Elementwise(Broadcasting):
    """Base of the elementwise ops on one array."""

    input_ports = ("input",)


def _same(x: Any) -> Any:
    return x


def _in_floating(function: Callable[..., Any]) -> Callable[..., Any]:
    # A function of lax, unlike one of jax.numpy, rejects integers.
    return lambda x: function(x.astype(floating(str(x.dtype))))


class Buffer(Elementwise):
    """Identity. Use it to give a connection a name."""

    op = "buffer"
    category = "Values"
    keeps_scale = True
    formula = "y = x"
    kernel = _same
    takes = ANY


class StopGradient(Elementwise):
    """Identity whose gradient is 0: the loss does not train the blocks before it through this connection."""

    op = "stop_gradient"
    category = "Values"
    keeps_scale = True
    formula = "y = x, ∂y/∂x = 0"
    kernel = lax.stop_gradient
    takes = ANY


class Absolute(Elementwise):
    """Absolute value; for complex numbers the modulus. The gradient at 0 is 0, as in PyTorch."""

    op = "absolute"
    formula = "y = |x|"
    takes = NUMBERS

    @classmethod
    def infer(cls, options, inputs):
        """Keep the shape. The modulus of a complex number is a float."""
        spec = inputs["input"]
        # JAX returns |z| as a float of half the width.
        lengths = {"complex64": "float32", "complex128": "float64"}
        if spec.dtype not in lengths:
            return super().infer(options, inputs)
        return TensorSpec(spec.shape, lengths[spec.dtype])


class Negate(Elementwise):
    """Negates each item."""

    op = "negate"
    formula = "y = -x"
    kernel = jnp.negative
    takes = NUMBERS


# JAX defines the sign of a complex number as z / |z|, PyTorch refuses it. So this block takes real numbers only.
class Sign(Elementwise):
    """Sign of each item: -1, 0 or 1; NaN for NaN. The gradient is 0 everywhere."""

    op = "sign"
    formula = "y = x / |x|, 0 at 0"
    kernel = jnp.sign


class Square(Elementwise):
    """Squares each item."""

    op = "square"
    formula = "y = x²"
    kernel = jnp.square
    takes = NUMBERS


# Rounded integers stay integers, as in JAX. NumPy before 2.1 returned floats.
class Floor(Elementwise):
    """Rounds each item down. The gradient is 0 everywhere."""

    op = "floor"
    formula = "y = ⌊x⌋"
    kernel = jnp.floor


class Ceil(Elementwise):
    """Rounds each item up. The gradient is 0 everywhere."""

    op = "ceil"
    formula = "y = ⌈x⌉"
    kernel = jnp.ceil


class Round(Elementwise):
    """Rounds each item to the nearest integer, and a half to the nearest even integer. The gradient is 0 everywhere."""

    op = "round"
    formula = "y = round(x)"
    kernel = jnp.round


class Exponential(Elementwise):
    """Elementwise exponential function."""

    op = "exp"
    formula = "y = exp(x)"
    kernel = jnp.exp
    takes = NUMBERS
    gives = "floating"


class Expm1(Elementwise):
    """exp(x) - 1, accurate also where x is near 0."""

    op = "expm1"
    formula = "y = exp(x) - 1"
    kernel = jnp.expm1
    gives = "floating"


class Log1p(Elementwise):
    """log(1 + x), accurate also where x is near 0. At -1 it is -∞ with an infinite gradient; below -1 it is NaN."""

    op = "log1p"
    formula = "y = log(1 + x)"
    kernel = jnp.log1p
    gives = "floating"


class Rsqrt(Elementwise):
    """One over the square root of each item. At 0 it is ∞ with a gradient of -∞; for negative items it is NaN."""

    op = "rsqrt"
    formula = "y = 1 / √x"
    kernel = _in_floating(lax.rsqrt)
    gives = "floating"


class Sine(Elementwise):
    """Sine of each item, an angle in radians."""

    op = "sin"
    formula = "y = sin(x)"
    kernel = jnp.sin
    gives = "floating"


class Cosine(Elementwise):
    """Cosine of each item, an angle in radians."""

    op = "cos"
    formula = "y = cos(x)"
    kernel = jnp.cos
    gives = "floating"


class Tan(Elementwise):
    """Tangent of each item, an angle in radians."""

    op = "tan"
    formula = "y = tan(x)"
    kernel = jnp.tan
    gives = "floating"


class Arctan(Elementwise):
    """Inverse tangent of each item, in radians."""

    op = "arctan"
    formula = "y = arctan(x)"
    kernel = jnp.arctan
    gives = "floating"


class Erf(Elementwise):
    """Error function of each item."""

    op = "erf"
    formula = "y = 2/√π ∫₀ˣ exp(-t²) dt"
    kernel = _in_floating(lax.erf)
    gives = "floating"


# PyTorch's names. A saved model contains the name of the class, so both names load the same block.
Abs, Exp, Sin, Cos = Absolute, Exponential, Sine, Cosine


Threshold = Annotated[float, Range(0.0, 1.0)]


# The sum of booleans is "or", and their product "and", as in NumPy.
class Add(Broadcasting):
    """Sum of two arrays, with NumPy broadcasting.

    Examples:
        >>> Add().inputs
        (Port(name='left', role='data'), Port(name='right', role='data'))
    """

    op = "add"
    formula = "y = left + right"
    kernel = jnp.add
    takes = ANY


class Subtract(Broadcasting):
    """Difference of two arrays, left minus right, with NumPy broadcasting.

    Examples:
        >>> Subtract().inputs
        (Port(name='left', role='data'), Port(name='right', role='data'))
    """

    op = "subtract"
    formula = "y = left - right"
    kernel = jnp.subtract
    takes = NUMBERS


class Multiply(Broadcasting):
    """Elementwise product of two arrays, with NumPy broadcasting."""

    op = "multiply"
    formula = "y = left · right"
    kernel = jnp.multiply
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
    kernel = jnp.divide
    takes = NUMBERS
    gives = "floating"


# Rounds towards -∞, as Python and NumPy; C and StableHLO round integers towards 0.
class FloorDivide(Broadcasting):
    """Elementwise quotient, rounded down. The gradient is 0 everywhere."""

    op = "floor_divide"
    input_ports = ("numerator", "denominator")
    formula = "y = ⌊numerator / denominator⌋"
    kernel = jnp.floor_divide


class Mod(Broadcasting):
    """Remainder of `FloorDivide`, with the sign of the denominator."""

    op = "mod"
    input_ports = ("numerator", "denominator")
    formula = "y = numerator - denominator ⌊numerator / denominator⌋"
    kernel = jnp.mod


# JAX orders complex numbers by their real parts first, as NumPy. PyTorch refuses them, and so does this block.
class Minimum(Broadcasting):
    """Elementwise minimum; NaN if either item is NaN. Equal items share the gradient."""

    op = "minimum"
    formula = "y = min(left, right)"
    kernel = jnp.minimum
    takes = ("floating", "whole", "truth")


class Maximum(Broadcasting):
    """Elementwise maximum; NaN if either item is NaN. Equal items share the gradient."""

    op = "maximum"
    formula = "y = max(left, right)"
    kernel = jnp.maximum
    takes = ("floating", "whole", "truth")


# No `kernel`: for a base of 0, backends/jax replaces the operands, so that gradients are not NaN.
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
    """

    robust: bool = False
    threshold: Threshold | None = None

    op = "power"
    input_ports = ("base", "exponent")
    formula = "y = base ^ exponent"


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
    """

    robust: bool = False
    threshold: Threshold | None = None

    op = "sqrt"
    formula = "y = √x"
    gives = "floating"


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
    """

    robust: bool = False
    threshold: Threshold | None = None

    op = "log"
    formula = "y = log x"
    gives = "floating"


class StableReciprocal(Elementwise):
    """Elementwise reciprocal, with finite values and gradients at zero too.

    For `|x|` below a threshold t, the result is 1/t with the sign of x, and the gradient is 0.

    Args:
        threshold: The threshold t; by default the dtype's epsilon. A value below 2 / √max is replaced by 2 / √max,
            where max is the dtype's largest number, so that the gradient does not overflow.
    """

    threshold: Threshold | None = None

    op = "stable_reciprocal"
    option_ports = ("threshold",)
    formula = "y = sign(x) / max(|x|, threshold), sign(0) = 1"
    gives = "floating"


# The bounds are ports, so that a model can learn or compute them, as in Mithril.
class Clamp(Elementwise):
    """Clips items to a lower and an upper bound. NaN stays NaN.

    The gradient of an item that equals a bound is ½, as in `jnp.clip`. Integers stay integers: for integer items, a
    fractional lower bound is rounded up and a fractional upper bound down.

    Args:
        min_val: The lower bound; `None` for no bound.
        max_val: The upper bound; `None` for no bound.
    """

    min_val: float | None = None
    max_val: float | None = None

    op = "clamp"
    option_ports = ("min_val", "max_val")
    formula = "y = min(max(x, min_val), max_val)"


class NanToNum(Elementwise):
    """Replaces NaN and infinities by numbers.

    Args:
        nan: Replacement for NaN.
        posinf: Replacement for +∞; by default the dtype's largest number.
        neginf: Replacement for -∞; by default the dtype's lowest number.
    """

    nan: float = 0.0
    posinf: float | None = None
    neginf: float | None = None

    op = "nan_to_num"
    option_ports = ("nan", "posinf", "neginf")
    formula = "y = x where it is finite"


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
    kernel = jnp.matmul
    input_dtypes = {"*": "any"}

    @classmethod
    def infer(cls, options, inputs):
        """Map `(*batch, n, k)` and `(*batch, k, m)` to `(*batch, n, m)`."""
        left, right = inputs["left"].shape, inputs["right"].shape
        for port, spec in inputs.items():
            check_axis(port, spec.shape, "Multiply()  # for a single number")
        # A vector on the right is summed over its only axis, so its size is on axis -1 and not -2.
        size, other = _inner(left, "left"), _inner(right, "right")
        if differ(size, other):
            axis = -1 if len(right) == 1 else -2
            raise MismatchError(
                "right",
                f"({size},)" if len(right) == 1 else f"(..., {size}, {right[-1]})",
                f"{size} on axis {axis} of right, or {other} on axis -1 of left.",
                f"axis {axis}: {other} != {size}, which is axis -1 of left {left}",
            )
        dtype = promoted([inputs["left"].dtype, inputs["right"].dtype])
        return TensorSpec(_product_shape(left, right), dtype)

    @classmethod
    def refine(cls, options, inputs, outputs):
        """Infer the summed size of each input from the other, and the rows and columns from the output."""
        left, right, output = inputs["left"].shape, inputs["right"].shape, outputs["output"].shape
        shapes: dict[str, Dims] = {}
        # The summed size is known from either side. Here it is read from the right, then from the left.
        inner = _inner(right, "right")
        if isinstance(inner, int):
            shapes["left"] = (LEADING, inner)
        inner = _inner(left, "left")
        if _is_matrix(right):
            # The shape of the output may be known first, from a reader of the product.
            column = output[-1] if output[-1:] not in ((), UNKNOWN_SHAPE) else right[-1]
            shapes["right"] = (LEADING, inner if isinstance(inner, int) else right[-2], column)
        elif len(right) == 1 and right != UNKNOWN_SHAPE and isinstance(inner, int):
            shapes["right"] = (inner,)
        # With a vector on either side, the output has no axis of rows or columns to infer from.
        if _is_matrix(left) and _is_matrix(right) and len(output) > 1 and output[-2] != LEADING:
            shapes["left"] = (LEADING, output[-2], shapes["left"][-1] if "left" in shapes else left[-1])
        return shapes


MatMul = MatrixMultiply
"""PyTorch's and NumPy's name of `MatrixMultiply`."""


def _is_matrix(shape: Dims) -> bool:
    return len(shape) >= 2 and shape[-2] != LEADING


def _inner(shape: Dims, side: str) -> Dim | None:
    if shape == UNKNOWN_SHAPE:
        return None
    if side == "left" or len(shape) == 1:
        return shape[-1]
    # Of a right side with an unknown rank, the last axis alone does not tell: of a matrix it is not summed over.
    return shape[-2] if _is_matrix(shape) else None


def _product_shape(left: Dims, right: Dims) -> Dims:
    if LEADING not in right and len(right) == 1:
        return left if left == UNKNOWN_SHAPE else left[:-1]
    if LEADING not in left and len(left) == 1:
        return (*right[:-2], right[-1]) if _is_matrix(right) else UNKNOWN_SHAPE
    if not _is_matrix(right):
        return UNKNOWN_SHAPE  # right may be a vector
    if not _is_matrix(left):
        return (LEADING, right[-1])  # left may be a vector
    try:  # The last two axes are replaced by 1, so that an error counts axes as in the inputs.
        batch = broadcast(TensorSpec((*left[:-2], 1, 1)), TensorSpec((*right[:-2], 1, 1)))[:-2]
    except MismatchError as error:
        need = f"batch axes that broadcast with those of left {left}"
        raise MismatchError("right", need, error.advice, error.detail) from None
    return (*batch, left[-2], right[-1])


# Complex numbers have no order. JAX compares them as pairs, as NumPy; PyTorch raises an error.
class _Comparison(Broadcasting):
    category = "Logic"
    gives = "truth"
    takes = ("floating", "whole", "truth")


class Greater(_Comparison):
    """True where the left item is greater than the right one."""

    op = "greater"
    formula = "y = left > right"
    kernel = jnp.greater


class Less(_Comparison):
    """True where the left item is less than the right one."""

    op = "less"
    formula = "y = left < right"
    kernel = jnp.less


class GreaterEqual(_Comparison):
    """True where the left item is greater than or equal to the right one."""

    op = "greater_equal"
    formula = "y = left >= right"
    kernel = jnp.greater_equal


class LessEqual(_Comparison):
    """True where the left item is less than or equal to the right one."""

    op = "less_equal"
    formula = "y = left <= right"
    kernel = jnp.less_equal


class Equal(_Comparison):
    """True where both items are equal; NaN is not equal to NaN."""

    op = "equal"
    formula = "y = left == right"
    kernel = jnp.equal
    takes = ANY


class NotEqual(_Comparison):
    """True where the items differ; NaN differs from NaN."""

    op = "not_equal"
    formula = "y = left != right"
    kernel = jnp.not_equal
    takes = ANY


class IsNan(Elementwise):
    """True where an item is NaN."""

    op = "is_nan"
    category = "Logic"
    formula = "y = x is NaN"
    kernel = jnp.isnan
    takes = ANY
    gives = "truth"


class LogicalNot(Elementwise):
    """True where an item is false, and false where it is true."""

    op = "logical_not"
    category = "Logic"
    formula = "y = not x"
    kernel = jnp.logical_not
    input_dtypes = {"*": "bool"}
    takes = ("truth",)


# Only booleans: `jnp.logical_and` would take any number as a truth value, which hides mistakes.
class _Logical(Broadcasting):
    category = "Logic"
    input_dtypes = {"*": "bool"}
    takes = ("truth",)


class LogicalAnd(_Logical):
    """True where both items are true."""

    op = "logical_and"
    formula = "y = left and right"
    kernel = jnp.logical_and


class LogicalOr(_Logical):
    """True where at least one of the two items is true."""

    op = "logical_or"
    formula = "y = left or right"
    kernel = jnp.logical_or


class LogicalXOr(_Logical):
    """True where exactly one item is true."""

    op = "logical_xor"
    formula = "y = left xor right"
    kernel = jnp.logical_xor


# A shift by more than the width of the dtype gives 0, or -1 for a negative number; in C it is undefined.
class _Shift(Broadcasting):
    category = "Logic"
    input_ports = ("input", "shift")
    input_dtypes = {"*": "int32"}
    takes = ("whole",)


class ShiftLeft(_Shift):
    """Shifts the bits of integers to the left. Bits beyond the width of the dtype are lost.

    Examples:
        >>> [port.name for port in ShiftLeft().inputs]
        ['input', 'shift']
    """

    op = "shift_left"
    formula = "y = input << shift"
    kernel = jnp.left_shift


class ShiftRight(_Shift):
    """Shifts the bits of integers to the right. A negative number stays negative."""

    op = "shift_right"
    formula = "y = input >> shift"
    kernel = jnp.right_shift


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
    kernel = jnp.where
    input_dtypes = {"cond": "bool", "*": "any"}

    @classmethod
    def infer(cls, options, inputs):
        """Return the shape that all inputs broadcast to, and the promoted dtype of `input1` and `input2`."""
        # The condition does not take part in the promotion.
        dtype = promoted([inputs["input1"].dtype, inputs["input2"].dtype])
        return TensorSpec(broadcast_all(inputs), dtype)
