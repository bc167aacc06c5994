"""Cross-entropy losses. All logarithms are natural."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from mithril_nb.errors import UnknownOptionError
from mithril_nb.graph.spec import LEADING, Dim
from mithril_nb.models.fields import Range, plain
from mithril_nb.models.library.objectives.losses import Axis, Paired
from mithril_nb.models.library.operations.arithmetic import Threshold
from mithril_nb.models.op import Inferred, Operator, Options, Shapes, Specs
from mithril_nb.models.shape_inference.dims import MismatchError, agree, meet, place_of

__all__ = ["BinaryCrossEntropy", "CrossEntropy", "FocalLoss", "SoftCrossEntropy"]


class BinaryCrossEntropy(Paired):
    """Binary cross entropy of each item. Targets are 1 and 0, or probabilities in between.

    Args:
        input_type: `"logits"`, whose sigmoid is the probability of a positive, or `"probs"` for probabilities.
        pos_weight: Weight of positives: one number, or one per item of the last axis. `"auto"` is the number of
            negatives in the batch divided by the number of positives, which is usual if positives are rare.
        threshold: The threshold t of `robust`; by default the dtype's smallest normal number.
        robust: If true, values and gradients are finite for a probability of zero or an infinite logit. For a
            probability x below a threshold t, `log x` is replaced by `2 log t - log(2t - x)`. For logits, the logarithm
            of the probability is at least `log t`.

    Examples:
        >>> BinaryCrossEntropy()
        BinaryCrossEntropy(input_type='logits', pos_weight=1.0, threshold=None, robust=False)
    """

    op = "binary_cross_entropy"
    option_ports = ("pos_weight", "threshold", "robust")
    formula = "y = -(w t log p + (1 - t) log(1 - p))"

    def __init__(
        self,
        input_type: Literal["logits", "probs"] = "logits",
        pos_weight: Any = 1.0,
        threshold: Threshold | None = None,
        robust: bool = False,
        name: str | None = None,
    ):
        _check_weights("BinaryCrossEntropy", "pos_weight", pos_weight)
        super().__init__(name, input_type=input_type, pos_weight=pos_weight, threshold=threshold, robust=robust)


class FocalLoss(Paired):
    """Focal loss: binary cross entropy of logits, with less weight on easy items (Lin et al., 2017).

    Args:
        gamma: With a larger gamma, easy items have less weight. With 0, the loss is the weighted cross entropy.
        alpha: Weight of positives; negatives have the weight `1 - alpha`. With `None`, all items have the weight 1.

    Examples:
        >>> FocalLoss()
        FocalLoss(gamma=2.0, alpha=0.25)
    """

    op = "focal_loss"
    formula = "y = -α (1 - p)^γ log p, p the probability of the target"

    def __init__(
        self,
        gamma: Annotated[float, Range(0.0, 10.0)] = 2.0,
        alpha: Annotated[float, Range(0.0, 1.0)] | None = 0.25,
        name: str | None = None,
    ):
        super().__init__(name, gamma=gamma, alpha=alpha)


class SoftCrossEntropy(Operator):
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

    op = "soft_cross_entropy"
    category = "Losses"
    input_ports = ("input", "target")
    option_ports = ("weights", "threshold", "robust")
    formula = "y = -Σ_c w[c] t[c] log p[c]"

    def __init__(
        self,
        input_type: Literal["logits", "probs", "log_probs"] = "logits",
        weights: Any = "",
        robust: bool = False,
        threshold: Threshold | None = None,
        axis: Axis = 1,
        label_smoothing: Annotated[float, Range(0.0, 1.0)] = 0.0,
        name: str | None = None,
    ):
        _check_weights("SoftCrossEntropy", "weights", weights)
        super().__init__(
            name,
            input_type=input_type,
            weights=weights,
            robust=robust,
            threshold=threshold,
            axis=axis,
            label_smoothing=label_smoothing,
        )

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Map `(batch, classes, *rest)` and a target of the same shape to `(batch, *rest)`."""
        shape, target = inputs["input"].shape, inputs["target"].shape
        rest, classes = _without_classes(options, shape)
        _check_count(options["weights"], classes)
        if meet(shape, target, {}) is None:
            raise MismatchError("target", str(shape), "CrossEntropy()  # for targets that are class indices")
        return Inferred({"output": (LEADING,) if rest is None else rest})

    @classmethod
    def refine(cls, options: Options, inputs: Specs, outputs: Specs) -> Shapes:
        """Infer that input and target have the same shape."""
        return {"input": inputs["target"].shape, "target": inputs["input"].shape}


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

    op = "cross_entropy"
    formula = "y = -w[t] log p[t]"
    input_dtypes: ClassVar = {"target": "int32"}

    def __init__(
        self,
        input_type: Literal["logits", "probs", "log_probs"] = "logits",
        weights: Any = "",
        robust: bool = False,
        threshold: Threshold | None = None,
        categorical: bool = True,
        axis: Axis = 1,
        label_smoothing: Annotated[float, Range(0.0, 1.0)] = 0.0,
        name: str | None = None,
    ):
        if not categorical:
            # Targets with probabilities need another op, because the targets of "cross_entropy" are integers.
            self.op = SoftCrossEntropy.op  # pyright: ignore[reportAttributeAccessIssue]
        _check_weights("CrossEntropy", "weights", weights)
        Operator.__init__(
            self,
            name,
            input_type=input_type,
            weights=weights,
            robust=robust,
            threshold=threshold,
            categorical=categorical,
            axis=axis,
            label_smoothing=label_smoothing,
        )

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Map `(batch, classes, *rest)` and a target `(batch, *rest)` to `(batch, *rest)`."""
        shape, target = inputs["input"].shape, inputs["target"].shape
        rest, classes = _without_classes(options, shape)
        _check_count(options["weights"], classes)
        both = target if rest is None else meet(rest, target, {})
        if both is None:
            advice = "use one class index for each sample as the target."
            if agree(shape, target):
                advice = "CrossEntropy(categorical=False)  # for targets that are probabilities"
            elif agree(shape[:-1], target):
                advice = "CrossEntropy(axis=-1)  # for classes on the last axis"
            raise MismatchError("target", str(rest), advice)
        return Inferred({"output": both})

    @classmethod
    def refine(cls, options: Options, inputs: Specs, outputs: Specs) -> Shapes:
        """Infer the target's shape: that of the input without the axis of the classes."""
        rest, _ = _without_classes(options, inputs["input"].shape)
        return {"target": outputs["output"].shape if rest is None else rest}


def _without_classes(options: Options, shape: tuple[Dim, ...]) -> tuple[tuple[Dim, ...] | None, Dim | None]:
    """Return a shape without the axis of the classes, and the size of this axis; `(None, None)` if it is unknown."""
    axis = options["axis"]
    assert isinstance(axis, int)
    position = place_of("input", axis, shape)
    return (None, None) if position is None else ((*shape[:position], *shape[position + 1 :]), shape[position])


def _check_count(weights: Any, classes: Dim | None) -> None:
    if isinstance(weights, tuple) and isinstance(classes, int) and len(weights) != classes:
        raise MismatchError(
            "input",
            f"{len(weights)} classes, one for each of the weights",
            f"weights={[1.0] * classes if classes <= 16 else 'auto'!r}",
        )


def _check_weights(kind: str, argument: str, weights: Any) -> None:
    """Raise an `UnknownOptionError` if the value of the argument `"weights"` or `"pos_weight"` is invalid."""
    words = ("auto",) if argument == "pos_weight" else ("", "auto")
    try:
        converted = plain(weights)
    except TypeError:
        converted = None
    numbers = converted if isinstance(converted, tuple) else (converted,)
    is_row = all(isinstance(number, int | float) and not isinstance(number, bool) and number >= 0 for number in numbers)
    if converted not in words and not (is_row and (isinstance(converted, tuple) or argument == "pos_weight")):
        single = "a number, or " if argument == "pos_weight" else ""
        raise UnknownOptionError(
            f"{kind} cannot take {argument}={weights!r}.",
            (("needs", f"{single}a number per class, each 0 or more, or {' or '.join(map(repr, words))}"),),
            f'{kind}({argument}="auto")',
        )
