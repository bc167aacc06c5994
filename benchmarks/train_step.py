"""Our train step against one written by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp

import mithril_nb as ml
from benchmarks.evaluate import model_of
from benchmarks.interleaved import Comparison, compare
from benchmarks.plain import SIZES, adam_step, mlp_forward, mlp_params, samples
from mithril_nb.train import train_step

LEARNING_RATE = 1e-3


def train_step_comparisons(rounds: int) -> Iterator[Comparison]:
    """Yield the comparison for each size; the second one per size also counts right predictions, which `fit` does."""
    for name, (widths, batch_size, bar) in SIZES.items():
        theirs = repeated_plain(widths, batch_size)
        yield compare(f"train step, {name}", repeated_ours(widths, batch_size, False), theirs, bar=bar, rounds=rounds)
        yield compare(
            f"  the same with accuracy, {name}", repeated_ours(widths, batch_size, True), theirs, rounds=rounds
        )


def repeated_plain(widths: tuple[int, ...], batch_size: int) -> Callable[[int], object]:
    """Return a function that takes so many steps of the program written by hand."""
    step, optimizer = adam_step(LEARNING_RATE)
    params = mlp_params(widths)
    state = [params, optimizer.init(params)]
    x, labels = samples(batch_size, widths[0])

    def run(count: int) -> None:
        params, opt_state = state
        for _ in range(count):
            params, opt_state, loss = step(params, opt_state, x, labels)
        state[:] = params, opt_state
        jax.block_until_ready(loss)

    return run


def repeated_ours(widths: tuple[int, ...], batch_size: int, accuracy: bool) -> Callable[[int], object]:
    """Return a function that takes so many of our steps, of a model composed of blocks."""
    physical = ml.compile(model_of(widths), shapes={"input": [batch_size, widths[0]]})
    step = jax.jit(train_step(physical.forward, "cross_entropy", "adam", accuracy=accuracy), donate_argnums=(0, 1))
    _, optimizer = adam_step(LEARNING_RATE)
    params = mlp_params(widths)
    state = [params, optimizer.init(params)]
    x, labels = samples(batch_size, widths[0])
    batch = {"inputs": {"input": x}, "targets": labels}
    rate = jnp.asarray(LEARNING_RATE)

    def run(count: int) -> None:
        params, opt_state = state
        for _ in range(count):
            params, opt_state, metrics = step(params, opt_state, rate, batch)
        state[:] = params, opt_state
        jax.block_until_ready(metrics["loss"])

    return run


def forward(params: Any, inputs: Any, *, key: Any = None, training: bool = False) -> dict[str, Any]:
    """Return the outputs by name, as a `PhysicalModel` does."""
    return {"output": mlp_forward(params, inputs["input"])}
