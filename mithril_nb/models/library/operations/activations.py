"""Activations: blocks without parameters, mostly elementwise."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Literal

from mithril_nb.models.library.operations.elementwise import Elementwise
from mithril_nb.models.library.operations.reductions import Axis, axes_of, negative_axes
from mithril_nb.models.op import UNKNOWN_SHAPE, MismatchError, Range, jax, jnp

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


class Activation(Elementwise):
    """Base of the elementwise blocks that an initializer takes for a nonlinearity."""

    category = "Activations"
    is_activation = True
    # Not any dtype: activations are part of networks, where an integer is nearly always a mistake.
    input_dtypes = {}
    takes = ("floating",)


class Relu(Activation):
    """Rectified linear unit: max(x, 0). The gradient at 0 is 0, as in JAX and PyTorch."""

    op = "relu"
    formula = "y = max(x, 0)"
    kernel = jax.nn.relu


# JAX and Flax approximate by default. PyTorch and this block do not.
class Gelu(Activation):
    """Gaussian error linear unit: x times the normal distribution function of x (Hendrycks and Gimpel, 2016).

    The value at -∞ is NaN, as in JAX and PyTorch.

    Args:
        approximate: If true, use the tanh approximation instead of the exact formula.
    """

    approximate: bool = False

    op = "gelu"
    formula = "y = x Φ(x)"
    kernel = jax.nn.gelu


class Sigmoid(Activation):
    """Logistic sigmoid: maps items to the range from 0 to 1."""

    op = "sigmoid"
    formula = "y = 1 / (1 + exp(-x))"
    kernel = jax.nn.sigmoid


class Tanh(Activation):
    """Hyperbolic tangent: maps items to the range from -1 to 1."""

    op = "tanh"
    formula = "y = tanh(x)"
    kernel = jnp.tanh


class Relu6(Activation):
    """Rectified linear unit with a maximum of 6. The gradient at 0 and 6 is 0, as in PyTorch."""

    op = "relu6"
    formula = "y = min(max(x, 0), 6)"
    kernel = jax.nn.relu6


def _leaky_relu(x: Any, slope: Any) -> Any:
    # Unlike in jax.nn.leaky_relu, an infinite positive item adds 0 to the gradient of the slope, not NaN.
    return jnp.where(x >= 0, x, slope * jnp.where(x >= 0, 0, x))


class LeakyRelu(Activation):
    """Leaky rectified linear unit: x where x >= 0, slope · x elsewhere. The gradient at 0 is 1, as in JAX.

    Args:
        slope: The factor of negative items.
    """

    # As in JAX and PyTorch; the default of Keras is 0.3.
    slope: float = 0.01

    op = "leaky_relu"
    option_ports = ("slope",)
    formula = "y = x if x >= 0 else slope x"
    kernel = _leaky_relu


# `jax.nn.softplus` is `logaddexp(x, 0)`, which does not overflow for large x.
class Softplus(Activation):
    """Smooth approximation of Relu."""

    op = "softplus"
    formula = "y = log(1 + exp(x))"
    kernel = jax.nn.softplus


class SiLU(Activation):
    """Sigmoid linear unit: x times sigmoid(x), also called Swish (Elfwing et al., 2017). At -∞ the value is NaN."""

    op = "silu"
    formula = "y = x sigmoid(x)"
    kernel = jax.nn.silu


class Mish(Activation):
    """Mish: x times tanh(softplus(x)) (Misra, 2019). The value at -∞ is NaN, as in PyTorch."""

    op = "mish"
    formula = "y = x tanh(log(1 + exp(x)))"
    kernel = jax.nn.mish


class Elu(Activation):
    """Exponential linear unit: x if x > 0, else alpha · (exp(x) - 1), with gradient alpha at 0 (Clevert et al., 2015).

    Args:
        alpha: The value approaches -alpha towards -∞.
    """

    alpha: float = 1.0

    op = "elu"
    formula = "y = x if x > 0 else alpha (exp(x) - 1)"
    kernel = jax.nn.elu


class Selu(Activation):
    """Scaled Elu: keeps the mean near 0 and the variance near 1 in a deep network (Klambauer et al., 2017).

    The result is 1.0507 times `Elu(alpha=1.6733)` of x. The gradient at 0 is 1.7581, the slope of the exponential part.
    """

    op = "selu"
    formula = "y = 1.0507 (x if x > 0 else 1.6733 (exp(x) - 1))"
    kernel = jax.nn.selu


class Celu(Activation):
    """Continuously differentiable Elu: x if x > 0, else alpha · (exp(x / alpha) - 1) (Barron, 2017).

    Args:
        alpha: The value approaches -alpha towards -∞.
    """

    # Not 0: the formula divides by alpha.
    alpha: Annotated[float, Range(1e-6, 1e6)] = 1.0

    op = "celu"
    formula = "y = x if x > 0 else alpha (exp(x / alpha) - 1)"
    kernel = jax.nn.celu


# As in JAX, Keras 3 and PyTorch. Keras 2 has the slope 0.2 instead of 1 / 6.
class HardSigmoid(Activation):
    """Hard sigmoid: x / 6 + ½, clipped to the range from 0 to 1. The gradient at -3 and 3 is 0, as in PyTorch."""

    op = "hard_sigmoid"
    formula = "y = min(max(x + 3, 0), 6) / 6"
    kernel = jax.nn.hard_sigmoid


class HardTanh(Activation):
    """Piecewise linear tanh: clips items to the range from -1 to 1. The gradient at -1 and 1 is 1, as in JAX."""

    op = "hard_tanh"
    formula = "y = min(max(x, -1), 1)"
    kernel = jax.nn.hard_tanh


class HardSwish(Activation):
    """Hard swish: x times `HardSigmoid` of x (Howard et al., 2019). The value at -∞ is NaN, as in JAX."""

    op = "hard_swish"
    formula = "y = x min(max(x + 3, 0), 6) / 6"
    kernel = jax.nn.hard_silu


class LogSigmoid(Activation):
    """Logarithm of the sigmoid, accurate also where the sigmoid is near 0."""

    op = "log_sigmoid"
    formula = "y = -log(1 + exp(-x))"
    kernel = jax.nn.log_sigmoid


class Softsign(Activation):
    """Softsign: x / (1 + |x|), between -1 and 1. It saturates more slowly than tanh. At -∞ and ∞ it is NaN."""

    op = "softsign"
    formula = "y = x / (1 + |x|)"
    kernel = jax.nn.soft_sign


class _AlongAxis(Activation):
    axis: Axis = -1
    is_activation = False  # He's initializers assume a halved mean square, which softmax does not give

    @classmethod
    def infer(cls, options, inputs):
        """Keep the shape, after checking the axis."""
        # `negative_axes` returns `None` for an open shape. The shape is kept all the same.
        negative_axes(cls.__name__, inputs["input"].shape, axes_of(options["axis"]))
        return super().infer(options, inputs)


class Softmax(_AlongAxis):
    """Converts scores along an axis to positive weights that sum to 1.

    All weights along the axis are NaN if one score is ∞ or all scores are -∞, as in JAX and PyTorch.

    Args:
        axis: The axis; -1 is the last one.
    """

    op = "softmax"
    formula = "y = exp(x) / Σ exp(x)"
    kernel = jax.nn.softmax


class LogSoftmax(_AlongAxis):
    """Logarithm of `Softmax`, accurate also where `Softmax` is near 0.

    Args:
        axis: The axis; -1 is the last one.
    """

    op = "log_softmax"
    formula = "y = x - log Σ exp(x)"
    kernel = jax.nn.log_softmax


_GATES = {
    "sigmoid": jax.nn.sigmoid,
    "silu": jax.nn.silu,
    "gelu": partial(jax.nn.gelu, approximate=False),  # JAX approximates by default, GLU and Gelu do not
    "relu": jax.nn.relu,
    "tanh": jnp.tanh,
}


def _glu(x: Any, activation: str, axis: int) -> Any:
    value, gate = jnp.split(x, 2, axis)
    return value * _GATES[activation](gate)


class Glu(Activation):
    """Gated linear unit `a act(b)` of the halves a and b of an axis (Dauphin et al., 2016; Shazeer, 2020).

    Args:
        activation: Activation of b: `"sigmoid"` for GLU, `"silu"` for SwiGLU, `"gelu"` for GeGLU, `"relu"` for ReGLU,
            or `"tanh"`.
        axis: The axis to split.
    """

    activation: Literal["sigmoid", "silu", "gelu", "relu", "tanh"] = "sigmoid"
    axis: Axis = -1

    op = "glu"
    formula = "y = a act(b), x = [a, b]"
    kernel = _glu

    @classmethod
    def infer(cls, options, inputs):
        """Halve the size of the axis."""
        shape = inputs["input"].shape
        at = negative_axes("Glu", shape, axes_of(options["axis"]))
        if at is None:
            return UNKNOWN_SHAPE
        (position,) = at
        # A named size may be odd. The program then fails when it is traced with the real size.
        size = shape[position]
        if isinstance(size, int) and size % 2:
            advice = f"use an even size on axis {position}, such as {size + 1}."
            raise MismatchError("input", f"an even size on axis {position}", advice, f"axis {position}: {size}")
        halved = list(shape)
        halved[position] = size // 2 if isinstance(size, int) else f"({size})//2"
        return tuple(halved)

    @classmethod
    def refine(cls, options, inputs, outputs):
        """Infer the input's shape from the output's, which has half the size on the axis."""
        output = outputs["output"].shape
        at = negative_axes("Glu", output, axes_of(options["axis"]))
        # From a half size such as "h//2", the whole size does not follow.
        half = None if at is None else output[at[0]]
        if at is None or not isinstance(half, int):
            return {}
        doubled = list(output)
        doubled[at[0]] = 2 * half
        return {"input": tuple(doubled)}


class Dropout(Activation):
    """In training, sets random items to zero and divides the other items by 1 - p. Otherwise the identity.

    Args:
        p: Probability that an item is set to zero.
        training: If true, always drop items; if false, never. With `None`, drop items only in `fit`.
    """

    # The probability to drop, as in Flax, Keras and PyTorch. A probability of 1 would divide by 0.
    p: Annotated[float, Range(0.0, 0.99)] = 0.5
    training: bool | None = None

    op = "dropout"
    # An `Activation` only for its dtypes and shapes: it has no effect on initializers, so both flags are reset.
    category = "Layers"
    is_activation = False
    keeps_scale = True
    formula = "y = x m / (1 - p), m ~ Bernoulli(1 - p)"
