"""What it costs to watch a run: the loop of `fit` with a listener, against the same loop without, at 1 ms per step."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from benchmarks.interleaved import Comparison, compare
from benchmarks.plain import CLASSES, adam_step, mlp_params, samples
from benchmarks.train_step import LEARNING_RATE, forward
from mithril_nb.graph.spec import TensorSpec
from mithril_nb.train import CURVES, Run, fit

WIDTHS, BATCH_SIZE = (64, 128, 128, 128, CLASSES), 128
"""A step of about 1 ms on two cores."""
SAMPLES = 128 * 64


class PlainMLP:
    """The MLP of the benchmarks as `fit` takes it."""

    input_names, output_names, needs_key = ("input",), ("output",), False
    is_immutable = True

    def __init__(self, widths: tuple[int, ...]):
        self.widths = widths
        self.input_specs = {"input": TensorSpec(("batch", widths[0]))}

    def forward(self, params: Any, inputs: Any, *, key: Any = None, training: bool = False) -> Any:
        """Return the logits by name."""
        return forward(params, inputs)

    def randomize_params(self, seed: int | None = None) -> dict[str, Any]:
        """Return fresh params."""
        return mlp_params(self.widths, seed or 0)


def observation_comparisons(rounds: int) -> Iterator[Comparison]:
    """Yield what watching costs, and what the whole of `fit` costs over a loop without events, history and checks."""
    x, labels = (np.asarray(array) for array in samples(SAMPLES, WIDTHS[0]))
    model = PlainMLP(WIDTHS)
    watched, unwatched, counted = (epochs_of(watching(model, x, labels, each)) for each in (True, False, False))
    plain = plain_loop(x, labels)
    # A block must last longer than the tenth of a second between two looks.
    slow: dict[str, Any] = {"rounds": max(10, rounds // 8), "block_s": 0.4}
    yield compare(
        "live observation of a loop, listener and curves at 10 Hz", watched, unwatched, bar=1.05, rounds=rounds
    )
    yield compare("  fit's own loop over the same by hand", counted, plain, **slow)


def watching(model: PlainMLP, x: np.ndarray, labels: np.ndarray, is_watched: bool) -> Run:
    """Return a run; if it is watched, as a workbench does it: the new rows and a snapshot, ten times a second."""
    run = fit(model, (x, labels), epochs=1, batch_size=BATCH_SIZE)
    sent, messages = 0, deque(maxlen=1)

    def tell(event: object) -> None:
        nonlocal sent
        rows = run.history.rows(sent, CURVES)
        sent += rows.shape[1]
        messages.append((rows.tobytes(), run.snapshot()))

    if is_watched:
        run.observe(tell, every_s=0.1)
    return run


def epochs_of(run: Run) -> Callable[[int], object]:
    """Return a function that has the run take so many epochs in its own thread."""
    return lambda count: run.go_on(epochs=count).wait()


def plain_loop(x: np.ndarray, labels: np.ndarray) -> Callable[[int], object]:
    """Return a function that takes so many epochs of a loop by hand: shuffled batches, one loss read at the end."""
    step, optimizer = adam_step(LEARNING_RATE)
    params = mlp_params(WIDTHS)
    state = [params, optimizer.init(params)]
    rng = np.random.default_rng(0)

    def take(count: int) -> None:
        params, opt_state = state
        for _ in range(count):
            order = rng.permutation(len(x))
            for start in range(0, len(x), BATCH_SIZE):
                indices = order[start : start + BATCH_SIZE]
                params, opt_state, loss = step(params, opt_state, x[indices], labels[indices])
        state[:] = params, opt_state
        jax.block_until_ready(loss)

    return take
