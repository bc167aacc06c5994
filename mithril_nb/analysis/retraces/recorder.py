"""Counts of the traces and compilations of one function with the reason for each retrace, and reports of them."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mithril_nb.analysis.retraces.differences import differences, sentence
from mithril_nb.analysis.retraces.signature import Signature, function_text, signature_of
from mithril_nb.display import Shown
from mithril_nb.errors import UnknownOptionError, listed, nearest, short_repr
from mithril_nb.stages.jax_versions import file_label, library_of
from mithril_nb.stages.jit_events import UNNAMED, JitCall


@dataclass(frozen=True)
class Retrace:
    """A call that made JAX trace a function again, or compile it again without a new trace.

    Attributes:
        reason: One sentence: how the call differs from the most similar earlier call.
        file: Path of the user's file that contains the call; `""` if unknown, as when only library code is on the
            stack.
        line: Number of the line in this file, from 1; 0 if unknown.
        place: File and line for display, such as `"train.py:12"` or `"cell [3]:2"`; `""` if unknown.
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
        return sum(seconds for seconds in (self.trace_s, self.lower_s, self.compile_s) if seconds is not None)

    def __str__(self) -> str:
        return f"{self.place or 'unknown line'}: {self.reason}"


@dataclass(frozen=True)
class FunctionReport(Shown):
    """Counts and times of the calls, traces, lowerings and compilations of a watched function.

    Attributes:
        name: The name of the function; `"f in grad_f"` for the function that `jax.grad(f)` returns.
        place: File and line of the definition, such as `"train.py:12"`; `""` if unknown.
        library: Name of the installed library that defines the function; `None` if the user defined, jitted or watched
            it.
        calls: Number of calls; `None` in a `with ml.watch()` block, because JAX reports no event for a cache hit.
        hits: Number of cache hits: calls without a trace, lowering or compilation; `None` in a `with ml.watch()` block.
        traces: Number of traces of the Python function.
        lowerings: Number of conversions to StableHLO.
        compilations: Number of compilations by XLA, reads from disk included.
        disk_hits: Number of compilations that were read from JAX's persistent compilation cache.
        trace_s: Seconds of all traces with a known time.
        untimed_traces: Number of traces without a known time.
        lower_s: Seconds of all lowerings.
        compile_s: Seconds of all compilations.
        retraces: The first 100 calls that traced or compiled the function again, in order.
        left_out: Number of further such calls, which are not in `retraces`.
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
        left_out: Number of traces, lowerings and compilations that belong to no report, because the block ran more
            functions than `ml.watch` distinguishes (1,000).
    """

    functions: tuple[FunctionReport, ...]
    left_out: int = 0

    @property
    def retraces(self) -> tuple[Retrace, ...]:
        """The retraces of the user's functions, grouped by function."""
        return tuple(retrace for report in self.functions if report.library is None for retrace in report.retraces)

    @property
    def traces(self) -> int:
        """Number of traces of all functions."""
        return sum(report.traces for report in self.functions)

    @property
    def compilations(self) -> int:
        """Number of compilations of all functions."""
        return sum(report.compilations for report in self.functions)

    @property
    def time_s(self) -> float:
        """Seconds of all traces, lowerings and compilations with a known time."""
        return sum(report.time_s for report in self.functions)

    def __getitem__(self, name: str) -> FunctionReport:
        """Return the report of the function with a name. If several functions have it, return the slowest one's report.

        Raises:
            UnknownOptionError: No function with this name was traced or compiled.
        """
        by_name = {report.name: report for report in reversed(self.functions)}
        if name not in by_name:
            near = nearest(name, by_name)
            raise UnknownOptionError(
                f"the report has no function {short_repr(name)}.",
                (("functions", listed(by_name)),),
                f"report[{near!r}]" if near else "report.functions",
            )
        return by_name[name]


MOST_RETRACES = 100
"""Most retraces that are stored for a function; further retraces are only counted."""
_MOST_SIGNATURES = 64
_MOST_FUNCTIONS = 256
_UNSEEN = "the earlier calls were not watched, so there is nothing to compare with"
_DROPPED = "an equal call was {} before; JAX's cache no longer holds it (cleared, or too many entries)"
_OR_STATIC = ", or a static argument is not equal to the earlier one"


class _Entry:
    """A trace, or a compilation without a trace. All except the first of a function become a `Retrace`."""

    def __init__(self, reason: str | None, call: JitCall | None, number: int | None, is_traced: bool):
        self.reason, self.number, self.is_traced = reason, number, is_traced
        self.file, self.line = ("", 0) if call is None else call.place
        self.trace_s: float | None = None
        self.lower_s: float | None = None
        self.compile_s: float | None = None

    def record(self) -> Retrace:
        location = f"{file_label(self.file)}:{self.line}" if self.file else ""
        times = (self.trace_s, self.lower_s, self.compile_s)
        return Retrace(self.reason or "", self.file, self.line, location, self.number, self.is_traced, *times)


class Recorder:
    """Counter of the calls, traces, lowerings and compilations of one function, on all threads.

    Args:
        name: The name of the function.
        source: File and first line of the definition; `("", 0)` if unknown.
        wrapper: The name of the function that wraps it, such as `"grad_f"`; `""` if there is none.
        is_seen: True if JAX traced the function before it was watched.
        counts_calls: True if the caller reports each call; false if it reports only traces, lowerings and
            compilations.

    Attributes:
        is_of_user: True if the user jitted or watched the function, though a library may define it.
    """

    def __init__(
        self,
        name: str,
        source: tuple[str, int],
        *,
        wrapper: str = "",
        is_seen: bool = False,
        counts_calls: bool = False,
    ):
        self.name, self.source = name, source
        self._title = f"{name} in {wrapper}" if wrapper else name
        self._is_seen, self._counts_calls = is_seen, counts_calls
        self.is_of_user = counts_calls
        self._lock = threading.RLock()  # the `repr` of a static argument may call the function
        self._thread = threading.local()
        self._signatures: dict[bool, deque[Signature]] = {
            is_trace: deque(maxlen=_MOST_SIGNATURES) for is_trace in (True, False)
        }
        """Signatures of earlier calls: under `True` calls that traced, under `False` calls that lowered."""
        self._functions: dict[int, weakref.ref[Any] | None] = {}
        self._entries: list[_Entry] = []
        self._left_out = 0
        self._calls = self._misses = self._unjitted = 0
        self._traces = self._untimed = self._lowerings = self._compilations = self._disk_hits = 0
        self._trace_s = self._lower_s = self._compile_s = 0.0

    def count_call(self) -> int:
        """Count a call and return its number."""
        with self._lock:
            self._calls += 1
            return self._calls

    def count_miss(self) -> None:
        """Count a call that caused a trace, a lowering or a compilation."""
        with self._lock:
            self._misses += 1

    @property
    def has_no_signature(self) -> bool:
        """True if no earlier call exists to compare with."""
        return not self._signatures[True]

    def remember(self, call: JitCall) -> None:
        """Store the signature of a cache hit for comparison with later calls."""
        with self._lock:
            self._remember(True, call)
            self._remember(False, call)

    def count_unjitted(self) -> None:
        """Count a call under `jax.disable_jit()`, in which the Python function itself runs."""
        with self._lock:
            self._calls += 1
            self._unjitted += 1

    def trace(self, call: JitCall, number: int | None = None) -> Callable[[float], None]:
        """Count a trace, and return a function that records the seconds that the trace took."""
        with self._lock:
            if self.name == UNNAMED:  # JAX has no name for a callable object
                self._title = type(call.function).__qualname__.rpartition("<locals>.")[2]
            entry = _Entry(self._reason_of_trace(call), call, number, is_traced=True)
            self._traces += 1
            self._untimed += 1
            self._keep(entry)
        self._thread.entry = entry

        def timed(seconds: float) -> None:
            with self._lock:
                entry.trace_s = seconds
                self._trace_s += seconds
                self._untimed -= 1

        return timed

    def lower(self, seconds: float, call: JitCall | None, number: int | None = None) -> None:
        """Count a lowering. It belongs to the last trace on this thread. A second lowering is a new entry."""
        entry: _Entry | None = getattr(self._thread, "entry", None)
        with self._lock:
            self._lowerings += 1
            self._lower_s += seconds
            if entry is None or entry.lower_s is not None:
                entry = None
                if call is not None:
                    entry = _Entry(self._reason_of_lowering(call), call, number, is_traced=False)
                    self._keep(entry)
            elif call is not None:
                self._remember(False, call)
            if entry is not None:
                entry.lower_s = seconds
        self._thread.entry = entry

    def compile(self, seconds: float, from_disk: bool) -> None:
        """Count a compilation; `from_disk` is true if it was read from the persistent compilation cache."""
        entry: _Entry | None = getattr(self._thread, "entry", None)
        with self._lock:
            self._compilations += 1
            self._disk_hits += from_disk
            self._compile_s += seconds
            if entry is not None:
                entry.compile_s = (entry.compile_s or 0.0) + seconds

    def report(self) -> FunctionReport:
        """Return the counts so far."""
        file, line = self.source
        with self._lock:
            return FunctionReport(
                self._title,
                f"{file_label(file)}:{line}" if file else "",
                library_of(file) if file and not self.is_of_user else None,
                self._calls if self._counts_calls else None,
                self._calls - self._misses - self._unjitted if self._counts_calls else None,
                self._traces,
                self._lowerings,
                self._compilations,
                self._disk_hits,
                self._trace_s,
                self._untimed,
                self._lower_s,
                self._compile_s,
                tuple(entry.record() for entry in self._entries),
                self._left_out,
                self._unjitted,
            )

    def reset(self) -> None:
        """Set all counts to 0 and drop the retraces; signatures stay, so that later retraces have a reason."""
        with self._lock:
            self._calls = self._misses = self._unjitted = self._left_out = 0
            self._traces = self._untimed = self._lowerings = self._compilations = self._disk_hits = 0
            self._trace_s = self._lower_s = self._compile_s = 0.0
            self._entries.clear()

    def _keep(self, entry: _Entry) -> None:
        if entry.reason is None:  # the first trace
            return
        if len(self._entries) < MOST_RETRACES:
            self._entries.append(entry)
        else:
            self._left_out += 1

    def _reason_of_trace(self, call: JitCall) -> str | None:
        is_known = self._is_known(call.function)
        clauses = self._remember(True, call)
        if clauses is None:
            return _UNSEEN if self._is_seen else None
        if not is_known:
            clauses = [f"a new function object: {function_text(call.function)}", *clauses]
        return sentence(clauses) or self._dropped(True)

    def _reason_of_lowering(self, call: JitCall) -> str | None:
        clauses = self._remember(False, call)
        if self.has_no_signature:  # it was traced before it was watched
            self._remember(True, call)
        if clauses is None:
            return _UNSEEN if self._is_seen else None
        return sentence(clauses) or self._dropped(False)

    def _dropped(self, is_trace: bool) -> str:
        statics = [
            part.static
            for argument in self._signatures[is_trace][-1].arguments
            for part in (argument, *argument.leaves)
        ]
        has_static = not all(static.is_exact for static in statics if static is not None)
        return _DROPPED.format("traced" if is_trace else "compiled") + (_OR_STATIC if has_static else "")

    def _remember(self, is_trace: bool, call: JitCall) -> list[str] | None:
        """Store a call, and return its differences from the most similar earlier call; `None` for the first call."""
        earlier = self._signatures[is_trace]
        try:
            new = signature_of(call, earlier[-1] if earlier else None)
            candidates = [differences(old, new, is_compiled=not is_trace) for old in reversed(earlier)]
        except Exception as error:  # raised by a class of the user; the watched program must continue
            return [f"the arguments could not be compared ({type(error).__name__}: {error})"]
        if new in earlier:
            earlier.remove(new)
        earlier.append(new)
        if not candidates:
            return None
        return [
            difference.clause
            for difference in min(candidates, key=lambda each: sum(difference.parts for difference in each))
        ]

    def _is_known(self, function: Any) -> bool:
        """Return false if this function object is new: it was not traced before, but another object was."""
        is_first = not self._functions
        reference = self._functions.get(id(function))
        is_known = id(function) in self._functions and (reference is None or reference() is function)
        if len(self._functions) >= _MOST_FUNCTIONS:
            alive = {key: ref for key, ref in self._functions.items() if ref is None or ref() is not None}
            self._functions = alive if len(alive) < _MOST_FUNCTIONS else {}
        try:
            self._functions[id(function)] = weakref.ref(function)
        except TypeError:  # an object with slots
            self._functions[id(function)] = None
        return is_known or is_first
