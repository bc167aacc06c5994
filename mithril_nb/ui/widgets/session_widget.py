"""Base of the workbench and the explorer: a session, the messages of the front end, and a static fallback.

The trait `snapshot` has all data that a page shows. Hosts read it to open a page and to save a notebook. Once a page
follows the snapshot, the kernel sends changes of it, which the page applies to its model.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import traitlets

from mithril_nb.errors import Diagnostic
from mithril_nb.jobs import JobQueue
from mithril_nb.stages.once import paused_collector
from mithril_nb.ui.session import Session
from mithril_nb.ui.session.commands import Reply, problem_of
from mithril_nb.ui.session.exploring import Exploration
from mithril_nb.ui.widgets.cells import remember
from mithril_nb.ui.widgets.changes import change_between
from mithril_nb.ui.widgets.front_end import FrontEndWidget, shown_in_widget
from mithril_nb.ui.widgets.protocol import packed, stage_message
from mithril_nb.ui.widgets.static_fallback import StaticFallback


class SessionWidget(FrontEndWidget):
    """Passes commands to a session, and snapshots to the front end."""

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
        # Compressing a large text takes long, so it must not block the thread that handles messages.
        self._packer, self._lock = JobQueue("mithril_nb-texts"), threading.Lock()
        self._requests: dict[str, Any] = {}
        self._showing = threading.RLock()
        self._is_followed = False  # whether a page applies changes to its snapshot
        self._change: dict[str, Any] | None = None
        fallback = StaticFallback(bundle, session.errors, first, quick)
        super().__init__(module, fallback, snapshot=_with_revision(session.snapshot(), 1))
        self._unlisten = session.listen(self._on_change)
        remember(self)

    def _end(self, *, is_replaced: bool) -> None:
        self.session.end()
        self._packer.end()

    def _close(self, *, is_replaced: bool) -> None:
        super()._close(is_replaced=is_replaced)
        self.snapshot = {}  # free memory, because `Out` may hold the closed widget for long

    def overlay(self, of: str | Mapping[str, Any], *, own: bool = False, title: str = "value") -> None:
        """Show values on the nodes of the graph, as the menu "Values" in its toolbar does.

        Args:
            of: A name as in `Inspection.overlay`, such as `"flops"`; `""` for none; or your own values: a dict of
                numbers or of texts by path of the block.
            own: If true, the number of a block excludes the blocks inside it.
            title: Title of your own values, with their unit.

        Raises:
            UnknownOptionError: `of` is a text, but no overlay has this name.

        Examples:
            >>> import mithril_nb as ml
            >>> from mithril_nb.models import MLP
            >>> workbench = ml.workbench(MLP(4, [3], 2), shapes={"input": [8, 4]}, autosave=False)
            >>> workbench.overlay({"linear_0": 0.5}, title="sparsity")
            >>> workbench.session.overlays.name
            'own values: sparsity'
            >>> workbench.close()
        """
        overlays = self.session.overlays
        if isinstance(of, str):
            overlays.show_overlay(of, own)
        else:
            overlays.show_values(of, title)

    # From the front end

    @shown_in_widget
    def _execute(self, id: Any, name: str, args: Mapping[str, Any]) -> None:
        self._twin.postpone()
        if name == "hello":
            self._send_initial_data()
            self._reply(id, None)
        elif name == "request_snapshot":
            with self._showing:
                self._is_followed = True
                if args.get("revision") != self.snapshot["revision"]:
                    self.send_state("snapshot")
        elif name == "request_stage":
            self._request_text(id, str(args.get("stage")), bool(args.get("short")))
        else:
            with paused_collector():  # beside a large traced program, a collection takes longer than an edit
                problem = self.session.run_command(name, dict(args))
            self._reply(id, problem)

    def _send_initial_data(self) -> None:
        # The page may have been reloaded, and the snapshot does not contain these data.
        passes = self.session.passes.latest
        if passes is not None and passes.data:
            self._on_change("passes", passes)
            self.session.passes.request_diff(passes.head["number"])
        if self.session.overlays.name:
            self.session.overlays.refresh()

    def _request_text(self, id: Any, stage: str, short: bool) -> None:
        problem = self.session.run_command("request_stage", {"stage": stage})
        if problem is not None or self.session.stage(stage) is None:
            self._reply(id, problem)  # without a problem: the page requests the text again when it is computed
            return
        with self._lock:
            before, self._requests[stage] = self._requests.get(stage), id
        if before is not None:
            self._reply(before, None)  # the later request sends the text
        self._packer.submit(lambda is_wanted: self._send_text(stage, id, short), stage)

    @shown_in_widget
    def _send_text(self, stage: str, id: Any, short: bool) -> None:
        with self._lock:
            if self._requests.get(stage) != id:  # a later request replaced this one
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
            self._show(value)
        elif kind == "selection":
            self._show({**self.snapshot, "selection": value})
        elif isinstance(value, Reply):
            self.send({"type": kind, **value.head}, [] if value.data is None else [packed(value.data)])

    # Snapshots

    def _show(self, snapshot: Mapping[str, Any]) -> None:
        with self._showing:
            revision = self.snapshot.get("revision", 0)
            change = change_between(self.snapshot, _with_revision(snapshot, revision))
            if not change:
                return
            fresh = _with_revision(snapshot, revision + 1)
            if self._is_followed:
                change = {"revision": [revision + 1], **change} if isinstance(change, dict) else [fresh]
                self._change = {"type": "snapshot_change", "from": revision, "to": revision + 1, "change": change}
            try:
                self.snapshot = fresh
            finally:
                self._change = None

    def send_state(self, key: Any = None) -> None:
        """Send traits; instead of a snapshot that a page follows, send the change."""
        if key == "snapshot" and self._change is not None:
            self.send(self._change)
        else:
            super().send_state(key)


def _with_revision(snapshot: Mapping[str, Any], revision: int) -> dict[str, Any]:
    return {"revision": revision} | {**snapshot} | {"revision": revision}
