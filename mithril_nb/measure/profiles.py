"""What a program took when it was run: costs with seconds, how far they spread, and what the machine could do."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, Literal

from mithril_nb.cost.costs import Cost
from mithril_nb.cost.records import CostRow, Figures, sum_of_figures
from mithril_nb.measure.machines import Machine
from mithril_nb.stages.records import UNATTRIBUTED

BETWEEN = "(between instructions)"
"""Row of the time between two instructions, when none runs."""
DISPATCH = "(dispatch)"
"""Row of the time from the call to the first instruction, and from the last until the results are there."""
WHOLE = "(whole runs)"
"""Row of all of the time, where it cannot be told what ran."""
OVERHEAD = (BETWEEN, DISPATCH)


@dataclass(frozen=True)
class Spread:
    """How far a time spreads over the runs, in seconds.

    Attributes:
        lower: A quarter of the runs take less.
        median: Half of them do.
        upper: A quarter of them take more.
        least: The quickest run.
        most: The slowest.
    """

    lower: float
    median: float
    upper: float
    least: float
    most: float

    @classmethod
    def of(cls, samples: Sequence[float]) -> Spread | None:
        """Return how far some times spread; `None` if there are none.

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
    """How quickly something was done; `None` where it is not known.

    Attributes:
        flops_per_s: FLOP/s reached.
        bytes_per_s: Bytes/s reached.
        roofline: Share of what the machine could do: the least time that its peaks allow, by the time that it took.
            Above 1 where a cache was quicker than memory.
        limit: Which of the peaks that least time is due to: `"compute"` or `"memory"`.
    """

    flops_per_s: float | None
    bytes_per_s: float | None
    roofline: float | None
    limit: Literal["compute", "memory"] | None


@dataclass(frozen=True, kw_only=True, repr=False)
class Profile(Cost):
    """What a program takes when it runs; `ml.profile` makes it.

    Seconds are those of one run. The whole is what the clock says of runs without the profiler. Instructions are means
    over that half of the runs under it that took most nearly as long; what is left is the time between and around
    them, so that blocks add up to the whole. `source` is `"measured"`; FLOPs and bytes are those of `cost("compiled")`.

    Attributes:
        runs: How many runs count, without the profiler, and as many with it.
        warm_up: How many were made before them.
        times_run: How often the program ran in all.
        walls_s: Seconds of each run without the profiler.
        profiled_s: Seconds of each run under the profiler; only of those whose events are known, if there are such.
        samples: Seconds of each row in each of these runs, by id.
        contractions: Dtype of the operands of each matmul and convolution, by id: it has a peak of its own.
        machine: What this machine can do at most; `None` if that could not be measured.
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
        """Seconds of one run without the profiler, from the call until its results are there."""
        return middle_mean(self.walls_s)

    @property
    def profiler_s(self) -> float:
        """Seconds that the profiler itself adds to a run; below 0 where the machine is too restless to tell."""
        return middle_mean(self.profiled_s) - self.wall_s

    @property
    def instructions_s(self) -> float | None:
        """Seconds of one run in which instructions run: the whole without what lies around and between them."""
        times = [row.time_s for row in self.rows if row.time_s is not None and row.id not in (*OVERHEAD, WHOLE)]
        return sum(times) if times else None

    @property
    def spread(self) -> Spread | None:
        """How far the runs without the profiler spread."""
        return Spread.of(self.walls_s)

    @cached_property
    def spreads(self) -> Mapping[str, Spread]:
        """How far the time of each block spreads, without the blocks inside it; `""` is what belongs to none."""
        every = {path: Spread.of(seconds) for path, seconds in self._seconds.items()}
        return {path: spread for path, spread in every.items() if spread is not None}

    def spread_of(self, paths: Iterable[str]) -> Spread | None:
        """Return how far the time of several blocks together spreads; `None` if none of them took any.

        Args:
            paths: The blocks, each without those inside it.
        """
        found = [self._seconds[path] for path in paths if path in self._seconds]
        return Spread.of([sum(each) for each in zip(*found, strict=True)])

    @cached_property
    def rates(self) -> Mapping[str, Rate]:
        """How quickly each block was done, without the blocks inside it; `""` is what belongs to none."""
        return {path: self.rate_of([path]) for path in self._figures}

    def rate_of(self, paths: Sequence[str]) -> Rate:
        """Return how quickly several blocks together were done.

        Args:
            paths: The blocks, each without those inside it; `""` is what belongs to none.
        """
        figures = sum_of_figures(self._figures[path] for path in paths)
        return self._rate(figures, sum(self._compute_s(path) for path in paths))

    @cached_property
    def rate(self) -> Rate:
        """How quickly the whole was done, all of its time counted."""
        return self._rate(self.total, self._compute_s(None))

    def roofline_points(self) -> list[dict[str, Any]]:
        """Return a point for each block that took time, as plain data; the machine's peaks are its roof."""
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
        """Return the same as plain data."""
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
        """Seconds of one run in which no instruction runs, by what they are; of all of it if nobody can tell."""
        return {row.id: row.time_s for row in self.rows if row.id in (*OVERHEAD, WHOLE)}

    def __str__(self) -> str:
        return self._repr_mimebundle_()["text/plain"]

    @cached_property
    def _seconds(self) -> Mapping[str, list[float]]:
        """What each block took in each run, without the blocks inside it."""
        sums: dict[str, list[float]] = {}
        for row in self.rows:
            seconds = self.samples.get(row.id, ())
            whole = sum(share for _, share in row.blocks) or 1.0
            for path, share in (row.blocks or ((UNATTRIBUTED, 1.0),)) if seconds else ():
                found = sums.setdefault(path, [0.0] * len(seconds))
                for place, each in enumerate(seconds):
                    found[place] += each * share / whole
        return sums

    @cached_property
    def _figures(self) -> Mapping[str, Figures]:
        """What each block costs by itself, and the instructions of none."""
        return {**self.by_block, UNATTRIBUTED: self._working.unattributed}

    @cached_property
    def _working(self) -> Cost:
        """The instructions alone."""
        return self._only(row for row in self.rows if row.id not in (*OVERHEAD, WHOLE))

    def _only(self, rows: Iterable[CostRow]) -> Cost:
        return replace(self, rows=tuple(rows), params={})

    @cached_property
    def _by_dtype(self) -> list[tuple[float, Cost]]:
        """The rows that share a peak, with that peak in FLOP/s."""
        assert self.machine is not None
        groups: dict[str | None, list[CostRow]] = {}
        for row in self.rows:
            groups.setdefault(self.contractions.get(row.id), []).append(row)
        return [(self.machine.peak_of(dtype), self._only(rows)) for dtype, rows in groups.items()]

    def _compute_s(self, path: str | None) -> float:
        """Return the least seconds that the FLOPs of a block take; `None` means the whole program."""
        seconds = 0.0
        for peak, cost in self._by_dtype if self.machine is not None else ():
            found = cost.total if path is None else cost.by_block.get(path, Figures())
            found = cost.unattributed if path == UNATTRIBUTED else found
            seconds += (found.flops or 0) / peak
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
    """Return the places of the middle half of some runs, by their length.

    Examples:
        >>> middle_half([5.0, 1.0, 3.0, 2.0])
        [3, 2]
    """
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    cut = len(order) // 4
    return order[cut : len(order) - cut]


def middle_mean(lengths: Sequence[float]) -> float:
    """Return the mean length of the middle half of some runs.

    Examples:
        >>> middle_mean([5.0, 1.0, 3.0, 2.0])
        2.5
    """
    return statistics.fmean(lengths[place] for place in middle_half(lengths))
