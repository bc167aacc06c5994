"""Counts of the traces and compilations of functions with the reason for each retrace, and reports of them."""

from __future__ import annotations

import functools
import threading
import types
import weakref
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax

from mithril_nb.analysis.retraces.signature import Signature, differences, function_text, sentence, signature_of
from mithril_nb.display import Shown, draw
from mithril_nb.errors import UnknownOptionError, listed, nearest, short_repr
from mithril_nb.stages import jax_jit, jit_events
from mithril_nb.stages.jax_jit import JitWrapper
from mithril_nb.stages.jax_versions import file_label, library_of
from mithril_nb.stages.jit_events import UNNAMED, JitCall, Source, thread


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
        """Return the report of the function with a name; of several, that of the slowest one."""
        # The last of equal keys stays: the slowest function, which comes first in the report.
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


# The fields of a `Retrace`; times are added when JAX reports them. The reason is `None` for the first trace.
_Entry = dict[str, Any]


def _entry(reason: str | None, call: JitCall, number: int | None, is_traced: bool) -> _Entry:
    file, line = call.location
    place = f"{file_label(file)}:{line}" if file else ""
    entry = {"reason": reason, "file": file, "line": line, "place": place, "call": number, "is_traced": is_traced}
    return entry | dict.fromkeys(("trace_s", "lower_s", "compile_s"))


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
        # JAX may trace one function on several threads at once.
        self._lock = threading.RLock()  # the `repr` of a static argument may call the function
        self._thread = threading.local()
        # Signatures of earlier calls: under `True` calls that traced, under `False` calls that lowered.
        self._signatures: dict[bool, deque[Signature]] = {
            is_trace: deque(maxlen=_MOST_SIGNATURES) for is_trace in (True, False)
        }
        self._functions: dict[int, weakref.ref[Any] | None] = {}
        self._entries: list[_Entry] = []
        # Counts and seconds by name: the fields of `FunctionReport`, and `misses`.
        self._counts: Any = Counter()

    def count(self, *names: str) -> int:
        """Count a call (`"calls"`), a call that was no cache hit (`"misses"`) or one without `jax.jit` (`"unjitted"`).

        Returns:
            The number of calls so far.
        """
        with self._lock:
            self._counts.update(names)
            return self._counts["calls"]

    @property
    def has_no_signature(self) -> bool:
        """True if no earlier call exists to compare with."""
        return not self._signatures[True]

    def remember(self, call: JitCall) -> None:
        """Store the signature of a cache hit for comparison with later calls."""
        with self._lock:
            self._remember(True, call)
            self._remember(False, call)

    def trace(self, call: JitCall, number: int | None = None) -> Callable[[float], None]:
        """Count a trace, and return a function that records the seconds that the trace took."""
        with self._lock:
            if self.name == UNNAMED:  # JAX has no name for a callable object
                self._title = type(call.function).__qualname__.rpartition("<locals>.")[2]
            entry = _entry(self._reason(True, call), call, number, is_traced=True)
            self._counts.update(("traces", "untimed_traces"))
            self._keep(entry)
        # JAX lowers and compiles on the thread of the trace, after it, so the last trace of a thread is theirs.
        self._thread.entry = entry

        def timed(seconds: float) -> None:
            with self._lock:
                entry["trace_s"] = seconds
                self._counts.update({"trace_s": seconds, "untimed_traces": -1})

        return timed

    def lower(self, seconds: float, call: JitCall | None, number: int | None = None) -> None:
        """Count a lowering. It belongs to the last trace on this thread. A second lowering is a new entry."""
        entry: _Entry | None = getattr(self._thread, "entry", None)
        with self._lock:
            self._counts.update({"lowerings": 1, "lower_s": seconds})
            # JAX also lowers a trace again from its cache, as under `jax.grad` or for another sharding.
            if entry is None or entry["lower_s"] is not None:
                entry = None
                if call is not None:
                    entry = _entry(self._reason(False, call), call, number, is_traced=False)
                    self._keep(entry)
            elif call is not None:
                self._remember(False, call)
            if entry is not None:
                entry["lower_s"] = seconds
        self._thread.entry = entry

    def compile(self, seconds: float, from_disk: bool) -> None:
        """Count a compilation; `from_disk` is true if it was read from the persistent compilation cache."""
        entry: _Entry | None = getattr(self._thread, "entry", None)
        with self._lock:
            self._counts.update({"compilations": 1, "disk_hits": from_disk, "compile_s": seconds})
            if entry is not None:
                entry["compile_s"] = (entry["compile_s"] or 0.0) + seconds

    def report(self) -> FunctionReport:
        """Return the counts so far."""
        file, line = self.source
        with self._lock:
            counts = self._counts
            hits = counts["calls"] - counts["misses"] - counts["unjitted"]
            names = ("traces", "lowerings", "compilations", "disk_hits", "untimed_traces", "left_out", "unjitted")
            numbers: dict[str, Any] = {name: counts[name] for name in names}
            numbers |= {name: float(counts[name]) for name in ("trace_s", "lower_s", "compile_s")}
            return FunctionReport(
                self._title,
                f"{file_label(file)}:{line}" if file else "",
                library_of(file) if file and not self.is_of_user else None,
                counts["calls"] if self._counts_calls else None,
                hits if self._counts_calls else None,
                retraces=tuple(Retrace(**entry) for entry in self._entries),
                **numbers,
            )

    def reset(self) -> None:
        """Set all counts to 0 and drop the retraces; signatures stay, so that later retraces have a reason."""
        with self._lock:
            self._counts.clear()
            self._entries.clear()

    def _keep(self, entry: _Entry) -> None:
        if entry["reason"] is None:  # the first trace
            return
        if len(self._entries) < MOST_RETRACES:
            self._entries.append(entry)
        else:
            self._counts["left_out"] += 1

    def _reason(self, is_trace: bool, call: JitCall) -> str | None:
        is_known = not is_trace or self._is_known(call.function)
        clauses = self._remember(is_trace, call)
        if not is_trace and self.has_no_signature:  # it was traced before it was watched
            self._remember(True, call)
        if clauses is None:
            return _UNSEEN if self._is_seen else None
        if not is_known:
            # JAX caches traces by function object: a lambda in a loop is new each time, though its code is the same.
            clauses = [f"a new function object: {function_text(call.function)}", *clauses]
        return sentence(clauses) or self._dropped(is_trace)

    def _dropped(self, is_trace: bool) -> str:
        statics = [
            part.static
            for argument in self._signatures[is_trace][-1].arguments
            for part in (argument, *argument.leaves)
        ]
        # Without a weak reference it is unknown whether the values were equal for JAX.
        has_static = not all(static.is_exact for static in statics if static is not None)
        return _DROPPED.format("traced" if is_trace else "compiled") + (_OR_STATIC if has_static else "")

    def _remember(self, is_trace: bool, call: JitCall) -> list[str] | None:
        earlier = self._signatures[is_trace]
        try:
            new = signature_of(call, earlier[-1] if earlier else None)
            candidates = [differences(old, new, is_compiled=not is_trace) for old in reversed(earlier)]
        except Exception as error:  # raised by a class of the user; the watched program must continue
            return [f"the arguments could not be compared ({type(error).__name__}: {error})"]
        # The latest calls are kept: a loop over many shapes compares with the recent ones.
        if new in earlier:
            earlier.remove(new)
        earlier.append(new)
        if not candidates:
            return None
        return [
            difference.clause
            # Of equally similar calls the latest: `min` returns the first, and the list is reversed.
            for difference in min(candidates, key=lambda each: sum(difference.parts for difference in each))
        ]

    def _is_known(self, function: Any) -> bool:
        # An id is reused after its object is freed, so the weak reference is compared, too.
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


MOST_FOLLOWERS = 4
"""Most cell outputs that are updated for a watched function or block; older outputs stay unchanged."""
MOST_FUNCTIONS = 1_000
"""Most functions that a `with ml.watch()` block distinguishes; events of further functions are only counted."""


class Following(Shown):
    """Mixin that updates the output of a cell after each trace, lowering and compilation."""

    def __init__(self) -> None:
        self._followers: deque[Callable[[], None]] = deque(maxlen=MOST_FOLLOWERS)

    def follow(self, changed: Callable[[], None]) -> None:
        """Register a callback that runs after each trace, lowering and compilation, on the same thread."""
        self._followers.append(changed)

    def changed(self) -> None:
        """Call the registered callbacks."""
        for follower in tuple(self._followers):
            follower()

    def _ipython_display_(self) -> None:
        draw(self, "live")


class _Call:
    __slots__ = ("has_missed", "number", "watched")

    def __init__(self, watched: Watched, number: int | None):
        self.watched, self.number, self.has_missed = watched, number, False

    def on_trace(self, call: JitCall) -> Callable[[float], None] | None:
        if not self.watched.is_of(call) or not self._is_innermost():
            return None
        timed = self.watched.recorder.trace(call, self.number)
        self.miss()
        return timed

    def on_lower(self, name: str, source: Source, seconds: float, call: JitCall | None) -> None:
        if self.watched.is_named(name, source) and self._is_innermost():
            self.watched.recorder.lower(seconds, call, self.number)
            self.miss()

    def on_compile(self, name: str, source: Source, seconds: float, from_disk: bool) -> None:
        if self.watched.is_named(name, source) and self._is_innermost():
            self.watched.recorder.compile(seconds, from_disk)
            self.miss()

    def _is_innermost(self) -> bool:
        # There may be several by recursion.
        return (
            next(scope for scope in reversed(thread.scopes) if getattr(scope, "watched", None) is self.watched) is self
        )

    def miss(self) -> None:
        """Record that the call is not a cache hit."""
        if self.number is not None and not self.has_missed:
            self.has_missed = True
            self.watched.recorder.count("misses")
        self.watched.changed()


class Watched(Following, JitWrapper):
    """A jitted function that counts its calls, traces, lowerings and compilations. Returned by `ml.watch`.

    It has the signature and the attributes of the jitted function: `lower`, `trace`, `eval_shape`, `clear_cache`, ...
    `print` and a notebook show its report.

    Attributes:
        recorder: The counter of calls, traces, lowerings and compilations.
    """

    def __init__(self, function: Callable[..., Any]):
        super().__init__()
        jit_events.listen()
        # Functions of `eqx.filter_jit` and `nnx.jit` have `lower` too, but are no `jax.jit` objects.
        self._jitted: Any = function if hasattr(function, "lower") else jax.jit(function)
        self._function: Any = getattr(self._jitted, "_fun", None)
        # Other libraries' wrappers have no `_cache_size`; theirs count as not traced before.
        size = getattr(self._jitted, "_cache_size", lambda: 0)()
        inner = self._jitted if self._function is None else self._function
        name, source = jit_events.name_of(inner), jit_events.source_of(inner)
        self.recorder = Recorder(name, source, is_seen=size > 0, counts_calls=True)
        functools.update_wrapper(self, self._jitted, updated=())
        self.__wrapped__ = self._jitted

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        if jax_jit.is_jit_disabled():
            self.recorder.count("calls", "unjitted")
            return self._jitted(*args, **kwargs)
        scopes, call = thread.scopes, _Call(self, self.recorder.count("calls"))
        scopes.append(call)
        try:
            result = self._jitted(*args, **kwargs)
        except BaseException:
            # JAX may refuse the arguments before it traces, which is no hit either.
            call.miss()
            raise
        finally:
            scopes.pop()
        # JAX reports no event for a cache hit, so the arguments of the first one are read from the call itself.
        if not call.has_missed and self.recorder.has_no_signature:
            hit = jit_events.call_of(self._jitted, args, kwargs)
            if hit is not None:
                self.recorder.remember(hit)
        return result

    def lower(self, /, *args: Any, **kwargs: Any) -> Any:
        """Lower the function for the given arguments, as the jitted function does; the trace is counted."""
        return self._ahead(self._jitted.lower, args, kwargs)

    def trace(self, /, *args: Any, **kwargs: Any) -> Any:
        """Trace the function for the given arguments, as the jitted function does; the trace is counted."""
        return self._ahead(self._jitted.trace, args, kwargs)

    def eval_shape(self, /, *args: Any, **kwargs: Any) -> Any:
        """Return the shapes of the results, as the jitted function does; the trace is counted."""
        return self._ahead(self._jitted.eval_shape, args, kwargs)

    def report(self) -> FunctionReport:
        """Return the counts so far, and the retraces with their reasons."""
        return self.recorder.report()

    def reset(self) -> None:
        """Set all counts to 0 and drop the retraces; later calls are still compared with earlier ones."""
        self.recorder.reset()

    @property
    def calls(self) -> int:
        """The number of calls so far."""
        return self.report().calls or 0

    @property
    def retraces(self) -> tuple[Retrace, ...]:
        """The first 100 retraces so far."""
        return self.report().retraces

    def is_of(self, call: JitCall) -> bool:
        """Return whether JAX's report of a trace is about this function, rather than about a function that it calls.

        The name is not enough: a library such as Equinox jits its own function, and gives it the user's name.
        """
        return call.name == self.recorder.name if self._function is None else call.function is self._function

    def is_named(self, name: str, source: Source) -> bool:
        """Return whether a program that JAX lowers or compiles belongs to this function."""
        recorder = self.recorder
        return name == recorder.name and (self._function is None or source == recorder.source or not source[0])

    def _ahead(self, method: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        scopes = thread.scopes
        scopes.append(_Call(self, None))
        try:
            return method(*args, **kwargs)
        finally:
            scopes.pop()

    # A jitted function in a class body becomes a method, and so must this one.
    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __getattr__(self, name: str) -> Any:
        if name == "_jitted":  # not set yet, as in a copy
            raise AttributeError(name)
        return getattr(self._jitted, name)

    # Locks cannot be pickled, so a copy starts with counts of 0.
    def __reduce__(self) -> Any:
        return Watched, (self._jitted,)

    def __repr__(self) -> str:
        return f"Watched({self._jitted!r})"


class Watch(Following):
    """Watch all jitted functions that are called inside a `with` block, on all threads. Returned by `ml.watch()`.

    `print` and a notebook show its report.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._thread = threading.local()
        self._recorders: dict[tuple[str, Source, str], Recorder] = {}
        self._left_out = self._depth = 0

    def __enter__(self) -> Watch:
        with self._lock:
            # One watch may be entered several times, also while it is active.
            self._depth += 1
            if self._depth == 1:
                jit_events.observe(self)
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._depth -= 1
            if self._depth == 0:
                jit_events.ignore(self)

    def report(self) -> WatchReport:
        """Return a report for each function that was traced, lowered or compiled so far, the slowest function first."""
        with self._lock:
            recorders, left_out = [*self._recorders.values()], self._left_out
        reports = sorted((recorder.report() for recorder in recorders), key=lambda report: -report.time_s)
        return WatchReport(tuple(reports), left_out)

    @property
    def retraces(self) -> tuple[Retrace, ...]:
        """The retraces of the user's functions so far."""
        return self.report().retraces

    def on_trace(self, call: JitCall) -> Callable[[float], None] | None:
        """Count a trace. A trace of a library function inside another trace is not counted separately."""
        if call.is_nested and not call.is_of_user and library_of(call.source[0]) is not None:
            return None
        recorder = self._recorder(call.name, call.source, call)
        if recorder is None:
            return None
        timed = recorder.trace(call)
        self.changed()
        return timed

    def on_lower(self, name: str, source: Source, seconds: float, call: JitCall | None) -> None:
        """Count a lowering."""
        recorder = self._recorder(name, source, call)
        if recorder is not None:
            recorder.lower(seconds, call)
            self.changed()

    def on_compile(self, name: str, source: Source, seconds: float, from_disk: bool) -> None:
        """Count a compilation."""
        # JAX has left the frames of the call when it reports a compilation.
        recorder = self._recorder(name, source, None)
        if recorder is not None:
            recorder.compile(seconds, from_disk)
            self.changed()

    def _recorder(self, name: str, source: Source, call: JitCall | None) -> Recorder | None:
        # A function has a separate counter for each function that wraps it, such as the result of `jax.grad`.
        # If `call` is `None`, the wrapper is unknown. Then the wrapper in the last event of this function on
        # this thread is used.
        latest: dict[tuple[str, Source], str] = vars(self._thread).setdefault("latest", {})
        wrapper = latest.get((name, source), "") if call is None else call.wrapper
        latest[name, source] = wrapper
        with self._lock:
            recorder = self._recorders.get((name, source, wrapper))
            if recorder is None:
                if len(self._recorders) >= MOST_FUNCTIONS:
                    self._left_out += 1
                    return None
                recorder = self._recorders[name, source, wrapper] = Recorder(name, source, wrapper=wrapper)
            if call is not None and call.is_of_user:
                recorder.is_of_user = True
            return recorder

    def __repr__(self) -> str:
        return f"Watch({len(self._recorders)} functions)"
