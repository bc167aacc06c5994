"""Losses and regularizers.

A loss returns one value per item, or per row for `InfoNCE`. Add a `Mean` block to reduce the values to one number. A
regularizer returns one number. All logarithms are natural.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from mithril_nb.errors import UnknownOptionError
from mithril_nb.models.composite import Composite
from mithril_nb.models.fields import plain
from mithril_nb.models.library.operations import Absolute, MatrixMultiply, Multiply, Square, Sum
from mithril_nb.models.library.operations.elementwise import Threshold
from mithril_nb.models.op import (
    UNKNOWN_SHAPE,
    Dim,
    Dims,
    MismatchError,
    Operator,
    Options,
    Range,
    Specs,
    jnp,
)
from mithril_nb.models.shape_inference.dims import agree, broadcast, meet, place_of, spliced

__all__ = [
    "L1",
    "L2",
    "AbsoluteError",
    "BinaryCrossEntropy",
    "CosineSimilarity",
    "CrossEntropy",
    "FocalLoss",
    "HingeLoss",
    "HuberLoss",
    "InfoNCE",
    "KLDivergence",
    "LogCosh",
    "QuadHingeLoss",
    "QuadraticFormRegularizer",
    "QuantileLoss",
    "SoftCrossEntropy",
    "SquaredError",
]

# The range of the inspector's slider; the shape rule checks against the real rank.
Axis = Annotated[int, Range(-8, 7)]


def paired(inputs: Specs, port: str, other: str) -> Dims:
    """Return the shape of an elementwise result of two inputs, the ports named `port` and `other`.

    One of the inputs may broadcast to the shape of the other. Shapes such as `(n,)` and `(n, 1)` are rejected, because
    their result `(n, n)` would pair each item with all others.

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
    # (n,) and (n, 1) broadcast to (n, n): the usual mistake with targets, which trains without an error.
    if not agree(shape, left.shape) and not agree(shape, right.shape):
        raise MismatchError(other, str(left.shape), advice, f"both inputs would broadcast to {shape}")
    return shape


class SameShapes(Operator):
    """Base of the ops on two arrays of one shape."""

    @classmethod
    def refine(cls, options, inputs, outputs):
        """Infer that both inputs have the same shape."""
        port, other = cls.input_ports
        return {port: inputs[other].shape, other: inputs[port].shape}


class Paired(Operator):
    """Base of the losses of each item and its target."""

    category = "Losses"
    input_ports = ("input", "target")

    @classmethod
    def infer(cls, options, inputs):
        """Return the shape of an elementwise result."""
        return paired(inputs, *cls.input_ports)


def _squared_error(x: Any, target: Any) -> Any:
    return jnp.square(x - target)


class SquaredError(Paired):
    """Squared difference of each item and its target.

    Examples:
        >>> [port.name for port in SquaredError().inputs]
        ['input', 'target']
    """

    op = "squared_error"
    formula = "y = (input - target)²"
    kernel = _squared_error


class AbsoluteError(Paired):
    """Absolute difference of each item and its target. The gradient at equality is 0, as in PyTorch."""

    op = "absolute_error"
    formula = "y = |input - target|"


class HuberLoss(Paired):
    """Huber loss: quadratic for small differences, linear for large ones, so that outliers have a bounded gradient.

    If the difference `e` between input and target satisfies `|e| <= delta`, the loss is `½ e²`; else it is
    `delta (|e| - ½ delta)` (Huber, 1964).

    Args:
        delta: Largest absolute difference with a quadratic loss.
    """

    # 1 as in PyTorch and Keras.
    delta: Annotated[float, Range(1e-6, 1e6)] = 1.0

    op = "huber_loss"
    formula = "y = ½ e² near zero, delta (|e| - ½ delta) beyond"


class LogCosh(Paired):
    """Logarithm of the hyperbolic cosine of the difference: a smooth approximation of the absolute error."""

    op = "log_cosh"
    formula = "y = log cosh(input - target)"


# The quantile is a port, as in Mithril, so that a model can predict several quantiles.
class QuantileLoss(Paired):
    """Pinball loss, whose minimiser is a quantile (Koenker and Bassett, 1978).

    For a quantile of 0.5, the loss is half the absolute error. If input and target are equal, the gradient is the mean
    of the gradients on both sides.

    Args:
        quantile: The fraction of targets that should be below the input.
    """

    quantile: Annotated[float, Range(0.0, 1.0)] = 0.5

    op = "quantile_loss"
    option_ports = ("quantile",)
    formula = "y = max(q e, (q - 1) e), e = target - input"


class HingeLoss(Paired):
    """Hinge loss: penalises scores for which target · input is below the margin of 1. Targets are -1 and 1.

    The gradient at the margin is 0, like that of `Relu` at 0 (Rosasco et al., 2004).
    """

    op = "hinge_loss"
    formula = "y = max(0, 1 - target · input)"


class QuadHingeLoss(Paired):
    """Square of the hinge loss. Unlike the hinge loss, its slope is continuous. Targets are -1 and 1."""

    op = "quad_hinge_loss"
    formula = "y = max(0, 1 - target · input)²"


class KLDivergence(Paired):
    """The terms of the Kullback-Leibler divergence D(target ‖ input) of probabilities, one per item.

    The sum of the terms over a distribution is the divergence. The terms are finite also for probabilities of zero: for
    a probability x below a threshold t, `log x` is replaced by `2 log t - log(2t - x)`, as in `Log(robust=True)`.

    Args:
        threshold: The threshold t; by default the dtype's smallest normal number.
    """

    # `None` is the smallest normal number of the dtype, which is known only when the program is traced.
    threshold: Threshold | None = None

    op = "kl_divergence"
    option_ports = ("threshold",)
    formula = "y = target (log target - log input)"


class CosineSimilarity(Operator):
    """Cosine similarity of two arrays: 1 for the same direction, 0 for a right angle, -1 for opposite directions.

    Args:
        axis: The axis of the vectors.
        eps: Lower bound of a vector's length, so that the zero vector has a value and a gradient.
    """

    axis: Axis = -1
    # As in PyTorch.
    eps: Annotated[float, Range(1e-18, 1.0)] = 1e-8

    op = "cosine_similarity"
    category = "Losses"
    input_ports = ("left", "right")
    formula = "y = left · right / (max(|left|, eps) max(|right|, eps))"

    @classmethod
    def infer(cls, options, inputs):
        """Return the shape of an elementwise result, without the axis of the vectors."""
        shape = paired(inputs, "left", "right")
        axis = options["axis"]
        position = place_of("left", axis, shape)
        return UNKNOWN_SHAPE if position is None else spliced(shape, position)


# One direction only, as in van den Oord et al. CLIP adds the loss of the swapped inputs.
class InfoNCE(SameShapes):
    """Contrastive loss: each row should be nearest to the target row with the same index.

    The scores of a row are the cosine similarities with all rows of the target, divided by the temperature. The loss of
    the row is the cross entropy of these scores (van den Oord et al., 2018; Radford et al., 2021). For a symmetric
    loss, add a second block in which input and target are swapped.

    Args:
        temperature: Divisor of the similarities. With a smaller temperature, the most similar rows have more weight.
    """

    temperature: Annotated[float, Range(1e-3, 1e3)] = 0.07

    op = "info_nce"
    category = "Losses"
    input_ports = ("input", "target")
    option_ports = ("temperature",)
    formula = "y[i] = -log(exp(s[i, i]) / Σ_j exp(s[i, j])), s = cos(input, target) / temperature"

    @classmethod
    def infer(cls, options, inputs):
        """Map inputs `(batch, features)` to `(batch,)`."""
        # The names only say that there are two axes.
        both = meet(("batch", "features"), inputs["input"].shape, {})
        if both is None:
            raise MismatchError("input", "(batch, features)", "use an input with one row for each sample.")
        names: dict[str, Dim] = {}
        shape = meet(both, inputs["target"].shape, names)
        if shape is None:
            raise MismatchError("target", str(both), "use a target with the shape of the input.")
        return shape[:1]


class L1(Composite):
    """Sum of the absolute values of all items, the penalty of the lasso (Tibshirani, 1996). The gradient at 0 is 0.

    Examples:
        >>> [node.name for node in L1().graph.nodes]
        ['absolute_0', 'sum_0']
    """

    category = "Losses"
    formula = "y = Σ |x|"

    def compose(self):
        self |= Absolute()(input="input")
        self += Sum()(output="output")


# Half the sum, so that the gradient is the weight itself, as in weight decay.
class L2(Composite):
    """Half the sum of the squares of all items (Goodfellow et al., 2016, §7.1.1).

    Examples:
        >>> [port.name for port in L2().outputs]
        ['output']
    """

    category = "Losses"
    formula = "y = ½ Σ x²"

    def compose(self):
        self |= (square := Square())(input="input")
        self |= (total := Sum())(input=square.output)
        # A block and not `0.5 * total.output`, so that the output has the name that Mithril gives it.
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

    def compose(self):
        self |= (seen := MatrixMultiply())(left="kernel", right="input")
        self |= (each := Multiply())(left="input", right=seen.output)
        self |= (total := Sum())(input=each.output)
        self |= Multiply()(left=total.output, right=0.5, output="output")


class _Weighted(Operator):
    category = "Losses"
    input_ports = ("input", "target")

    def __init__(self, name: str | None = None, **attributes: Any):
        for port in ("pos_weight", "weights"):
            if port not in attributes:
                continue
            # Mithril spells "no weights" as an empty text, and only for classes.
            words = ("auto",) if port == "pos_weight" else ("", "auto")
            try:
                weights = plain(attributes[port])
            except TypeError:
                weights = None
            numbers = weights if isinstance(weights, tuple) else (weights,)
            is_row = all(isinstance(n, int | float) and not isinstance(n, bool) and n >= 0 for n in numbers)
            if weights not in words and not (is_row and (isinstance(weights, tuple) or port == "pos_weight")):
                kind, single = type(self).__name__, "a number, or " if port == "pos_weight" else ""
                raise UnknownOptionError(
                    f"{kind} cannot take {port}={attributes[port]!r}.",
                    (("needs", f"{single}a number per class, each 0 or more, or {' or '.join(map(repr, words))}"),),
                    f'{kind}({port}="auto")',
                )
        if not attributes.get("categorical", True):
            # Targets with probabilities need another op, because the targets of "cross_entropy" are integers.
            self.op = SoftCrossEntropy.op  # pyright: ignore[reportAttributeAccessIssue]
        super().__init__(name, **attributes)


class BinaryCrossEntropy(_Weighted, Paired):
    """Binary cross entropy of each item. Targets are 1 and 0, or probabilities in between.

    Args:
        input_type: `"logits"`, whose sigmoid is the probability of a positive, or `"probs"` for probabilities.
        pos_weight: Weight of positives: one number, or one per item of the last axis. `"auto"` is the number of
            negatives in the batch divided by the number of positives, which is usual if positives are rare.
        threshold: The threshold t of `robust`; by default the dtype's smallest normal number.
        robust: If true, values and gradients are finite for a probability of zero or an infinite logit. For a
            probability x below a threshold t, `log x` is replaced by `2 log t - log(2t - x)`. For logits, the logarithm
            of the probability is at least `log t`.
    """

    # Logits by default: the logarithm of a computed probability loses all digits near 0.
    input_type: Literal["logits", "probs"] = "logits"
    # Any: a number, one number per item of the last axis, or "auto".
    pos_weight: Any = 1.0
    threshold: Threshold | None = None
    robust: bool = False

    op = "binary_cross_entropy"
    option_ports = ("pos_weight", "threshold", "robust")
    formula = "y = -(w t log p + (1 - t) log(1 - p))"


class FocalLoss(Paired):
    """Focal loss: binary cross entropy of logits, with less weight on easy items (Lin et al., 2017).

    Args:
        gamma: With a larger gamma, easy items have less weight. With 0, the loss is the weighted cross entropy.
        alpha: Weight of positives; negatives have the weight `1 - alpha`. With `None`, all items have the weight 1.
    """

    # The defaults of Lin et al.
    gamma: Annotated[float, Range(0.0, 10.0)] = 2.0
    alpha: Annotated[float, Range(0.0, 1.0)] | None = 0.25

    op = "focal_loss"
    formula = "y = -α (1 - p)^γ log p, p the probability of the target"


class SoftCrossEntropy(_Weighted, SameShapes):
    """Cross entropy with probabilities of all classes as targets: the op of `CrossEntropy(categorical=False)`.

    Args:
        input_type: `"logits"`, whose softmax gives the probabilities, `"probs"` for probabilities, or `"log_probs"` for
            logarithms of probabilities, such as the output of `LogSoftmax`.
        weights: Weight of each class, see `CrossEntropy`.
        robust: If true, the loss is finite for a probability of zero, see `CrossEntropy`.
        threshold: The threshold of `robust`, see `CrossEntropy`.
        axis: The axis of the classes.
        label_smoothing: Fraction of the target that is spread over all classes.

    Examples:
        >>> SoftCrossEntropy().inputs[1]
        Port(name='target', role='data')
    """

    input_type: Literal["logits", "probs", "log_probs"] = "logits"
    weights: Any = ""
    robust: bool = False
    threshold: Threshold | None = None
    # As in PyTorch. The classes of Keras, Flax and optax are on the last axis.
    axis: Axis = 1
    label_smoothing: Annotated[float, Range(0.0, 1.0)] = 0.0

    op = "soft_cross_entropy"
    option_ports = ("weights", "threshold", "robust")
    formula = "y = -Σ_c w[c] t[c] log p[c]"

    @classmethod
    def infer(cls, options, inputs):
        """Map `(batch, classes, *rest)` and a target of the same shape to `(batch, *rest)`."""
        shape, target = inputs["input"].shape, inputs["target"].shape
        rest, classes = _without_classes(options, shape)
        _check_count(options["weights"], classes)
        if meet(shape, target, {}) is None:
            raise MismatchError("target", str(shape), "CrossEntropy()  # for targets that are class indices")
        return UNKNOWN_SHAPE if rest is None else rest


class CrossEntropy(SoftCrossEntropy):
    """Cross entropy of each sample: the negative log-probability of its class.

    Args:
        input_type: `"logits"`, whose softmax gives the probabilities, `"probs"` for probabilities, or `"log_probs"` for
            logarithms of probabilities, such as the output of `LogSoftmax`.
        weights: Weight of each class: a tuple with a number per class, `""` for equal weights, or `"auto"` for
            `samples / (classes * samples of this class)`, counted in the batch (King and Zeng, 2001). A `Mean` after
            this block divides by the number of samples, not by the sum of their weights.
        robust: If true, values and gradients are finite for a probability of zero or a logit of -∞. For a probability x
            below a threshold t, `log x` is replaced by `2 log t - log(2t - x)`. For logits, the logarithm of the
            probability is at least `log t`.
        threshold: The threshold t of `robust`; by default the dtype's smallest normal number.
        categorical: If true, a target is a class index. If false, it has a probability for each class.
        axis: The axis of the classes: 1 for `(batch, classes, ...)`, such as images; -1 for `(batch, time, classes)`.
        label_smoothing: Fraction of the target that is spread over all classes (Szegedy et al., 2016).

    Examples:
        >>> CrossEntropy().options["categorical"], CrossEntropy(categorical=False).block.op
        (True, 'soft_cross_entropy')
    """

    input_type: Literal["logits", "probs", "log_probs"] = "logits"
    weights: Any = ""
    robust: bool = False
    threshold: Threshold | None = None
    categorical: bool = True
    axis: Axis = 1
    label_smoothing: Annotated[float, Range(0.0, 1.0)] = 0.0

    op = "cross_entropy"
    formula = "y = -w[t] log p[t]"
    input_dtypes = {"target": "int32"}

    @classmethod
    def infer(cls, options, inputs):
        """Map `(batch, classes, *rest)` and a target `(batch, *rest)` to `(batch, *rest)`."""
        shape, target = inputs["input"].shape, inputs["target"].shape
        rest, classes = _without_classes(options, shape)
        _check_count(options["weights"], classes)
        both = target if rest is None else meet(rest, target, {})
        if both is None:
            advice = "use one class index for each sample as the target."
            if agree(shape, target):
                advice = "CrossEntropy(categorical=False)  # for targets that are probabilities"
            # Targets fit another axis, which is the most frequent mistake with sequences.
            elif agree(shape[:-1], target):
                advice = "CrossEntropy(axis=-1)  # for classes on the last axis"
            raise MismatchError("target", str(rest), advice)
        return both

    @classmethod
    def refine(cls, options, inputs, outputs):
        """Infer the target's shape: that of the input without the axis of the classes."""
        rest, _ = _without_classes(options, inputs["input"].shape)
        return {"target": outputs["output"].shape if rest is None else rest}


def _without_classes(options: Options, shape: Dims) -> tuple[Dims | None, Dim | None]:
    axis = options["axis"]
    position = place_of("input", axis, shape)
    return (None, None) if position is None else (spliced(shape, position), shape[position])


def _check_count(weights: Any, classes: Dim | None) -> None:
    if isinstance(weights, tuple) and isinstance(classes, int) and len(weights) != classes:
        raise MismatchError(
            "input",
            f"{len(weights)} classes, one for each of the weights",
            f"weights={[1.0] * classes if classes <= 16 else 'auto'!r}",
        )
