"""Compare predicted with measured times on this machine's CPU.

Programs run in a separate process on one processor, where XLA uses a single thread: the time that the process runs is
then hardly affected by other work on the machine. The machine is calibrated with other programs, in the same process.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import mithril_nb as ml
from benchmarks.corpus import Make, corpus
from benchmarks.corpus.program import ints, spec

ROOT = Path(__file__).resolve().parents[1]
MEDIAN_BAR, WORST_BAR = 0.25, 2.0
"""Largest acceptable median error, and ratio of predicted and measured."""
_ONE_THREAD = {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false", "NPROC": "1"}
# glibc gives memory back to the system in ways that depend on all that the process did before, and new pages cost up to
# four times the time of a layer norm that fills them. Memory that the process once had stays there with this threshold.
_KEEPS_MEMORY = {"MALLOC_TRIM_THRESHOLD_": str(2**34), "MALLOC_MMAP_THRESHOLD_": str(2**34)}
_NAMES = (
    "MLP, forward", "MLP, train step", "MLP, hand-written SGD", "LSTM by scan, forward", "mixture of experts, forward",
    "ensemble by vmap, train step", "LeNet, forward", "LeNet, train step", "GPT-2 small, forward",
    "GPT-2 small by scan, forward", "remat, gradient", "steps in a scan", "Flax nnx, train step",
    "Equinox, train step",
)  # fmt: skip


def programs() -> dict[str, Make]:
    """Return the programs by name: of the corpus, and simple kernels."""
    every, image = corpus(full=True), spec(16, 56, 56, 64)

    def convolve(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    return {name: every[name] for name in _NAMES} | {
        "a product of 1500 x 700 x 900": lambda: (jnp.matmul, (spec(1500, 700), spec(700, 900))),
        "3x3 convolution of 64 channels": lambda: (convolve, (image, spec(3, 3, 64, 64))),
        "softmax": lambda: (jax.nn.softmax, (spec(4096, 1000),)),
        "layer norm": lambda: (jax.nn.standardize, (spec(8192, 768),)),
        "gelu": lambda: (jax.nn.gelu, (spec(4096, 1024),)),
        "rows by index": lambda: (lambda x, i: x[i] * 2, (spec(50_000, 64), ints(40_000))),
        "sort": lambda: (jnp.sort, (spec(1_000_000),)),
        "transpose": lambda: (lambda x: x.T * 2, (spec(2000, 3000),)),
    }


def predictions(rounds: int) -> Iterator[tuple[str, float, float]]:
    """Yield names of programs with their predicted and measured seconds.

    Args:
        rounds: Runs of each program; the least time counts. Programs take turns.
    """
    with tempfile.TemporaryDirectory() as cache:  # without the rates of a process with other settings
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.predicted", str(rounds)], check=True, capture_output=True, text=True,
            cwd=ROOT, env={**os.environ, **_ONE_THREAD, **_KEEPS_MEMORY, "XDG_CACHE_HOME": cache},
        )  # fmt: skip
    yield from json.loads(done.stdout.splitlines()[-1])


def summary(found: list[tuple[str, float, float]]) -> tuple[float, float]:
    """Return the median error, and the worst ratio, of predicted and measured times."""
    ratios = [max(predicted / measured, measured / predicted) for _, predicted, measured in found]
    return statistics.median(abs(predicted / measured - 1) for _, predicted, measured in found), max(ratios)


def compile_times(full: bool) -> Iterator[tuple[str, str, str]]:
    """Yield figures of compiling a train step of GPT-2 for an H100, with their bars."""
    function, specs = corpus(full)["GPT-2 small, train step"]()
    begin = time.perf_counter()
    _ = ml.inspect(jnp.sin, spec(3), device="h100").stage("hlo").text
    yield "first program, with the start of the compiler", f"{time.perf_counter() - begin:.1f} s", ""
    lowered = ml.inspect(function, *specs, device="h100")
    _ = lowered.stage("stablehlo")
    begin = time.perf_counter()
    _ = lowered.compiled
    compiled_s = time.perf_counter() - begin
    yield "XLA's compilation, in the other process", f"{compiled_s:.1f} s", ""
    begin = time.perf_counter()
    program = ml.inspect(function, *specs, device="h100")
    _ = program.stage("jaxpr")
    before = _resident_bytes()
    _ = program.stage("hlo").text
    yield "from ml.inspect to linked HLO", f"{time.perf_counter() - begin:.1f} s", f"{1.3 * compiled_s + 1:.1f} s"
    yield "memory of this process, after the trace", f"{(_resident_bytes() - before) / 2**20:+.0f} MiB", "50 MiB"


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    """Predict and measure all programs in this process, and print the times as JSON."""
    if hasattr(os, "sched_setaffinity"):  # before JAX starts its threads
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    runs, times, random = {}, {}, np.random.default_rng(0)
    for name, make in programs().items():
        function, specs = make()
        predicted = ml.inspect(function, *specs).cost("predicted").total.predicted_s
        args = jax.tree.map(lambda leaf: jnp.asarray(random.normal(size=leaf.shape) / 10, leaf.dtype), specs)
        runs[name] = jax.jit(function), args, predicted
    for _ in range(int(sys.argv[1])):
        for name, (run, args, _) in runs.items():
            for _ in range(3):  # the first run after another program fills the caches
                begin = time.process_time()
                jax.block_until_ready(run(*args))
                times.setdefault(name, []).append(time.process_time() - begin)
    print(json.dumps([(name, runs[name][2], min(each)) for name, each in times.items()]))


if __name__ == "__main__":
    main()
