"""Views of a trained model: confusion matrix, worst examples, histograms of parameters, attention weights.

Each function returns plain data. `viz/renderers/training.py` registers how a notebook shows them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from mithril_nb.backends.backend import check_count
from mithril_nb.compilation import PhysicalModel
from mithril_nb.compilation.values import Statistics, histogram, is_numeric
from mithril_nb.display import Shown
from mithril_nb.errors import DataError, UnknownOptionError, short_repr
from mithril_nb.train.checkpoints.file import nested
from mithril_nb.train.metrics import are_classes, class_samples, facts_of
from mithril_nb.train.predictions import Predictions
from mithril_nb.train.run.handle import Run
from mithril_nb.train.runtime import runtime_of
from mithril_nb.train.store.stored import StoredRun

_MOST_CLASSES = 2000  # a matrix of 32 MB


class _View(Shown):
    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(vars(self))})"  # arrays would fill the screen


@dataclass(frozen=True, eq=False, repr=False)
class Confusion(_View):
    """Result of `confusion`.

    Attributes:
        counts: Number of samples, or of tokens: a row for each class of the targets, a column for each predicted class.
            Of weighted data, the sum of the weights.
        classes: Names of the classes.
    """

    counts: np.ndarray
    classes: tuple[str, ...]

    @property
    def mistakes(self) -> list[tuple[str, str, float]]:
        """Class, predicted class and count of each kind of mistake, the most frequent first."""
        wrong = self.counts * ~np.eye(len(self.counts), dtype=bool)
        order = np.argsort(-wrong, axis=None, kind="stable")[: np.count_nonzero(wrong)]
        pairs = zip(*np.unravel_index(order, wrong.shape), strict=True)
        return [(self.classes[row], self.classes[column], float(wrong[row, column])) for row, column in pairs]


@dataclass(frozen=True, eq=False, repr=False)
class WorstExamples(_View):
    """Result of `worst_examples`, from the largest loss to the smallest.

    Attributes:
        indices: Position of each sample in the data, or among those that `validation=0.2` holds out.
        losses: Loss of each sample.
        inputs: Arrays by input name, with one row for each sample.
        targets: Their targets, by output name if the model has several outputs.
        outputs: The predictions, such as logits, by output name if there are several.
        expected: The targets as texts.
        predicted: The predictions as texts: the class, for cross entropies with its probability, or the numbers.
    """

    indices: np.ndarray
    losses: np.ndarray
    inputs: Mapping[str, np.ndarray]
    targets: Any
    outputs: Any
    expected: tuple[str, ...]
    predicted: tuple[str, ...]


@dataclass(frozen=True, eq=False, repr=False)
class Histograms(_View):
    """Result of `histograms`, by name of the array.

    Attributes:
        counts: Number of the finite values in each bin.
        edges: Edges of the bins, one more than bins; a bin includes its lower edge, the last one both.
        statistics: Shape, mean, standard deviation, smallest and largest value, zeros, NaN and infinities.
    """

    counts: Mapping[str, np.ndarray]
    edges: Mapping[str, np.ndarray]
    statistics: Mapping[str, Statistics]


@dataclass(frozen=True, eq=False, repr=False)
class AttentionMaps(_View):
    """Result of `attention_maps`.

    Attributes:
        weights: By path of the block, an array with the axes `(..., heads, query time, key time)`.
    """

    weights: Mapping[str, np.ndarray]


def confusion(run: Run, data: Any = None, *, classes: Sequence[str] | None = None) -> Confusion:
    """Return how many samples of each class the model takes for each class.

    Args:
        run: A run of `ml.fit` with class labels as targets.
        data: Data as in `ml.fit`; default: the validation data of the run.
        classes: Names of the classes; default: their numbers.

    Raises:
        UnknownOptionError: The targets are no class labels, the names do not fit the classes, or there are more than
            2,000 classes.
        DataError: There is no data, or predictions are NaN.

    Examples:
        >>> import mithril_nb as ml
        >>> x = np.linspace(-1, 1, 100, dtype=np.float32)[:, None]
        >>> run = ml.fit(ml.models.Linear(2), (x, (x[:, 0] > 0).astype(int)), epochs=30, learning_rate=0.1).wait()
        >>> matrix = confusion(run, (x[:10], np.zeros(10, int)), classes=["negative", "positive"])
        >>> matrix.counts.tolist(), matrix.mistakes
        ([[10.0, 0.0], [0.0, 0.0]], [])
    """
    predictions = _predictions("confusion", run, data)
    outputs, targets, weights = predictions.outputs, predictions.targets, predictions.data.weights
    kinds = outputs, targets, predictions.loss
    if not are_classes(*kinds):
        advice = "ml.worst_examples(run)  # for targets of any kind"
        raise UnknownOptionError("confusion needs class labels and logits.", facts_of(*kinds), advice)
    weights = np.ones(len(targets)) if weights is None else weights
    logits, labels, weights = map(np.asarray, class_samples(outputs, targets, weights))
    if bad := int((np.isnan(logits).any(1) & (weights > 0)).sum()):
        raise DataError(f"{bad} of {len(logits)} predictions are NaN and have no class.", (), "ml.worst_examples(run)")
    size = logits.shape[1]
    if size > _MOST_CLASSES:
        facts = (("most", f"{_MOST_CLASSES:,} classes"),)
        raise UnknownOptionError(f"confusion of {size:,} classes is too large.", facts, "ml.worst_examples(run)")
    names = _names(classes, size)
    cells = labels.astype(np.int64) * size + logits.argmax(1)
    return Confusion(np.bincount(cells, weights, size * size).reshape(size, size), names)


def worst_examples(
    run: Run, data: Any = None, count: int = 8, *, classes: Sequence[str] | None = None
) -> WorstExamples:
    """Return the samples with the largest loss. A loss that is NaN is the largest. Samples without weight do not count.

    Args:
        run: A run of `ml.fit` whose loss has a value for each sample.
        data: Data as in `ml.fit`; default: the validation data of the run.
        count: Number of samples.
        classes: Names of the classes, for targets that are class labels; default: their numbers.

    Raises:
        UnknownOptionError: The loss is one number for all samples.
        DataError: There is no data.
    """
    predictions = _predictions("worst_examples", run, data)
    losses = predictions.losses
    if losses is None:
        raise UnknownOptionError(
            f"loss {predictions.loss.name!r} is one number for all samples, so that a sample has no loss.",
            (),
            "loss=lambda prediction, targets: abs(prediction - targets)  # in ml.fit: a value for each sample",
        )
    indices = np.argsort(-np.where(np.isnan(losses), np.inf, losses), kind="stable")
    if (weights := predictions.data.weights) is not None:
        indices = indices[np.count_nonzero(weights.reshape(len(weights), -1), axis=1)[indices] > 0]
    indices = indices[: check_count("count", count)]
    kinds = predictions.outputs, predictions.targets, predictions.loss
    outputs, targets = jax.tree.map(lambda array: np.asarray(array)[indices], kinds[:2])
    if are_classes(*kinds) and (targets.ndim == 1 or predictions.loss.targets == "binary"):
        logits, labels, _ = class_samples(outputs, targets, np.ones(len(targets)))
        names, shares = _names(classes, logits.shape[1]), np.asarray(jax.nn.softmax(logits, -1))
        expected = tuple(names[label] for label in labels)
        # Only cross entropies make logits probabilities.
        text = "{} ({:.0%})" if predictions.loss.targets in ("labels", "binary") else "{}"
        predicted = tuple(
            "NaN" if np.isnan(row).any() else text.format(names[row.argmax()], row.max()) for row in shares
        )
    elif classes is None:
        expected, predicted = _texts(targets), _texts(outputs)
    else:
        raise UnknownOptionError("classes= needs one class label for each sample.", facts_of(*kinds), "classes=None")
    inputs = {name: array[indices] for name, array in predictions.data.inputs.items()}
    return WorstExamples(indices, losses[indices], inputs, targets, outputs, expected, predicted)


def histograms(of: Run | Any, bins: int = 24) -> Histograms:
    """Return a histogram of each parameter.

    Args:
        of: A run of `ml.fit`; a stored run, for the arrays of its latest checkpoint; or params: arrays by name, or
            another tree of arrays.
        bins: Number of bins, of equal width, from the smallest to the largest finite value.

    Raises:
        CheckpointError: The stored run has no whole checkpoint.
        UnknownOptionError: There are no arrays, one has no numbers, or two have the same name.

    Examples:
        >>> histograms({"weight": np.array([0.0, 0.1, 0.1, 1.0])}, bins=2).counts["weight"].tolist()
        [3, 1]
    """
    tree = of._plan.runtime.host(of.params) if isinstance(of, Run) else of
    if isinstance(of, StoredRun):
        tree = nested({f"params{path}": array for path, array in of.params().items()})
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    names = [jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in leaves]
    values = [leaf if isinstance(leaf, jax.Array) else np.asarray(leaf) for _, leaf in leaves]
    strange = [name for name, value in zip(names, values, strict=True) if not is_numeric(value)]
    if strange or not names:
        raise UnknownOptionError(
            f"histograms needs a run of ml.fit, or params, not {short_repr(of)}.",
            (("no numbers", ", ".join(strange)),) if any(strange) else (),
            "ml.histograms(run.params)",
        )
    if len({*names}) < len(names):
        shared = ", ".join(dict.fromkeys(name for name in names if names.count(name) > 1))
        raise UnknownOptionError(
            "several arrays have the same name.", (("names", shared),), "ml.histograms(run.params)"
        )
    arrays = dict(zip(names, map(np.asarray, values), strict=True))
    counts, edges = dict[str, np.ndarray](), dict[str, np.ndarray]()
    for name, array in arrays.items():
        counts[name], edges[name] = histogram(array, check_count("bins", bins))
    return Histograms(counts, edges, {name: Statistics.of(array) for name, array in arrays.items()})


def attention_maps(of: Run | PhysicalModel, inputs: Any, params: Any = None, state: Any = None) -> AttentionMaps:
    """Return the attention weights of each head for some inputs, outside of training.

    Args:
        of: A run of `ml.fit` of a `Model`, or a compiled model.
        inputs: Arrays by input name, or the array of the only input.
        params: Parameters of a compiled model; default: `pm.params`. A run has its own, with `ema` the average.
        state: State of a compiled model after training; default: `pm.initial_state()`. A run has its own.

    Raises:
        UnknownOptionError: The value is no run or compiled model, or has no attention block that runs once.

    Examples:
        >>> import mithril_nb as ml
        >>> pm = ml.compile(ml.models.TransformerBlock(8, 2), shapes={"input": [1, 3, 8]})
        >>> maps = attention_maps(pm, np.ones((1, 3, 8)), pm.randomize_params(0))
        >>> {path: array.shape for path, array in maps.weights.items()}
        {'attention/attention': (1, 2, 3, 3)}
    """
    _check_model("attention_maps", of, "ml.attention_maps(pm, inputs, run.restore(pm.randomize_params()))")
    runtime = of._plan.runtime if isinstance(of, Run) else runtime_of(of)
    model = runtime.model
    if not isinstance(model, PhysicalModel):
        kind = type(model).__name__
        raise UnknownOptionError(f"attention_maps needs a run of a Model, or a compiled model, not {kind}.")
    if isinstance(of, Run):
        params, state = of.ema_params or of.params, of.model_state or None
    inputs = inputs if isinstance(inputs, Mapping) else {model.input_names[0]: inputs}
    inputs, params, state = runtime.host((inputs, of.params if params is None else params, state))
    with runtime.precision():
        weights = jax.tree.map(np.asarray, model.trace_attention(inputs, params, state=state))
    if not weights:
        raise UnknownOptionError(
            "the model has no ScaledDotProduct block that runs once.",
            (("hidden", "blocks inside Repeat, Scan and other blocks that run them"),),
            'pm.trace_values(inputs).values["softmax_0"]  # the weights of an own attention block',
        )
    return AttentionMaps(weights)


def _check_model(called: str, run: Any, advice: str) -> None:
    if isinstance(run, StoredRun):
        facts = (("run", run.name), ("holds", "arrays, but no model that could be called"))
        raise UnknownOptionError(f"{called} needs the model of the run.", facts, advice)


def _predictions(called: str, run: Any, data: Any) -> Predictions:
    _check_model(called, run, f"ml.{called}(ml.fit(model, data, params=run.restore(params)), data)")
    if not isinstance(run, Run):
        got = (("got", type(run).__name__),)
        raise UnknownOptionError(f"{called} needs a run of ml.fit.", got, f"ml.{called}(ml.fit(model, data).wait())")
    return run.predictions(data)


def _names(classes: Sequence[str] | None, count: int) -> tuple[str, ...]:
    names = tuple(map(str, range(count) if classes is None else classes))
    if len(names) != count:
        raise UnknownOptionError(f"the model has {count} classes.", (("names", f"{len(names)}"),), "classes=None")
    return names


def _texts(values: Any) -> tuple[str, ...]:
    if isinstance(values, Mapping):
        rows = zip(*(_texts(array) for array in values.values()), strict=True)
        return tuple(", ".join(f"{name} {text}" for name, text in zip(values, row, strict=True)) for row in rows)
    texts = (np.array2string(row, precision=4, threshold=8, separator=", ") for row in np.asarray(values))
    return tuple(" ".join(text.split()) for text in texts)
