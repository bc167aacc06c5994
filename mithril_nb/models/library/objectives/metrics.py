"""Metrics of predictions, computed in float32 for any dtype of the model.

Only `MeanSquaredError` and `R2` have a gradient.
"""

from __future__ import annotations

from math import isfinite
from typing import Annotated, Literal

from mithril_nb.errors import UnknownOptionError
from mithril_nb.models.composite import Composite
from mithril_nb.models.connection import Connection, IOKey, Tensorlike
from mithril_nb.models.fields import Range
from mithril_nb.models.library.objectives.counting import (
    AUCCore,
    ClassCounts,
    ClassDifference,
    Classes,
    ClassesSeen,
    ConfusionCounts,
    TopKHits,
)
from mithril_nb.models.library.objectives.losses import SquaredError
from mithril_nb.models.library.operations.arithmetic import Divide, Maximum
from mithril_nb.models.library.operations.elementwise import Buffer
from mithril_nb.models.library.operations.indexing import OneHot
from mithril_nb.models.library.operations.logic import Greater
from mithril_nb.models.library.operations.reductions import ArgMax, Mean, Trapezoid
from mithril_nb.models.library.operations.reshaping import Transpose
from mithril_nb.models.library.operations.statics import Cast
from mithril_nb.models.op import Operator

__all__ = ["AUC", "F1", "R2", "Accuracy", "ConfusionMatrix", "MeanSquaredError", "Precision", "Recall", "TopKAccuracy"]


class _Classified(Composite):
    """Base of the classification metrics: converts predictions and labels to class indices. See `Accuracy`."""

    category = "Metrics"

    def _classify(
        self, threshold: float | None, is_binary: bool, is_pred_one_hot: bool, is_label_one_hot: bool
    ) -> Connection:
        """Add the blocks that convert predictions and labels to indices, and return the difference of the indices."""
        kind = type(self).__name__
        if threshold is not None and not is_binary:
            valid = threshold if isfinite(threshold) else 0.5
            raise UnknownOptionError(
                f"{kind} cannot take threshold={threshold!r}.",
                (("because", "a threshold needs is_binary=True; otherwise the class with the highest score counts"),),
                f"{kind}(is_binary=True, threshold={valid!r})",
            )
        pred, label = IOKey("pred_formatted", expose=True), IOKey("label_formatted", expose=True)
        if is_binary:
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

    formula = "y = number of samples with pred = label / number of samples"

    def __init__(
        self,
        threshold: float | None = None,
        is_binary: bool = False,
        is_pred_one_hot: bool = True,
        is_label_one_hot: bool = True,
        name: str | None = None,
    ):
        super().__init__(
            name,
            threshold=threshold,
            is_binary=is_binary,
            is_pred_one_hot=is_pred_one_hot,
            is_label_one_hot=is_label_one_hot,
        )
        difference = self._classify(threshold, is_binary, is_pred_one_hot, is_label_one_hot)
        self |= Mean()(input=(difference == 0).cast("float32"), output="output")


Average = Literal["micro", "macro", "weighted"]


class _Counted(_Classified):
    """Base of the metrics that are a quotient of counts: `_quotient` returns numerator and denominator."""

    def __init__(
        self,
        average: Average = "micro",
        n_classes: Classes | None = None,
        threshold: float | None = None,
        is_binary: bool = False,
        is_pred_one_hot: bool = True,
        is_label_one_hot: bool = True,
        name: str | None = None,
    ):
        super().__init__(
            name,
            average=average,
            n_classes=n_classes,
            threshold=threshold,
            is_binary=is_binary,
            is_pred_one_hot=is_pred_one_hot,
            is_label_one_hot=is_label_one_hot,
        )
        if n_classes is None and average != "micro" and not is_binary:
            kind = type(self).__name__
            raise UnknownOptionError(
                f"{kind} needs 'n_classes' to average over classes.",
                (("average", repr(average)),),
                f'{kind}("{average}", n_classes=10)',
            )
        wrong = self._classify(threshold, is_binary, is_pred_one_hot, is_label_one_hot)
        numbers = {"pred": self.pred_formatted, "label": self.label_formatted}
        self |= (seen := ClassesSeen())(**numbers, output=IOKey("n_classes", expose=True))
        per_class = average != "micro" and not is_binary
        if per_class or is_binary:
            self |= (counts := ClassCounts(n_classes if per_class else 2))(**numbers)
            totals = [getattr(counts, port) for port in ClassCounts.output_ports]
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
        self |= (divisor := Maximum())(left=below, right=1)
        if not per_class:
            self |= Divide()(numerator=above, denominator=divisor.output, output="output")
            return
        self |= (score := Divide())(numerator=above, denominator=divisor.output)
        weight = outputs[0] + outputs[2] if average == "weighted" else None
        scores, count = (score.output, seen.output) if weight is None else (score.output * weight, weight.sum())
        self |= (most := Maximum())(left=count, right=1)
        self |= Divide()(numerator=scores.sum(), denominator=most.output, output="output")

    @staticmethod
    def _quotient(hits: Tensorlike, alarms: Tensorlike, misses: Tensorlike) -> tuple[Tensorlike, Tensorlike]:
        raise NotImplementedError


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

    @staticmethod
    def _quotient(hits: Tensorlike, alarms: Tensorlike, misses: Tensorlike) -> tuple[Tensorlike, Tensorlike]:
        return hits, hits + alarms


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

    @staticmethod
    def _quotient(hits: Tensorlike, alarms: Tensorlike, misses: Tensorlike) -> tuple[Tensorlike, Tensorlike]:
        return hits, hits + misses


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

    @staticmethod
    def _quotient(hits: Tensorlike, alarms: Tensorlike, misses: Tensorlike) -> tuple[Tensorlike, Tensorlike]:
        return hits + hits, hits + hits + alarms + misses


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

    category = "Metrics"
    formula = "y[c] = P(pred[i, c] > pred[j, c]) for i of class c and j of another"

    def __init__(self, n_classes: Classes, is_label_one_hot: bool = True, name: str | None = None):
        super().__init__(name, n_classes=n_classes, is_label_one_hot=is_label_one_hot)
        many = self.options["n_classes"] > 1
        # `model += AUC(3)` connects the first input, which must be `pred`. So the block that reads it comes first.
        self |= (scores := Transpose() if many else Buffer())(input="pred")
        self |= (numbers := _number(many and is_label_one_hot))(
            input="label", output=IOKey("label_argmax", expose=True)
        )
        true = numbers.output
        if many:
            self |= (one_hot := OneHot(self.options["n_classes"], axis=0, dtype="int32"))(input=true)
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

    category = "Metrics"
    formula = "y = number of samples whose label is among the k highest of pred / number of samples"

    def __init__(self, k: Annotated[int, Range(1, 2**20)] = 5, is_label_one_hot: bool = False, name: str | None = None):
        super().__init__(name, k=k, is_label_one_hot=is_label_one_hot)
        self |= (scores := Buffer())(input="pred")  # first, so that `+=` connects the scores and not the labels
        self |= (true := _number(is_label_one_hot))(input="label")
        self |= (hits := TopKHits(self.options["k"]))(pred=scores.output, label=true.output)
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

    category = "Metrics"
    formula = "y[i, j] = number of samples of class i that were predicted as j"

    def __init__(
        self,
        n_classes: Annotated[int, Range(1, 2**14)],
        is_pred_one_hot: bool = True,
        is_label_one_hot: bool = True,
        name: str | None = None,
    ):
        super().__init__(name, n_classes=n_classes, is_pred_one_hot=is_pred_one_hot, is_label_one_hot=is_label_one_hot)
        self |= (predicted := _number(is_pred_one_hot))(input="pred")
        self |= (true := _number(is_label_one_hot))(input="label")
        self |= ConfusionCounts(self.options["n_classes"])(pred=predicted.output, label=true.output, output="output")


class MeanSquaredError(Composite):
    """Mean of the squared differences between `input` and `target`.

    Examples:
        >>> [node.name for node in MeanSquaredError().graph.nodes]
        ['squared_error_0', 'mean_0']
    """

    category = "Metrics"
    formula = "y = mean (input - target)²"

    def __init__(self, name: str | None = None):
        super().__init__(name)
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

    def __init__(self, name: str | None = None):
        super().__init__(name)
        self |= (error := SquaredError())(input="input", target="target")
        self |= (middle := Mean(axis=0, keepdim=True))(input="target")
        self |= (spread := SquaredError())(input="target", target=middle.output)
        share = error.output.sum(axis=0) / spread.output.sum(axis=0)
        self |= Mean()(input=1.0 - share, output="output")


def _number(is_one_hot: bool) -> Operator:
    """Return the block that converts scores on the last axis, or numbers, to class indices."""
    return ArgMax(axis=-1) if is_one_hot else Cast("int32")
