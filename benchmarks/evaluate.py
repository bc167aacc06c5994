"""`evaluate` of a physical model against a forward pass written by hand and jitted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax

import mithril_nb as ml
from benchmarks.interleaved import Comparison, compare
from benchmarks.plain import SIZES, mlp_forward, mlp_params, samples
from mithril_nb.models import Linear, Model, Relu


def model_of(widths: tuple[int, ...]) -> Model:
    """Return the MLP of the benchmarks, composed of blocks."""
    model = Model()
    for place, width in enumerate(widths[1:]):
        if place:
            model += Relu()
        model += Linear(dimension=width)
    return model


def evaluate_comparisons(rounds: int) -> Iterator[Comparison]:
    """Yield the comparison for each size."""
    for name, (widths, batch_size, bar) in SIZES.items():
        physical = ml.compile(model_of(widths), ml.JaxBackend(), shapes={"input": [batch_size, widths[0]]})
        params, x = mlp_params(widths), samples(batch_size, widths[0])[0]
        plain = jax.jit(mlp_forward)
        ours, theirs = repeated(physical.evaluate, params, {"input": x}), repeated(plain, params, x)
        yield compare(f"evaluate, {name}", ours, theirs, bar=bar, rounds=rounds)


def repeated(program: Callable[..., Any], *args: Any) -> Callable[[int], object]:
    """Return a function that runs a program so many times and waits for the last."""

    def run(count: int) -> None:
        for _ in range(count):
            result = program(*args)
        jax.block_until_ready(result)

    return run
