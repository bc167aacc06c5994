"""`ml.watch`: a run with live curves and controls, or a jitted function with the reasons of its retraces."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, overload

import traitlets
from IPython.display import display, update_display

from mithril_nb.analysis.retraces import Watch, Watched
from mithril_nb.analysis.retraces.recorder import Following
from mithril_nb.display import render, renderer
from mithril_nb.errors import Diagnostic, UnknownOptionError, short_repr
from mithril_nb.jobs import JobQueue, Wanted
from mithril_nb.train import History, Run
from mithril_nb.train.run.events import CURVES
from mithril_nb.train.store.stored import StoredRun, runs
from mithril_nb.train.store.tracking import TrackedRun
from mithril_nb.ui.session.commands import problem_of
from mithril_nb.ui.session.training import RunRows, follow, follow_stored, run_view, stored_rows, stored_view
from mithril_nb.ui.widgets.cells import remember, report_interrupts
from mithril_nb.ui.widgets.front_end import FrontEndWidget, is_jupyter
from mithril_nb.ui.widgets.protocol import curves_message
from mithril_nb.ui.widgets.static_fallback import StaticFallback

_COMMANDS = ("pause", "resume", "stop", "step_once")


class LiveRun(FrontEndWidget):
    """Curves and controls of one run. Create it with `watch`.

    Attributes:
        source: The run.
        errors: Errors of handlers, latest last.
    """

    run = traitlets.Dict().tag(sync=True)

    def __init__(self, run: Run | StoredRun):
        self.source = run
        self._view = partial(stored_view, run) if isinstance(run, StoredRun) else partial(run_view, run)
        super().__init__("curves.js", StaticFallback(lambda: render(run), []), run=self._view())
        self._lock = threading.RLock()
        observe: Any = follow_stored if isinstance(run, StoredRun) else follow
        self._unlisten = observe(run, self._send_update, self._lock)
        remember(self)
        report_interrupts()

    def __repr__(self) -> str:
        return f"LiveRun({self.source!r})"

    def _send_update(self, kind: str, value: Any) -> None:
        if kind == "curves":
            self.send(*curves_message(value))
        else:
            self.run = dict(value)
            if self._is_attended and value["state"] != "running":
                self._twin.refresh()

    def _execute(self, id: Any, name: str, args: Mapping[str, Any]) -> None:
        problem: Diagnostic | None = None
        try:
            self._command(name, args)
        except Exception as error:  # the reply reports it to the widget
            self.errors.append(error)
            problem = problem_of(error)
        self._reply(id, problem)

    def _command(self, name: str, args: Mapping[str, Any]) -> None:
        run = self.source
        if name == "request_curves":
            is_stored = isinstance(run, StoredRun)
            self._send_update(
                "curves", stored_rows(run) if is_stored else RunRows(0, CURVES, run.history.rows(0, CURVES))
            )
        elif name == "set_learning_rate" and isinstance(run, Run):
            run.set_learning_rate(float(args["value"]))
        elif name == "set_knob" and isinstance(run, StoredRun):
            run.set(args["name"], args["value"])
        elif name in _COMMANDS:
            getattr(run, name)(**args)
        else:
            raise UnknownOptionError(f"unknown command {name!r}.", (("known", ", ".join(_COMMANDS)),))
        with self._lock:
            self._send_update("run", self._view())


@overload
def watch(target: None = None) -> Watch: ...


@overload
def watch(target: Run | StoredRun | TrackedRun) -> LiveRun: ...


@overload
def watch(target: Callable[..., Any]) -> Watched: ...


def watch(target: Run | StoredRun | TrackedRun | Callable[..., Any] | None = None) -> LiveRun | Watched | Watch:
    """Watch a run, a jitted function, or all functions that run in a `with` block.

    A run is shown with live curves and controls. It continues whether it is shown or not. A stored run, one of
    `ml.runs`, may train in any process: its knobs are fields, and their changes are marks on the curves.

    A watched function behaves like the jitted function: results, donation, static arguments, errors and attributes such
    as `lower` are the same. It counts calls, cache hits, traces, lowerings and compilations with their time. For each
    retrace it finds the user's line and the reason, by comparing the call with the most similar earlier one. A call
    costs about 1 µs more, so a call of an empty program on CPU takes 1.3 times as long. A trace costs 0.3 ms more.
    It stores no arrays. It stores 100 retraces per function and counts the others.

    A `with` block, `with ml.watch() as seen:`, watches every function that is traced or compiled in it, on all threads.
    Calls and cache hits are unknown, because JAX reports no event for a cache hit. In a notebook, after
    `%load_ext mithril_nb`, the magic `%%mithril_watch` at the top of a cell watches the cell and shows the report.

    A `with` block counts the backward pass that `jax.grad` compiles after a call; a watched function does not.

    Args:
        target: A run; a jitted function; any other function, which is then jitted; or nothing for a `with` block.

    Returns:
        The widget of a run; the watched function; or the object for the `with` statement. The latter two have
        `report` and `retraces`, and show their report when printed and as the output of a cell.

    Raises:
        UnknownOptionError: The target is neither a run nor a function.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> step = watch(jax.jit(lambda x: 2 * x))
        >>> for size in (32, 32, 33):
        ...     _ = step(jnp.ones((size, 10)))
        >>> found = step.report()
        >>> found.calls, found.hits, found.traces
        (3, 1, 2)
        >>> found.retraces[0].reason
        'argument 1 `x` changed from f32[32,10] to f32[33,10]'
        >>> with watch() as seen:
        ...     for factor in (2, 3):
        ...         _ = jax.jit(lambda x: 7 * x)(jnp.ones(5))
        >>> [again.reason.partition(":")[0] for again in seen.retraces]
        ['a new function object']
    """
    if isinstance(target, TrackedRun):
        target.flush()
        target = runs(target.folder.parent)[target.name]
    if isinstance(target, Run | StoredRun):
        return LiveRun(target)
    if target is None:
        return Watch()
    if isinstance(target, History):
        raise UnknownOptionError(
            "a history does not change; its run does.", (("given", repr(target)),), "ml.watch(run)  # of run.history"
        )
    if not callable(target):
        raise UnknownOptionError(
            f"cannot watch {short_repr(target)}.",
            (("needs", "a run, a function, or nothing in a with statement"),),
            "ml.watch(jax.jit(fn))",
        )
    return Watched(target)


# Delay of an update, in seconds: a retrace takes milliseconds, and often others follow.
_WAIT_S = 0.3


class LiveReport:
    """A report in the output of a notebook cell, updated 0.3 seconds after each change."""

    def __init__(self, value: Following):
        self._value, self._id = value, f"mithril-nb-{uuid.uuid4().hex}"
        self._queue = JobQueue("mithril_nb-report")
        self._shown: Any = None

    def show(self) -> None:
        """Show the current value."""
        self._shown = render(self._value)
        display(self._shown, raw=True, display_id=self._id)
        if is_jupyter():  # a terminal would print each update
            self._value.follow(lambda: self._queue.submit(self._update))

    def _update(self, _wanted: Wanted) -> None:
        time.sleep(_WAIT_S)
        fresh = render(self._value)
        if fresh != self._shown:
            self._shown = fresh
            update_display(fresh, raw=True, display_id=self._id)


@renderer(Following, kind="live")
def show_live(value: Following) -> None:
    """Show the report of a watched function or `with` block, and update it after each change."""
    LiveReport(value).show()
