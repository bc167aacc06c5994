"""The predictions of a run on a data set, and the loss of each sample."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mithril_nb.train.data import DataSet, batches
from mithril_nb.train.losses import Loss, loss_value
from mithril_nb.train.metrics import Metric
from mithril_nb.train.training_plan import CompileKey, TrainingPlan, compiled_programs, padded


@dataclass(frozen=True)
class Predictions:
    """Predictions on a data set.

    Attributes:
        data: The samples.
        outputs: What the loss receives: the array of one output, such as logits, or arrays by output name.
        losses: The loss of each sample, as float64: the mean over its tokens, those with a weight by their weights.
            `None` if the loss is one number for all samples.
        loss: The loss.
    """

    data: DataSet
    outputs: Any
    losses: np.ndarray | None
    loss: Loss

    @property
    def targets(self) -> Any:
        """The targets of the outputs."""
        return self.loss.goals(self.data.targets)


# One object, because the cache of compiled programs compares functions by identity.
_OUTPUTS = Metric("outputs", lambda prediction, targets: prediction, is_traced=False, is_number=False)


def predict(plan: TrainingPlan, params: Any, state: dict[str, Any], data: DataSet) -> Predictions:
    """Return the predictions of params on checked data."""
    key = CompileKey(plan.runtime, plan.loss, plan.optimizer, False, bool(state), (_OUTPUTS,))
    evaluating = replace(plan, metrics=(_OUTPUTS,), evaluate=compiled_programs(key)[1])
    *_, scores = evaluating.evaluating(params, data, state)
    outputs = scores[_OUTPUTS.name]
    losses = None
    if plan.evaluation_tail == "pad":  # the loss has a value for each sample
        with plan.runtime.precision():
            losses = _losses(plan, plan.runtime.host(params), data, outputs)
    return Predictions(data, outputs, losses, plan.loss)


def _losses(plan: TrainingPlan, params: Any, data: DataSet, outputs: Any) -> np.ndarray:
    # In the batches of an evaluation: a loss may compare the samples of a batch, and its memory is that of a batch.
    losses: list[np.ndarray] = []
    for indices, weights in batches(len(data), plan.batch_size, shuffle=False, tail="pad"):
        batch = data.take(indices)
        batch = batch if weights is None else padded(batch, weights)
        prediction, targets = jax.tree.map(
            jnp.asarray, (jax.tree.map(lambda array, rows=indices: array[rows], outputs), batch["targets"])
        )
        values = loss_value(plan.loss, prediction, targets, params, batch.get("weights"))
        own = None if data.weights is None else data.weights[indices]
        losses.append(_by_sample(np.asarray(values, np.float64), own))
    return np.concatenate(losses)[: len(data)]  # padding is last


def _by_sample(values: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    if weights is None or weights.ndim == 1:
        return values.reshape(len(values), -1).mean(1)
    means = values.reshape(*weights.shape, -1).mean(-1).reshape(len(values), -1)
    shares = weights.astype(np.float64).reshape(means.shape)
    total = shares.sum(1)
    return (means * shares).sum(1) / np.where(total > 0, total, 1)
