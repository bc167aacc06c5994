"""The mutable session of a workbench: takes commands, publishes snapshots. It does not depend on widgets.

Commands may come from any thread. Cheap results (graph, shapes, problems, diagram) are computed at once. A worker
computes expensive ones (trace, lower, compile), the latest request first, and publishes each when it is ready.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial, wraps
from typing import Any

from mithril_nb.backends.jax import JaxBackend
from mithril_nb.cost import Cost
from mithril_nb.errors import Diagnostic, UnknownOptionError
from mithril_nb.inspection import Inspection
from mithril_nb.models.model import Model
from mithril_nb.ui.session.commands import check_arguments, check_command
from mithril_nb.ui.session.costs.requests import CostRequests, ProgramView
from mithril_nb.ui.session.costs.subjects import Subject, change_of
from mithril_nb.ui.session.costs.tables import cost_table
from mithril_nb.ui.session.costs.what_if import WhatIfRequests, checked_changes
from mithril_nb.ui.session.design.analysis import Analysis, LazyProgram, problem_of
from mithril_nb.ui.session.design.autosave import Autosave
from mithril_nb.ui.session.design.design import EDITS, Change, Design
from mithril_nb.ui.session.design.example import example_data, example_design
from mithril_nb.ui.session.design.history import History
from mithril_nb.ui.session.request_handler import Client
from mithril_nb.ui.session.snapshot import (
    ViewState,
    diagram_of,
    hues_of,
    place_of,
    shares_of,
    snapshot_of,
)
from mithril_nb.ui.session.stages.making import StageMaker
from mithril_nb.ui.session.stages.passes import PassRequests
from mithril_nb.ui.session.training import Training
from mithril_nb.viz.diagrams.scene import Scene

Listener = Callable[[str, Any], None]
"""Receives `("snapshot", dict)`, `("run", dict)`, `("curves", Rows)` and the messages of the desks, on any thread."""

_SEEN = 12
"""Maximum number of designs whose stages are cached."""


class Session:
    """An editable design, with its stages, costs and run.

    Args:
        design: Initial design.
        backend: Backend that runs programs.
        training: Options of `fit`: `data`, `loss`, `optimizer`, `epochs`, ...
        autosave: Returns the `Autosave` of a design, used once the user edits it in the widget. Default: no autosave.

    Attributes:
        errors: Errors of commands and of the worker, latest last, with tracebacks.
        passes: The desk for XLA's passes.
        costs: The desk for costs of further sources and for pictures of costs.
        what_if: The desk for what-if questions.
    """

    def __init__(
        self,
        design: Design,
        backend: JaxBackend,
        training: Mapping[str, Any] | None = None,
        autosave: Callable[[Design], Autosave | None] = lambda design: None,
    ):
        self.backend = backend
        if (autosave_of_design := autosave(design)) is not None:
            autosave_of_design.changed = self._publish_all
        self._autosave = autosave_of_design
        self._is_edited_by_user = False
        self._lock = threading.RLock()
        self.training = Training(training or {}, self._send, self._lock, lambda: self._analysis)
        self.errors: list[BaseException] = []
        self._listeners: list[Listener] = []
        self._history = History(design)
        self._view = ViewState()
        self._version = 1
        self._notice: Diagnostic | None = None
        self._shares: dict[str, float] = {}
        self._start_afresh()
        self._maker.follow(self._analysis)

    def _start_afresh(self) -> None:
        """Drop all computed results: at the start, and at the end, so that an ended session uses little memory."""
        self._seen: dict[Design, LazyProgram] = {}
        self._analysis = self._analysed(self._history.present, self._version)
        self._diagram: Scene = diagram_of(self._analysis, self._view, self._shares)
        self._maker = StageMaker(self._lock, self._stages_changed, self._stages_failed)
        client = Client(self._send, self._publish_all, self._stages_failed)
        self.passes = PassRequests(self._program, client)
        self.costs = CostRequests(self._looked, client)
        self.what_if = WhatIfRequests(self._changeable, client)

    # State in the kernel

    @property
    def model(self) -> Model:
        """The current model."""
        return Model.of(self._history.present.graph, self._history.present.name)

    @property
    def design(self) -> Design:
        """The current design."""
        return self._history.present

    @property
    def selection(self) -> tuple[str, ...]:
        """Paths of the selected blocks."""
        return self._view.selection

    @property
    def analysis(self) -> Analysis:
        """The analysis of the current design."""
        return self._analysis

    @property
    def cost(self) -> Cost | None:
        """Costs of the blocks of the latest design that can run. Traces it if the worker has not done so yet."""
        analysis, known = self._analysis, self._maker.cost
        if analysis.can_run:
            return analysis.cost
        return known

    @property
    def diagram(self) -> Scene:
        """The diagram of the current model."""
        return self._diagram

    def snapshot(self) -> dict[str, Any]:
        """Return all data that a front end shows."""
        with self._lock:
            history, hues = self._history, hues_of(self._history.present.graph)
            cost, is_stale = self._maker.cost, self._maker.cost_version != self._version
            return snapshot_of(
                self._analysis,
                self._view,
                self._diagram,
                backend=f"jax {self.backend.device_name}",
                cost=cost_table(cost, self._paths(), hues, is_stale=is_stale) if cost else None,
                costs={"sources": self.costs.view(), "what_if": self.what_if.view()},
                notice=self._notice,
                autosave={**self._autosave.view(), "edits": self.edits} if self._autosave else None,
                stages=self._maker.states,
                passes=self._passes_view(),
                run=self.training.view(),
                status=self._maker.figures(),
                undo_label=history.undo.label if history.undo else "",
                redo_label=history.redo.label if history.redo else "",
            )

    def stage(self, name: str) -> tuple[int, Inspection] | None:
        """Return the version and program of the latest text of a stage; `None` without a text."""
        return self._maker.made(name)

    # Messages

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Send all changes to a listener. Return a function that removes it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the requested stages are computed; return False on timeout."""
        waits = (self._maker.wait, self.passes.wait, self.costs.wait, self.what_if.wait)
        return all(wait(timeout_s) for wait in waits)

    def end(self, *, stops_run: bool = True) -> None:
        """Stop its run and its threads, and drop computed results. Keep the design and the runs.

        Args:
            stops_run: True to stop a training run.
        """
        if self.training.run is not None and stops_run:
            self.training.run.stop()
        self._maker.end()
        self.passes.end()
        self.costs.end()
        self.what_if.end()
        if self._autosave:
            self._autosave.end()
        with self._lock:
            self._start_afresh()

    def run_command(self, name: str, args: Mapping[str, Any]) -> Diagnostic | None:
        """Execute a command of a front end.

        Args:
            name: Name of a command.
            args: Its arguments.

        Returns:
            The error, or `None`. The snapshot also shows it. A failed command changes nothing else.
        """
        with self._lock:
            was_edited = self._is_edited_by_user
            try:
                check_command(name, args, self._commands)
                # Edits by code are in the code. From the first edit in the widget on, autosave the whole design.
                self._is_edited_by_user |= name in EDITS or name in _MORE_EDITS
                self.do(name, **args)
            except Exception as error:  # a front end cannot catch it, so show and store it
                self._is_edited_by_user = was_edited
                self._fail(error)
                self._publish()
                return self._notice
        return None

    def do(self, command: str, /, **args: Any) -> None:
        """Execute a command.

        Raises:
            MithrilError: The command failed and changed nothing.
        """
        check_command(command, args, self._commands)
        function = self._command(command)
        if command in EDITS:  # the session passes the design; the position of a new block belongs to the view
            plain = {key: value for key, value in args.items() if command != "add_block" or key not in ("x", "y")}
            check_arguments(command, EDITS[command], plain, ignored=("design",))
        else:
            check_arguments(command, function, args)
        function(**args)

    def _command(self, name: str) -> Callable[..., None]:
        if name in EDITS:
            return partial(self.edit, name)
        if name in _COMMANDS:
            return getattr(self, name)
        return self._desks.get(name) or self._published(self.training.commands[name])

    @property
    def _commands(self) -> list[str]:
        return sorted({*EDITS, *_COMMANDS, *self._desks, *self.training.commands})

    @property
    def _desks(self) -> Mapping[str, Callable[..., None]]:
        return {**self.passes.commands, **self.costs.commands, **self.what_if.commands}

    # Commands

    def edit(self, name: str, /, **args: Any) -> None:
        """Apply one of the edits of `session.design`.

        Raises:
            MithrilError: The edit failed; the design is unchanged.
        """
        with self._lock:
            place = (args.pop("x", None), args.pop("y", None))
            if name == "add_block" and self.selection:
                # Commands arrive in the order of the user's actions; a page may not have seen their results yet.
                args.setdefault("after", self.selection[-1])
            if name == "add_block" and None not in place:
                name = "place_block"
                args.pop("after", None)
            change = EDITS[name](self.design, **args)
            view = self._view.renamed(*change.renamed) if change.renamed else self._view
            if change.selection is not None:
                view = replace(view, selection=change.selection)
            if name == "place_block" and change.selection:
                view = view.with_place(change.selection[0], *place)
            self._set_history(self._history.with_change(change, time.monotonic()), view)

    def apply_what_if(self, changes: Sequence[Sequence[Any]]) -> None:
        """Apply the changes of a what-if question as one edit.

        Raises:
            MithrilError: A change failed; the design is unchanged.
        """
        with self._lock:
            change = change_of(self._analysis, checked_changes(changes))
            self._set_history(self._history.with_change(change, time.monotonic()), self._view)

    def undo(self) -> None:
        """Undo one change."""
        with self._lock:
            change = self._history.undo
            back = change.renamed[::-1] if change and change.renamed else None
            self._set_history(self._history.undone(), self._view.renamed(*back) if back else self._view)

    def redo(self) -> None:
        """Redo one change."""
        with self._lock:
            again = self._history.redo.renamed if self._history.redo else None
            self._set_history(self._history.redone(), self._view.renamed(*again) if again else self._view)

    def set_design(self, design: Design, label: str = "set from Python") -> None:
        """Replace the design. Undo restores the previous one."""
        with self._lock:
            self._set_history(self._history.with_change(Change(design, label), time.monotonic()), self._view)

    def load_example(self) -> None:
        """Replace the design by a small example. It trains on generated data if the user passed no data."""
        with self._lock:
            options = self.training.options
            is_generated = "data" not in options
            data = example_data() if is_generated else options["data"]
            example = example_design(data, options.get("loss", "cross_entropy"))
            example = replace(example, program=self.design.program, uses_example_data=is_generated)
            self.set_design(example, "load an example")

    def restore_edits(self) -> None:
        """Restore the design that an earlier session of this workbench saved, as one edit.

        Raises:
            UnknownOptionError: No edits are saved.
            MithrilError: The saved edits cannot be read.
        """
        with self._lock:
            saved = self._autosave and self._autosave.offer
            if not self._autosave or not saved:
                raise UnknownOptionError("there are no saved edits of an earlier run of this cell.")
            count = "1 edit" if saved.edits == 1 else f"{saved.edits} edits"
            with self._autosave.accepted() as design:
                change = Change(design, f"restore {count}", edits=saved.edits, restored=saved.labels)
                self._set_history(self._history.with_change(change, time.monotonic()), self._view)

    def decline_edits(self) -> None:
        """Keep the code's design. The offered edits stay in the file; an older version is offered next."""
        with self._lock:
            if self._autosave:
                self._autosave.decline()
            self._publish()

    @property
    def edit_labels(self) -> tuple[str, ...]:
        """The latest edits, oldest first."""
        return self._history.labels(20)

    @property
    def edits(self) -> int:
        """Number of edits since the code's design, counting restored edits one by one; 0 if only code made edits."""
        return self._history.edits if self._is_edited_by_user else 0

    def select(self, paths: Sequence[str]) -> None:
        """Select blocks. Unknown paths are ignored."""
        with self._lock:
            known = {path for path, _ in self.design.graph.walk()}
            self._view = replace(self._view, selection=tuple(paths)).only(known)
            self._publish()

    def expand(self, path: str) -> None:
        """Show the blocks inside a composite block."""
        self._set_view(replace(self._view, expanded=self._view.expanded | {path}))

    def collapse(self, path: str) -> None:
        """Show a composite block as one node."""
        self._set_view(replace(self._view, expanded=self._view.expanded - {path}))

    def move(self, path: str, x: float, y: float) -> None:
        """Move a block to a position on the canvas."""
        place = self._diagram.within(path, *place_of(x, y))
        self._set_view(self._view.with_place(path, *place))

    def tidy(self) -> None:
        """Reset the layout, including moved blocks."""
        self._set_view(replace(self._view, moved={}))

    def dismiss(self) -> None:
        """Remove the notice."""
        with self._lock:
            self._notice = None
            self._publish()

    def request_stage(self, stage: str) -> None:
        """Compute a stage from now on for every design, because a front end shows it.

        Raises:
            UnknownOptionError: The stage is unknown.
        """
        with self._lock:
            if self._maker.want(stage):
                self._publish()

    def leave_stage(self, stage: str) -> None:
        """Stop computing a stage for new designs, because no front end shows it.

        Raises:
            UnknownOptionError: The stage is unknown.
        """
        with self._lock:
            if self._maker.leave(stage):
                self._publish()

    def _published(self, command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)  # keeps the signature, which `check_arguments` reads
        def run(**args: Any) -> None:
            with self._lock:
                command(**args)
                self._publish()

        return run

    # State

    def _analysed(self, design: Design, version: int) -> Analysis:
        analysis = Analysis(design, version, self.backend, self.training.options, self._seen.get(design))
        # Undo, or a slider that moves back, reuses the cached stages.
        self._seen.pop(design, None)  # reinsert it as the most recently used
        self._seen[design] = analysis.program
        while len(self._seen) > _SEEN:
            del self._seen[next(iter(self._seen))]
        return analysis

    def _set_history(self, history: History, view: ViewState) -> None:
        if history.present == self._history.present:
            self._publish()
            return
        analysis = self._analysed(history.present, self._version + 1)
        view = view.only({path for path, _ in history.present.graph.walk()})
        diagram = diagram_of(analysis, view, self._shares)
        # Assign only now: everything above may raise.
        self._history, self._version, self._analysis, self._diagram = history, self._version + 1, analysis, diagram
        self._view, self._notice = view, None
        self._maker.follow(analysis)
        if self._autosave and self._is_edited_by_user:
            self._autosave.save(history.present, self.edits, self.edit_labels)
        self._publish()

    def _set_view(self, view: ViewState) -> None:
        with self._lock:
            view = view.only({path for path, _ in self.design.graph.walk()})
            self._diagram = diagram_of(self._analysis, view, self._shares)
            self._view = view
            self._publish()

    def _publish(self) -> None:
        self._send("snapshot", self.snapshot())

    def _send(self, kind: str, value: Any) -> None:
        for listener in tuple(self._listeners):
            listener(kind, value)

    def _fail(self, error: BaseException) -> None:
        self.errors.append(error)
        del self.errors[:-100]
        self._notice = problem_of(error)

    def _stages_changed(self) -> None:
        cost = self._maker.cost
        if cost is not None:
            self._shares = shares_of(cost, self._analysis.design.graph)
            self._diagram = self._diagram.with_shares(self._shares)
        self._publish()

    def _program(self) -> tuple[int, Callable[[], Inspection]]:
        analysis = self._analysis
        return analysis.version, lambda: self._maker.inspection_of(analysis)

    def _passes_view(self) -> dict[str, Any]:
        if self._analysis.can_run:
            return self.passes.view(self._version)
        return {"state": "unavailable", "message": self._analysis.why_not, "version": 0}

    def _paths(self) -> list[str]:
        return [path for path, _ in self._analysis.design.graph.walk()]

    def _looked(self) -> ProgramView:
        analysis = self._analysis
        hues = hues_of(analysis.design.graph)
        return ProgramView(analysis.version, lambda: self._maker.inspection_of(analysis), self._paths(), hues)

    def _changeable(self) -> Subject:
        analysis, training = self._analysis, self.training.options
        return Subject(analysis.version, lambda: analysis.what_if(training), hues_of(analysis.design.graph))

    def _publish_all(self) -> None:
        with self._lock:
            self._publish()

    def _stages_failed(self, error: BaseException) -> None:
        with self._lock:
            self._fail(error)
            self._publish()


_COMMANDS = (
    "undo", "redo", "select", "expand", "collapse", "move", "tidy", "dismiss", "request_stage", "leave_stage",
    "apply_what_if", "load_example", "restore_edits", "decline_edits",
)  # fmt: skip
_MORE_EDITS = ("undo", "redo", "apply_what_if", "load_example", "restore_edits")
"""Commands that change the design but are not edits of `session.design`."""
