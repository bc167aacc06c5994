"""What the workbench and the explorer have in common: a session behind them, answers to their pages, a static twin."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import anywidget
import traitlets
from ipywidgets import widget_serialization

from mithril_nb.errors import Diagnostic
from mithril_nb.session import Session
from mithril_nb.session.analysis import problem_of
from mithril_nb.session.exploring import Exploration
from mithril_nb.widgets.assets import built, shared_assets
from mithril_nb.widgets.guard import shown_in_widget
from mithril_nb.widgets.protocol import passes_message, stage_message, text_message
from mithril_nb.widgets.twin import Twin, live_bundle


class SessionWidget(anywidget.AnyWidget):
    """Passes commands in and snapshots out, and keeps no state of its own.

    Attributes:
        session: What is behind it.
    """

    assets = traitlets.Instance(anywidget.AnyWidget).tag(sync=True, **widget_serialization)
    snapshot = traitlets.Dict().tag(sync=True)

    def __init__(
        self,
        session: Session | Exploration,
        module: str,
        bundle: Callable[[], Mapping[str, str]],
        first: Mapping[str, str] | None = None,
    ):
        self.session: Any = session
        self._bundle = bundle
        self._twin = Twin(bundle, session.errors, first)
        self._esm = built(module)
        super().__init__(assets=shared_assets(), snapshot=session.snapshot())
        self._unlisten = session.listen(self._hear)
        self.on_msg(self._receive)

    @property
    def errors(self) -> list[BaseException]:
        """Everything that went wrong in handlers and threads, latest last."""
        return self.session.errors

    def close(self) -> None:
        """End what is under way, and close the widget. What was made stays."""
        self._unlisten()
        self.session.end()
        self._twin.end()
        super().close()

    # From the front end

    @shown_in_widget
    def _receive(self, _widget: Any, content: Mapping[str, Any], _buffers: Sequence[Any]) -> None:
        if content.get("type") != "command":
            return
        self._twin.put_off()
        name, args = str(content.get("name")), dict(content.get("args") or {})
        problem: Diagnostic | None = None
        if name == "hello":
            self._greet()
        elif name == "request_stage":
            problem = self._send_stage(str(args.get("stage")), short=bool(args.get("short")))
        else:
            problem = self.session.run_command(name, args)
        self.send(
            {"type": "reply", "id": content.get("id"), "ok": problem is None, "error": problem and problem.to_dict()}
        )

    def _greet(self) -> None:
        """Send a page, which may have been loaded anew, what it cannot know."""
        found = self.session.passes.latest
        if found.rows:
            self._hear("passes", found)
            self.session.passes.request_diff(found.number)

    def _send_stage(self, name: str, *, short: bool) -> Diagnostic | None:
        problem = self.session.run_command("want_stage", {"stage": name})
        made = self.session.stage(name) if problem is None else None
        if made is not None:
            try:
                self.send(*stage_message(name, *made, short=short))
            except Exception as error:  # a text in short that cannot be made: the reply says why
                self.errors.append(error)
                return problem_of(error)
        return problem

    # From the session, on any thread

    @shown_in_widget
    def _hear(self, kind: str, value: Any) -> None:
        if kind == "snapshot":
            self.snapshot = value
        elif kind == "passes":
            self.send(*passes_message(value))
        elif kind == "diff":
            head = {"type": "diff", "version": value.version, "number": value.number, "cut": value.is_cut}
            self.send(*text_message(head, value.text))
        elif kind == "fate":
            self.send({"type": "fate", **asdict(value)})

    # In a notebook

    def _ipython_display_(self) -> None:
        self._twin.show(*live_bundle(super()._repr_mimebundle_()))

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        live, metadata = live_bundle(super()._repr_mimebundle_(include=include, exclude=exclude))
        return {**live, **self._bundle()}, metadata
