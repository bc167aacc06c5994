"""Metrics of predictions, computed in float32 for any dtype of the model.

Only `MeanSquaredError` and `R2` have a gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import Annotated, ClassVar, Literal

from mithril_nb.errors import UnknownOptionError
from mithril_nb.models.composite import Composite
from mithril_nb.models.connection import Connection, IOKey, Tensorlike
from mithril_nb.models.library.objectives.losses import SameShapes, SquaredError
from mithril_nb.models.library.operations import (
    ArgMax,
    Buffer,
    Cast,
    Divide,
    Greater,
    Maximum,
    Mean,
    OneHot,
    Transpose,
    Trapezoid,
)
from mithril_nb.models.op import (
    LEADING,
    UNKNOWN_SHAPE,
    Dims,
    Inferred,
    MismatchError,
    Operator,
    Range,
    Specs,
    TensorSpec,
)
from mithril_nb.models.shape_inference.dims import meet, plus

__all__ = [
    "AUC",
    "F1",
    "R2",
    "AUCCore",
    "Accuracy",
    "ClassCounts",
    "ClassDifference",
    "ClassesSeen",
    "ConfusionCounts",
    "ConfusionMatrix",
    "MeanSquaredError",
    "Precision",
    "Recall",
    "TopKAccuracy",
    "TopKHits",
]

Classes = Annotated[int, Range(1, 2**20)]


class _ClassIndices(SameShapes):
    category = "Metrics"
    input_ports = ("pred", "label")
    input_dtypes = {"*": "int32"}


# Not `Subtract`, which would broadcast (n,) and (n, 1) to (n, n).
class ClassDifference(_ClassIndices):
    """Index of the predicted class minus the index of the true class: 0 for a correct prediction.

    Both inputs must have the same shape. Inputs such as `(n, 1)` and `(n,)` do not broadcast.
    """

    op = "class_difference"
    formula = "y = pred - label"

    @classmethod
    def infer(cls, options, inputs):
        """Return the common shape of both inputs."""
        return TensorSpec(_same(inputs, "pred", "label"), "int32")


class ClassCounts(_ClassIndices):
    """Counts true positives, false positives and false negatives of each class.

    An index outside 0 to `n_classes - 1` belongs to no class. If only one of prediction and label is such an index, the
    sample still counts for the class of the other: as a false positive or a false negative.

    Args:
        n_classes: Number of classes.

    Examples:
        >>> [port.name for port in ClassCounts(3).outputs]
        ['true_positive', 'false_positive', 'false_negative']
    """

    n_classes: Classes

    op = "class_counts"
    output_ports = ("true_positive", "false_positive", "false_negative")
    formula = "counts of pred = c = label, of pred = c ≠ label, of label = c ≠ pred"

    @classmethod
    def infer(cls, options, inputs):
        """Return the shape `(n_classes,)` for each count."""
        _same(inputs, "pred", "label")
        count = options["n_classes"]
        return Inferred(dict.fromkeys(cls.output_ports, TensorSpec((count,), "int32")))


class ClassesSeen(_ClassIndices):
    """Counts the distinct classes that occur in predictions, labels, or both."""

    op = "classes_seen"
    formula = "y = number of different items of pred and label"

    @classmethod
    def infer(cls, options, inputs):
        """Return the spec of one integer."""
        _same(inputs, "pred", "label")
        # The number depends on the values, the shape does not.
        return TensorSpec((), "int32")


class ConfusionCounts(_ClassIndices):
    """Confusion matrix: the number of samples of each true class (row) and predicted class (column).

    Args:
        n_classes: Number of classes.
    """

    n_classes: Annotated[int, Range(1, 2**14)]

    op = "confusion_counts"
    formula = "y[i, j] = number of samples of class i that were predicted as j"

    @classmethod
    def infer(cls, options, inputs):
        """Return the shape `(n_classes, n_classes)`."""
        _same(inputs, "pred", "label")
        count = options["n_classes"]
        return TensorSpec((count, count), "int32")


class TopKHits(Operator):
    """True for each sample whose true class has one of the k highest scores.

    Of two classes with equal scores, the class with the lower index ranks higher. A class with a NaN score ranks higher
    than the true class.

    Args:
        k: Number of highest scores to accept.
    """

    k: Annotated[int, Range(1, 2**20)] = 5

    op = "top_k_hits"
    category = "Metrics"
    input_ports = ("pred", "label")
    input_dtypes = {"label": "int32"}
    formula = "y = label is among the k highest of pred"

    @classmethod
    def infer(cls, options, inputs):
        """Map scores `(*samples, classes)` and labels `samples` to `samples`."""
        scores, label = inputs["pred"].shape, inputs["label"].shape
        if not scores:
            raise MismatchError("pred", "(..., classes)", "use an input with a score for each class.", "rank 0")
        # The axis of the classes is removed; of an open shape it is not known which one that is.
        rest = scores if scores == UNKNOWN_SHAPE else scores[:-1]
        both = meet(rest, label, {})
        if both is None:
            raise MismatchError("label", str(rest), "use one class index for each sample.")
        return TensorSpec(both, "bool")


class AUCCore(Operator):
    """Points of the ROC curve: false and true positive rates for each threshold, from the highest score to the lowest.

    Scores and labels of shape `(..., samples)` give `(2, ..., samples + 1)`: first the false positive rates, then the
    true positive rates. Both start at 0. Samples with equal scores share one point, so a tie counts half in the area
    (Fawcett, 2006). If all labels are equal, one of the rates is NaN.

    Examples:
        >>> [port.name for port in AUCCore().inputs]
        ['input', 'label']
    """

    op = "auc_core"
    category = "Metrics"
    input_ports = ("input", "label")
    input_dtypes = {"label": "any"}
    formula = "y[0] = false positives / negatives, y[1] = true positives / positives"

    @classmethod
    def infer(cls, options, inputs):
        """Map scores and labels of shape `(*curves, n)` to `(2, *curves, n + 1)`."""
        shape = _same(inputs, "input", "label")
        if not shape:
            raise MismatchError("input", "(..., samples)", "use an input with one score for each sample.", "rank 0")
        # The number of points is the number of samples and one more, so it needs the last axis.
        if LEADING in shape:
            return TensorSpec(UNKNOWN_SHAPE, "float32")
        return TensorSpec((2, *shape[:-1], plus(shape[-1], 1)), "float32")


def _same(inputs: Specs, port: str, other: str) -> Dims:
    shape = meet(inputs[port].shape, inputs[other].shape, {})
    if shape is None:
        advice = f"reshape {port} or {other}, so that they have the same shape."
        raise MismatchError(other, str(inputs[port].shape), advice)
    return shape


class _Classified(Composite):
    category = "Metrics"

    def _classify(
        self, threshold: float | None, is_binary: bool, is_pred_one_hot: bool, is_label_one_hot: bool
    ) -> Connection:
        kind = type(self).__name__
        if threshold is not None and not is_binary:
            valid = threshold if isfinite(threshold) else 0.5
            raise UnknownOptionError(
                f"{kind} cannot take threshold={threshold!r}.",
                (("because", "a threshold needs is_binary=True; otherwise the class with the highest score counts"),),
                f"{kind}(is_binary=True, threshold={valid!r})",
            )
        # Mithril's outputs.
        pred, label = IOKey("pred_formatted", expose=True), IOKey("label_formatted", expose=True)
        if is_binary:
            # Only reached with `is_binary`: the error above refuses a threshold without it.
            self |= (above := Greater())(left="pred", right=0.5 if threshold is None else threshold)
            self |= (predicted := Cast("int32"))(input=above.output, output=pred)
            self |= (true := Cast("int32"))(input="label", output=label)
        else:
            self |= (predicted := _number(is_pred_one_hot))(input="pred", output=pred)
            self |= (true := _number(is_label_one_hot))(input="label", output=label)
        self |= (difference := ClassDifference())(
            pred=predicted.output, label=true.output, output=IOKey("metric_out", expose=True)
        )
        return difference.output


class Accuracy(_Classified):
    """Fraction of correct predictions.

    The outputs `pred_formatted` and `label_formatted` are the predicted and the true class index of each sample, and
    `metric_out` is their difference.

    Args:
        threshold: With `is_binary`, a score above the threshold is positive. The default of 0.5 is for probabilities;
            use 0 for logits.
        is_binary: If true, `pred` is one score per sample, and `label` is 1 or 0. `is_pred_one_hot` and
            `is_label_one_hot` are then ignored.
        is_pred_one_hot: If true, `pred` has a score per class on its last axis, and the class with the highest score is
            the prediction. Otherwise `pred` contains class indices.
        is_label_one_hot: If true, `label` is one-hot on its last axis; otherwise it contains class indices.

    Examples:
        >>> [port.name for port in Accuracy().outputs]
        ['pred_formatted', 'label_formatted', 'metric_out', 'output']
    """

    threshold: float | None = None
    is_binary: bool = False
    is_pred_one_hot: bool = True
    is_label_one_hot: bool = True

    formula = "y = number of samples with pred = label / number of samples"

    def compose(self):
        difference = self._classify(self.threshold, self.is_binary, self.is_pred_one_hot, self.is_label_one_hot)
        # float32 whatever the dtype of the model: 16 bits cannot count above 2,048.
        self |= Mean()(input=(difference == 0).cast("float32"), output="output")


Average = Literal["micro", "macro", "weighted"]


class _Counted(_Classified):
    """Base of the metrics that are a quotient of counts: `_quotient` returns numerator and denominator."""

    average: Average = "micro"
    n_classes: Classes | None = None
    threshold: float | None = None
    is_binary: bool = False
    is_pred_one_hot: bool = True
    is_label_one_hot: bool = True

    # A static method, so that Python does not bind it to the block.
    _quotient: ClassVar[Callable[..., tuple[Tensorlike, Tensorlike]]]

    def compose(self):
        if self.n_classes is None and self.average != "micro" and not self.is_binary:
            kind = type(self).__name__
            raise UnknownOptionError(
                f"{kind} needs 'n_classes' to average over classes.",
                (("average", repr(self.average)),),
                f'{kind}("{self.average}", n_classes=10)',
            )
        wrong = self._classify(self.threshold, self.is_binary, self.is_pred_one_hot, self.is_label_one_hot)
        numbers = {"pred": self.pred_formatted, "label": self.label_formatted}
        self |= (seen := ClassesSeen())(**numbers, output=IOKey("n_classes", expose=True))
        per_class = self.average != "micro" and not self.is_binary
        if per_class or self.is_binary:
            self |= (counts := ClassCounts(self.n_classes if per_class else 2))(**numbers)
            totals = [getattr(counts, port) for port in ClassCounts.output_ports]
            # With two classes, only the counts of the positive class are used.
            totals = totals if per_class else [count[1] for count in totals]
        else:
            # Each wrong prediction is a false positive of one class and a false negative of another.
            misses = (wrong != 0).cast("int32").sum()
            totals = [(wrong == 0).cast("int32").sum(), misses, misses]
        outputs = []
        for port, count in zip(("n_true_positive", "n_false_positive", "n_false_negative"), totals, strict=True):
            self |= (buffer := Buffer())(input=count, output=IOKey(port, expose=True))
            outputs.append(buffer.output)
        above, below = self._quotient(*outputs)
        # Without predictions the quotient is 0 / 1 and not NaN, as scikit-learn reports by default.
        self |= (divisor := Maximum())(left=below, right=1)
        if not per_class:
            self |= Divide()(numerator=above, denominator=divisor.output, output="output")
            return
        self |= (score := Divide())(numerator=above, denominator=divisor.output)
        weight = outputs[0] + outputs[2] if self.average == "weighted" else None
        # The mean over the classes that occur: those that do not would lower it. scikit-learn does the same.
        scores, count = (score.output, seen.output) if weight is None else (score.output * weight, weight.sum())
        self |= (most := Maximum())(left=count, right=1)
        self |= Divide()(numerator=scores.sum(), denominator=most.output, output="output")


class Precision(_Counted):
    """Fraction of positive predictions that are correct.

    The result is 0 without positive predictions. The output `n_classes` is the number of classes that occur in
    predictions or labels.

    The outputs `n_true_positive`, `n_false_positive` and `n_false_negative` are numbers of samples. With `"macro"` and
    `"weighted"`, they have one item per class.

    Args:
        average: `"micro"` counts all samples together. `"macro"` is the mean of the values of the classes that occur in
            predictions or labels. `"weighted"` weights each class by its number of labels.
        n_classes: Number of classes; required unless the average is `"micro"`.
        threshold: With `is_binary`, a score above the threshold is positive. The default of 0.5 is for probabilities;
            use 0 for logits.
        is_binary: If true, `pred` is one score per sample, labels are 1 and 0, and only class 1 is counted.
        is_pred_one_hot: If true, `pred` has a score per class on its last axis; otherwise it contains class indices.
        is_label_one_hot: If true, `label` is one-hot on its last axis; otherwise it contains class indices.

    Examples:
        >>> Precision("macro", n_classes=3).options["average"]
        'macro'
    """

    formula = "y = true positives / (true positives + false positives)"
    _quotient = staticmethod(lambda hits, alarms, misses: (hits, hits + alarms))


class Recall(_Counted):
    """Fraction of positive samples that are found.

    The result is 0 without positive samples. The output `n_classes` is the number of classes that occur in
    predictions or labels.

    The outputs `n_true_positive`, `n_false_positive` and `n_false_negative` are numbers of samples. With `"macro"` and
    `"weighted"`, they have one item per class.

    Args:
        average: `"micro"` counts all samples together. `"macro"` is the mean of the values of the classes that occur in
            predictions or labels. `"weighted"` weights each class by its number of labels.
        n_classes: Number of classes; required unless the average is `"micro"`.
        threshold: With `is_binary`, a score above the threshold is positive. The default of 0.5 is for probabilities;
            use 0 for logits.
        is_binary: If true, `pred` is one score per sample, labels are 1 and 0, and only class 1 is counted.
        is_pred_one_hot: If true, `pred` has a score per class on its last axis; otherwise it contains class indices.
        is_label_one_hot: If true, `label` is one-hot on its last axis; otherwise it contains class indices.

    Examples:
        >>> Recall("macro", n_classes=3).options["average"]
        'macro'
    """

    formula = "y = true positives / (true positives + false negatives)"
    _quotient = staticmethod(lambda hits, alarms, misses: (hits, hits + misses))


class F1(_Counted):
    """Harmonic mean of precision and recall (van Rijsbergen, 1979).

    The result is 0 without positive samples and predictions. The output `n_classes` is the number of classes that occur
    in predictions or labels.

    The outputs `n_true_positive`, `n_false_positive` and `n_false_negative` are numbers of samples. With `"macro"` and
    `"weighted"`, they have one item per class.

    Args:
        average: `"micro"` counts all samples together. `"macro"` is the mean of the values of the classes that occur in
            predictions or labels. `"weighted"` weights each class by its number of labels.
        n_classes: Number of classes; required unless the average is `"micro"`.
        threshold: With `is_binary`, a score above the threshold is positive. The default of 0.5 is for probabilities;
            use 0 for logits.
        is_binary: If true, `pred` is one score per sample, labels are 1 and 0, and only class 1 is counted.
        is_pred_one_hot: If true, `pred` has a score per class on its last axis; otherwise it contains class indices.
        is_label_one_hot: If true, `label` is one-hot on its last axis; otherwise it contains class indices.

    Examples:
        >>> F1("macro", n_classes=3).options["average"]
        'macro'
    """

    formula = "y = 2 true positives / (2 true positives + false positives + false negatives)"
    _quotient = staticmethod(lambda hits, alarms, misses: (hits + hits, hits + hits + alarms + misses))


class AUC(Composite):
    """Area under the ROC curve: the probability that a sample of a class scores higher than one of another class.

    A tie counts half. The result has one value for each class. The output `label_argmax` contains the class index of
    each sample. Add a `Mean` block for the macro average; Hand and Till
    (2001) discuss other averages. The value is NaN if no samples or all samples belong to the class.

    Args:
        n_classes: Number of classes. With 1, `pred` is one score per sample, and labels are 1 and 0.
        is_label_one_hot: If true, `label` is one-hot on its last axis; otherwise it contains class indices.

    Examples:
        >>> [port.name for port in AUC(3).outputs]
        ['label_argmax', 'output']
    """

    n_classes: Classes
    is_label_one_hot: bool = True

    category = "Metrics"
    formula = "y[c] = P(pred[i, c] > pred[j, c]) for i of class c and j of another"

    def compose(self):
        many = self.n_classes > 1
        # `model += AUC(3)` connects the first input, which must be `pred`. So the block that reads it comes first.
        # The curve runs along the last axis, so each row contains the scores of one class.
        self |= (scores := Transpose() if many else Buffer())(input="pred")
        self |= (numbers := _number(many and self.is_label_one_hot))(
            input="label", output=IOKey("label_argmax", expose=True)
        )
        true = numbers.output
        if many:
            self |= (one_hot := OneHot(self.n_classes, axis=0, dtype="int32"))(input=true)
            true = one_hot.output
        self |= (curve := AUCCore())(input=scores.output, label=true)
        self |= Trapezoid()(y=curve.output[1], x=curve.output[0], output="output")


class TopKAccuracy(Composite):
    """Fraction of samples whose true class has one of the k highest scores.

    Args:
        k: Number of highest scores to accept.
        is_label_one_hot: If true, `label` is one-hot on its last axis; otherwise it contains class indices.

    Examples:
        >>> sorted(port.name for port in TopKAccuracy(5).inputs)
        ['label', 'pred']
    """

    k: Annotated[int, Range(1, 2**20)] = 5
    is_label_one_hot: bool = False

    category = "Metrics"
    formula = "y = number of samples whose label is among the k highest of pred / number of samples"

    def compose(self):
        self |= (scores := Buffer())(input="pred")  # first, so that `+=` connects the scores and not the labels
        self |= (true := _number(self.is_label_one_hot))(input="label")
        self |= (hits := TopKHits(self.k))(pred=scores.output, label=true.output)
        self |= Mean()(input=hits.output.cast("float32"), output="output")


class ConfusionMatrix(Composite):
    """Confusion matrix: the number of samples of each true class (row) and predicted class (column).

    Args:
        n_classes: Number of classes.
        is_pred_one_hot: If true, `pred` has a score per class on its last axis; otherwise it contains class indices.
        is_label_one_hot: If true, `label` is one-hot on its last axis; otherwise it contains class indices.

    Examples:
        >>> sorted(port.name for port in ConfusionMatrix(3).inputs)
        ['label', 'pred']
    """

    n_classes: Annotated[int, Range(1, 2**14)]
    is_pred_one_hot: bool = True
    is_label_one_hot: bool = True

    category = "Metrics"
    formula = "y[i, j] = number of samples of class i that were predicted as j"

    def compose(self):
        self |= (predicted := _number(self.is_pred_one_hot))(input="pred")
        self |= (true := _number(self.is_label_one_hot))(input="label")
        self |= ConfusionCounts(self.n_classes)(pred=predicted.output, label=true.output, output="output")


class MeanSquaredError(Composite):
    """Mean of the squared differences between `input` and `target`.

    Examples:
        >>> [node.name for node in MeanSquaredError().graph.nodes]
        ['squared_error_0', 'mean_0']
    """

    category = "Metrics"
    formula = "y = mean (input - target)²"

    def compose(self):
        self |= (error := SquaredError())(input="input", target="target")
        self |= Mean()(input=error.output, output="output")


class R2(Composite):
    """Coefficient of determination: 1 for a perfect prediction, 0 for the mean of the targets.

    The first axis contains the samples. The result is the mean over all columns. It is -∞ or NaN if all targets of a
    column are equal.

    Examples:
        >>> [port.name for port in R2().inputs]
        ['input', 'target']
    """

    category = "Metrics"
    formula = "y = 1 - Σ (input - target)² / Σ (target - mean target)²"

    def compose(self):
        self |= (error := SquaredError())(input="input", target="target")
        self |= (middle := Mean(axis=0, keepdim=True))(input="target")
        self |= (spread := SquaredError())(input="target", target=middle.output)
        # A quotient of sums per column, so targets of different units weigh the same.
        share = error.output.sum(axis=0) / spread.output.sum(axis=0)
        self |= Mean()(input=1.0 - share, output="output")


def _number(is_one_hot: bool) -> Operator:
    return ArgMax(axis=-1) if is_one_hot else Cast("int32")
