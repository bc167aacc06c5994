"""Our train step against a hand-written one."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp

from benchmarks.interleaved import Comparison, compare
from benchmarks.plain import WORKLOADS, Workload, adam_step
from mithril_nb.train import train_step

LEARNING_RATE = 1e-3


def train_step_comparisons(rounds: int) -> Iterator[Comparison]:
    """Yield two comparisons for each model; the second also counts correct predictions, as `fit` does."""
    for work in WORKLOADS.values():
        theirs = repeated_plain(work)
        yield compare(f"train step, {work.name}", repeated_ours(work, False), theirs, bar=work.bar, rounds=rounds)
        yield compare(f"  the same with accuracy, {work.name}", repeated_ours(work, True), theirs, rounds=rounds)


def repeated_plain(work: Workload) -> Callable[[int], object]:
    """Return a function that runs `count` hand-written steps."""
    step, optimizer = adam_step(work.forward, LEARNING_RATE)
    params = work.compiled().randomize_params(0)
    state = [params, optimizer.init(params)]
    x, labels = work.samples()

    def run(count: int) -> None:
        params, opt_state = state
        for _ in range(count):
            params, opt_state, loss = step(params, opt_state, x, labels)
        state[:] = params, opt_state
        jax.block_until_ready(loss)

    return run


def repeated_ours(work: Workload, accuracy: bool) -> Callable[[int], object]:
    """Return a function that runs `count` of our steps, on a model composed of blocks."""
    physical = work.compiled()
    step = jax.jit(train_step(physical.forward, "cross_entropy", "adam", accuracy=accuracy), donate_argnums=(0, 1))
    _, optimizer = adam_step(work.forward, LEARNING_RATE)
    params = physical.randomize_params(0)
    state = [params, optimizer.init(params)]
    x, labels = work.samples()
    batch = {"inputs": {"input": x}, "targets": labels}
    rate = jnp.asarray(LEARNING_RATE)

    def run(count: int) -> None:
        params, opt_state = state
        for _ in range(count):
            params, opt_state, metrics = step(params, opt_state, rate, batch)
        state[:] = params, opt_state
        jax.block_until_ready(metrics["loss"])

    return run
