"""Base of the workbench and the explorer: a session, the messages of the front end, and a static fallback."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import traitlets

from mithril_nb.errors import Diagnostic
from mithril_nb.jobs import JobQueue
from mithril_nb.stages.fast_records import paused_collector
from mithril_nb.ui.session import Session
from mithril_nb.ui.session.analysis import problem_of
from mithril_nb.ui.session.exploring import Exploration
from mithril_nb.ui.widgets.cells import forget, remember
from mithril_nb.ui.widgets.front_end import FrontEndWidget, shown_in_widget
from mithril_nb.ui.widgets.protocol import cost_message, passes_message, stage_message, text_message
from mithril_nb.ui.widgets.static_fallback import StaticFallback, live_bundle


class SessionWidget(FrontEndWidget):
    """Passes commands to a session and snapshots to the front end. It has no other state.

    Attributes:
        session: The session.
    """

    snapshot = traitlets.Dict().tag(sync=True)

    def __init__(
        self,
        session: Session | Exploration,
        module: str,
        bundle: Callable[[], Mapping[str, str]],
        first: Mapping[str, str] | None = None,
        quick: Callable[[], Mapping[str, Any] | None] = lambda: None,
    ):
        self.session: Any = session
        self._is_attended = False  # whether a page has sent a command
        self._bundle = bundle
        self._twin = StaticFallback(bundle, session.errors, first, quick)
        # Packing a large text takes long, so do not block the thread that handles messages.
        self._packer, self._lock = JobQueue("mithril_nb-texts"), threading.Lock()
        self._requests: dict[str, Any] = {}
        super().__init__(module, snapshot=session.snapshot())
        self._unlisten = session.listen(self._on_change)
        self.on_msg(self._receive)
        remember(self)

    @property
    def errors(self) -> list[BaseException]:
        """Errors of handlers and threads, latest last."""
        return self.session.errors

    def replace(self) -> None:
        """Close the widget because a newer run of its cell created another one. Label its remaining views."""
        try:
            self.send({"type": "replaced"})
            self._twin.replace()
        finally:
            self._close(is_replaced=True)

    def close(self) -> None:
        """Cancel all work and close the widget. Computed results stay available."""
        self._close(is_replaced=False)

    def _end_session(self, *, is_replaced: bool) -> None:
        self.session.end()

    def _close(self, *, is_replaced: bool) -> None:
        forget(self)
        self._unlisten()
        self._end_session(is_replaced=is_replaced)
        self._packer.end()
        self._twin.end()
        self.layout.close()  # a separate widget, which ipywidgets leaves open
        super().close()
        self.snapshot = {}  # free memory, because `Out` may hold the closed widget for long

    # From the front end

    @shown_in_widget
    def _receive(self, _widget: Any, content: Mapping[str, Any], _buffers: Sequence[Any]) -> None:
        if content.get("type") != "command":
            return
        self._is_attended = True
        self._twin.postpone()
        id, name, args = content.get("id"), str(content.get("name")), dict(content.get("args") or {})
        if name == "hello":
            self._send_initial_data()
            self._reply(id, None)
        elif name == "request_stage":
            self._request_text(id, str(args.get("stage")), bool(args.get("short")))
        else:
            self._reply(id, self.session.run_command(name, args))

    def _reply(self, id: Any, problem: Diagnostic | None) -> None:
        self.send({"type": "reply", "id": id, "ok": problem is None, "error": problem and problem.to_dict()})

    def _send_initial_data(self) -> None:
        """Send a page, which may have been reloaded, the data that the snapshot does not contain."""
        found = self.session.passes.latest
        if found.rows:
            self._on_change("passes", found)
            self.session.passes.request_diff(found.number)

    def _request_text(self, id: Any, stage: str, short: bool) -> None:
        problem = self.session.run_command("request_stage", {"stage": stage})
        if problem is not None or self.session.stage(stage) is None:
            self._reply(id, problem)  # without a problem: the page requests the text again when it is computed
            return
        with self._lock:
            before, self._requests[stage] = self._requests.get(stage), id
        if before is not None:
            self._reply(before, None)  # the later request sends the text
        self._packer.submit(lambda wanted: self._send_text(stage, id, short), stage)

    @shown_in_widget
    def _send_text(self, stage: str, id: Any, short: bool) -> None:
        with self._lock:
            if self._requests.get(stage) != id:  # a later request was replied to
                return
            del self._requests[stage]
        problem: Diagnostic | None = None
        try:
            with paused_collector():
                message = stage_message(stage, *self.session.stage(stage), short=short)
            self.send(*message)
        except Exception as error:  # a short text may fail; the reply reports the reason
            self.errors.append(error)
            problem = problem_of(error)
        self._reply(id, problem)

    # From the session, on any thread

    @shown_in_widget
    def _on_change(self, kind: str, value: Any) -> None:
        if kind == "snapshot":
            self.snapshot = value
        elif kind == "passes":
            self.send(*passes_message(value))
        elif kind == "diff":
            head = {"type": "diff", "version": value.version, "number": value.number, "cut": value.is_cut}
            self.send(*text_message(head, value.text))
        elif kind in ("cost", "cost_rows", "formula", "cost_picture", "what_if"):
            self.send(*cost_message(value))
        elif kind == "instruction_history":
            self.send({"type": "instruction_history", **asdict(value)})

    # In a notebook

    def _ipython_display_(self) -> None:
        self._twin.show(*live_bundle(super()._repr_mimebundle_()))

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        live, metadata = live_bundle(super()._repr_mimebundle_(include=include, exclude=exclude))
        return {**live, **self._bundle()}, metadata
