"""Cost of inspecting programs: `ml.inspect` against tracing, lowering and compiling alone."""

from __future__ import annotations

import functools
import re
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax

from benchmarks.corpus import Make, Program, corpus
from benchmarks.corpus.program import adam_step, ints, spec
from benchmarks.gpt import plain_forward, plain_shapes
from benchmarks.interleaved import Comparison, compare
from benchmarks.large import large_programs
from mithril_nb.inspection import Inspection
from mithril_nb.inspection import inspect_function as inspect

LOWERING_BAR, COMPILING_BAR, MEMORY_BAR, DIFF_BAR_S = 1.5, 1.25, 1.3, 0.2
LARGE_MEMORY_BAR = 1.25
_LARGEST = "GPT-2 small, train step"


def stage_programs(full: bool) -> dict[str, Make]:
    """Return the inspected programs by name; the large ones only if `full`."""
    large = corpus(full=True)
    found = {"MLP, train step": large["MLP, train step"], "LeNet, train step": large["LeNet, train step"]}
    found["GPT 4x128, train step"] = small_gpt
    names = (_LARGEST, "ResNet-50, train step") if full else ()
    return found | {name: large[name] for name in names}


def small_gpt() -> Program:
    """Return a train step of a GPT with 4 layers of width 128."""
    params = {name: spec(*shape) for name, shape in plain_shapes(layers=4, width=128, vocabulary=512).items()}
    tokens = ints(2, 64)
    forward = functools.partial(plain_forward, layers=4, heads=4)
    return adam_step(forward, params, tokens, tokens)


def large_comparisons(full: bool = False) -> Iterator[Comparison]:
    """Yield the CPU time from inspect to the links of StableHLO, relative to tracing and lowering alone.

    The second comparison of each program has no bar; it adds the texts, and the block, role and line of everything.
    """
    for name, make in large_programs(full).items():
        fn, args = make()
        yield compare(
            f"inspect to StableHLO, {name}", *paired(fn, args, to_stablehlo, lower),
            bar=LOWERING_BAR, rounds=15 if "flat, 1,000" in name else 5, clock=time.process_time, collects=True,
        )  # fmt: skip
        yield compare(
            f"  with texts and blocks, {name}", *paired(fn, args, to_texts, lower),
            rounds=3, clock=time.process_time, collects=True,
        )  # fmt: skip


def large_memory(full: bool = False) -> Iterator[tuple[str, int, int]]:
    """Yield the peak memory of two new processes: one inspects a program up to StableHLO, one lowers it."""
    for name in large_programs(full):
        yield name, peak_bytes(name, "to_stablehlo"), peak_bytes(name, "lower")


def stage_comparisons(rounds: int, full: bool = False) -> Iterator[Comparison]:
    """Yield the cost of stages relative to JAX alone: up to StableHLO, and up to optimized HLO with passes."""
    for name, make in stage_programs(full).items():
        fn, args = make()
        yield compare(
            f"inspect to StableHLO, {name}", *paired(fn, args, to_stablehlo, lower),
            bar=LOWERING_BAR, rounds=max(5, rounds // 10),
        )  # fmt: skip
        yield compare(
            f"  to HLO with passes, {name}", *paired(fn, args, to_hlo, compiled),
            bar=COMPILING_BAR, rounds=max(3, rounds // 40) if name in stage_programs(False) else 2,
        )  # fmt: skip


def stage_memory(full: bool = False) -> Iterator[tuple[str, int, int]]:
    """Yield the peak memory of two new processes: one inspects a program up to HLO, one compiles it."""
    for name in stage_programs(full):
        yield name, peak_bytes(name, "to_hlo"), peak_bytes(name, "compiled")


def pass_times(full: bool = False) -> tuple[str, int, float, list[float]]:
    """Return the program, the number of passes that changed it, seconds to list them, and seconds of each diff."""
    name = _LARGEST if full else "GPT 4x128, train step"
    fn, args = stage_programs(full)[name]()
    inspection = inspect(fn, *args)
    _ = inspection.compiled
    since = time.perf_counter()
    passes = inspection.passes
    listed_s = time.perf_counter() - since
    times = []
    for one in passes:
        since = time.perf_counter()
        _ = one.diff
        times.append(time.perf_counter() - since)
    return name, len(passes), listed_s, times


def to_stablehlo(fn: Callable[..., Any], args: tuple[Any, ...]) -> Inspection:
    """Inspect a program up to StableHLO, with the links back to the jaxpr."""
    inspection = inspect(fn, *args)
    inspection.links("jaxpr", "stablehlo")
    return inspection


def to_texts(fn: Callable[..., Any], args: tuple[Any, ...]) -> Inspection:
    """Inspect a program up to StableHLO as a reader does: links both ways, both texts, the origin of each line."""
    inspection = to_stablehlo(fn, args)
    inspection.links("stablehlo", "jaxpr")
    _ = inspection.equations, inspection.stage("jaxpr").instructions, inspection.stage("stablehlo").instructions
    return inspection


def to_hlo(fn: Callable[..., Any], args: tuple[Any, ...]) -> Inspection:
    """Inspect a program up to optimized HLO, with the links back to the jaxpr and the list of passes."""
    inspection = to_stablehlo(fn, args)
    inspection.links("jaxpr", "hlo")
    _ = inspection.passes
    return inspection


def lower(fn: Callable[..., Any], args: tuple[Any, ...]) -> jax.stages.Lowered:
    """Trace and lower a program with JAX alone."""
    return jax.jit(fn).lower(*args)


def compiled(fn: Callable[..., Any], args: tuple[Any, ...]) -> jax.stages.Compiled:
    """Trace, lower and compile a program with JAX alone."""
    return lower(fn, args).compile()


def paired(
    fn: Callable[..., Any], args: tuple[Any, ...], *programs: Callable[..., object]
) -> Iterator[Callable[[int], object]]:
    """Yield, for each program, a function that applies it `count` times to copies of `fn` that JAX has not cached."""
    for program in programs:

        def run(count: int, program: Callable[..., object] = program) -> None:
            for _ in range(count):
                program(_copied(fn), args)

        yield run


def _copied(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with another identity, because JAX caches the trace of a function."""
    inner = getattr(fn, "__wrapped__", fn)

    def again(*args: Any) -> Any:
        return inner(*args)

    again.__name__ = getattr(fn, "__name__", "program")
    return again


def peak_bytes(name: str, what: str) -> int:
    """Return the peak memory of a new process that applies one of the functions here to a program, by name."""
    code = (
        "from benchmarks import stages\n"
        f"kept = stages.{what}(*(stages.stage_programs(True) | stages.large_programs(True))[{name!r}]())\n"
        "print(stages.own_peak_bytes())"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return int(done.stdout)


def own_peak_bytes() -> int:
    """Return the peak memory of this process.

    On Linux, `ru_maxrss` includes the peak of the parent process, so `/proc` is read there.
    """
    status = Path("/proc/self/status")
    if status.exists():
        found = re.search(r"^VmHWM:\s+(\d+) kB", status.read_text(), re.MULTILINE)
        assert found is not None
        return 1024 * int(found.group(1))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def median_ms(times: list[float]) -> str:
    """Format the median and the longest of some times.

    Examples:
        >>> median_ms([0.01, 0.02, 0.3])
        'median 20 ms, longest 300 ms'
    """
    return f"median {1e3 * statistics.median(times):.0f} ms, longest {1e3 * max(times):.0f} ms"
