"""The overhead of `ml.track`, and the times of its store with many runs."""

from __future__ import annotations

import itertools
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.interleaved import Comparison, compare
from benchmarks.stages import own_peak_bytes
from mithril_nb.train.store.database import Database
from mithril_nb.train.store.stored import runs
from mithril_nb.train.store.tracking import track

RUNS, ROWS = 500, 10_000
STEPS, GROWTH_BAR = 20_000, 10e6


def tracking_comparisons(rounds: int) -> Iterator[Comparison]:
    """Yield the ratios for steps of about 0.1, 1 and 20 ms that log one loss each.

    Once as the documentation writes the loop, and once with `float(loss)` in each step. Then the loop waits for each
    step, and all that Python does between two steps counts: also freeing the state before, which a loop that does
    not log its state frees while the step runs.
    """
    for size, title, bar in ((112, "0.1 ms", 1.3), (384, "1 ms", 1.05), (1216, "20 ms", 1.01)):
        for reads in (False, True):
            weight = jnp.full((size, size), 1e-3)
            step = jax.jit(lambda w: (w @ w * 1e-3 + 0.5 * w + 1e-3, jnp.sum(w)))
            with tempfile.TemporaryDirectory() as folder, track(Path(folder) / "run") as run:
                batches = run.steps(itertools.repeat(0))

                def plain(count: int, step=step, weight=weight, reads=reads) -> None:
                    state = weight
                    for _ in range(count):
                        state, loss = step(state)
                        if reads:
                            float(loss)
                    jax.block_until_ready(state)

                def tracked(count: int, step=step, weight=weight, reads=reads, run=run, batches=batches) -> None:
                    state = weight
                    for _ in itertools.islice(batches, count):
                        state, loss = step(state)
                        if reads:
                            float(loss)
                        run.log({"loss": loss}, state=state)
                    jax.block_until_ready(state)

                what = f"a tracked step of {title}{', with float(loss)' if reads else ''}"
                yield compare(what, tracked, plain, bar=bar, rounds=rounds, block_s=0.05)


def store_times() -> list[tuple[str, float, float]]:
    """Return what is done, its median time in seconds and its bar, for 500 runs of 10,000 rows."""
    with tempfile.TemporaryDirectory() as folder:
        database = Database(folder, creates=True)
        columns = ("step", "elapsed_s", "loss")
        table = np.stack([np.arange(1.0, ROWS + 1), np.arange(ROWS) / 1e3, np.random.default_rng(0).random(ROWS)], 1)
        parts = {number: (columns, rows) for number, rows in enumerate(np.array_split(table, 20))}
        for number in range(RUNS):
            summary = {"state": "done", "created": float(number), "step": ROWS, "elapsed_s": 10.0, "parts": 0}
            summary |= {"config": {"rate": number}, "latest": {"loss": 0.5}, "knobs": {}, "events": [], "tags": []}
            origin = {"config": {"rate": number}, "code": {"loop": "x"}, "values": {}, "graph": None}
            origin |= {"versions": {}, "device": "cpu", "host": "", "git": None, "git_diff": "+" * 10_000}
            database.put(f"run {number}", summary, origin)
            database.change(f"run {number}", {}, parts)
        database.close()
        return [
            ("the table of 500 runs with 10,000 rows each", _median(lambda: runs(folder).table()), 0.5),
            ("comparing two of them, with their curves", _median(lambda: _compared(folder)), 1.0),
        ]


def logged_growth() -> int:
    """Return by how many bytes 20,000 steps of 20 logged scalars raise the peak memory of a new process."""
    code = "from benchmarks import tracking; print(tracking.own_growth())"
    return int(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)


def own_growth() -> int:
    """Return the same for this process, which must not have had a higher peak before."""
    step = jax.jit(lambda x: (x + 1, {f"metric {number}": x * number for number in range(20)}))
    with tempfile.TemporaryDirectory() as folder, track(Path(folder) / "run") as run:
        state, before = jnp.zeros(()), 0
        for _ in run.steps([0], total=STEPS + STEPS // 10):
            state, metrics = step(state)
            run.log(metrics, state=state)
            if run.step == STEPS // 10:  # all is compiled and allocated once
                before = own_peak_bytes()
    return own_peak_bytes() - before


def _compared(folder: str) -> None:
    runs(folder).compare("run 1", "run 2").curves("loss")


def _median(call: Callable[[], object]) -> float:
    times: list[float] = []
    for _ in range(5):
        since = time.perf_counter()
        call()
        times.append(time.perf_counter() - since)
    return statistics.median(times)
