"""Times before the first step: importing, composing, tracing, lowering, compiling."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax

import mithril_nb as ml
from benchmarks.plain import WORKLOADS
from mithril_nb.train import programs

IMPORTS = ("import mithril_nb", "import jax", "import mithril_nb.train")


def startup_times(repeats: int) -> Iterator[tuple[str, float]]:
    """Yield names and median seconds."""
    for statement in IMPORTS:
        yield f"{statement}, in a new process", median(lambda statement=statement: _import_s(statement), repeats)
    work = WORKLOADS["MLP 4x256, batch 128"]
    yield "compose the MLP 4x256", median(lambda: _timed(work.model), 20 * repeats)
    shapes = {"input": list(work.shape)}
    model = work.model()
    bound = median(lambda: _timed(lambda: ml.compile(model, shapes=shapes)), repeats)
    yield "ml.compile (bind and infer shapes)", bound
    program = programs(ml.compile(model, shapes=shapes))["train step"]
    found = [_stages(program.function, program.specs) for _ in range(repeats)]
    for place, name in enumerate(("trace", "lower", "compile")):
        yield f"{name} its train step", statistics.median(times[place] for times in found)


def median(measure: Callable[[], float], repeats: int) -> float:
    """Return the median of several measurements."""
    return statistics.median(measure() for _ in range(repeats))


def _timed(call: Callable[[], Any]) -> float:
    since = time.perf_counter()
    call()
    return time.perf_counter() - since


def _import_s(statement: str) -> float:
    code = f"import time; since = time.perf_counter(); {statement}; print(time.perf_counter() - since)"
    return float(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)


def _stages(function: Callable[..., Any], specs: tuple[Any, ...]) -> tuple[float, float, float]:
    jax.clear_caches()
    times = [time.perf_counter()]
    traced = jax.jit(function, donate_argnums=(0, 1)).trace(*specs)
    times.append(time.perf_counter())
    lowered = traced.lower()
    times.append(time.perf_counter())
    lowered.compile()
    times.append(time.perf_counter())
    first, second, third, fourth = times
    return second - first, third - second, fourth - third
