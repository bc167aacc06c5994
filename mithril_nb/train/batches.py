"""Split a data set into batches of one size. A seed fixes the order; each sample comes once per epoch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np

Tail = Literal["pad", "drop", "short"]
"""Treatment of a last batch that is not full: padded with rows of weight 0, dropped, or passed on short."""


def epoch_order(count: int, epoch: int, seed: int, shuffle: bool = True) -> np.ndarray:
    """Return the order of the samples in an epoch. The same arguments give the same order on every machine.

    Examples:
        >>> sorted(epoch_order(4, epoch=1, seed=0).tolist()), epoch_order(3, 1, 0, shuffle=False).tolist()
        ([0, 1, 2, 3], [0, 1, 2])
    """
    return np.random.default_rng([seed, epoch]).permutation(count) if shuffle else np.arange(count)


def batch_count(count: int, batch_size: int, tail: Tail) -> int:
    """Return the number of batches in an epoch.

    Examples:
        >>> batch_count(10, 4, "pad"), batch_count(10, 4, "drop")
        (3, 2)
    """
    return count // batch_size if tail == "drop" else -(-count // batch_size)


def evaluation_tail(tail: Tail) -> Tail:
    """Return the tail option for evaluation, given the one for training.

    Evaluation counts each sample and changes no state. Only a loss that cannot ignore rows needs a short batch.
    """
    return "short" if tail == "drop" else "pad"


def short_size(count: int, batch_size: int, tail: Tail) -> int:
    """Return the size of the short last batch; 0 if every batch is full.

    Examples:
        >>> short_size(10, 4, "short"), short_size(10, 4, "pad"), short_size(8, 4, "short")
        (2, 0, 0)
    """
    return count % batch_size if tail == "short" else 0


def batch_at(order: np.ndarray, place: int, batch_size: int, tail: Tail) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the sample indices of one batch, and their weights.

    Args:
        order: The order of the epoch.
        place: Index of the batch, from 0.
        batch_size: Samples in a batch.
        tail: Treatment of a last batch that is not full.

    Returns:
        Indices of the samples, and an array of 0 and 1 of the same length, or `None` if all samples count. Either all
        batches of an epoch have weights or none has, so one compiled program serves all of them.

    Examples:
        >>> batch_at(np.arange(5), 1, 3, "pad")
        (array([3, 4, 0]), array([1., 1., 0.], dtype=float32))
    """
    indices = order[place * batch_size : (place + 1) * batch_size]
    if tail != "pad" or len(order) % batch_size == 0:
        return indices, None
    weights = np.zeros(batch_size, np.float32)
    weights[: len(indices)] = 1.0
    # Any row can pad the batch. np.resize repeats the order if it is shorter than a batch.
    return np.concatenate([indices, np.resize(order, batch_size - len(indices))]), weights


def batches(
    count: int, batch_size: int, *, epoch: int = 1, seed: int = 0, shuffle: bool = True, tail: Tail = "pad"
) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
    """Yield the batches of one epoch, in the form that `batch_at` returns."""
    order = epoch_order(count, epoch, seed, shuffle)
    for place in range(batch_count(count, batch_size, tail)):
        yield batch_at(order, place, batch_size, tail)
