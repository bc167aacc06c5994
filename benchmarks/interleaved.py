"""Compare the times of two programs on a machine that is also busy with other work."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Comparison:
    """Times of two programs, measured in turns.

    Attributes:
        name: Display name.
        ours_s: Median time of one call of our program.
        theirs_s: Median time of one call of the other program.
        ratio: Median of ours over theirs by round; both halves of a round see the same machine.
        spread: Middle half of the ratios: the 25th and the 75th percentile.
        best: Ratio of the 10th percentiles of the times, which approximates an idle machine.
        bar: Largest acceptable ratio, or `None`.
    """

    name: str
    ours_s: float
    theirs_s: float
    ratio: float
    spread: tuple[float, float]
    best: float
    bar: float | None = None


def compare(
    name: str,
    ours: Callable[[int], object],
    theirs: Callable[[int], object],
    *,
    bar: float | None = None,
    block_s: float = 0.01,
    rounds: int = 120,
    clock: Callable[[], float] = time.perf_counter,
    collects: bool = False,
) -> Comparison:
    """Run two programs in short blocks, in turns, and return the median ratio of the rounds.

    A round is the blocks A B B A, so that a drift of the machine's speed within it cancels out.

    Args:
        name: Display name.
        ours: Runs our program `count` times and waits for the last result.
        theirs: Runs the other program `count` times and waits for the last result.
        bar: Largest acceptable ratio.
        block_s: Approximate duration of a block.
        rounds: Number of rounds.
        clock: Clock in seconds; `time.process_time` excludes other processes.
        collects: Whether Python's garbage collector runs as usual; each block starts without garbage.
    """
    calls = _calls_in(theirs, block_s, clock)
    _timed(ours, calls, clock)
    pairs: list[tuple[float, float]] = []
    was_enabled = gc.isenabled()
    gc.collect()
    if not collects:
        gc.disable()
    try:
        for number in range(rounds):
            first, second = (ours, theirs) if number % 2 else (theirs, ours)
            times: list[float] = []
            for program in (first, second, second, first):
                if collects:
                    gc.collect()
                times.append(_timed(program, calls, clock))
            outer, inner = times[0] + times[3], times[1] + times[2]
            pairs.append((outer, inner) if first is ours else (inner, outer))
    finally:
        if was_enabled:
            gc.enable()
    ratios = [a / b for a, b in pairs]
    low, _, high = statistics.quantiles(ratios, n=4)
    return Comparison(
        name,
        statistics.median(a for a, _ in pairs) / (2 * calls),
        statistics.median(b for _, b in pairs) / (2 * calls),
        statistics.median(ratios),
        (low, high),
        _tenth(a for a, _ in pairs) / _tenth(b for _, b in pairs),
        bar,
    )


def _tenth(times: Iterable[float]) -> float:
    return statistics.quantiles(times, n=10)[0]


def _timed(program: Callable[[int], object], calls: int, clock: Callable[[], float]) -> float:
    since = clock()
    program(calls)
    return clock() - since


def _calls_in(program: Callable[[int], object], block_s: float, clock: Callable[[], float]) -> int:
    program(2)
    calls = 1
    while (taken := _timed(program, calls, clock)) < block_s / 4:
        calls *= 2
    return max(1, round(calls * block_s / taken))
