"""Elementwise blocks, and the base class of blocks that broadcast several arrays."""

from __future__ import annotations

from typing import ClassVar, Literal

from mithril_nb.graph.spec import TensorSpec
from mithril_nb.models.library.operations.shape_rules import broadcast_all, broadcast_back
from mithril_nb.models.op import Inferred, Operator, Options, Shapes, Specs
from mithril_nb.models.shape_inference.dims import MismatchError
from mithril_nb.models.shape_inference.dtypes import promoted

__all__ = [
    "Abs",
    "Absolute",
    "Arctan",
    "Buffer",
    "Ceil",
    "Cos",
    "Cosine",
    "Erf",
    "Exp",
    "Expm1",
    "Exponential",
    "Floor",
    "Log1p",
    "Negate",
    "Round",
    "Rsqrt",
    "Sign",
    "Sin",
    "Sine",
    "Square",
    "StopGradient",
    "Tan",
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
    return "whole" if "int" in dtype else "complex" if dtype.startswith("complex") else "floating"


def floating(dtype: str) -> str:
    """Return the dtype that a floating-point op, such as `Exp`, returns for inputs of a dtype.

    Examples:
        >>> floating("bool"), floating("int64"), floating("bfloat16")
        ('float32', 'float64', 'bfloat16')
    """
    if kind_of(dtype) in ("truth", "whole"):
        return "float64" if dtype.endswith("64") else "float32"
    return dtype


def given_dtype(gives: str, dtype: str) -> str:
    """Return the dtype of an op's output. `gives` is that of `Broadcasting`, and `dtype` the promoted input dtype."""
    return {"same": dtype, "floating": floating(dtype), "truth": "bool"}[gives]


def check_kind(port: str, spec: TensorSpec, accepted: tuple[Kind, ...]) -> None:
    """Raise a `MismatchError` if the dtype of an input is not of one of the kinds `accepted`."""
    if kind_of(spec.dtype) not in accepted:
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
    input_dtypes: ClassVar = {"*": "any"}
    takes: ClassVar[tuple[Kind, ...]] = ("floating", "whole")
    gives: ClassVar[Literal["same", "floating", "truth"]] = "same"

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Return the shape that all inputs broadcast to."""
        for port, spec in inputs.items():
            check_kind(port, spec, cls.takes)
        dtype = given_dtype(cls.gives, promoted([spec.dtype for spec in inputs.values()]))
        return Inferred({"output": TensorSpec(broadcast_all(inputs), dtype)})

    @classmethod
    def refine(cls, options: Options, inputs: Specs, outputs: Specs) -> Shapes:
        """Infer the shapes of inputs from the output's shape. A connected attribute is a scalar."""
        return {**broadcast_back(inputs, outputs["output"].shape), **dict.fromkeys(cls.option_ports, ())}


class Elementwise(Broadcasting):
    """Base of the elementwise ops on one array."""

    input_ports = ("input",)


class Buffer(Elementwise):
    """Identity. Use it to give a connection a name.

    Examples:
        >>> Buffer()
        Buffer()
    """

    op = "buffer"
    category = "Values"
    keeps_scale = True
    formula = "y = x"
    takes = ANY


class StopGradient(Elementwise):
    """Identity whose gradient is 0: the loss does not train the blocks before it through this connection.

    Examples:
        >>> StopGradient()
        StopGradient()
    """

    op = "stop_gradient"
    category = "Values"
    keeps_scale = True
    formula = "y = x, ∂y/∂x = 0"
    takes = ANY


class Absolute(Elementwise):
    """Absolute value; for complex numbers the modulus. The gradient at 0 is 0, as in PyTorch.

    Examples:
        >>> Absolute()
        Absolute()
    """

    op = "absolute"
    formula = "y = |x|"
    takes = NUMBERS

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Keep the shape. The modulus of a complex number is a float."""
        spec = inputs["input"]
        lengths = {"complex64": "float32", "complex128": "float64"}
        if spec.dtype not in lengths:
            return super().infer(options, inputs)
        return Inferred({"output": TensorSpec(spec.shape, lengths[spec.dtype])})


class Negate(Elementwise):
    """Negates each item.

    Examples:
        >>> Negate()
        Negate()
    """

    op = "negate"
    formula = "y = -x"
    takes = NUMBERS


class Sign(Elementwise):
    """Sign of each item: -1, 0 or 1; NaN for NaN. The gradient is 0 everywhere.

    Examples:
        >>> Sign()
        Sign()
    """

    op = "sign"
    formula = "y = x / |x|, 0 at 0"


class Square(Elementwise):
    """Squares each item.

    Examples:
        >>> Square()
        Square()
    """

    op = "square"
    formula = "y = x²"
    takes = NUMBERS


class Floor(Elementwise):
    """Rounds each item down. The gradient is 0 everywhere.

    Examples:
        >>> Floor()
        Floor()
    """

    op = "floor"
    formula = "y = ⌊x⌋"


class Ceil(Elementwise):
    """Rounds each item up. The gradient is 0 everywhere.

    Examples:
        >>> Ceil()
        Ceil()
    """

    op = "ceil"
    formula = "y = ⌈x⌉"


class Round(Elementwise):
    """Rounds each item to the nearest integer, and a half to the nearest even integer. The gradient is 0 everywhere.

    Examples:
        >>> Round()
        Round()
    """

    op = "round"
    formula = "y = round(x)"


class Exponential(Elementwise):
    """Elementwise exponential function.

    Examples:
        >>> Exponential()
        Exponential()
    """

    op = "exp"
    formula = "y = exp(x)"
    takes = NUMBERS
    gives = "floating"


class Expm1(Elementwise):
    """exp(x) - 1, accurate also where x is near 0.

    Examples:
        >>> Expm1()
        Expm1()
    """

    op = "expm1"
    formula = "y = exp(x) - 1"
    gives = "floating"


class Log1p(Elementwise):
    """log(1 + x), accurate also where x is near 0. At -1 it is -∞ with an infinite gradient; below -1 it is NaN.

    Examples:
        >>> Log1p()
        Log1p()
    """

    op = "log1p"
    formula = "y = log(1 + x)"
    gives = "floating"


class Rsqrt(Elementwise):
    """One over the square root of each item. At 0 it is ∞ with a gradient of -∞; for negative items it is NaN.

    Examples:
        >>> Rsqrt()
        Rsqrt()
    """

    op = "rsqrt"
    formula = "y = 1 / √x"
    gives = "floating"


class Sine(Elementwise):
    """Sine of each item, an angle in radians.

    Examples:
        >>> Sine()
        Sine()
    """

    op = "sin"
    formula = "y = sin(x)"
    gives = "floating"


class Cosine(Elementwise):
    """Cosine of each item, an angle in radians.

    Examples:
        >>> Cosine()
        Cosine()
    """

    op = "cos"
    formula = "y = cos(x)"
    gives = "floating"


class Tan(Elementwise):
    """Tangent of each item, an angle in radians.

    Examples:
        >>> Tan()
        Tan()
    """

    op = "tan"
    formula = "y = tan(x)"
    gives = "floating"


class Arctan(Elementwise):
    """Inverse tangent of each item, in radians.

    Examples:
        >>> Arctan()
        Arctan()
    """

    op = "arctan"
    formula = "y = arctan(x)"
    gives = "floating"


class Erf(Elementwise):
    """Error function of each item.

    Examples:
        >>> Erf()
        Erf()
    """

    op = "erf"
    formula = "y = 2/√π ∫₀ˣ exp(-t²) dt"
    gives = "floating"


Abs, Exp, Sin, Cos = Absolute, Exponential, Sine, Cosine
