"""Metrics of predictions: by name, or functions of (prediction, targets); and rules that stop a run by them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from mithril_nb.backends.backend import check_count
from mithril_nb.errors import UnknownOptionError, short_repr
from mithril_nb.train.losses import Loss, cross_entropy, mean_over_batch, parameters_of
from mithril_nb.train.run.events import COLUMNS, History

PREDICTION = "validation_prediction"
"""Key of the prediction among the metrics of a batch: no metric has a name that begins with `validation_`."""
# Whole names: a loop may log a loss_scale, or top_k_dropped.
_LOWER_IS_BETTER = re.compile(r"(validation_|val_|train_|test_)?(loss|perplexity)")
_HIGHER_IS_BETTER = re.compile(r"(validation_|val_|train_|test_)?(accuracy|top_\d+|f1|auc|r2)")


@dataclass(frozen=True)
class Metric:
    """A number that describes predictions.

    Attributes:
        name: Name of its columns in the history, the second one after `validation_`.
        function: Function of (prediction, targets), and of `weights` if it has such a parameter.
        is_mean: True if the function returns a value for each sample, of which the metric is the mean. Otherwise it
            takes all samples of a set at once.
        is_traced: True if JAX can trace the function, so that training batches have the metric too.
        is_number: False for a matrix, which has no column in the history.
        finish: Function of the mean that returns the metric.
        needs: What the targets must be: `"classes"`, with logits as the prediction; `"numbers"`; or `"any"`.
    """

    name: str
    function: Callable[..., Any]
    is_mean: bool = False
    is_traced: bool = True
    is_number: bool = True
    finish: Callable[[Any], Any] = lambda mean: mean
    needs: Literal["any", "classes", "numbers"] = "any"

    @property
    def takes_weights(self) -> bool:
        """Return whether the function has a parameter `weights`."""
        return "weights" in parameters_of(self.function)

    def of(self, prediction: Any, targets: Any, weights: Any) -> Any:
        """Return the metric of a batch or a set."""
        if self.is_mean:
            return self.finish(mean_over_batch(self.function(prediction, targets), weights))
        return self.function(prediction, targets, **self.weights_of(targets, weights))

    def weights_of(self, targets: Any, weights: Any) -> dict[str, Any]:
        """Return the argument `weights` of the function, if it has one; without weights, all samples have weight 1."""
        if not self.takes_weights:
            return {}
        return {"weights": np.ones(len(jax.tree.leaves(targets)[0]), np.float32) if weights is None else weights}


def class_samples(prediction: Any, targets: Any, weights: Any) -> tuple[Any, Any, Any]:
    """Return logits of shape (count, classes), labels and weights of shape (count,); tokens are samples."""
    if prediction.shape in (targets.shape, (*targets.shape, 1)):  # binary, with one logit
        logits = prediction.reshape(-1)
        prediction, labels = jnp.stack([jnp.zeros_like(logits), logits], -1), (targets > 0.5).astype(jnp.int32)
    elif prediction.shape[:-1] == targets.shape and jnp.issubdtype(targets.dtype, jnp.integer):
        labels = targets
    else:
        raise UnknownOptionError(
            "the metric needs class labels.",
            (("targets", f"{targets.shape} {targets.dtype}"), ("prediction", f"{prediction.shape}")),
        )
    shares = jnp.broadcast_to(weights.reshape(*weights.shape, *[1] * (labels.ndim - weights.ndim)), labels.shape)
    return prediction.reshape(-1, prediction.shape[-1]), labels.reshape(-1), shares.reshape(-1)


def confusion(prediction: Any, targets: Any, weights: Any) -> Any:
    """Return the matrix of the counts of samples: a row for each label, a column for each predicted class."""
    logits, labels, weights = class_samples(prediction, targets, weights)
    one_hot = [jax.nn.one_hot(classes, logits.shape[-1]) for classes in (labels, logits.argmax(-1))]
    return jnp.matmul(one_hot[0].T * weights, one_hot[1], precision="highest")


def f1(prediction: Any, targets: Any, weights: Any) -> Any:
    """Return the F1 of the second of two classes, or the mean over the classes that occur; NaN if none does."""
    matrix = confusion(prediction, targets, weights)
    scores = 2 * jnp.diagonal(matrix) / (matrix.sum(0) + matrix.sum(1))
    return scores[1] if len(scores) == 2 else jnp.nanmean(scores)


def auc(prediction: Any, targets: Any, weights: Any) -> Any:
    """Return the area under the ROC curve, for more than two classes its mean over each class against the rest."""
    logits, labels, weights = class_samples(prediction, targets, weights)

    def area(scores: Any, positive: Any) -> Any:
        order = jnp.argsort(scores)
        ranked, negatives = scores[order], (weights * ~positive)[order]
        below = jnp.concatenate([jnp.zeros(1), jnp.cumsum(negatives)])
        sides = [below[jnp.searchsorted(ranked, scores, side=side)] for side in ("left", "right")]
        return (weights * positive * (sides[0] + sides[1]) / 2).sum() / (
            (weights * positive).sum() * (weights * ~positive).sum()
        )

    if logits.shape[-1] == 2:
        return area(logits[:, 1] - logits[:, 0], labels == 1)
    shares = jax.nn.softmax(logits)
    return jnp.stack([area(shares[:, index], labels == index) for index in range(shares.shape[-1])]).mean()


def r2(prediction: Any, targets: Any, weights: Any) -> Any:
    """Return the share of the variance of the targets that the prediction explains, the mean over outputs."""
    outputs = targets.reshape(len(targets), -1)
    shares = weights.reshape(len(targets), -1)
    center = (shares * outputs).sum(0) / shares.sum(0)
    left, whole = (
        (shares * jnp.square(outputs - other)).sum(0) for other in (prediction.reshape(outputs.shape), center)
    )
    return jnp.mean(1 - left / whole)


@cache  # the cache of compiled programs compares functions by identity
def top(count: int) -> Callable[[Any, Any], Any]:
    """Return a function that returns for each sample whether its label is one of the `count` largest logits."""

    def is_in_top(prediction: Any, targets: Any) -> Any:
        own = jnp.take_along_axis(prediction, targets[..., None], axis=-1)
        is_later = jnp.arange(prediction.shape[-1]) > targets[..., None]
        before = (prediction > own) | ((prediction == own) & is_later)  # of equal logits, scikit-learn takes the last
        return (before.sum(-1) < count).astype(jnp.float32)

    return is_in_top


NAMED = {
    "f1": Metric("f1", f1, needs="classes"),
    "auc": Metric("auc", auc, needs="classes"),
    "r2": Metric("r2", r2, needs="numbers"),
    "confusion": Metric("confusion", confusion, is_traced=False, is_number=False, needs="classes"),
    "perplexity": Metric("perplexity", cross_entropy, is_mean=True, finish=jnp.exp, needs="classes"),
}
"""The metrics available by name, besides `accuracy`, and `top_3` for any number."""


def resolve_metrics(metrics: Any, loss: Loss) -> tuple[bool, tuple[Metric, ...]]:
    """Return whether the option of `fit` asks for the accuracy, and the other metrics, as far as names tell."""
    if metrics is None:
        return loss.is_correct is not None, ()
    if not isinstance(metrics, str | Mapping | list | tuple | set | frozenset) and not callable(metrics):
        raise UnknownOptionError(
            "metrics must be a sequence of names.",
            (("got", short_repr(metrics)),),
            'metrics=("accuracy",)  # or metrics=() for the loss alone, or metrics={"f1": function}',
        )
    if isinstance(metrics, str) or callable(metrics):
        metrics = (metrics,)
    pairs = metrics.items() if isinstance(metrics, Mapping) else [(_name(value), value) for value in metrics]
    chosen: list[Metric] = []
    for name, value in pairs:
        if value == "accuracy" and loss.is_correct is not None:
            continue
        chosen.append(_of(str(name), value, loss))
    return any(value == "accuracy" for _, value in pairs), tuple(chosen)


def _name(value: Any) -> str:
    return value if isinstance(value, str) else getattr(value, "__name__", type(value).__name__)


def _of(name: str, value: Any, loss: Loss) -> Metric:
    if value != "accuracy" and (name in COLUMNS or name.startswith("validation_")):
        raise UnknownOptionError(
            f"{name!r} is no name for an own metric: the history has a column of this name.", (), "metrics={...}"
        )
    if isinstance(value, str):
        if match := re.fullmatch(r"top_([1-9]\d*)", value):
            return Metric(name, top(int(match[1])), is_mean=True, needs="classes")
        if value in NAMED:
            return replace(NAMED[value], name=name)
    elif callable(value):
        return Metric(name, value)
    available = ("accuracy, " if loss.is_correct is not None else "") + ", ".join((*NAMED, "top_3"))
    problem = f"unknown metric {short_repr(value)}."
    if value == "accuracy":
        problem = f"unknown metric 'accuracy': it is undefined for loss {loss.name!r}."
    raise UnknownOptionError(problem, (("known", available),), "metrics=()  # the loss alone")


def checked_metric(metric: Metric, prediction: Any, targets: Any, loss: Loss, *, has_validation: bool) -> Metric:
    """Return the metric with what its function returns for these shapes, or raise the error of a trial.

    Args:
        metric: The metric.
        prediction: Specs of a prediction.
        targets: Targets of the same batch.
        loss: The loss, which determines the meaning of prediction and targets.
        has_validation: True if the run has validation data.
    """
    _check_meaning(metric, prediction, targets, loss)
    count = len(jax.tree.leaves(targets)[0])
    sizes = (count, count + 1)  # a value for each class is one for each sample of some batch
    values: list[Any] = []
    cause, is_traced = None, metric.is_traced
    for size in sizes:
        guess = jax.tree.map(lambda spec, size=size: np.zeros((size, *spec.shape[1:]), spec.dtype), prediction)
        goals = jax.tree.map(lambda array, size=size: np.resize(array, (size, *array.shape[1:])), targets)
        function = partial(metric.function, **metric.weights_of(goals, None))
        try:
            values.append(jax.eval_shape(function, guess, goals))
        except UnknownOptionError:
            raise
        except Exception:  # a function of NumPy or scikit-learn, which runs after the step
            is_traced = False
            try:
                values.append(np.asarray(function(guess, goals)))
            except Exception as error:
                cause = error
                break
    shapes = [getattr(value, "shape", None) for value in values]
    is_of_samples = all(shape is not None and shape[:1] == (size,) for shape, size in zip(shapes, sizes, strict=False))
    facts = [("needed", "a function of (prediction, targets) that returns a number, or a number for each sample")]
    if cause is not None:
        facts.append(("because", f"{type(cause).__name__}: {cause}"))
    elif metric.is_number and not is_of_samples and set(shapes) != {()}:
        facts.append(("got", short_repr(values[0]) if None in shapes else f"an array of shape {shapes[0]}"))
    elif metric.is_number and is_of_samples and metric.takes_weights:
        facts = [("because", "it takes weights and returns a number for each sample, which would be weighted twice")]
    elif not is_traced and metric.is_number and not has_validation:
        facts = [("because", "JAX cannot trace it, so that it is computed only on validation data")]
    else:
        return replace(metric, is_mean=metric.is_number and is_of_samples, is_traced=is_traced)
    raise UnknownOptionError(
        f"metric {metric.name!r} cannot be computed.", tuple(facts), 'metrics={"error": lambda p, t: abs(p - t).mean()}'
    ) from cause


def _check_meaning(metric: Metric, prediction: Any, targets: Any, loss: Loss) -> None:
    # The formulas would return numbers for logits, labels and measured values alike.
    has_classes, is_one = are_classes(prediction, targets, loss), hasattr(prediction, "shape")
    if metric.needs == "any" or (is_one and has_classes == (metric.needs == "classes")):
        return
    raise UnknownOptionError(
        f"metric {metric.name!r} needs {'class labels and logits' if metric.needs == 'classes' else 'numbers'}.",
        facts_of(prediction, targets, loss),
        'metrics=("r2",)' if metric.needs == "classes" else 'metrics=("accuracy", "f1")',
    )


def are_classes(prediction: Any, targets: Any, loss: Loss) -> bool:
    """Return whether the targets are class labels, and the prediction, or its spec, their logits."""
    shape = getattr(prediction, "shape", None)
    if shape is None or loss.targets == "labels":
        return shape is not None
    if loss.targets == "binary":  # several outputs are no classes of one sample, and 0.3 is no class
        return math.prod(shape[1:]) == 1 and bool(np.isin(targets, (0, 1)).all())
    if not isinstance(targets, np.ndarray) or targets.dtype.kind not in "iub":
        return False
    # A loss of the user: its only output may be a probability as well as a logit.
    has_scores = shape[:-1] == targets.shape and shape[-1] > 1
    return has_scores and bool(targets.min() >= 0 and targets.max() < shape[-1])


def facts_of(prediction: Any, targets: Any, loss: Loss) -> tuple[tuple[str, str], ...]:
    """Return the facts of an error about predictions of a wrong kind."""
    kinds = jax.tree.map(lambda array: f"{array.shape} {array.dtype}", targets)
    shape = getattr(prediction, "shape", None)
    return (
        ("loss", loss.name),
        ("targets", str(kinds)),
        ("prediction", "several outputs" if shape is None else f"{shape}"),
        ("classes", "integer labels and a logit for each class, or 0 and 1 and one logit of loss binary_cross_entropy"),
    )


def is_lower_better(name: str, mode: str | None = None) -> bool:
    """Return whether a smaller value of a column of the history is better."""
    if mode in ("min", "max"):
        return mode == "min"
    if mode is None and _LOWER_IS_BETTER.fullmatch(name):
        return True
    if mode is None and _HIGHER_IS_BETTER.fullmatch(name):
        return False
    raise UnknownOptionError(
        f"it is unknown whether a smaller {name!r} is better.", (("mode", short_repr(mode)),), f'("{name}", "min")'
    )


def turns(history: History, name: str) -> np.ndarray:
    """Return the values of each validation, or for a column of the training the means of each complete epoch.

    A value is NaN if it is unknown.
    """
    steps, values, epochs = history.rows(0, ("step", name, "epoch"))
    if name.startswith("validation_"):
        return values[history.validated]
    groups = np.split(values, np.flatnonzero(np.diff(epochs)) + 1) if len(values) else []
    if groups and steps[-1] % history.steps_per_epoch > 0:
        del groups[-1]
    known = [group[~np.isnan(group)] for group in groups]
    return np.array([group.mean() if len(group) else np.nan for group in known])


@dataclass(frozen=True)
class Patience:
    """A rule of `patience`. A run calls it with its history at the end of each epoch and after each validation."""

    name: str
    count: int
    least: float
    mode: str | None

    def __call__(self, history: History) -> bool:
        """Return whether the run stops."""
        values = turns(history, self.name) * (1 if is_lower_better(self.name, self.mode) else -1)
        best, at = np.inf, -1
        for index, value in enumerate(values):
            if value < best - self.least:
                best, at = value, index
        return len(values) - 1 - at >= self.count


def patience(name: str, count: int, *, least: float = 0.0, mode: str | None = None) -> Patience:
    """Return a rule that stops a run after a number of values of a metric without a better one.

    Args:
        name: A column of the history, such as `"validation_loss"`, or `"loss"` for the mean of each epoch.
        count: Validations, or complete epochs, without a better value. NaN is not better.
        least: Least difference of a better value.
        mode: `"min"` or `"max"`: which values are better; known for the metrics of mithril_nb.

    Raises:
        UnknownOptionError: `count` is no positive number, or `mode` is needed.

    Examples:
        >>> rule = patience("validation_loss", 2)
        >>> history = History()
        >>> for step, loss in enumerate([0.5, 0.6, 0.7], start=1):
        ...     history.append(step=step, validation_loss=loss)
        ...     rule(history)
        False
        False
        True
    """
    check_count("count", count)
    is_lower_better(name, mode)
    return Patience(name, count, float(least), mode)
