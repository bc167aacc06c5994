"""Loss and accuracy of given params on a whole data set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from mithril_nb.train.course import Course
from mithril_nb.train.data import DataSet

AT_ONCE = 8
"""Batches under way before the first is waited for: enough to keep the device busy, few enough to stop soon."""


def evaluated(
    course: Course, params: Any, data: DataSet, is_unwanted: Callable[[], bool] = lambda: False
) -> dict[str, float]:
    """Return the mean of each metric over a data set, every sample counting once.

    Args:
        course: What the metrics are, and how large a batch is.
        params: What to evaluate.
        data: Where to evaluate it.
        is_unwanted: Asked between batches; if it says yes, the evaluation is given up and nothing is returned.
    """
    sums: dict[str, float] = {}
    under_way: list[tuple[int, dict[str, Any]]] = []

    def settle() -> None:
        for count, metrics in zip(
            [count for count, _ in under_way], jax.device_get([m for _, m in under_way]), strict=True
        ):
            for name, value in metrics.items():
                sums[name] = sums.get(name, 0.0) + count * float(value)
        under_way.clear()

    for count, batch in course.evaluation(data):
        if is_unwanted():
            return {}
        under_way.append((count, course.evaluate(params, batch)))
        if len(under_way) == AT_ONCE:
            settle()
    settle()
    return {name: value / len(data) for name, value in sums.items()}
