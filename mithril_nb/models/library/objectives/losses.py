"""Losses and regularizers.

A loss returns one value per item, or per row for `InfoNCE`. Add a `Mean` block to reduce the values to one number. A
regularizer returns one number. All logarithms are natural.
"""

from __future__ import annotations

from typing import Annotated

from mithril_nb.graph.spec import LEADING, Dim
from mithril_nb.models.composite import Composite
from mithril_nb.models.fields import Range
from mithril_nb.models.library.operations.arithmetic import MatrixMultiply, Multiply, Threshold
from mithril_nb.models.library.operations.elementwise import Absolute, Square
from mithril_nb.models.library.operations.reductions import Sum
from mithril_nb.models.op import Inferred, Operator, Options, Shapes, Specs
from mithril_nb.models.shape_inference.dims import MismatchError, agree, broadcast, meet, place_of

__all__ = [
    "L1",
    "L2",
    "AbsoluteError",
    "CosineSimilarity",
    "HingeLoss",
    "HuberLoss",
    "InfoNCE",
    "KLDivergence",
    "LogCosh",
    "QuadHingeLoss",
    "QuadraticFormRegularizer",
    "QuantileLoss",
    "SquaredError",
]

Axis = Annotated[int, Range(-8, 7)]


def paired(inputs: Specs, port: str, other: str) -> tuple[Dim, ...]:
    """Return the shape of an elementwise result of two inputs, the ports named `port` and `other`.

    One of the inputs may broadcast to the shape of the other. Shapes such as `(n,)` and `(n, 1)` are rejected, because
    their result `(n, n)` would pair each item with all others.

    Raises:
        MismatchError: Neither shape broadcasts to the other.

    Examples:
        >>> from mithril_nb.graph.spec import TensorSpec
        >>> paired({"input": TensorSpec(("n", 3)), "target": TensorSpec(())}, "input", "target")
        ('n', 3)
    """
    left, right = inputs[port], inputs[other]
    advice = f"use a {other} with the shape {left.shape}, like the {port}."
    try:
        shape = broadcast(left, right)
    except MismatchError as error:
        raise MismatchError(other, str(left.shape), advice, error.detail) from None
    if not agree(shape, left.shape) and not agree(shape, right.shape):
        raise MismatchError(other, str(left.shape), advice, f"both inputs would broadcast to {shape}")
    return shape


class Paired(Operator):
    """Base of the losses of each item and its target."""

    category = "Losses"
    input_ports = ("input", "target")

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Return the shape of an elementwise result."""
        return Inferred({"output": paired(inputs, *cls.input_ports)})


class SquaredError(Paired):
    """Squared difference of each item and its target.

    Examples:
        >>> [port.name for port in SquaredError().inputs]
        ['input', 'target']
    """

    op = "squared_error"
    formula = "y = (input - target)²"


class AbsoluteError(Paired):
    """Absolute difference of each item and its target. The gradient at equality is 0, as in PyTorch.

    Examples:
        >>> AbsoluteError()
        AbsoluteError()
    """

    op = "absolute_error"
    formula = "y = |input - target|"


class HuberLoss(Paired):
    """Huber loss: quadratic for small differences, linear for large ones, so that outliers have a bounded gradient.

    If the difference `e` between input and target satisfies `|e| <= delta`, the loss is `½ e²`; else it is
    `delta (|e| - ½ delta)` (Huber, 1964).

    Args:
        delta: Largest absolute difference with a quadratic loss.

    Examples:
        >>> HuberLoss()
        HuberLoss(delta=1.0)
    """

    op = "huber_loss"
    formula = "y = ½ e² near zero, delta (|e| - ½ delta) beyond"

    def __init__(self, delta: Annotated[float, Range(1e-6, 1e6)] = 1.0, name: str | None = None):
        super().__init__(name, delta=delta)


class LogCosh(Paired):
    """Logarithm of the hyperbolic cosine of the difference: a smooth approximation of the absolute error.

    Examples:
        >>> LogCosh()
        LogCosh()
    """

    op = "log_cosh"
    formula = "y = log cosh(input - target)"


class QuantileLoss(Paired):
    """Pinball loss, whose minimiser is a quantile (Koenker and Bassett, 1978).

    For a quantile of 0.5, the loss is half the absolute error. If input and target are equal, the gradient is the mean
    of the gradients on both sides.

    Args:
        quantile: The fraction of targets that should be below the input.

    Examples:
        >>> QuantileLoss(0.9)
        QuantileLoss(quantile=0.9)
    """

    op = "quantile_loss"
    option_ports = ("quantile",)
    formula = "y = max(q e, (q - 1) e), e = target - input"

    def __init__(self, quantile: Annotated[float, Range(0.0, 1.0)] = 0.5, name: str | None = None):
        super().__init__(name, quantile=quantile)


class HingeLoss(Paired):
    """Hinge loss: penalises scores for which target · input is below the margin of 1. Targets are -1 and 1.

    The gradient at the margin is 0, like that of `Relu` at 0 (Rosasco et al., 2004).

    Examples:
        >>> HingeLoss()
        HingeLoss()
    """

    op = "hinge_loss"
    formula = "y = max(0, 1 - target · input)"


class QuadHingeLoss(Paired):
    """Square of the hinge loss. Unlike the hinge loss, its slope is continuous. Targets are -1 and 1.

    Examples:
        >>> QuadHingeLoss()
        QuadHingeLoss()
    """

    op = "quad_hinge_loss"
    formula = "y = max(0, 1 - target · input)²"


class KLDivergence(Paired):
    """The terms of the Kullback-Leibler divergence D(target ‖ input) of probabilities, one per item.

    The sum of the terms over a distribution is the divergence. The terms are finite also for probabilities of zero: for
    a probability x below a threshold t, `log x` is replaced by `2 log t - log(2t - x)`, as in `Log(robust=True)`.

    Args:
        threshold: The threshold t; by default the dtype's smallest normal number.

    Examples:
        >>> KLDivergence()
        KLDivergence(threshold=None)
    """

    op = "kl_divergence"
    option_ports = ("threshold",)
    formula = "y = target (log target - log input)"

    def __init__(self, threshold: Threshold | None = None, name: str | None = None):
        super().__init__(name, threshold=threshold)


class CosineSimilarity(Operator):
    """Cosine similarity of two arrays: 1 for the same direction, 0 for a right angle, -1 for opposite directions.

    Args:
        axis: The axis of the vectors.
        eps: Lower bound of a vector's length, so that the zero vector has a value and a gradient.

    Examples:
        >>> CosineSimilarity()
        CosineSimilarity(axis=-1, eps=1e-08)
    """

    op = "cosine_similarity"
    category = "Losses"
    input_ports = ("left", "right")
    formula = "y = left · right / (max(|left|, eps) max(|right|, eps))"

    def __init__(self, axis: Axis = -1, eps: Annotated[float, Range(1e-18, 1.0)] = 1e-8, name: str | None = None):
        super().__init__(name, axis=axis, eps=eps)

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Return the shape of an elementwise result, without the axis of the vectors."""
        shape = paired(inputs, "left", "right")
        axis = options["axis"]
        assert isinstance(axis, int)
        position = place_of("left", axis, shape)
        return Inferred({"output": (LEADING,) if position is None else (*shape[:position], *shape[position + 1 :])})


class InfoNCE(Operator):
    """Contrastive loss: each row should be nearest to the target row with the same index.

    The scores of a row are the cosine similarities with all rows of the target, divided by the temperature. The loss of
    the row is the cross entropy of these scores (van den Oord et al., 2018; Radford et al., 2021). For a symmetric
    loss, add a second block in which input and target are swapped.

    Args:
        temperature: Divisor of the similarities. With a smaller temperature, the most similar rows have more weight.

    Examples:
        >>> InfoNCE()
        InfoNCE(temperature=0.07)
    """

    op = "info_nce"
    category = "Losses"
    input_ports = ("input", "target")
    option_ports = ("temperature",)
    formula = "y[i] = -log(exp(s[i, i]) / Σ_j exp(s[i, j])), s = cos(input, target) / temperature"

    def __init__(self, temperature: Annotated[float, Range(1e-3, 1e3)] = 0.07, name: str | None = None):
        super().__init__(name, temperature=temperature)

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Map inputs `(batch, features)` to `(batch,)`."""
        both = meet(("batch", "features"), inputs["input"].shape, {})
        if both is None:
            raise MismatchError("input", "(batch, features)", "use an input with one row for each sample.")
        names: dict[str, Dim] = {}
        shape = meet(both, inputs["target"].shape, names)
        if shape is None:
            raise MismatchError("target", str(both), "use a target with the shape of the input.")
        return Inferred({"output": shape[:1]})

    @classmethod
    def refine(cls, options: Options, inputs: Specs, outputs: Specs) -> Shapes:
        """Infer that input and target have the same shape."""
        return {"input": inputs["target"].shape, "target": inputs["input"].shape}


class L1(Composite):
    """Sum of the absolute values of all items, the penalty of the lasso (Tibshirani, 1996). The gradient at 0 is 0.

    Examples:
        >>> [node.name for node in L1().graph.nodes]
        ['absolute_0', 'sum_0']
    """

    category = "Losses"
    formula = "y = Σ |x|"

    def __init__(self, name: str | None = None):
        super().__init__(name)
        self |= Absolute()(input="input")
        self += Sum()(output="output")


class L2(Composite):
    """Half the sum of the squares of all items (Goodfellow et al., 2016, §7.1.1).

    Examples:
        >>> [port.name for port in L2().outputs]
        ['output']
    """

    category = "Losses"
    formula = "y = ½ Σ x²"

    def __init__(self, name: str | None = None):
        super().__init__(name)
        self |= (square := Square())(input="input")
        self |= (total := Sum())(input=square.output)
        self |= Multiply()(left=total.output, right=0.5, output="output")


class QuadraticFormRegularizer(Composite):
    """Quadratic form ½ xᵀ K x, which regularises a kernel machine (Schölkopf and Smola, 2002, §4.2).

    The shape of the input x is `(n,)` or `(n, columns)`. The weight of `Linear(1)` is one column. The result is the sum
    over the columns. The shape of the kernel K is `(n, n)`.

    Examples:
        >>> sorted(port.name for port in QuadraticFormRegularizer().inputs)
        ['input', 'kernel']
    """

    category = "Losses"
    formula = "y = ½ xᵀ K x"

    def __init__(self, name: str | None = None):
        super().__init__(name)
        self |= (seen := MatrixMultiply())(left="kernel", right="input")
        self |= (each := Multiply())(left="input", right=seen.output)
        self |= (total := Sum())(input=each.output)
        self |= Multiply()(left=total.output, right=0.5, output="output")
