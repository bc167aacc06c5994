"""Watch the retraces of one function, or of all functions in a `with` block."""

from __future__ import annotations

import functools
import threading
import types
from collections import deque
from collections.abc import Callable
from typing import Any

import jax

from mithril_nb.analysis.retraces.recorder import FunctionReport, Recorder, Retrace, WatchReport
from mithril_nb.display import Shown, draw
from mithril_nb.stages import jax_jit, jit_events
from mithril_nb.stages.jax_jit import JitWrapper
from mithril_nb.stages.jax_versions import library_of
from mithril_nb.stages.jit_events import JitCall, Source, thread

MOST_FOLLOWERS = 4
"""Most cell outputs that are updated for a watched function or block; older outputs stay unchanged."""
MOST_FUNCTIONS = 1_000
"""Most functions that a `with ml.watch()` block distinguishes; events of further functions are only counted."""


class Following(Shown):
    """Mixin that updates the output of a cell after each trace, lowering and compilation."""

    def __init__(self) -> None:
        self._followers: deque[Callable[[], None]] = deque(maxlen=MOST_FOLLOWERS)

    def follow(self, changed: Callable[[], None]) -> None:
        """Register a callback that runs after each trace, lowering and compilation, on the same thread.

        Args:
            changed: The callback. Only the last four callbacks are called: each run of a cell that shows the report
                registers another.
        """
        self._followers.append(changed)

    def changed(self) -> None:
        """Call the registered callbacks."""
        for follower in tuple(self._followers):
            follower()

    def _ipython_display_(self) -> None:
        draw(self, "live")


class _Call:
    """Observer of one call of a watched function, on the thread of the call.

    Args:
        watched: The function.
        number: Number of the call; `None` for ahead-of-time lowering or tracing, which is not counted as a call.
    """

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
        """Return whether this is the innermost call of the function in progress; there may be several by recursion."""
        return (
            next(scope for scope in reversed(thread.scopes) if getattr(scope, "watched", None) is self.watched) is self
        )

    def miss(self) -> None:
        """Record that the call is not a cache hit."""
        if self.number is not None and not self.has_missed:
            self.has_missed = True
            self.watched.recorder.count_miss()
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
        self._jitted: Any = function if hasattr(function, "lower") else jax.jit(function)
        self._function: Any = getattr(self._jitted, "_fun", None)
        size = getattr(self._jitted, "_cache_size", lambda: 0)()
        inner = self._jitted if self._function is None else self._function
        name, source = jit_events.name_of(inner), jit_events.source_of(inner)
        self.recorder = Recorder(name, source, is_seen=size > 0, counts_calls=True)
        functools.update_wrapper(self, self._jitted, updated=())
        self.__wrapped__ = self._jitted

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        if jax_jit.is_jit_disabled():
            self.recorder.count_unjitted()
            return self._jitted(*args, **kwargs)
        scopes, call = thread.scopes, _Call(self, self.recorder.count_call())
        scopes.append(call)
        try:
            result = self._jitted(*args, **kwargs)
        except BaseException:
            call.miss()
            raise
        finally:
            scopes.pop()
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

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __getattr__(self, name: str) -> Any:
        if name == "_jitted":  # not set yet, as in a copy
            raise AttributeError(name)
        return getattr(self._jitted, name)

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
        recorder = self._recorder(name, source, None)
        if recorder is not None:
            recorder.compile(seconds, from_disk)
            self.changed()

    def _recorder(self, name: str, source: Source, call: JitCall | None) -> Recorder | None:
        """Return the counter of a function; `None` if there are too many functions.

        A function has a separate counter for each function that wraps it, such as the result of `jax.grad`. If `call`
        is `None`, the wrapper is unknown. Then the wrapper in the last event of this function on this thread is used.
        """
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
