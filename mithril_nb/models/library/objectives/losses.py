"""Losses and regularizers.

A loss gives one value for each item, or for each sample where it looks at whole rows; a `Mean` block after it makes one
number of them. Regularizers give one number. All logarithms are natural.
"""

from __future__ import annotations

from typing import Annotated

from mithril_nb.graph.spec import LEADING, Dim
from mithril_nb.models.composite import Composite
from mithril_nb.models.dims import MismatchError, meet, place_of
from mithril_nb.models.fields import Range
from mithril_nb.models.library.objectives.pairs import Axis, Paired, Threshold, paired
from mithril_nb.models.library.operations.arithmetic import MatrixMultiply, Multiply
from mithril_nb.models.library.operations.elementwise import Absolute, Square
from mithril_nb.models.library.operations.reductions import Sum
from mithril_nb.models.op import Inferred, Operator, Options, Shapes, Specs

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


class SquaredError(Paired):
    """Squares the difference of each item and its target.

    Examples:
        >>> [port.name for port in SquaredError().inputs]
        ['input', 'target']
    """

    op = "squared_error"
    formula = "y = (input - target)²"

    def __init__(self, name: str | None = None):
        super().__init__(name)


class AbsoluteError(Paired):
    """Takes the distance of each item from its target. The gradient where both are equal is 0, as in PyTorch.

    Examples:
        >>> AbsoluteError()
        AbsoluteError()
    """

    op = "absolute_error"
    formula = "y = |input - target|"

    def __init__(self, name: str | None = None):
        super().__init__(name)


class HuberLoss(Paired):
    """Squares small differences and takes large ones as they are, so that an outlier pulls no harder than others.

    With e = input - target it is `½ e²` where `|e| <= delta`, and `delta (|e| - ½ delta)` beyond (Huber, 1964).

    Args:
        delta: Where the square ends.

    Examples:
        >>> HuberLoss()
        HuberLoss(delta=1.0)
    """

    op = "huber_loss"
    formula = "y = ½ e² near zero, delta (|e| - ½ delta) beyond"

    def __init__(self, delta: Annotated[float, Range(1e-6, 1e6)] = 1.0, name: str | None = None):
        super().__init__(name, delta=delta)


class LogCosh(Paired):
    """Takes the logarithm of the hyperbolic cosine of the difference: a smooth form of the absolute error.

    Examples:
        >>> LogCosh()
        LogCosh()
    """

    op = "log_cosh"
    formula = "y = log cosh(input - target)"

    def __init__(self, name: str | None = None):
        super().__init__(name)


class QuantileLoss(Paired):
    """Weighs what lies below the target against what lies above it: at its least, the input is a quantile.

    The pinball loss of Koenker and Bassett (1978); at 0.5 it is half the absolute error. Where input and target are
    equal, the gradient is the mean of those on both sides.

    Args:
        quantile: The share of targets that shall lie below the input.

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
    """Punishes scores that are on the wrong side, or nearer to it than 1 (Rosasco et al., 2004). Targets are -1 and 1.

    The gradient at the margin, where target · input is 1, is 0, as that of `Relu` at 0.

    Examples:
        >>> HingeLoss()
        HingeLoss()
    """

    op = "hinge_loss"
    formula = "y = max(0, 1 - target · input)"

    def __init__(self, name: str | None = None):
        super().__init__(name)


class QuadHingeLoss(Paired):
    """Squares the hinge loss, so that its slope has no jump. Targets are -1 and 1.

    Examples:
        >>> QuadHingeLoss()
        QuadHingeLoss()
    """

    op = "quad_hinge_loss"
    formula = "y = max(0, 1 - target · input)²"

    def __init__(self, name: str | None = None):
        super().__init__(name)


class KLDivergence(Paired):
    """Says item by item how far the probabilities `input` are from the probabilities `target`.

    Their sum over a distribution is its Kullback-Leibler divergence D(target ‖ input). Zero is no trouble: nearer to it
    than the threshold t the logarithm goes on as `2 log t - log(2t - x)`, as in `Log(robust=True)`.

    Args:
        threshold: The t above; by default the dtype's least normal number.

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
    """Says how far two arrays point the same way: 1 if they do, 0 at a right angle, -1 if they oppose each other.

    Args:
        axis: The axis that a vector lies along.
        eps: The least length that a vector counts as, so that zero has a value and a gradient.

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
        """The shape of both, without the axis."""
        shape = paired(inputs, "left", "right")
        axis = options["axis"]
        assert isinstance(axis, int)
        place = place_of("left", axis, shape)
        return Inferred({"output": (LEADING,) if place is None else (*shape[:place], *shape[place + 1 :])})


class InfoNCE(Operator):
    """Asks each row to be nearest to the row of the target that has its number: contrastive learning.

    Cross entropy of the cosine similarities of a row with all rows of the target, divided by the temperature
    (van den Oord et al., 2018; Radford et al., 2021). One value for each row; for a symmetric loss add a second one
    with the ports exchanged.

    Args:
        temperature: What similarities are divided by: the smaller, the more the nearest rows count.

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
        """Two of `(batch, features)` give `(batch,)`."""
        both = meet(("batch", "features"), inputs["input"].shape, {})
        if both is None:
            raise MismatchError("input", "(batch, features)", "one row for each sample.")
        names: dict[str, Dim] = {}
        shape = meet(both, inputs["target"].shape, names)
        if shape is None:
            raise MismatchError("target", str(both), "a target of the shape of the input.")
        return Inferred({"output": shape[:1]})

    @classmethod
    def refine(cls, options: Options, inputs: Specs, outputs: Specs) -> Shapes:
        """Input and target have one shape."""
        return {"input": inputs["target"].shape, "target": inputs["input"].shape}


class L1(Composite):
    """Sums the absolute values of all items (the penalty of the lasso: Tibshirani, 1996). The gradient at 0 is 0.

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
    """Sums the squares of all items, and halves that (Goodfellow et al., 2016, §7.1.1).

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
    """Measures a vector by a matrix, as a kernel machine does its weights (Schölkopf and Smola, 2002, §4.2).

    The input is `(n,)`, or a column `(n, 1)` as the weight of `Linear(1)` is; of several columns it takes the sum. The
    kernel is `(n, n)`.

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
