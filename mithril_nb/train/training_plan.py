"""The plan of a run, fixed before the first step: programs, data, order of the samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mithril_nb.backends.jax.kernels.registry import usual_promotion
from mithril_nb.graph.records import LogicalGraph
from mithril_nb.train.data import DataSet, Tail, batch_at, batch_count, batches, epoch_order
from mithril_nb.train.losses import Loss
from mithril_nb.train.metrics import PREDICTION, Metric
from mithril_nb.train.norms import activations_in_step
from mithril_nb.train.optimizers import Optimizer
from mithril_nb.train.processes import distributed
from mithril_nb.train.run.events import History
from mithril_nb.train.runtime import Runtime
from mithril_nb.train.step import ACTIVATIONS, NORMS, loss_function, train_step
from mithril_nb.train.stream import Stream
from mithril_nb.train.trainable import Trainable, frozen_names, runner

AT_ONCE = 8
"""Batches evaluated before the first result is fetched: enough to keep the device busy, few enough to stop soon."""


@dataclass(frozen=True)
class TrainingPlan:
    """The parts of a run that do not change while it trains.

    Attributes:
        model: The model to train.
        loss: The loss that training minimizes.
        optimizer: The optimizer that updates the params.
        step: One step, compiled unless the model has `jit=False`. It may overwrite params and optimizer state. Its
            arguments are (params, opt_state, rate, batch), plus key and step number if the model draws random numbers.
            It returns params, opt_state, and one array with the loss, the accuracy if requested, and for a relative
            learning rate the true rate of the step, NaN if it is unknown.
        evaluate: Function of `(params, batch)`, plus the model's state if it has one, that returns the metrics of the
            batch; compiled like `step`.
        data: Training data: samples, or batches of an iterable.
        validation: Data to evaluate on at the end of each epoch; `None` to evaluate on none.
        batch_size: Samples in a step.
        tail: Treatment of a last batch that is not full: `"pad"` it with rows of weight 0, `"drop"` it, or keep it
            `"short"`.
        evaluation_tail: The same for evaluation, which drops no samples.
        seed: Seed of the sample order and of the keys of Dropout.
        shuffle: True if each epoch has a different order.
        runtime: Runs `step` and `evaluate`.
        key: Key from which each step derives its key; `None` if the model draws no random numbers.
        steps: Total steps; `None` if the run ends after its epochs.
        metrics: Metrics besides loss and accuracy.
        validate_every: Steps between two validations; `None` to validate at the end of each epoch.
        stop: Function of the history that returns whether the run ends; `None` to end after the last step.
        keep_best: Column of the history, and whether a smaller value is better, for the params to keep.
        norms: Number of steps from one computation of norms to the next, and the step that also returns them; `None`
            to compute none.
    """

    model: Trainable
    loss: Loss
    optimizer: Optimizer
    step: Callable[..., Any]
    evaluate: Callable[..., Any]
    data: DataSet | Stream
    validation: DataSet | None
    batch_size: int
    tail: Tail
    evaluation_tail: Tail
    seed: int
    shuffle: bool
    runtime: Runtime
    key: Any = None
    steps: int | None = None
    metrics: tuple[Metric, ...] = ()
    validate_every: int | None = None
    stop: Callable[[History], Any] | None = None
    keep_best: tuple[str, bool] | None = None
    norms: tuple[int, Callable[..., Any]] | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of the metrics in the history."""
        own = [metric for metric in self.metrics if metric.is_number]
        checked = own if self.validation is not None else []
        return (*self.traced, *(f"validation_{metric.name}" for metric in checked))

    @cached_property
    def traced(self) -> tuple[str, ...]:
        """Names of the metrics of each step, in the order in which the step returns them."""
        return tuple(metric.name for metric in self.metrics if metric.is_traced)

    def has_norms(self, step: int) -> bool:
        """Return whether a step, counted from 1, computes norms."""
        return self.norms is not None and step % self.norms[0] == 0

    def program(self, step: int) -> Callable[..., Any]:
        """Return the program of a step, counted from 1."""
        return self.norms[1] if self.norms and self.has_norms(step) else self.step

    def keys(self, step: int) -> tuple[Any, ...]:
        """Return the arguments for random numbers of the step after `step`."""
        return () if self.key is None else (self.key, np.uint32(step))

    @cached_property
    def steps_per_epoch(self) -> int:
        """Number of steps in an epoch. For an iterable of unknown length, the whole run is one epoch."""
        if isinstance(self.data, Stream):
            return self.data.length or self.steps or 1
        return batch_count(len(self.data), self.batch_size, self.tail)

    def order(self, epoch: int) -> np.ndarray:
        """Return the order of the samples in an epoch, counted from 1."""
        return epoch_order(0 if isinstance(self.data, Stream) else len(self.data), epoch, self.seed, self.shuffle)

    def batch(self, order: np.ndarray, index: int) -> dict[str, Any]:
        """Return batch number `index` (from 0) of an epoch. With several processes, each contributes its share."""
        if isinstance(self.data, Stream):
            return self.data.take()
        indices, weights = batch_at(order, index, self.batch_size, self.tail)
        me = distributed()
        rows = me.rows(len(indices))
        batch = self.data.take(indices[rows])
        return me.assemble(batch if weights is None else padded(batch, weights[rows]))

    def evaluating(self, params: Any, data: DataSet, state: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Compute the mean of each metric over a data set.

        This yields an empty dict after each batch, so that the caller can stop or pause, and then the metrics by name.
        Each sample counts once. The samples are not shuffled.
        """
        # Sums in Python's float64: in float32, the mean over many batches would depend on their order.
        sums: dict[str, float] = {}
        under_way: list[tuple[float, dict[str, Any]]] = []
        total, predictions = 0.0, list[Any]()
        states = (state,) if state else ()

        def settle() -> None:
            fetched = self.runtime.fetched([metrics for _, metrics in under_way])
            for (count, _), metrics in zip(under_way, fetched, strict=True):
                if PREDICTION in metrics:
                    predictions.append(metrics.pop(PREDICTION))
                for name, value in metrics.items():
                    sums[name] = sums.get(name, 0.0) + count * float(value)
            under_way.clear()

        for indices, weights in batches(len(data), self.batch_size, shuffle=False, tail=self.evaluation_tail):
            batch = data.take(indices)
            batch = batch if weights is None else padded(batch, weights)
            count = float(batch["weights"].sum()) if "weights" in batch else len(indices)
            total += count
            under_way.append((count, self.evaluate(params, batch, *states)))
            if len(under_way) == AT_ONCE:
                settle()
            yield {}
        settle()
        scores: dict[str, Any] = {name: value / total for name, value in sums.items()}
        for metric in self.metrics:
            if metric.name in scores:
                scores[metric.name] = float(metric.finish(scores[metric.name]))
            else:
                # Without the rows of padding, which are the last.
                whole = jax.tree.map(lambda *parts: np.concatenate(parts)[: len(data)], *predictions)
                value = jax.tree.map(np.asarray, metric.of(whole, data.targets, data.weights))
                scores[metric.name] = float(value) if metric.is_number else value
        yield scores


def padded(batch: dict[str, Any], weights: np.ndarray) -> dict[str, Any]:
    """Return a batch whose padding rows have weight 0, and the others their own."""
    own = batch.get("weights", weights)
    return batch | {"weights": own * weights.reshape(-1, *[1] * (own.ndim - 1)) if "weights" in batch else weights}


@dataclass(frozen=True, eq=False)
class CompileKey:
    """Cache key of a run's compiled programs.

    Attributes:
        runtime: Runs the programs of the model to train.
        loss: The loss that training minimizes.
        optimizer: The optimizer that updates the params.
        accuracy: True if the metrics include the accuracy.
        has_state: True if the model has a state.
        metrics: Metrics besides loss and accuracy.
        norms: True if the step also returns norms, and the statistics of blocks.
    """

    runtime: Runtime
    loss: Loss
    optimizer: Optimizer
    accuracy: bool
    has_state: bool = False
    metrics: tuple[Metric, ...] = ()
    norms: bool = False

    # Functions are compared by identity. Their ids stay valid, because a key in the cache holds the objects.
    def _parts(self) -> tuple[Any, ...]:
        parts = (self.runtime.model, self.loss.function, self.loss.is_correct, self.optimizer.source)
        return (
            *map(id, parts),
            self.loss.output,
            self.optimizer.is_relative,
            self.accuracy,
            self.has_state,
            self.metrics,
            self.norms,
        )

    def __hash__(self) -> int:
        return hash(self._parts())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CompileKey) and self._parts() == other._parts()


def observed_graph(model: Any) -> LogicalGraph | None:
    """Return the graph of a model whose blocks have statistics in the steps that compute norms; else `None`."""
    return model.graph if hasattr(model, "forward_with_values") else None


def observing(model: Any, has_state: bool) -> Callable[..., Any]:
    """Return the forward function of a model that adds the statistics of blocks to the outputs, as `ACTIVATIONS`."""

    def forward(params: Any, inputs: Any, *state: Any, **options: Any) -> Any:
        outputs, after, values = model.forward_with_values(params, inputs, *state, **options)
        outputs = {**outputs, ACTIVATIONS: activations_in_step(model.graph, values)}
        return (outputs, after) if has_state else outputs

    return forward


def compiled_programs(key: CompileKey) -> tuple[Any, Any]:
    """Return the step and the evaluation, jitted unless the model has `jit=False`. They compile on their first call."""
    return _cached_programs(key) if getattr(key.runtime.model, "is_immutable", False) else _programs(key)


def _programs(key: CompileKey) -> tuple[Any, Any]:
    runtime, loss, optimizer, has_state = key.runtime, key.loss, key.optimizer, key.has_state
    model = runtime.model
    forward = runner(model, True) if has_state else model.forward
    observed = observing(model, has_state) if key.norms and observed_graph(model) is not None else forward
    options: dict[str, Any] = {"accuracy": key.accuracy, "has_state": has_state}
    traced = tuple(metric for metric in key.metrics if metric.is_traced)
    step = train_step(observed, loss, optimizer, frozen=frozen_names(model), metrics=traced, norms=key.norms, **options)
    metrics = loss_function(forward, loss, metrics=key.metrics, **options)

    def packed(params: Any, opt_state: Any, rate: Any, batch: Any, key: Any = None, number: Any = None) -> Any:
        # The key of a step depends only on its number, so that a resumed run draws the same random numbers.
        key = None if key is None else jax.random.fold_in(key, number)
        before = opt_state
        params, opt_state, scores = step(params, opt_state, rate, batch, key)
        numbers = [scores[name] for name in ("loss", "accuracy") if name in scores]
        for metric in traced:
            if metric.is_mean:
                numbers.append(metric.finish(scores[metric.name]))
            else:
                numbers.append(metric.of(scores[PREDICTION], batch["targets"], batch.get("weights")))
        if optimizer.is_relative:
            states = [held[0] if has_state else held for held in (before, opt_state)]
            own = optimizer.own_rate(*states)
            numbers.append(jnp.asarray(math.nan) if own is None else rate * jnp.asarray(own))
        # Fetch one small array per step, not two: the fetch costs more than all further work on the numbers.
        dtype = usual_promotion(jnp.promote_types)(scores["loss"].dtype, jnp.float32)
        numbers = jnp.stack([jnp.asarray(number).astype(dtype) for number in numbers])
        if NORMS in scores:
            more = [scores[name].astype(dtype) for name in (NORMS, ACTIVATIONS) if name in scores]
            numbers = jnp.concatenate([numbers, *more])
        return params, opt_state, numbers

    def evaluate(params: Any, batch: Any, state: Any = None) -> Any:
        aux = metrics(params, batch, training=False, state=state)[1]
        return aux[0] if has_state else aux

    # Donate params and optimizer state, so that they are never held twice.
    whole_step = runtime.compiled(packed, "train step", donated=(0, 1), key_argument=4)
    return whole_step, runtime.compiled(evaluate, "evaluation")


_cached_programs = lru_cache(maxsize=8)(_programs)
