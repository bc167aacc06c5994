"""Cutting a data set into batches of one size: in an order that a seed decides, each sample once per epoch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np

Tail = Literal["pad", "drop", "short"]
"""What becomes of a last batch that is not full: filled up with rows of weight 0, left out, or given as it is."""


def epoch_order(count: int, epoch: int, seed: int, shuffle: bool = True) -> np.ndarray:
    """Return the order of the samples in an epoch; the same for the same numbers, on every machine.

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
    """Return what becomes of a last batch where a model is evaluated, by what becomes of it in training.

    There each sample counts, and none changes a state: only a loss that cannot leave rows out gets a short batch.
    """
    return "short" if tail == "drop" else "pad"


def short_size(count: int, batch_size: int, tail: Tail) -> int:
    """Return the size of a last batch that is given as it is; 0 if there is none that is not full.

    Examples:
        >>> short_size(10, 4, "short"), short_size(10, 4, "pad"), short_size(8, 4, "short")
        (2, 0, 0)
    """
    return count % batch_size if tail == "short" else 0


def batch_at(order: np.ndarray, place: int, batch_size: int, tail: Tail) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the samples of one batch, and their weights.

    Args:
        order: The order of the epoch.
        place: Which batch, counted from 0.
        batch_size: Samples in a batch.
        tail: What becomes of a last batch that is not full.

    Returns:
        Indices of the samples, and an array of 0 and 1 of the same length, or `None` if all count. Whether there are
        weights is the same for all batches of an epoch, so that one compiled program serves them all.

    Examples:
        >>> batch_at(np.arange(5), 1, 3, "pad")
        (array([3, 4, 0]), array([1., 1., 0.], dtype=float32))
    """
    indices = order[place * batch_size : (place + 1) * batch_size]
    if tail != "pad" or len(order) % batch_size == 0:
        return indices, None
    weights = np.zeros(batch_size, np.float32)
    weights[: len(indices)] = 1.0
    # Any row will do as filler. np.resize repeats the order where it is shorter than a batch.
    return np.concatenate([indices, np.resize(order, batch_size - len(indices))]), weights


def batches(
    count: int, batch_size: int, *, epoch: int = 1, seed: int = 0, shuffle: bool = True, tail: Tail = "pad"
) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
    """Yield the batches of one epoch as `batch_at` gives them."""
    order = epoch_order(count, epoch, seed, shuffle)
    for place in range(batch_count(count, batch_size, tail)):
        yield batch_at(order, place, batch_size, tail)
