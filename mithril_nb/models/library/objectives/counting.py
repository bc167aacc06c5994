"""What metrics count: hits, misses, and the points of the ROC curve, in whole numbers and float32.

No gradient goes through.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from mithril_nb.graph.spec import LEADING, Dim, TensorSpec
from mithril_nb.models.dims import MismatchError, meet, plus
from mithril_nb.models.fields import Range
from mithril_nb.models.op import Inferred, Operator, Options, Shapes, Specs

__all__ = [
    "AUCCore",
    "ClassCounts",
    "ClassDifference",
    "ClassesSeen",
    "ConfusionCounts",
    "TopKHits",
]

Classes = Annotated[int, Range(1, 2**20)]


class _Numbers(Operator):
    """An op on the numbers of predicted classes and of true ones."""

    category = "Metrics"
    input_ports = ("pred", "label")
    input_dtypes: ClassVar = {"*": "int32"}

    @classmethod
    def refine(cls, options: Options, inputs: Specs, outputs: Specs) -> Shapes:
        """Both have one shape."""
        return {"pred": inputs["label"].shape, "label": inputs["pred"].shape}


class ClassDifference(_Numbers):
    """Takes the number of the true class from that of the predicted one: 0 where the prediction is right.

    Both must have one shape: `(n, 1)` beside `(n,)` would compare each with each.

    Examples:
        >>> ClassDifference()
        ClassDifference()
    """

    op = "class_difference"
    formula = "y = pred - label"

    def __init__(self, name: str | None = None):
        super().__init__(name)

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """The shape of both."""
        return Inferred({"output": TensorSpec(_same(inputs, "pred", "label"), "int32")})


class ClassCounts(_Numbers):
    """Counts for each class how often it was found, missed, and found where it was not.

    A number that is no class is in no count of its own, only in that of the other side.

    Args:
        n_classes: How many classes there are.

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
        """Two of one shape give three of `(n_classes,)`."""
        _same(inputs, "pred", "label")
        count = options["n_classes"]
        assert isinstance(count, int)
        return Inferred(dict.fromkeys(cls.output_ports, TensorSpec((count,), "int32")))


class ClassesSeen(_Numbers):
    """Counts the different classes that occur, in predictions or labels.

    Examples:
        >>> ClassesSeen()
        ClassesSeen()
    """

    op = "classes_seen"
    formula = "y = number of different items of pred and label"

    def __init__(self, name: str | None = None):
        super().__init__(name)

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Two of one shape give a number."""
        _same(inputs, "pred", "label")
        return Inferred({"output": TensorSpec((), "int32")})


class ConfusionCounts(_Numbers):
    """Counts how often each true class, by row, was predicted as each class, by column.

    Args:
        n_classes: How many classes there are.

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
        """Two of one shape give `(n_classes, n_classes)`."""
        _same(inputs, "pred", "label")
        count = options["n_classes"]
        assert isinstance(count, int)
        return Inferred({"output": TensorSpec((count, count), "int32")})


class TopKHits(Operator):
    """Says of each sample whether its class is among the k that have the highest scores.

    Of equal scores the class with the lower number comes first. A score that is NaN counts as higher than the true one.

    Args:
        k: How many classes may stand before the line.

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
        """`(*samples, classes)` and `(*samples)` give `(*samples)`."""
        scores, label = inputs["pred"].shape, inputs["label"].shape
        if not scores:
            raise MismatchError("pred", "(..., classes)", "a score for each class.", "rank 0")
        rest = scores if scores == (LEADING,) else scores[:-1]
        found = meet(rest, label, {})
        if found is None:
            raise MismatchError("label", str(rest), "one whole number for each sample.")
        return Inferred({"output": TensorSpec(found, "bool")})


class AUCCore(Operator):
    """Gives the points of the ROC curve: the rates of false and of true positives, as the line moves down the scores.

    Samples of equal scores share one point, so that the area below is that of pairs with ties counted half (Fawcett,
    2006). NaN where all labels are the same. Axes before the last one are separate curves.

    Examples:
        >>> [port.name for port in AUCCore().inputs]
        ['input', 'label']
    """

    op = "auc_core"
    category = "Metrics"
    input_ports = ("input", "label")
    input_dtypes: ClassVar = {"label": "any"}
    formula = "y[0] = false positives / negatives, y[1] = true positives / positives"

    def __init__(self, name: str | None = None):
        super().__init__(name)

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Two of `(*curves, n)`, the labels 1 and 0, give `(2, *curves, n + 1)`."""
        shape = _same(inputs, "input", "label")
        if not shape:
            raise MismatchError("input", "(..., samples)", "one score for each sample.", "rank 0")
        if LEADING in shape:
            return Inferred({"output": TensorSpec((LEADING,), "float32")})
        return Inferred({"output": TensorSpec((2, *shape[:-1], plus(shape[-1], 1)), "float32")})


def _same(inputs: Specs, one: str, other: str) -> tuple[Dim, ...]:
    """The shape of two inputs that must have one."""
    shape = meet(inputs[one].shape, inputs[other].shape, {})
    if shape is None:
        advice = f"a {other} of the shape of the {one}; reshape one of them."
        raise MismatchError(other, str(inputs[one].shape), advice)
    return shape
