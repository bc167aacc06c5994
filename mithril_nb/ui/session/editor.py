"""The design of a workbench, with its edits, its view and its history: the part of a session without programs."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from mithril_nb.backends.jax import JaxBackend
from mithril_nb.errors import UnknownOptionError
from mithril_nb.models.model import Model
from mithril_nb.ui.session.commands import command, edit_command
from mithril_nb.ui.session.costs.subjects import change_of
from mithril_nb.ui.session.costs.what_if import checked_changes
from mithril_nb.ui.session.design.analysis import Analysis, LazyProgram
from mithril_nb.ui.session.design.autosave import Autosave
from mithril_nb.ui.session.design.design import EDITS, Change, Design
from mithril_nb.ui.session.design.history import History
from mithril_nb.ui.session.publisher import Publisher
from mithril_nb.ui.session.snapshot import ViewState, diagram_of, place_of
from mithril_nb.viz.diagrams.scene import Scene

_SEEN = 12
"""Maximum number of designs whose stages are cached."""


class DesignEditor(Publisher):
    """An editable design, with its diagram, its history and its autosave.

    Args:
        design: Initial design.
        backend: Backend that runs its programs.
        autosave: Where the edits of the user are saved; `None` to save none.
    """

    def __init__(self, design: Design, backend: JaxBackend, autosave: Autosave | None):
        super().__init__()
        self.backend, self._autosave = backend, autosave
        self._is_edited_by_user = False
        self._history = History(design)
        self._view = ViewState()
        self._version = 1
        self._shares: dict[str, float] = {}

    def _forget_results(self) -> None:
        """Analyse the design again without any computed result."""
        self._seen: dict[Design, LazyProgram] = {}
        self._analysis = self._analysed(self._history.present, self._version)
        self._diagram: Scene = diagram_of(self._analysis, self._view, self._shares)

    @abstractmethod
    def _training_options(self) -> dict[str, Any]:
        """Return the options of `fit`."""

    @abstractmethod
    def _follow(self, analysis: Analysis) -> None:
        """Compute the requested stages of a new design."""

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
    def diagram(self) -> Scene:
        """The diagram of the current model."""
        return self._diagram

    # Edits

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

    @edit_command
    def apply_what_if(self, changes: Sequence[Sequence[Any]]) -> None:
        """Apply the changes of a what-if question as one edit.

        Raises:
            MithrilError: A change failed; the design is unchanged.
        """
        with self._lock:
            change = change_of(self._analysis, checked_changes(changes))
            self._set_history(self._history.with_change(change, time.monotonic()), self._view)

    @edit_command
    def undo(self) -> None:
        """Undo one change."""
        with self._lock:
            change = self._history.undo
            back = change.renamed[::-1] if change and change.renamed else None
            self._set_history(self._history.undone(), self._view.renamed(*back) if back else self._view)

    @edit_command
    def redo(self) -> None:
        """Redo one change."""
        with self._lock:
            again = self._history.redo.renamed if self._history.redo else None
            self._set_history(self._history.redone(), self._view.renamed(*again) if again else self._view)

    def set_design(self, design: Design, label: str = "set from Python") -> None:
        """Replace the design. Undo restores the previous one."""
        with self._lock:
            self._set_history(self._history.with_change(Change(design, label), time.monotonic()), self._view)

    @edit_command
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

    @command
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

    @command
    def select(self, paths: Sequence[str]) -> None:
        """Select blocks. Unknown paths are ignored."""
        with self._lock:
            known = {path for path, _ in self.design.graph.walk()}
            self._view = replace(self._view, selection=tuple(paths)).only(known)
            self._publish()

    @command
    def expand(self, path: str) -> None:
        """Show the blocks inside a composite block."""
        self._set_view(replace(self._view, expanded=self._view.expanded | {path}))

    @command
    def collapse(self, path: str) -> None:
        """Show a composite block as one node."""
        self._set_view(replace(self._view, expanded=self._view.expanded - {path}))

    @command
    def move(self, path: str, x: float, y: float) -> None:
        """Move a block to a position on the canvas."""
        place = self._diagram.within(path, *place_of(x, y))
        self._set_view(self._view.with_place(path, *place))

    @command
    def tidy(self) -> None:
        """Reset the layout, including moved blocks."""
        self._set_view(replace(self._view, moved={}))

    def _analysed(self, design: Design, version: int) -> Analysis:
        analysis = Analysis(design, version, self.backend, self._training_options(), self._seen.get(design))
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
        self._follow(analysis)
        if self._autosave and self._is_edited_by_user:
            self._autosave.save(history.present, self.edits, self.edit_labels)
        self._publish()

    def _set_view(self, view: ViewState) -> None:
        with self._lock:
            view = view.only({path for path, _ in self.design.graph.walk()})
            self._diagram = diagram_of(self._analysis, view, self._shares)
            self._view = view
            self._publish()
