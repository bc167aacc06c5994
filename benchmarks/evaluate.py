"""`evaluate` of a physical model against a hand-written, jitted forward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from benchmarks.interleaved import Comparison, compare
from benchmarks.plain import WORKLOADS


def evaluate_comparisons(rounds: int) -> Iterator[Comparison]:
    """Yield the comparison for each model; both sides must compute the same."""
    for work in WORKLOADS.values():
        physical = work.compiled()
        params, x = physical.randomize_params(0), work.samples()[0]
        plain = jax.jit(work.forward)
        np.testing.assert_allclose(physical.evaluate(params, {"input": x})["output"], plain(params, x), 1e-3, 1e-3)
        ours, theirs = repeated(physical.evaluate, params, {"input": x}), repeated(plain, params, x)
        yield compare(f"evaluate, {work.name}", ours, theirs, bar=work.bar, rounds=rounds)


def repeated(program: Callable[..., Any], *args: Any) -> Callable[[int], object]:
    """Return a function that runs a program `count` times and waits for the last result."""

    def run(count: int) -> None:
        for _ in range(count):
            result = program(*args)
        jax.block_until_ready(result)

    return run
