"""`ml.watch`: one run with live curves and controls, for a run that was started from code."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import traitlets

from mithril_nb.display import render
from mithril_nb.errors import Diagnostic, UnknownOptionError
from mithril_nb.session.analysis import problem_of
from mithril_nb.session.training import Rows, follow, run_view
from mithril_nb.train import Run
from mithril_nb.train.history import CURVES
from mithril_nb.widgets.assets import FrontEndWidget
from mithril_nb.widgets.cells import forget, remember
from mithril_nb.widgets.interrupts import report_interrupts
from mithril_nb.widgets.protocol import curves_message
from mithril_nb.widgets.twin import Twin, live_bundle

_COMMANDS = ("pause", "go_on", "stop", "step_once")


class LiveRun(FrontEndWidget):
    """Curves and controls of one run. Made by `watch`.

    Attributes:
        source: The run.
        errors: What went wrong in handlers, latest last.
    """

    run = traitlets.Dict().tag(sync=True)

    def __init__(self, run: Run):
        self.source = run
        self.errors: list[BaseException] = []
        self._twin = Twin(lambda: render(run), self.errors)
        self._is_attended = False
        super().__init__("curves.js", run=run_view(run))
        self.on_msg(self._receive)
        self._lock = threading.RLock()
        self._unfollow = follow(run, self._tell, self._lock)
        remember(self)
        report_interrupts()

    def replace(self) -> None:
        """Close the widget because a newer run of its cell made another; views that remain are labelled so."""
        try:
            self.send({"type": "replaced"})
            self._twin.replace()
        finally:
            self.close()

    def close(self) -> None:
        """Close the widget; the run continues."""
        forget(self)
        self._unfollow()
        self._twin.end()
        self.layout.close()  # a widget of its own, which ipywidgets leaves open
        super().close()

    def __repr__(self) -> str:
        return f"LiveRun({self.source!r})"

    def _tell(self, kind: str, value: Any) -> None:
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
        except Exception as error:  # the reply is where the widget shows it
            self.errors.append(error)
            problem = problem_of(error)
        self.send(
            {"type": "reply", "id": content.get("id"), "ok": problem is None, "error": problem and problem.to_dict()}
        )

    def _command(self, name: str, args: Mapping[str, Any]) -> None:
        if name == "request_curves":
            self._tell("curves", Rows(0, CURVES, self.source.history.rows(0, CURVES)))
        elif name == "set_learning_rate":
            self.source.set_learning_rate(float(args["value"]))
        elif name in _COMMANDS:
            getattr(self.source, name)()
        else:
            raise UnknownOptionError(f"unknown command {name!r}.", (("known", ", ".join(_COMMANDS)),))
        with self._lock:
            self._tell("run", run_view(self.source))

    def _ipython_display_(self) -> None:
        self._twin.show(*live_bundle(super()._repr_mimebundle_()))

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        live, metadata = live_bundle(super()._repr_mimebundle_(include=include, exclude=exclude))
        return {**live, **render(self.source)}, metadata


def watch(run: Run) -> LiveRun:
    """Show a run with live curves and controls. The run goes on whether it is shown or not.

    Args:
        run: What `ml.fit` gave; started or not.

    Returns:
        The widget; the last expression of a cell shows it.

    Raises:
        UnknownOptionError: The value is no run.
    """
    if not isinstance(run, Run):
        raise UnknownOptionError(
            f"cannot watch {run!r}.", (("needs", "a run"),), "ml.watch(ml.fit(model, data).start())"
        )
    return LiveRun(run)
