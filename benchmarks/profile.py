"""Compare the sum of measured instruction times with the time of the whole step, on one thread.

Each program is profiled in a separate process on one processor, where XLA uses a single thread: there the parts must
add up to the whole. Runs with and without the profiler alternate.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import jax

import mithril_nb as ml
from benchmarks.corpus import corpus
from mithril_nb.analysis.measure import Machine, Profile
from mithril_nb.analysis.measure.profiling import BETWEEN, DISPATCH

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = {"MLP, train step": 12, "LeNet, train step": 8, "GPT-2 small, forward": 2}
"""Names in the corpus, and the number of profiles in a round."""
RUNS = 4
"""Runs per profile. The profiler is switched on and off around each, so that the load is similar with and without."""
BAR = 0.10
"""Largest acceptable difference between the sum and the whole."""
_ONE_THREAD = {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false", "NPROC": "1"}
_NO_PEAKS = Machine("cpu", "cpu", 1, jax.__version__, "", {"float32": 1.0}, 1.0, "never", "not measured")


@dataclass(frozen=True)
class Sums:
    """Sums of the times of the parts, in seconds.

    Attributes:
        wall_s: A run without the profiler.
        instructions_s: Instructions in a run with the profiler.
        between_s: Time between instructions, when the profiler also writes.
        dispatch_s: Time before the first and after the last instruction.
    """

    wall_s: float
    instructions_s: float
    between_s: float
    dispatch_s: float

    @property
    def instructions(self) -> float:
        """Ratio of instructions to the whole."""
        return self.instructions_s / self.wall_s

    @property
    def with_gaps(self) -> float:
        """Ratio of instructions and gaps between them to the whole."""
        return (self.instructions_s + self.between_s) / self.wall_s

    @property
    def whole(self) -> float:
        """Ratio of all time in the profile to the whole."""
        return (self.instructions_s + self.between_s + self.dispatch_s) / self.wall_s

    @property
    def is_over(self) -> bool:
        """True if the sum over instructions, with or without gaps, differs from the whole by more than the bar."""
        return any(abs(ratio - 1) > BAR for ratio in (self.instructions, self.with_gaps))


def profile_sums(rounds: int) -> Iterator[tuple[str, Sums, Sums]]:
    """Yield names of programs with the medians of their runs, and with the best tenths, which load hardly affects.

    Args:
        rounds: Number of rounds.
    """
    for name in PROGRAMS:
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.profile", name, str(rounds * PROGRAMS[name])],
            check=True, capture_output=True, text=True, cwd=ROOT, env={**os.environ, **_ONE_THREAD},
        )  # fmt: skip
        middle, best = json.loads(done.stdout.splitlines()[-1])
        yield name, Sums(**middle), Sums(**best)


def sums_of(profiles: list[Profile]) -> tuple[Sums, Sums]:
    """Return the medians and the best tenths over all runs of several profiles of a program."""
    parts = [part for profile in profiles for part in _parts(profile)]
    walls = [wall_s for profile in profiles for wall_s in profile.walls_s]
    columns = [walls, *(list(values) for values in zip(*parts, strict=True))]
    middle = Sums(*(statistics.median(values) for values in columns))
    return middle, Sums(*(sorted(values)[len(values) // 10] for values in columns))


def _parts(profile: Profile) -> Iterator[tuple[float, float, float]]:
    for samples in zip(*profile.samples.values(), strict=True):
        seconds = dict(zip(profile.samples, samples, strict=True))
        between, dispatch = seconds.pop(BETWEEN), seconds.pop(DISPATCH)
        yield sum(seconds.values()), between, dispatch


def main() -> None:
    """Profile a program in this process, and print the sums as JSON."""
    name, profiles = sys.argv[1], int(sys.argv[2])
    if hasattr(os, "sched_setaffinity"):  # before JAX starts its threads
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    function, args = corpus(full=True)[name]()
    inspection = ml.inspect(function, *args)
    found = [ml.profile(inspection, runs=RUNS, warm_up=1, peaks=_NO_PEAKS) for _ in range(profiles)]
    print(json.dumps([asdict(one) for one in sums_of(found)]))


if __name__ == "__main__":
    main()
