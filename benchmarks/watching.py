"""The overhead of `ml.watch`: a call of a watched function with almost no work, relative to the function alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp

from benchmarks.interleaved import Comparison, compare
from mithril_nb.ui.widgets import watch


def watching_comparisons(rounds: int) -> Iterator[Comparison]:
    """Yield the ratio for a program that adds 1 to three numbers; for other programs it is smaller."""
    step, x = jax.jit(lambda x: x + 1), jnp.ones(3)

    def calls(function: Callable[..., jax.Array]) -> Callable[[int], object]:
        def run(count: int) -> None:
            for _ in range(count - 1):
                function(x)
            function(x).block_until_ready()

        return run

    yield compare("a watched call of an empty program", calls(watch(step)), calls(step), bar=1.5, rounds=rounds)
