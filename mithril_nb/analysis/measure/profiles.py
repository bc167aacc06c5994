"""`Profile`: costs with measured seconds, their spread over the runs, and rates compared with the machine's peaks."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, Literal

from mithril_nb.analysis.measure.machines import Machine
from mithril_nb.cost.costs import Cost
from mithril_nb.cost.records import CostRow, Figures, sum_of_figures
from mithril_nb.stages.records import UNATTRIBUTED

BETWEEN = "(between instructions)"
"""Id of the row with the time between instructions."""
DISPATCH = "(dispatch)"
"""Id of the row with the time before the first instruction and after the last one."""
WHOLE = "(whole runs)"
"""Id of the row with the whole time, if the times of instructions are unknown."""
OVERHEAD = (BETWEEN, DISPATCH)


@dataclass(frozen=True)
class Spread:
    """The distribution of a time over the runs, in seconds.

    Attributes:
        lower: First quartile.
        median: Median.
        upper: Third quartile.
        least: Minimum.
        most: Maximum.
    """

    lower: float
    median: float
    upper: float
    least: float
    most: float

    @classmethod
    def of(cls, samples: Sequence[float]) -> Spread | None:
        """Return the distribution of the samples; `None` if there are none.

        Examples:
            >>> Spread.of([4.0, 1.0, 2.0, 3.0, 5.0])
            Spread(lower=2.0, median=3.0, upper=4.0, least=1.0, most=5.0)
        """
        if not samples:
            return None
        quartiles = statistics.quantiles(samples, n=4, method="inclusive") if len(samples) > 1 else [samples[0]] * 3
        lower, median, upper = quartiles
        return cls(lower, median, upper, min(samples), max(samples))


@dataclass(frozen=True)
class Rate:
    """The rates that a block or program achieves, each `None` if unknown.

    Attributes:
        flops_per_s: FLOPs in a second.
        bytes_per_s: Bytes read and written in a second.
        roofline: Shortest time that the machine's peaks allow, divided by the measured time. It is above 1 if part of
            the data came from cache, which is faster than main memory.
        limit: The peak that determines the shortest time: `"compute"` or `"memory"`.
    """

    flops_per_s: float | None
    bytes_per_s: float | None
    roofline: float | None
    limit: Literal["compute", "memory"] | None


@dataclass(frozen=True, kw_only=True, repr=False)
class Profile(Cost):
    """The measured cost of a program, returned by `ml.profile`.

    All times are seconds of one run. The total time is `wall_s`, measured without the profiler. The times of
    instructions are measured with the profiler: each is a mean over the half of the profiled runs whose wall time is
    closest to `wall_s`. Two further rows have the remaining time: `"(between instructions)"`, and `"(dispatch)"` for
    the time before the first and after the last instruction. All rows sum to the total. If the profiler does not report
    the times of instructions, the only row with a time is `"(whole runs)"`.

    FLOPs and bytes are those of `cost("compiled")`, or analytic ones if there is no optimized HLO.

    Attributes:
        runs: Number of measured runs without the profiler; as many more are measured with it.
        warm_up: Number of runs before the measured runs.
        times_run: Number of all runs of the program.
        walls_s: Seconds of each measured run without the profiler.
        profiled_s: Seconds of each measured run with the profiler. Runs without times of instructions are left out,
            unless no run has them.
        samples: Seconds of each row in each run of `profiled_s`, by the row's id. If no run has times of instructions,
            the only row is `"(whole runs)"`, with the seconds in `walls_s`: the runs without the profiler.
        contractions: Dtype of the operands of each matmul and convolution, by id of the instruction. The machine has a
            separate peak for each dtype.
        machine: The machine's peaks; `None` if they could not be measured.
    """

    runs: int
    warm_up: int
    times_run: int
    walls_s: tuple[float, ...]
    profiled_s: tuple[float, ...]
    samples: Mapping[str, tuple[float, ...]]
    contractions: Mapping[str, str]
    machine: Machine | None

    @cached_property
    def wall_s(self) -> float:
        """Seconds of one run without the profiler, from the call until the results are ready.

        This is the mean over the middle half of the runs.
        """
        return middle_mean(self.walls_s)

    @property
    def profiler_s(self) -> float:
        """Seconds that the profiler adds to a run; on a busy machine the difference may be negative."""
        return middle_mean(self.profiled_s) - self.wall_s

    @property
    def instructions_s(self) -> float | None:
        """Seconds of one run in which instructions run, without the time between and around them; `None` if unknown."""
        times = [row.time_s for row in self.rows if row.time_s is not None and row.id not in (*OVERHEAD, WHOLE)]
        return sum(times) if times else None

    @property
    def spread(self) -> Spread | None:
        """Distribution of the wall time of runs without the profiler."""
        return Spread.of(self.walls_s)

    @cached_property
    def spreads(self) -> Mapping[str, Spread]:
        """Distribution of the time of each block, by path; `""` is the time outside all blocks.

        The time of a block excludes the blocks inside it.
        """
        spreads = {path: Spread.of(seconds) for path, seconds in self._seconds.items()}
        return {path: spread for path, spread in spreads.items() if spread is not None}

    def spread_of(self, paths: Iterable[str]) -> Spread | None:
        """Return the distribution of the time of several blocks together; `None` if none of their times is known.

        Args:
            paths: Paths of the blocks. The blocks inside a block count only if they are listed too.
        """
        samples = [self._seconds[path] for path in paths if path in self._seconds]
        return Spread.of([sum(each) for each in zip(*samples, strict=True)])

    @cached_property
    def rates(self) -> Mapping[str, Rate]:
        """Rates of each block, by path, excluding the blocks inside it; `""` is the work outside all blocks."""
        return {path: self.rate_of([path]) for path in self._figures}

    def rate_of(self, paths: Sequence[str]) -> Rate:
        """Return the rates of several blocks together.

        Args:
            paths: Paths of the blocks; `""` is the work outside all blocks. The blocks inside a block count only if
                they are listed too.
        """
        figures = sum_of_figures(self._figures[path] for path in paths)
        return self._rate(figures, sum(self._compute_s(path) for path in paths))

    @cached_property
    def rate(self) -> Rate:
        """Rates of the whole program over its whole time."""
        return self._rate(self.total, self._compute_s(None))

    def roofline_points(self) -> list[dict[str, Any]]:
        """Return a point of a roofline plot for each block that took time, as a dict.

        The keys are `block` (its path), `flops`, `bytes_accessed`, `time_s` and `roofline` (as in `Rate`).
        """
        return [
            {
                "block": path,
                "flops": figures.flops,
                "bytes_accessed": figures.bytes_accessed,
                "time_s": figures.time_s,
                "roofline": self.rates[path].roofline,
            }
            for path, figures in self._figures.items()
            if figures.time_s
        ]

    def to_dict(self, *, rows: bool = True) -> dict[str, Any]:
        """Return the profile as plain data: the entries of `Cost.to_dict()`, and times, rates and the machine."""
        return {
            **super().to_dict(rows=rows),
            "runs": self.runs,
            "warm_up": self.warm_up,
            "times_run": self.times_run,
            "wall_s": self.wall_s,
            "walls_s": list(self.walls_s),
            "profiled_s": list(self.profiled_s),
            "instructions_s": self.instructions_s,
            "spread": None if self.spread is None else asdict(self.spread),
            "spreads": {path: asdict(spread) for path, spread in self.spreads.items()},
            "rate": asdict(self.rate),
            "rates": {path: asdict(rate) for path, rate in self.rates.items()},
            "machine": None if self.machine is None else self.machine.to_dict(),
            "peaks": None if self.machine is None else self.machine.peaks(),
        }

    @property
    def overhead(self) -> Mapping[str, float | None]:
        """Seconds of one run in which no instruction runs: `"(between instructions)"` and `"(dispatch)"`.

        If the times of instructions are unknown, the only entry is the whole run, `"(whole runs)"`.
        """
        return {row.id: row.time_s for row in self.rows if row.id in (*OVERHEAD, WHOLE)}

    def __str__(self) -> str:
        return self._repr_mimebundle_()["text/plain"]

    @cached_property
    def _seconds(self) -> Mapping[str, list[float]]:
        """Seconds of each block in each run, excluding the blocks inside it."""
        sums: dict[str, list[float]] = {}
        for row in self.rows:
            seconds = self.samples.get(row.id, ())
            total = sum(share for _, share in row.blocks) or 1.0
            for path, share in (row.blocks or ((UNATTRIBUTED, 1.0),)) if seconds else ():
                block_seconds = sums.setdefault(path, [0.0] * len(seconds))
                for index, each in enumerate(seconds):
                    block_seconds[index] += each * share / total
        return sums

    @cached_property
    def _figures(self) -> Mapping[str, Figures]:
        """Cost of each block, excluding the blocks inside it; `""` is the cost of instructions outside all blocks."""
        instructions = self._only(row for row in self.rows if row.id not in (*OVERHEAD, WHOLE))
        return {**self.by_block, UNATTRIBUTED: instructions.unattributed}

    def _only(self, rows: Iterable[CostRow]) -> Cost:
        return replace(self, rows=tuple(rows), params={})

    @cached_property
    def _by_dtype(self) -> list[tuple[float, Cost]]:
        """For each dtype, its peak in FLOP/s and the cost of the rows that compute in this dtype."""
        assert self.machine is not None
        groups: dict[str | None, list[CostRow]] = {}
        for row in self.rows:
            groups.setdefault(self.contractions.get(row.id), []).append(row)
        return [(self.machine.peak_of(dtype), self._only(rows)) for dtype, rows in groups.items()]

    def _compute_s(self, path: str | None) -> float:
        """Return the shortest time in seconds that the peaks allow for the FLOPs of a block.

        Args:
            path: Path of the block; `""` is the work outside all blocks, `None` the whole program.
        """
        seconds = 0.0
        for peak, cost in self._by_dtype if self.machine is not None else ():
            figures = cost.total if path is None else cost.by_block.get(path, Figures())
            figures = cost.unattributed if path == UNATTRIBUTED else figures
            seconds += (figures.flops or 0) / peak
        return seconds

    def _rate(self, figures: Figures, compute_s: float) -> Rate:
        time_s, flops, moved = figures.time_s, figures.flops, figures.bytes_accessed
        if not time_s:
            return Rate(None, None, None, None)
        per_s = (None if flops is None else flops / time_s, None if moved is None else moved / time_s)
        if self.machine is None or flops is None or moved is None:
            return Rate(*per_s, None, None)
        memory_s = moved / self.machine.bytes_per_s
        limit = "compute" if compute_s > memory_s else "memory"
        return Rate(*per_s, max(compute_s, memory_s) / time_s, limit)


def middle_half(lengths: Sequence[float]) -> list[int]:
    """Return the indices of the runs, sorted by length, without the shortest and the longest quarter.

    Examples:
        >>> middle_half([5.0, 1.0, 3.0, 2.0])
        [3, 2]
    """
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    cut = len(order) // 4
    return order[cut : len(order) - cut]


def middle_mean(lengths: Sequence[float]) -> float:
    """Return the mean length of runs without the shortest and the longest quarter.

    Examples:
        >>> middle_mean([5.0, 1.0, 3.0, 2.0])
        2.5
    """
    return statistics.fmean(lengths[index] for index in middle_half(lengths))
