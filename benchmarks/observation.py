"""Overhead of observing a run: the loop of `fit` with and without a listener, at 1 ms per step."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from benchmarks.interleaved import Comparison, compare
from benchmarks.plain import CLASSES, Workload, adam_step, mlp, mlp_forward
from benchmarks.train_step import LEARNING_RATE
from mithril_nb.compilation import PhysicalModel
from mithril_nb.train import CURVES, Run, fit

WORK = Workload("MLP 3x128, batch 128", lambda: mlp((128, 128, 128, CLASSES)), mlp_forward, (128, 64))
"""A step of about 1 ms on two cores."""
SAMPLES = 128 * 64


def observation_comparisons(rounds: int) -> Iterator[Comparison]:
    """Yield the overhead of observing, and of `fit` over a hand-written loop without events, history and checks."""
    x, labels = (np.asarray(array) for array in WORK.samples(SAMPLES))
    model = WORK.compiled()
    watched, unwatched, counted = (epochs_of(watching(model, x, labels, each)) for each in (True, False, False))
    plain = plain_loop(x, labels)
    # A block must be longer than the 0.1 s between two snapshots.
    slow: dict[str, Any] = {"rounds": max(10, rounds // 8), "block_s": 0.4}
    yield compare(
        "live observation of a loop, listener and curves at 10 Hz", watched, unwatched, bar=1.05, rounds=rounds
    )
    yield compare("  fit's loop over the same loop, hand-written", counted, plain, **slow)


def watching(model: PhysicalModel, x: np.ndarray, labels: np.ndarray, is_watched: bool) -> Run:
    """Return a run; if watched, observed as by a workbench: new rows and a snapshot, ten times per second."""
    run = fit(model, (x, labels), epochs=1, batch_size=WORK.shape[0])
    sent, messages = 0, deque(maxlen=1)

    def send(event: object) -> None:
        nonlocal sent
        rows = run.history.rows(sent, CURVES)
        sent += rows.shape[1]
        messages.append((rows.tobytes(), run.snapshot()))

    if is_watched:
        run.observe(send, every_s=0.1)
    return run


def epochs_of(run: Run) -> Callable[[int], object]:
    """Return a function that runs `count` epochs in the run's own thread."""
    return lambda count: run.resume(epochs=count).wait()


def plain_loop(x: np.ndarray, labels: np.ndarray) -> Callable[[int], object]:
    """Return a function that runs `count` epochs of a hand-written loop: shuffled batches, loss read at the end."""
    step, optimizer = adam_step(WORK.forward, LEARNING_RATE)
    params = WORK.compiled().randomize_params(0)
    state = [params, optimizer.init(params)]
    rng = np.random.default_rng(0)

    def take(count: int) -> None:
        params, opt_state = state
        for _ in range(count):
            order = rng.permutation(len(x))
            for start in range(0, len(x), WORK.shape[0]):
                indices = order[start : start + WORK.shape[0]]
                params, opt_state, loss = step(params, opt_state, x[indices], labels[indices])
        state[:] = params, opt_state
        jax.block_until_ready(loss)

    return take
