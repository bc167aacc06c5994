"""`ml.watch`: a run with live curves and controls, or a jitted function with the reasons of its retraces."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, overload

import traitlets

from mithril_nb.analysis.retraces import Watch, Watched
from mithril_nb.display import render
from mithril_nb.errors import Diagnostic, UnknownOptionError, short_repr
from mithril_nb.train import Run
from mithril_nb.train.run.events import CURVES
from mithril_nb.ui.session.design.analysis import problem_of
from mithril_nb.ui.session.training import Rows, follow, run_view
from mithril_nb.ui.widgets.assets import FrontEndWidget
from mithril_nb.ui.widgets.cells import forget, remember
from mithril_nb.ui.widgets.interrupts import report_interrupts
from mithril_nb.ui.widgets.protocol import curves_message
from mithril_nb.ui.widgets.static_fallback import StaticFallback, live_bundle

_COMMANDS = ("pause", "resume", "stop", "step_once")


class LiveRun(FrontEndWidget):
    """Curves and controls of one run. Create it with `watch`.

    Attributes:
        source: The run.
        errors: Errors of handlers, latest last.
    """

    run = traitlets.Dict().tag(sync=True)

    def __init__(self, run: Run):
        self.source = run
        self.errors: list[BaseException] = []
        self._twin = StaticFallback(lambda: render(run), self.errors)
        self._is_attended = False
        super().__init__("curves.js", run=run_view(run))
        self.on_msg(self._receive)
        self._lock = threading.RLock()
        self._unfollow = follow(run, self._send_update, self._lock)
        remember(self)
        report_interrupts()

    def replace(self) -> None:
        """Close the widget because a newer run of its cell created another one. Label its remaining views."""
        try:
            self.send({"type": "replaced"})
            self._twin.replace()
        finally:
            self.close()

    def close(self) -> None:
        """Close the widget. The run continues."""
        forget(self)
        self._unfollow()
        self._twin.end()
        self.layout.close()  # a separate widget, which ipywidgets leaves open
        super().close()

    def __repr__(self) -> str:
        return f"LiveRun({self.source!r})"

    def _send_update(self, kind: str, value: Any) -> None:
        if kind == "curves":
            self.send(*curves_message(value))
        else:
            self.run = dict(value)
            if self._is_attended and value["state"] != "running":
                self._twin.refresh()

    def _receive(self, _widget: Any, content: Mapping[str, Any], _buffers: Sequence[Any]) -> None:
        if content.get("type") != "command":
            return
        self._is_attended = True
        problem: Diagnostic | None = None
        try:
            self._command(str(content.get("name")), content.get("args") or {})
        except Exception as error:  # the reply reports it to the widget
            self.errors.append(error)
            problem = problem_of(error)
        self.send(
            {"type": "reply", "id": content.get("id"), "ok": problem is None, "error": problem and problem.to_dict()}
        )

    def _command(self, name: str, args: Mapping[str, Any]) -> None:
        if name == "request_curves":
            self._send_update("curves", Rows(0, CURVES, self.source.history.rows(0, CURVES)))
        elif name == "set_learning_rate":
            self.source.set_learning_rate(float(args["value"]))
        elif name in _COMMANDS:
            getattr(self.source, name)()
        else:
            raise UnknownOptionError(f"unknown command {name!r}.", (("known", ", ".join(_COMMANDS)),))
        with self._lock:
            self._send_update("run", run_view(self.source))

    def _ipython_display_(self) -> None:
        self._twin.show(*live_bundle(super()._repr_mimebundle_()))

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        live, metadata = live_bundle(super()._repr_mimebundle_(include=include, exclude=exclude))
        return {**live, **render(self.source)}, metadata


@overload
def watch(target: None = None) -> Watch: ...


@overload
def watch(target: Run) -> LiveRun: ...


@overload
def watch(target: Callable[..., Any]) -> Watched: ...


def watch(target: Run | Callable[..., Any] | None = None) -> LiveRun | Watched | Watch:
    """Watch a run of `ml.fit`, a jitted function, or all functions that run in a `with` block.

    A run is shown with live curves and controls. It continues whether it is shown or not.

    A watched function behaves like the jitted function: results, donation, static arguments, errors and attributes such
    as `lower` are the same. It counts calls, cache hits, traces, lowerings and compilations with their time. For each
    retrace it finds the user's line and the reason, by comparing the call with the most similar earlier one. A call
    costs about 1 µs more, which is 1.3 times a call of an empty program on CPU; a trace costs about 0.3 ms more. It
    stores no arrays. It stores 100 retraces per function and counts the others.

    A block, `with ml.watch() as seen:`, watches every function traced or compiled in it, on all threads. Its calls and
    cache hits are unknown, because JAX reports no event for a cache hit. In a notebook, after `%load_ext mithril_nb`,
    the magic `%%mithril_watch` at the top of a cell does this and shows the report.

    A block counts the backward pass that `jax.grad` compiles after a call; a watched function does not.

    Args:
        target: A run; a jitted function; any other function, which is then jitted; nothing for a block.

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
    if isinstance(target, Run):
        return LiveRun(target)
    if target is None:
        return Watch()
    if not callable(target):
        raise UnknownOptionError(
            f"cannot watch {short_repr(target)}.",
            (("needs", "a run, a function, or nothing in a with statement"),),
            "ml.watch(jax.jit(fn))",
        )
    return Watched(target)
