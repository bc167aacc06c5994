"""Activations: blocks without parameters, mostly elementwise."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from mithril_nb.graph.spec import LEADING
from mithril_nb.models.fields import Range
from mithril_nb.models.library.operations.elementwise import Elementwise
from mithril_nb.models.library.operations.reducing import Axis, axes_of, negative_axes
from mithril_nb.models.op import Inferred, Options, Shapes, Specs
from mithril_nb.models.shape_inference.dims import MismatchError

__all__ = [
    "Celu",
    "Dropout",
    "Elu",
    "Gelu",
    "Glu",
    "HardSigmoid",
    "HardSwish",
    "HardTanh",
    "LeakyRelu",
    "LogSigmoid",
    "LogSoftmax",
    "Mish",
    "Relu",
    "Relu6",
    "Selu",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Softplus",
    "Softsign",
    "Tanh",
]


class _Elementwise(Elementwise):
    category = "Activations"
    is_activation = True
    input_dtypes: ClassVar = {}
    takes = ("floating",)


class Relu(_Elementwise):
    """Rectified linear unit: max(x, 0). The gradient at 0 is 0, as in JAX and PyTorch.

    Examples:
        >>> Relu()
        Relu()
    """

    op = "relu"
    formula = "y = max(x, 0)"


class Gelu(_Elementwise):
    """Gaussian error linear unit: x times the normal distribution function of x (Hendrycks and Gimpel, 2016).

    The value at -∞ is NaN, as in JAX and PyTorch.

    Args:
        approximate: If true, use the tanh approximation instead of the exact formula.

    Examples:
        >>> Gelu()
        Gelu(approximate=False)
    """

    op = "gelu"
    formula = "y = x Φ(x)"

    def __init__(self, approximate: bool = False, name: str | None = None):
        super().__init__(name, approximate=approximate)


class Sigmoid(_Elementwise):
    """Logistic sigmoid: maps items to the range from 0 to 1.

    Examples:
        >>> Sigmoid()
        Sigmoid()
    """

    op = "sigmoid"
    formula = "y = 1 / (1 + exp(-x))"


class Tanh(_Elementwise):
    """Hyperbolic tangent: maps items to the range from -1 to 1.

    Examples:
        >>> Tanh()
        Tanh()
    """

    op = "tanh"
    formula = "y = tanh(x)"


class Relu6(_Elementwise):
    """Rectified linear unit with a maximum of 6. The gradient at 0 and 6 is 0, as in PyTorch.

    Examples:
        >>> Relu6()
        Relu6()
    """

    op = "relu6"
    formula = "y = min(max(x, 0), 6)"


class LeakyRelu(_Elementwise):
    """Leaky rectified linear unit: x where x >= 0, slope · x elsewhere. The gradient at 0 is 1, as in JAX.

    Args:
        slope: The factor of negative items.

    Examples:
        >>> LeakyRelu()
        LeakyRelu(slope=0.01)
    """

    op = "leaky_relu"
    option_ports = ("slope",)
    formula = "y = x if x >= 0 else slope x"

    def __init__(self, slope: float = 0.01, name: str | None = None):
        super().__init__(name, slope=slope)


class Softplus(_Elementwise):
    """Smooth approximation of Relu.

    Examples:
        >>> Softplus()
        Softplus()
    """

    op = "softplus"
    formula = "y = log(1 + exp(x))"


class SiLU(_Elementwise):
    """Sigmoid linear unit: x times sigmoid(x), also called Swish (Elfwing et al., 2017). At -∞ the value is NaN.

    Examples:
        >>> SiLU()
        SiLU()
    """

    op = "silu"
    formula = "y = x sigmoid(x)"


class Mish(_Elementwise):
    """Mish: x times tanh(softplus(x)) (Misra, 2019). The value at -∞ is NaN, as in PyTorch.

    Examples:
        >>> Mish()
        Mish()
    """

    op = "mish"
    formula = "y = x tanh(log(1 + exp(x)))"


class Elu(_Elementwise):
    """Exponential linear unit: x if x > 0, else alpha · (exp(x) - 1), with gradient alpha at 0 (Clevert et al., 2015).

    Args:
        alpha: The value approaches -alpha towards -∞.

    Examples:
        >>> Elu()
        Elu(alpha=1.0)
    """

    op = "elu"
    formula = "y = x if x > 0 else alpha (exp(x) - 1)"

    def __init__(self, alpha: float = 1.0, name: str | None = None):
        super().__init__(name, alpha=alpha)


class Selu(_Elementwise):
    """Scaled Elu: keeps the mean near 0 and the variance near 1 in a deep network (Klambauer et al., 2017).

    The result is 1.0507 times `Elu(alpha=1.6733)` of x. The gradient at 0 is 1.7581, the slope of the exponential part.

    Examples:
        >>> Selu()
        Selu()
    """

    op = "selu"
    formula = "y = 1.0507 (x if x > 0 else 1.6733 (exp(x) - 1))"


class Celu(_Elementwise):
    """Continuously differentiable Elu: x if x > 0, else alpha · (exp(x / alpha) - 1) (Barron, 2017).

    Args:
        alpha: The value approaches -alpha towards -∞.

    Examples:
        >>> Celu()
        Celu(alpha=1.0)
    """

    op = "celu"
    formula = "y = x if x > 0 else alpha (exp(x / alpha) - 1)"

    def __init__(self, alpha: Annotated[float, Range(1e-6, 1e6)] = 1.0, name: str | None = None):
        super().__init__(name, alpha=alpha)


class HardSigmoid(_Elementwise):
    """Hard sigmoid: x / 6 + ½, clipped to the range from 0 to 1. The gradient at -3 and 3 is 0, as in PyTorch.

    Examples:
        >>> HardSigmoid()
        HardSigmoid()
    """

    op = "hard_sigmoid"
    formula = "y = min(max(x + 3, 0), 6) / 6"


class HardTanh(_Elementwise):
    """Piecewise linear tanh: clips items to the range from -1 to 1. The gradient at -1 and 1 is 1, as in JAX.

    Examples:
        >>> HardTanh()
        HardTanh()
    """

    op = "hard_tanh"
    formula = "y = min(max(x, -1), 1)"


class HardSwish(_Elementwise):
    """Hard swish: x times `HardSigmoid` of x (Howard et al., 2019). The value at -∞ is NaN, as in JAX.

    Examples:
        >>> HardSwish()
        HardSwish()
    """

    op = "hard_swish"
    formula = "y = x min(max(x + 3, 0), 6) / 6"


class LogSigmoid(_Elementwise):
    """Logarithm of the sigmoid, accurate also where the sigmoid is near 0.

    Examples:
        >>> LogSigmoid()
        LogSigmoid()
    """

    op = "log_sigmoid"
    formula = "y = -log(1 + exp(-x))"


class Softsign(_Elementwise):
    """Softsign: x / (1 + |x|), between -1 and 1. It saturates more slowly than tanh. At -∞ and ∞ it is NaN.

    Examples:
        >>> Softsign()
        Softsign()
    """

    op = "softsign"
    formula = "y = x / (1 + |x|)"


class _AlongAxis(_Elementwise):
    is_activation = False  # He's initializers assume a halved mean square, which softmax does not give

    def __init__(self, axis: Axis = -1, name: str | None = None):
        super().__init__(name, axis=axis)

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Keep the shape, after checking the axis."""
        negative_axes(cls.__name__, inputs["input"].shape, axes_of(options["axis"]))
        return super().infer(options, inputs)


class Softmax(_AlongAxis):
    """Converts scores along an axis to positive weights that sum to 1.

    All weights along the axis are NaN if one score is ∞ or all scores are -∞, as in JAX and PyTorch.

    Args:
        axis: The axis; -1 is the last one.

    Examples:
        >>> Softmax()
        Softmax(axis=-1)
    """

    op = "softmax"
    formula = "y = exp(x) / Σ exp(x)"


class LogSoftmax(_AlongAxis):
    """Logarithm of `Softmax`, accurate also where `Softmax` is near 0.

    Args:
        axis: The axis; -1 is the last one.

    Examples:
        >>> LogSoftmax()
        LogSoftmax(axis=-1)
    """

    op = "log_softmax"
    formula = "y = x - log Σ exp(x)"


class Glu(_Elementwise):
    """Gated linear unit `a act(b)` of the halves a and b of an axis (Dauphin et al., 2016; Shazeer, 2020).

    Args:
        activation: Activation of b: `"sigmoid"` for GLU, `"silu"` for SwiGLU, `"gelu"` for GeGLU, `"relu"` for ReGLU,
            or `"tanh"`.
        axis: The axis to split.

    Examples:
        >>> Glu("silu")
        Glu(activation='silu', axis=-1)
    """

    op = "glu"
    formula = "y = a act(b), x = [a, b]"

    def __init__(
        self,
        activation: Literal["sigmoid", "silu", "gelu", "relu", "tanh"] = "sigmoid",
        axis: Axis = -1,
        name: str | None = None,
    ):
        super().__init__(name, activation=activation, axis=axis)

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Halve the size of the axis."""
        shape = inputs["input"].shape
        at = negative_axes("Glu", shape, axes_of(options["axis"]))
        if at is None:
            return Inferred({"output": (LEADING,)})
        (position,) = at
        size = shape[position]
        if isinstance(size, int) and size % 2:
            advice = f"use an even size on axis {position}, such as {size + 1}."
            raise MismatchError("input", f"an even size on axis {position}", advice, f"axis {position}: {size}")
        halved = list(shape)
        halved[position] = size // 2 if isinstance(size, int) else f"({size})//2"
        return Inferred({"output": tuple(halved)})

    @classmethod
    def refine(cls, options: Options, inputs: Specs, outputs: Specs) -> Shapes:
        """Infer the input's shape from the output's, which has half the size on the axis."""
        output = outputs["output"].shape
        at = negative_axes("Glu", output, axes_of(options["axis"]))
        half = None if at is None else output[at[0]]
        if at is None or not isinstance(half, int):
            return {}
        doubled = list(output)
        doubled[at[0]] = 2 * half
        return {"input": tuple(doubled)}


class Dropout(_Elementwise):
    """In training, sets random items to zero and divides the other items by 1 - p. Otherwise the identity.

    Args:
        p: Probability that an item is set to zero.
        training: If true, always drop items; if false, never. With `None`, drop items only in `fit`.

    Examples:
        >>> Dropout(0.5)
        Dropout(p=0.5, training=None)
    """

    op = "dropout"
    category = "Layers"
    is_activation = False
    keeps_scale = True
    formula = "y = x m / (1 - p), m ~ Bernoulli(1 - p)"

    def __init__(
        self, p: Annotated[float, Range(0.0, 0.99)] = 0.5, training: bool | None = None, name: str | None = None
    ):
        super().__init__(name, p=p, training=training)
