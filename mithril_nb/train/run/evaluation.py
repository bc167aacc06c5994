"""Loss and accuracy of given params on a whole data set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import jax

from mithril_nb.train.data import DataSet
from mithril_nb.train.training_plan import TrainingPlan

AT_ONCE = 8
"""Batches dispatched before the first result is fetched: enough to keep the device busy, few enough to stop soon."""


def evaluated(plan: TrainingPlan, params: Any, data: DataSet, state: Mapping[str, Any]) -> dict[str, float]:
    """Return the mean of each metric over a data set. Each sample counts once.

    Args:
        plan: Defines the metrics and the batch size.
        params: Parameters of the model.
        data: Data to evaluate on.
        state: The model's state; empty if it has none.
    """
    scores: dict[str, float] = {}
    for found in evaluating(plan, params, data, state):
        scores = found
    return scores


def evaluating(plan: TrainingPlan, params: Any, data: DataSet, state: Mapping[str, Any]) -> Iterator[dict[str, float]]:
    """Yield an empty dict after each batch, so that the caller can stop or pause; then the means over all samples."""
    sums: dict[str, float] = {}
    under_way: list[tuple[int, dict[str, Any]]] = []
    states = (state,) if state else ()

    def settle() -> None:
        fetched = jax.device_get([metrics for _, metrics in under_way])
        for (count, _), metrics in zip(under_way, fetched, strict=True):
            for name, value in metrics.items():
                sums[name] = sums.get(name, 0.0) + count * float(value)
        under_way.clear()

    for count, batch in plan.evaluation(data):
        under_way.append((count, plan.evaluate(params, batch, *states)))
        if len(under_way) == AT_ONCE:
            settle()
        yield {}
    settle()
    yield {name: value / len(data) for name, value in sums.items()}
