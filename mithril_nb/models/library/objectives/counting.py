"""Ops for metrics: counts of classes and hits, and the points of the ROC curve. They have no gradient."""

from __future__ import annotations

from typing import Annotated, ClassVar

from mithril_nb.graph.spec import LEADING, Dim, TensorSpec
from mithril_nb.models.fields import Range
from mithril_nb.models.op import Inferred, Operator, Options, Shapes, Specs
from mithril_nb.models.shape_inference.dims import MismatchError, meet, plus

__all__ = ["AUCCore", "ClassCounts", "ClassDifference", "ClassesSeen", "ConfusionCounts", "TopKHits"]

Classes = Annotated[int, Range(1, 2**20)]


class _Numbers(Operator):
    """Base of the ops on class indices: predictions `pred` and labels `label`."""

    category = "Metrics"
    input_ports = ("pred", "label")
    input_dtypes: ClassVar = {"*": "int32"}

    @classmethod
    def refine(cls, options: Options, inputs: Specs, outputs: Specs) -> Shapes:
        """Infer that both inputs have the same shape."""
        return {"pred": inputs["label"].shape, "label": inputs["pred"].shape}


class ClassDifference(_Numbers):
    """Index of the predicted class minus the index of the true class: 0 for a correct prediction.

    Both inputs must have the same shape. Inputs such as `(n, 1)` and `(n,)` do not broadcast.

    Examples:
        >>> ClassDifference()
        ClassDifference()
    """

    op = "class_difference"
    formula = "y = pred - label"

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Return the common shape of both inputs."""
        return Inferred({"output": TensorSpec(_same(inputs, "pred", "label"), "int32")})


class ClassCounts(_Numbers):
    """Counts true positives, false positives and false negatives of each class.

    An index outside 0 to `n_classes - 1` belongs to no class. If only one of prediction and label is such an index, the
    sample still counts for the class of the other: as a false positive or a false negative.

    Args:
        n_classes: Number of classes.

    Examples:
        >>> [port.name for port in ClassCounts(3).outputs]
        ['true_positive', 'false_positive', 'false_negative']
    """

    op = "class_counts"
    output_ports = ("true_positive", "false_positive", "false_negative")
    formula = "counts of pred = c = label, of pred = c ≠ label, of label = c ≠ pred"

    def __init__(self, n_classes: Classes, name: str | None = None):
        super().__init__(name, n_classes=n_classes)

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Return the shape `(n_classes,)` for each count."""
        _same(inputs, "pred", "label")
        count = options["n_classes"]
        assert isinstance(count, int)
        return Inferred(dict.fromkeys(cls.output_ports, TensorSpec((count,), "int32")))


class ClassesSeen(_Numbers):
    """Counts the distinct classes that occur in predictions, labels, or both.

    Examples:
        >>> ClassesSeen()
        ClassesSeen()
    """

    op = "classes_seen"
    formula = "y = number of different items of pred and label"

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Return the spec of one integer."""
        _same(inputs, "pred", "label")
        return Inferred({"output": TensorSpec((), "int32")})


class ConfusionCounts(_Numbers):
    """Confusion matrix: the number of samples of each true class (row) and predicted class (column).

    Args:
        n_classes: Number of classes.

    Examples:
        >>> ConfusionCounts(3)
        ConfusionCounts(n_classes=3)
    """

    op = "confusion_counts"
    formula = "y[i, j] = number of samples of class i that were predicted as j"

    def __init__(self, n_classes: Annotated[int, Range(1, 2**14)], name: str | None = None):
        super().__init__(name, n_classes=n_classes)

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Return the shape `(n_classes, n_classes)`."""
        _same(inputs, "pred", "label")
        count = options["n_classes"]
        assert isinstance(count, int)
        return Inferred({"output": TensorSpec((count, count), "int32")})


class TopKHits(Operator):
    """True for each sample whose true class has one of the k highest scores.

    Of two classes with equal scores, the class with the lower index ranks higher. A class with a NaN score ranks higher
    than the true class.

    Args:
        k: Number of highest scores to accept.

    Examples:
        >>> TopKHits(5)
        TopKHits(k=5)
    """

    op = "top_k_hits"
    category = "Metrics"
    input_ports = ("pred", "label")
    input_dtypes: ClassVar = {"label": "int32"}
    formula = "y = label is among the k highest of pred"

    def __init__(self, k: Annotated[int, Range(1, 2**20)] = 5, name: str | None = None):
        super().__init__(name, k=k)

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Map scores `(*samples, classes)` and labels `samples` to `samples`."""
        scores, label = inputs["pred"].shape, inputs["label"].shape
        if not scores:
            raise MismatchError("pred", "(..., classes)", "use an input with a score for each class.", "rank 0")
        rest = scores if scores == (LEADING,) else scores[:-1]
        both = meet(rest, label, {})
        if both is None:
            raise MismatchError("label", str(rest), "use one class index for each sample.")
        return Inferred({"output": TensorSpec(both, "bool")})


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
    input_dtypes: ClassVar = {"label": "any"}
    formula = "y[0] = false positives / negatives, y[1] = true positives / positives"

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Map scores and labels of shape `(*curves, n)` to `(2, *curves, n + 1)`."""
        shape = _same(inputs, "input", "label")
        if not shape:
            raise MismatchError("input", "(..., samples)", "use an input with one score for each sample.", "rank 0")
        if LEADING in shape:
            return Inferred({"output": TensorSpec((LEADING,), "float32")})
        return Inferred({"output": TensorSpec((2, *shape[:-1], plus(shape[-1], 1)), "float32")})


def _same(inputs: Specs, port: str, other: str) -> tuple[Dim, ...]:
    """Return the common shape of two inputs, or raise a `MismatchError` if the shapes differ."""
    shape = meet(inputs[port].shape, inputs[other].shape, {})
    if shape is None:
        advice = f"reshape {port} or {other}, so that they have the same shape."
        raise MismatchError(other, str(inputs[port].shape), advice)
    return shape
