"""`profile`: run a program under JAX's profiler, and return the time of each instruction, block and role.

A `Profile` has costs with measured seconds, their spread over the runs, and rates compared with the machine's peaks.
"""

from __future__ import annotations

import inspect as signatures
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import Any, Literal

from mithril_nb import targets
from mithril_nb.analysis.measure.runs import (
    TRIED_PLANES,
    Runner,
    Runs,
    RunTimes,
    Values,
    callers_of,
    divided,
    measured_runs,
    values_for,
)
from mithril_nb.cost.costs import Cost
from mithril_nb.cost.notes import NOT_RUN
from mithril_nb.cost.records import NO_WORK, TICKS_PER_S, CostRow, Figures, group_by, sum_of
from mithril_nb.errors import StageUnavailableError, UnexpectedInputError, UnknownOptionError, short_repr
from mithril_nb.figures import COUNTED
from mithril_nb.hardware.machines import MATMUL, Machine, machine
from mithril_nb.inspection import Inspection
from mithril_nb.stages.failure import failure_of
from mithril_nb.stages.records import UNATTRIBUTED, Stage
from mithril_nb.stages.xla.compilation import OtherProgramError
from mithril_nb.stages.xla.dump import compile_with
from mithril_nb.targets.arguments import static_arguments
from mithril_nb.targets.inspection import takes_params, without_partial
from mithril_nb.targets.options import check_options

BETWEEN = "(between instructions)"
"""Id of the row with the time between instructions."""
DISPATCH = "(dispatch)"
"""Id of the row with the time before the first instruction and after the last one."""
WHOLE = "(whole runs)"
"""Id of the row with the whole time, if the times of instructions are unknown."""
OVERHEAD = (BETWEEN, DISPATCH)


@dataclass(frozen=True)
class TimeSpread:
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
    def of(cls, samples: Sequence[float]) -> TimeSpread | None:
        """Return the distribution of the samples; `None` if there are none.

        Examples:
            >>> TimeSpread.of([4.0, 1.0, 2.0, 3.0, 5.0])
            TimeSpread(lower=2.0, median=3.0, upper=4.0, least=1.0, most=5.0)
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
        samples: Seconds of each row in each run of `profiled_s`, by the row's id. If the instructions took longer than
            `wall_s`, their times are scaled to it. If no run has times of instructions,
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
    def spread(self) -> TimeSpread | None:
        """Distribution of the wall time of runs without the profiler."""
        return TimeSpread.of(self.walls_s)

    @cached_property
    def spreads(self) -> Mapping[str, TimeSpread]:
        """Distribution of the time of each block, by path; `""` is the time outside all blocks.

        The time of a block excludes the blocks inside it.
        """
        spreads = {path: TimeSpread.of(seconds) for path, seconds in self._seconds.items()}
        return {path: spread for path, spread in spreads.items() if spread is not None}

    def spread_of(self, paths: Iterable[str]) -> TimeSpread | None:
        """Return the distribution of the time of several blocks together; `None` if none of their times is known.

        Args:
            paths: Paths of the blocks. The blocks inside a block count only if they are listed too.
        """
        # Summed run by run: the quartiles of a sum are not the sums of quartiles.
        samples = [self._seconds[path] for path in paths if path in self._seconds]
        return TimeSpread.of([sum(each) for each in zip(*samples, strict=True)])

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
        figures = sum_of(self._figures[path] for path in paths)
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
        instructions = self._only(row for row in self.rows if row.id not in (*OVERHEAD, WHOLE))
        return {**self.by_block, UNATTRIBUTED: instructions.unattributed}

    def _only(self, rows: Iterable[CostRow]) -> Cost:
        return replace(self, rows=tuple(rows), params={})

    # Rows that are no contraction have no dtype and count at the highest peak, so the time stays a lower bound.
    @cached_property
    def _by_dtype(self) -> list[tuple[float, Cost]]:
        if self.machine is None:
            return []
        groups = group_by(self.rows, lambda row: self.contractions.get(row.id))
        return [(self.machine.peak_of(dtype), self._only(rows)) for dtype, rows in groups.items()]

    def _compute_s(self, path: str | None) -> float:
        seconds = 0.0
        for peak, cost in self._by_dtype:
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


_NS_PER_S = 1e9
# An empty list of commands turns CUDA graphs off.
_NO_GRAPHS = {"xla_gpu_enable_command_buffer": ""}
_MODULE = re.compile(r"HloModule ([^\s,]+)")
_CONTRACTIONS = ("dot", "convolution")
_EFFECT = re.compile("callback|^(debug_print|infeed|outfeed)$")
# If the profiler makes runs longer by more than this fraction, a note is added.
_NOTABLE = 0.05


def profile(
    target: Any, *args: Any, runs: int = 20, warm_up: int = 3, peaks: Machine | None = None, **options: Any
) -> Profile:
    """Run a program under JAX's profiler, and return the time of each instruction, block and role.

    The program is compiled if necessary and run `warm_up` times. Then it is run `runs` times without the profiler and
    `runs` times with it, in up to four groups: in each group, first some runs without, then as many with the profiler.
    Two more runs in each group are not measured. The program really runs, including prints and callbacks. Your arrays
    do not change, because each run gets a copy of the donated arrays.

    Args:
        target: An `Inspection`, or any target of `ml.inspect`.
        *args: Arguments of the program. For an `Inspection`, you can pass all arrays, only the last ones (such as the
            data after the parameters), or none. Missing arguments and `jax.ShapeDtypeStruct`s get placeholder values;
            the `notes` of the result list them.
        runs: Number of measured runs without the profiler; as many more are measured with it.
        warm_up: Number of runs before the measured runs.
        peaks: The machine's peaks, as `ml.machine()` returns them; by default measured once and then cached.
        **options: The other arguments of `ml.inspect`.

    Returns:
        The costs with times, by instruction, block and role; `print` shows a table.

    Raises:
        StageUnavailableError: The program cannot be traced, or does not compile.
        ProfilingError: The program fails when it runs, or JAX's profiler is already in use.
        UnexpectedInputError: The program does not accept these arguments.
        UnknownOptionError: `runs`, `warm_up` or `peaks` is invalid, an option is misspelt, or options are given for an
            `Inspection`.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from mithril_nb.analysis.measure import Machine, profile
        >>> peaks = Machine("cpu", "cpu", 2, jax.__version__, "", {"float32": 2e11}, 6e10, "2026-01-01", "given")
        >>> found = profile(jnp.matmul, jnp.ones((64, 64)), jnp.ones((64, 64)), runs=4, peaks=peaks)
        >>> found.source, found.total.flops, found.total.time_s > 0, found.times_run >= 8
        ('measured', 524288, True, True)
    """
    _check(runs, warm_up, peaks)
    inspection, arguments = inspected(target, args, options)
    _ = inspection.equations  # raises, with the line, if the program cannot be traced
    try:
        compiled = inspection.compiled
    except StageUnavailableError:  # some sizes are symbolic; the error names them
        raise
    except Exception as error:
        failure = failure_of(error)
        why, advice = ": it does not compile", 'inspection.cost(source="analytic")  # needs no compiler'
        if isinstance(error, OtherProgramError):  # it compiled, but to another program
            why, advice = (
                " with this inspection",
                "ml.profile(ml.inspect(program, *args))  # with a new inspection",
            )
        raise StageUnavailableError(
            f"program {inspection.name!r} cannot be profiled{why}.", ((failure.kind, failure.message),), advice
        ) from error
    values = _values(inspection, arguments, is_inspected=isinstance(target, Inspection))
    stage = inspection.stage("hlo")
    reason = stage.unavailable
    cost = inspection.cost("compiled" if reason is None else "analytic")
    # Events name their module, because other threads may run programs during the measurement.
    title = _MODULE.match(stage.text)
    runner = Runner(inspection.name, compiled, values, _recorded(inspection, compiled))
    ids = {instruction.id for instruction in stage.instructions}
    measured = measured_runs(runner, runs, warm_up, title.group(1) if title else "", ids)
    reason = reason or measured.unavailable
    callers = callers_of(stage)
    times = [divided(run, callers) for run in measured.profiled] if reason is None else []
    contractions = _contractions(stage)
    if peaks is None:
        peaks, why = _peaks(compiled, [*contractions.values()])
    else:
        why = _note_on_peaks(compiled, peaks)
    rows, samples = _timed(cost, measured, times)
    notes = (
        *(note for note in cost.notes if note != NOT_RUN),
        *values.notes,
        *_notes(inspection, measured, times, reason, {row.id for row in cost.rows}),
        *why,
    )
    # Only the fields: cached sums of the cost have no times.
    cost_fields = {field.name: getattr(cost, field.name) for field in fields(Cost) if field.init}
    cost_fields |= {"source": "measured", "rows": rows, "notes": notes}
    return Profile(
        **cost_fields,
        runs=runs,
        warm_up=warm_up,
        times_run=measured.times_run,
        walls_s=measured.walls_s,
        profiled_s=tuple(run.wall_ns / _NS_PER_S for run in times) or measured.profiled_walls_s,
        samples=samples,
        contractions=contractions,
        machine=peaks,
    )


def _check(runs: int, warm_up: int, peaks: Any) -> None:
    for name, value, least in (("runs", runs, 1), ("warm_up", warm_up, 0)):
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise UnknownOptionError(
                f"ml.profile does not accept {name}={value!r}.",
                (("needs", f"a whole number, {least} or more"),),
                f"ml.profile(inspection, {name}={max(least, 3)})",
            )
    if peaks is not None and not isinstance(peaks, Machine):
        text = " ".join(short_repr(peaks, 60).split())
        raise UnknownOptionError(
            f"ml.profile does not accept peaks={text}.",
            (("needs", "the result of ml.machine()"),),
            "ml.profile(inspection, peaks=ml.machine())  # or omit peaks= to measure them",
        )


def inspected(target: Any, args: tuple[Any, ...], options: Mapping[str, Any]) -> tuple[Inspection, tuple[Any, ...]]:
    """Return the inspection of a target, and the arguments of its program in order, without static arguments."""
    # The arrays are needed in the order of the program's inputs: positional ones, then named ones by name, as JAX
    # flattens them.
    if not isinstance(target, Inspection):
        check_options(options)
        own = signatures.signature(targets.inspect).parameters
        named = {name: value for name, value in options.items() if name not in own} | dict(options.get("kwargs") or {})
        if "params" in options and takes_params(target, args, named, options["params"]):
            named["params"] = options["params"]
        inspection = targets.inspect(target, *args, **options)
        static_options = {name: options.get(name) for name in ("static_argnums", "static_argnames")}
        target, args, named = without_partial(target, args, named)
        static = static_arguments(target, args, named, **static_options)
        values = [*enumerate(args), *((name, named[name]) for name in sorted(named))]
        return inspection, tuple(value for key, value in values if key not in static)
    if options:
        raise UnknownOptionError(
            f"program {target.name!r} is already inspected, and takes no options.",
            (("given", ", ".join(f"{name}=" for name in options)),),
            f"ml.profile(ml.inspect(program, *args, {', '.join(f'{name}=...' for name in options)}))",
        )
    return target, args


def _values(inspection: Inspection, args: tuple[Any, ...], is_inspected: bool) -> Values:
    try:
        return values_for(inspection, args)
    except UnexpectedInputError:
        # The programs of modules, and of models with inputs by name, take their arrays in another order.
        if is_inspected:
            raise
        return values_for(inspection, ())


def _contractions(stage: Stage) -> dict[str, str]:
    dtypes = {instruction.id: instruction.shapes[0].dtype for instruction in stage.instructions if instruction.shapes}
    return {
        instruction.id: dtypes.get(instruction.operands[0], instruction.shapes[0].dtype)
        for instruction in stage.instructions
        if instruction.opcode in _CONTRACTIONS and instruction.operands and instruction.shapes
    }


def _peaks(compiled: Any, dtypes: Sequence[str]) -> tuple[Machine | None, tuple[str, ...]]:
    try:
        return machine(dtypes or (MATMUL,), _device_of(compiled)), ()
    except Exception as error:  # times are valid without peaks
        return None, (f"roofline: the peaks of this machine could not be measured: {error}",)


def _recorded(inspection: Inspection, compiled: Any) -> Any:
    # Seen on an H100 with JAX 0.11.2: all blocks of a GPT got the time of the first.
    # In a CUDA graph, the profiler's events name the graph and the kernel, and equal instructions share one
    # kernel. Without CUDA graphs, each event names its instruction.
    if inspection.given is not None or _device_of(compiled).platform != "gpu":
        return compiled
    return compile_with(
        _NO_GRAPHS,
        inspection.compiler_options,
        lambda options: inspection.lowered.compile(compiler_options=dict(options)),
    )


def _device_of(compiled: Any) -> Any:
    return next(iter(compiled.runtime_executable().local_devices()))


def _note_on_peaks(compiled: Any, peaks: Machine) -> tuple[str, ...]:
    try:
        device = _device_of(compiled)
    except Exception:  # only the note is missing
        return ()
    here, there = (device.platform, device.device_kind), (peaks.platform, peaks.device_kind)
    if here == there:
        return ()
    ran, described = (kind if kind == platform else f"{platform} {kind}" for platform, kind in (here, there))
    return (
        f"roofline: peaks= describes {described}, but the program ran on {ran}, so roofline shares are not meaningful",
    )


def _timed(
    cost: Cost, measured: Runs, times: Sequence[RunTimes]
) -> tuple[tuple[CostRow, ...], dict[str, tuple[float, ...]]]:
    if not times:
        total = _row(WHOLE, "whole runs; the times of instructions are unknown", middle_mean(measured.walls_s))
        return (*cost.rows, total), {WHOLE: measured.walls_s}
    ids = dict.fromkeys(id for run in times for id in run.by_id)
    samples = {id: tuple(run.by_id.get(id, 0.0) / _NS_PER_S for run in times) for id in ids}
    samples[BETWEEN] = tuple(run.between_ns / _NS_PER_S for run in times)
    samples[DISPATCH] = tuple(run.dispatch_ns / _NS_PER_S for run in times)
    wall_s = middle_mean(measured.walls_s)
    # Keep the half of the runs that is closest in time to runs without the profiler: the others were delayed.
    nearest = sorted(range(len(times)), key=lambda index: abs(times[index].wall_ns / _NS_PER_S - wall_s))
    counted = nearest[: (len(times) + 1) // 2]

    def mean(id: str) -> float:
        return sum(samples[id][index] for index in counted) / len(counted)

    # On a busy machine, the instructions alone may take longer with the profiler than whole runs without it. The total
    # is the time without it, so they are scaled to it.
    within_s = sum(mean(id) for id in ids)
    if within_s > wall_s:
        samples |= {id: tuple(second * wall_s / within_s for second in samples[id]) for id in ids}
    means = {id: mean(id) for id in samples}
    # The profiler writes its events around and between instructions, which takes time. The wall time of runs without
    # the profiler determines how much of the time around and between instructions belongs to the program.
    around_s = means[BETWEEN] + means[DISPATCH]
    own_s = max(0.0, wall_s - (sum(means.values()) - around_s))
    if around_s:
        means[BETWEEN], means[DISPATCH] = (means[id] * own_s / around_s for id in (BETWEEN, DISPATCH))
    row_ids = {row.id for row in cost.rows}
    rows = [replace(row, time_s=_on_ticks(means[row.id])) if row.id in means else row for row in cost.rows]
    rows += [_row(id, _OUTSIDE.get(id, _NOT_IN_TEXT), mean) for id, mean in means.items() if id not in row_ids]
    return tuple(rows), samples


_OUTSIDE = {
    BETWEEN: "time between instructions, without the profiler's overhead",
    DISPATCH: "time before the first instruction and after the last, without the profiler's overhead",
}
_NOT_IN_TEXT = "not in the program's text; its cost is counted at the instruction that contains it"


def _row(id: str, formula: str, time_s: float) -> CostRow:
    counts: dict[str, Any] = dict.fromkeys(COUNTED, 0)
    return CostRow(id, "", (), None, repeats=1, formula=formula, time_s=_on_ticks(time_s), once=NO_WORK, **counts)


def _on_ticks(seconds: float) -> float:
    # Multiples of a power of two are exact floats, so blocks, roles and rows sum to the same total in any order.
    return round(seconds * TICKS_PER_S) / TICKS_PER_S


def _notes(
    inspection: Inspection, measured: Runs, times: Sequence[RunTimes], reason: str | None, row_ids: set[str]
) -> tuple[str, ...]:
    notes: list[str] = []
    if reason is not None:
        notes.append(f"times of instructions, blocks and roles: {reason}")
    elif measured.left_out:
        notes.append(
            f"times: {len(measured.left_out)} of the profiler's recordings are not used: {measured.left_out[0]}"
        )
    if not all(plane.startswith(TRIED_PLANES) for plane in measured.planes):
        notes.append(f"times: events of {', '.join(measured.planes)} are read like CPU events, which is not verified")
    effects = {equation.primitive for equation in inspection.equations if _EFFECT.search(equation.primitive)}
    if effects:
        notes.append(f"{', '.join(sorted(effects))}: side effects happened {measured.times_run} times")
    strange = {id for run in times for id in run.by_id} - row_ids
    if strange:
        notes.append(f"times of {', '.join(sorted(strange))}: not in the program's text, so not attributed to a block")
    if times:
        wall_s = middle_mean(measured.walls_s)
        added_s = middle_mean([run.wall_ns / _NS_PER_S for run in times]) - wall_s
        between_s = middle_mean([run.between_ns / _NS_PER_S for run in times])
        if added_s - between_s > _NOTABLE * wall_s:
            share = (added_s - between_s) / wall_s
            notes.append(
                f"times: with the profiler, runs took {share:.0%} longer, even without the time between instructions"
            )
    return tuple(notes)
