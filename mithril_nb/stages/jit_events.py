"""Report traces, lowerings and compilations of jitted functions as events, each with the call that caused it.

Like `jax_versions`, this file depends on JAX's internals; tested with 0.10.2 and 0.12.0. JAX's monitoring reports only
names and times, and reports no trace under `jax.grad`. So traces are taken from JAX's `test_event`, and the arguments
from the frames of JAX's functions. The listeners are registered once per process and are cheap without an observer.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any, Protocol

import jax
from jax._src import monitoring, util
from jax._src.api_util import fun_sourceinfo
from jax._src.util import fun_name

from mithril_nb.stages.jax_versions import library_of, start_of

# Names of JAX's monitoring events, the same in 0.10 and 0.12; JAX does not document them.
_TRACE = "/jax/core/compile/jaxpr_trace_duration"
_LOWER = "/jax/core/compile/jaxpr_to_mlir_module_duration"
_COMPILE = "/jax/core/compile/backend_compile_duration"
_FROM_DISK = "/jax/compilation_cache/cache_hits"
_OPTIONS = ("donate_argnums", "donate_argnames", "device", "backend", "keep_unused", "compiler_options_kvs")
_SHARDINGS = ("in_shardings_leaves", "out_shardings_leaves", "in_layouts_leaves", "out_layouts_leaves")


# Name of JAX's wrapper around each jitted function, which shortens the tracebacks of errors.
_FILTERING = "reraise_with_filtered_traceback"
UNNAMED = fun_name(None)  # pyright: ignore[reportArgumentType]
"""The name that JAX gives callable objects without a `__name__`."""
Source = tuple[str, int]
"""File and first line of a function; `("", 0)` if unknown."""


@dataclass(frozen=True, eq=False)
class JitCall:
    """A call of a jitted function for which JAX traces or compiles. It holds the arguments: release it quickly.

    Attributes:
        function: The Python function that is jitted.
        name: The name that JAX gives the compiled program: that of the function.
        source: File and first line of the function. For a wrapped function, as in `jax.jit(jax.grad(f))`, those of `f`.
            `("", 0)` if unknown.
        wrapper: Names of the functions or classes that wrap it, the innermost first: `"grad_f"`, or `"grad_f in jit"`;
            `""` if nothing wraps it.
        args: The arguments passed by position, static ones included.
        kwargs: The arguments passed by name, static ones included.
        parameters: The names of the positional parameters; fewer than `args` if unknown or variadic.
        static_positions: Positions of static arguments.
        static_names: Names of static arguments.
        options: Other options of `jax.jit`, as pairs of name and text.
        location: File and line of the user's call; `("", 0)` if the whole stack is library code.
        is_nested: True if another function is being traced around this call.
        is_of_user: True if the user's code called `jax.jit`, even on a library's function: `jax.jit(jnp.tanh)(x)`.
        is_filtered: True if all values except arrays are static, also inside containers, as in `eqx.filter_jit`.
    """

    function: Any
    name: str
    source: Source
    wrapper: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    parameters: tuple[str, ...]
    static_positions: tuple[int, ...]
    static_names: tuple[str, ...]
    options: tuple[tuple[str, str], ...]
    location: tuple[str, int]
    is_nested: bool
    is_of_user: bool = False
    is_filtered: bool = False


class Observer(Protocol):
    """An object that receives events, each on the thread that made the call."""

    def on_trace(self, call: JitCall) -> Callable[[float], None] | None:
        """Receive the start of a trace."""
        # Return a function that receives its duration in seconds, or `None`.
        # The function is called when the trace ends, unless JAX does not report the time.
        ...

    def on_lower(self, name: str, source: Source, seconds: float, call: JitCall | None) -> None:
        """Receive a finished lowering and the call that caused it.

        `call`: The call; `None` for a backward pass and for ahead-of-time lowering.
        """
        ...

    def on_compile(self, name: str, source: Source, seconds: float, from_disk: bool) -> None:
        """Receive a finished compilation of the program that this thread lowered last under this name."""
        ...


class Thread(threading.local):
    """The state of the listeners on the current thread. A source is file and first line of a function.

    Attributes:
        scopes: Observers that receive only events of this thread, the outermost first.
        open: The traces that JAX is timing, the outermost first. Each is a list of the traces that started meanwhile;
            for each of these, the functions that `Observer.on_trace` returned.
        lowered: A dict from the name of a function to the source of the last function lowered under this name.
        behind: A dict from name and source of a library's wrapper, such as that of `eqx.filter_jit`, to the source of
            the user's function inside.
        from_disk: True if the compilation in progress was read from the persistent cache.
    """

    def __init__(self) -> None:
        self.scopes: list[Observer] = []
        self.open: list[list[list[Callable[[float], None]]]] = []
        self.lowered: dict[str, Source] = {}
        self.behind: dict[tuple[str, Source], Source] = {}
        self.from_disk = False


thread = Thread()
_everywhere: tuple[Observer, ...] = ()
_lock = threading.Lock()
_next: list[Callable[..., None]] = []


def observe(observer: Observer) -> None:
    """Send an observer the events of all threads."""
    global _everywhere
    listen()
    with _lock:
        _everywhere = (*_everywhere, observer)


def ignore(observer: Observer) -> None:
    """Stop sending events to an observer that was passed to `observe`."""
    global _everywhere
    with _lock:
        _everywhere = tuple(other for other in _everywhere if other is not observer)


def listen() -> None:
    """Register the listeners with JAX, unless they are already registered."""
    with _lock:
        if util.test_event_listener is not _on_event:
            # JAX has only one such listener, so `_on_event` calls the previous one.
            _next[:] = [] if util.test_event_listener is None else [util.test_event_listener]
            util.test_event_listener = _on_event
        # Check all three lists: `jax.monitoring.clear_event_listeners` does not clear the scalar listeners.
        if _on_duration not in monitoring.get_event_duration_listeners():
            jax.monitoring.register_event_duration_secs_listener(_on_duration)
        if _on_plain not in monitoring.get_event_listeners():
            jax.monitoring.register_event_listener(_on_plain)
        if _on_start not in monitoring.get_scalar_listeners():
            jax.monitoring.register_scalar_listener(_on_start)


def name_of(function: Any) -> str:
    """Return the name that JAX gives a jitted function in its events."""
    return fun_name(function)


def source_of(function: Any) -> Source:
    """Return file and first line of a function, or of the class of a callable object.

    Examples:
        >>> source_of(print)
        ('', 0)
    """
    file, line = _source(fun_sourceinfo(function))
    while not file and isinstance(function, functools.partial):
        function = function.func
    # JAX reports no source for a callable object.
    if not file and not inspect.isbuiltin(function):
        with contextlib.suppress(TypeError, OSError):  # a class of C, or without a source file
            file, line = inspect.getsourcefile(type(function)) or "", inspect.getsourcelines(type(function))[1]
    return file, line


def call_of(function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> JitCall | None:
    """Return a call of a function that `jax.jit` returned; `None` for other callables, as from `eqx.filter_jit`."""
    info = getattr(function, "_jit_info", None)
    return None if info is None else _call(sys._getframe(), function._fun, info, args, kwargs)


def _observers() -> tuple[Observer, ...]:
    return (*thread.scopes, *_everywhere)


def _on_event(name: str, *args: Any) -> None:
    for listener in _next:
        listener(name, *args)
    if name != "trace_to_jaxpr" or not (_everywhere or thread.scopes):
        return
    tracing = sys._getframe(1)
    # Skip the frame of `util.test_event`, which calls this listener.
    while tracing.f_code.co_name == "test_event" and tracing.f_back is not None:
        tracing = tracing.f_back
    frame = tracing.f_back  # else the body of a scan, a cond, a custom derivative, ...
    if frame is None or frame.f_code.co_name != "_trace_for_jit":
        return
    values = frame.f_locals
    # JAX gives its listener only the name of the event; the call is in the local variables of `_trace_for_jit`.
    call = _call(frame, values["fun"], values["ji"], values["args"], values["kwargs"])
    timed = [report for observer in _observers() if (report := observer.on_trace(call)) is not None]
    if thread.open:
        thread.open[-1].append(timed)


def _on_start(event: str, value: float, **_: Any) -> None:
    if event == _TRACE:
        thread.open.append([])


def _on_plain(event: str, **_: Any) -> None:
    if event == _FROM_DISK:
        thread.from_disk = True


def _on_duration(event: str, duration_secs: float, **about: Any) -> None:
    seconds, name = duration_secs, str(about.get("fun_name", ""))
    name = name.removeprefix("jit(").removesuffix(")") if name.startswith("jit(") else name
    if event == _TRACE:
        # The time is that of the first trace. No trace starts if JAX has a cached one.
        for timed in (thread.open.pop() if thread.open else [])[:1]:
            for report in timed:
                report(seconds)
    elif event == _LOWER:
        if observers := _observers():
            # The event has only the name of the function.
            source = _lowered()
            call = _running(name, source)
            # A backward pass has no call, so use the source of its jaxpr.
            thread.lowered[name] = thread.behind.get((name, source), source) if call is None else call.source
            for observer in observers:
                observer.on_lower(name, thread.lowered[name], seconds, call)
    elif event == _COMPILE:
        # JAX reports a cache hit before the event of the compilation.
        from_disk, thread.from_disk = thread.from_disk, False
        for observer in _observers():
            observer.on_compile(name, thread.lowered.get(name, ("", 0)), seconds, from_disk)


def _running(name: str, source: Source) -> JitCall | None:
    """Return the call on this thread of the jitted function with this name and, if known, this source."""
    for frame in _frames(sys._getframe(1)):
        # JAX's C++ code calls `cache_miss` if its cache has no executable for the arguments.
        if frame.f_code.co_name == "cache_miss" and "jit_info" in frame.f_locals:
            values = frame.f_locals
            if name_of(values["fun"]) == name and source in (("", 0), source_of(values["fun"])):
                return _call(frame, values["fun"], values["jit_info"], values["args"], values["kwargs"])
    return None


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _call(frame: FrameType, function: Any, info: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> JitCall:
    location, is_nested = ("", 0), False
    for outer_frame in _frames(frame.f_back):
        if not location[0] and library_of(outer_frame.f_code.co_filename) is None:
            location = outer_frame.f_code.co_filename, outer_frame.f_lineno or 0
        # This frame around the call is a trace in progress.
        if outer_frame.f_code.co_name.startswith("trace_to_jaxpr"):
            is_nested = True
    options = [(name, str(getattr(info, name, None))) for name in _OPTIONS]
    if info.donate_argnums:  # JAX derives the names from them
        options.remove(("donate_argnames", str(info.donate_argnames)))
    options += [(name.removesuffix("_leaves"), str(getattr(info, name, None))) for name in _SHARDINGS]
    name, filtered = name_of(function), _filtered(frame, function)
    if filtered is not None:
        own, args, kwargs, parameters = filtered
        source = thread.behind[name, source_of(function)] = source_of(own)
        is_leaf = jax.tree_util.all_leaves([own])
        if not is_leaf:  # a module, whose arrays are traced: it is another object in each call
            kwargs, own = {"self": own, **kwargs}, function
        wrapper = _wrapper(own) if is_leaf else ""
        return JitCall(
            own, name, source, wrapper, args, kwargs, parameters, (), (), tuple(options), location, is_nested,
            is_filtered=True,
        )  # fmt: skip
    # True for `jax.jit(f)(x)`, false for `jnp.sin(x)`. All frames of JAX's `pjit.py` belong to this call; the first
    # frame outside of it made the call.
    codes = [outer_frame.f_code for outer_frame in _frames(frame)]
    outside = (code for code in codes if code.co_filename != codes[0].co_filename and code.co_name != _FILTERING)
    caller = next(outside, None)
    is_of_user = caller is not None and library_of(caller.co_filename) is None
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    # A library's own jitted function is a public name of its module; `jax.jit` keeps the original as `__wrapped__`.
    public = getattr(module, getattr(function, "__name__", ""), None)
    return JitCall(
        function,
        name,
        source_of(function),
        _wrapper(function),
        args,
        kwargs,
        _positional(info.fun_signature),
        tuple(position % len(args) if position < 0 and args else position for position in info.static_argnums),
        tuple(info.static_argnames),
        tuple(options),
        location,
        is_nested,
        is_of_user and getattr(public, "__wrapped__", None) is not function,
    )


def _filtered(
    frame: FrameType, function: Any
) -> tuple[Any, tuple[Any, ...], Mapping[str, Any], tuple[str, ...]] | None:
    # Equinox jits an internal function instead, with the user's arguments split into arrays and other values.
    code = getattr(function, "__code__", None)
    if code is None or library_of(code.co_filename) != "equinox":
        return None
    for outer_frame in _frames(frame):
        jitted: Any = (
            outer_frame.f_locals.get("jit_wrapper") if library_of(outer_frame.f_code.co_filename) == "equinox" else None
        )
        if hasattr(jitted, "_signature"):
            values = outer_frame.f_locals
            return jitted.__wrapped__, values["args"], values["kwargs"], _positional(jitted._signature)
    return None


def _wrapper(function: Any) -> str:
    names: list[str] = []
    while not isinstance(function, functools.partial) and hasattr(function, "__wrapped__"):
        names.append(_own_name(function))
        function = function.__wrapped__
    return " in ".join(reversed(names))


def _own_name(function: Any) -> str:
    # `functools.wraps` changes `__name__`, but not the name in the code.
    code = getattr(function, "__code__", None)
    if code is None:
        return "jit" if hasattr(function, "lower") else type(function).__name__
    # JAX's wrapper holds the function that it wraps in a closure, not in an attribute.
    if code.co_name == _FILTERING and "fun" in code.co_freevars:
        return _own_name(function.__closure__[code.co_freevars.index("fun")].cell_contents)
    return code.co_name


def _positional(signature: Any) -> tuple[str, ...]:
    named = () if signature is None else signature.parameters.values()
    return tuple(
        parameter.name
        for parameter in named
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    )


def _lowered() -> Source:
    """Return the source of the function whose jaxpr this thread lowers."""
    for frame in _frames(sys._getframe(1)):
        jaxpr = frame.f_locals.get("closed_jaxpr") if frame.f_code.co_name == "lower_sharding_computation" else None
        if jaxpr is not None:
            return _source(f" at {start_of(jaxpr)}")
    return "", 0


def _source(text: str) -> Source:
    file, colon, line = text.partition(" at ")[2].rpartition(":")
    return (file, int(line)) if colon and line.isdigit() else ("", 0)
