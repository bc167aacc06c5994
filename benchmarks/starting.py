"""Initial values of GPT-2 small against one `jax.jit` that draws the same sizes; and a chain of 2,000 blocks."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax

import mithril_nb as ml
from benchmarks.gpt import plain_shapes
from mithril_nb.models import GPT, Linear, Model, Relu


def starting_times(repeats: int) -> Iterator[tuple[str, float, float, float]]:
    """Yield name, median seconds of ours and of JAX's, and the bar of their ratio, measured in turns."""
    physical = ml.compile(GPT(), shapes={"input": [1, 8]})
    shapes = plain_shapes()

    @jax.jit
    def draw(key: Any) -> dict[str, Any]:
        keys = jax.random.split(key, len(shapes))
        return {name: jax.random.normal(one, shape) for one, (name, shape) in zip(keys, shapes.items(), strict=True)}

    seeds = iter(range(10**6))
    ours = lambda: physical.randomize_params(next(seeds))  # noqa: E731
    theirs = lambda: draw(jax.random.key(next(seeds)))  # noqa: E731
    found = [(_timed(ours), _timed(theirs)) for _ in range(repeats + 1)][1:]  # the first compiles
    mine, other = (statistics.median(times) for times in zip(*found, strict=True))
    yield "randomize_params of GPT-2 small", mine, other, 1.5


def deep_chain(length: int = 2000) -> tuple[float, float]:
    """Return the CPU seconds to compose a chain of `length` blocks, and to compile and print it."""
    since = time.process_time()
    model = Model()
    for place in range(length):
        model += Relu() if place % 2 else Linear(4)
    composed = time.process_time()
    physical = ml.compile(model, shapes={"input": [2, 4]})
    text = str(model), repr(physical), model.summary()
    assert all(text)
    return composed - since, time.process_time() - composed


def _timed(call: Callable[[], Any]) -> float:
    since = time.perf_counter()
    jax.block_until_ready(call())
    return time.perf_counter() - since
