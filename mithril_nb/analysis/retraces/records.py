"""Reports of watched functions, as frozen data."""

from __future__ import annotations

from dataclasses import dataclass

from mithril_nb.display import Shown
from mithril_nb.errors import UnknownOptionError, listed, nearest, short_repr


@dataclass(frozen=True)
class Retrace:
    """A call that made JAX trace a function again, or compile it again without a new trace.

    Attributes:
        reason: One sentence: how the call differs from the most similar earlier call.
        file: Path of the user's file with the call; `""` if the whole stack is library code.
        line: The line in that file, from 1; 0 if unknown.
        place: File and line for display, such as `"train.py:12"` or `"cell [3]:2"`.
        call: Number of the call, from 1; `None` in a `with ml.watch()` block, or for ahead-of-time lowering.
        is_traced: True if the function was traced again; False if it was only lowered and compiled.
        trace_s: Seconds of the trace; `None` if JAX reports none, as inside another trace or under `jax.grad`.
        lower_s: Seconds of lowering; `None` if the call lowered nothing.
        compile_s: Seconds of compilation; `None` if the call compiled nothing.
    """

    reason: str
    file: str
    line: int
    place: str
    call: int | None
    is_traced: bool
    trace_s: float | None
    lower_s: float | None
    compile_s: float | None

    @property
    def time_s(self) -> float:
        """Sum of the known times, in seconds."""
        return sum(one for one in (self.trace_s, self.lower_s, self.compile_s) if one is not None)

    def __str__(self) -> str:
        return f"{self.place or 'unknown line'}: {self.reason}"


@dataclass(frozen=True)
class FunctionReport(Shown):
    """Counts and times of the calls, traces, lowerings and compilations of a function. Returned by `ml.watch`.

    Attributes:
        name: The name of the function; `"f in grad_f"` for the function that `jax.grad(f)` returns.
        place: File and line of the definition, such as `"train.py:12"`; `""` if unknown.
        library: The installed library that defines it; `None` for a function that the user defined, jitted or watched.
        calls: Number of calls; `None` if unknown, because JAX reports no event for a cache hit.
        hits: Number of cache hits: calls without a trace, lowering or compilation; `None` if unknown.
        traces: Number of traces of the Python function.
        lowerings: Number of conversions to StableHLO.
        compilations: Number of compilations by XLA, reads from disk included.
        disk_hits: Number of compilations that were read from JAX's persistent compilation cache.
        trace_s: Seconds of all traces with a known time.
        untimed_traces: Number of traces without a known time.
        lower_s: Seconds of all lowerings.
        compile_s: Seconds of all compilations.
        retraces: The first retraces, and compilations without a new trace, in order.
        left_out: Number of later retraces, which are only counted.
        unjitted: Number of calls under `jax.disable_jit()`, in which the Python function itself runs.
    """

    name: str
    place: str
    library: str | None
    calls: int | None
    hits: int | None
    traces: int
    lowerings: int
    compilations: int
    disk_hits: int
    trace_s: float
    untimed_traces: int
    lower_s: float
    compile_s: float
    retraces: tuple[Retrace, ...] = ()
    left_out: int = 0
    unjitted: int = 0

    @property
    def time_s(self) -> float:
        """Seconds of all traces, lowerings and compilations with a known time."""
        return self.trace_s + self.lower_s + self.compile_s


@dataclass(frozen=True)
class WatchReport(Shown):
    """The reports of all functions that ran in a `with ml.watch()` block.

    Attributes:
        functions: A report for each function, sorted by time, the longest first.
        left_out: Number of further functions, which were not watched.
    """

    functions: tuple[FunctionReport, ...]
    left_out: int = 0

    @property
    def retraces(self) -> tuple[Retrace, ...]:
        """The retraces of the user's functions, grouped by function."""
        return tuple(retrace for one in self.functions if one.library is None for retrace in one.retraces)

    @property
    def traces(self) -> int:
        """Number of traces of all functions."""
        return sum(one.traces for one in self.functions)

    @property
    def compilations(self) -> int:
        """Number of compilations of all functions."""
        return sum(one.compilations for one in self.functions)

    @property
    def time_s(self) -> float:
        """Seconds of all traces, lowerings and compilations with a known time."""
        return sum(one.time_s for one in self.functions)

    def __getitem__(self, name: str) -> FunctionReport:
        """Return the report of the function with a name; if there are several, the one that took longest.

        Raises:
            UnknownOptionError: No function with this name was traced or compiled.
        """
        known = {one.name: one for one in reversed(self.functions)}
        if name not in known:
            near = nearest(name, known)
            raise UnknownOptionError(
                f"the report has no function {short_repr(name)}.",
                (("functions", listed(known)),),
                f"report[{near!r}]" if near else "report.functions",
            )
        return known[name]
