"""The design of a workbench, with its edits, its view and its history: the part of a session without programs."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from mithril_nb.backends.jax import JaxBackend
from mithril_nb.errors import UnknownOptionError, short_repr
from mithril_nb.graph.paths import split_path
from mithril_nb.models.model import Model
from mithril_nb.ui.session.analysis import Analysis, LazyProgram
from mithril_nb.ui.session.autosave import Autosave
from mithril_nb.ui.session.commands import Publisher, check_choice, command
from mithril_nb.ui.session.design import EDITS, Design, DesignChange, set_attribute, set_shape, with_source_of
from mithril_nb.ui.session.own_blocks import own_kinds, save_own
from mithril_nb.ui.session.snapshot import Description, Places, ViewState, description_of, graph_of, palette, place_of
from mithril_nb.ui.session.train_settings import TrainSettings
from mithril_nb.ui.session.what_if import Changes, checked_changes
from mithril_nb.viz.diagrams.layout import layout
from mithril_nb.viz.diagrams.logical import first_view, repeat_keys
from mithril_nb.viz.diagrams.nested import NestedGraph, Scene

_ONE_GESTURE_S = 1.0
_NOWHERE: Places = MappingProxyType({})


@dataclass(frozen=True, eq=False)
class Step:
    """One past or future change, linked to the next one in the same direction."""

    design: Design  # the design that undo or redo of the change restores
    moved: Places  # the positions of moved blocks that it restores, as in `ViewState`
    label: str  # label of the change: `"dimension of linear_0"`
    renamed: tuple[str, str] | None = None  # old and new path of a renamed block
    next: Step | None = field(default=None, repr=False)  # the next step in the same direction; `None` for the last one
    count: int = 1  # number of edits in this step and all steps after it in the same direction
    restored: tuple[str, ...] = ()  # labels of the saved edits that the step restored, oldest first
    has_own_view: bool = False  # true if the change replaced the model, so that both designs have separate views

    @property
    def edits(self) -> int:
        """Number of edits in this step; 0 if it only moved blocks."""
        return self.count - (self.next.count if self.next else 0)


@dataclass(frozen=True)
class EditHistory:
    """The current design, with the changes for undo and redo."""

    present: Design  # the current design
    undo: Step | None = None  # the change that undo reverts; `None` at the start
    redo: Step | None = None  # the change that redo applies; `None` at the end
    changed_at: float = -1e9  # time of the last change, in seconds

    @property
    def edits(self) -> int:
        """Number of edits that undo can revert, counting restored edits one by one."""
        return self.undo.count if self.undo else 0

    def labels(self, most: int) -> tuple[str, ...]:
        """Return the labels of the latest changes, oldest first."""
        labels, step = [], self.undo
        while step is not None and len(labels) < most:
            labels += reversed(step.restored or (step.label,) * step.edits)
            step = step.next
        return tuple(reversed(labels[:most]))

    def with_change(self, change: DesignChange, now_s: float, moved: Places = _NOWHERE) -> EditHistory:
        """Return the history after a change."""
        if change.edits and change.design == self.present:
            return self
        same_gesture = (
            change.is_gesture
            and self.undo is not None
            and self.undo.label == change.label
            and not self.redo
            and now_s - self.changed_at < _ONE_GESTURE_S
        )
        undo = self.undo if same_gesture else self._step(change, self.undo, change.edits, moved)
        return EditHistory(change.design, undo, None, now_s)

    def undone(self, moved: Places = _NOWHERE) -> EditHistory:
        """Return the history after one undo; `self` if nothing can be undone."""
        if self.undo is None:
            return self
        return EditHistory(self.undo.design, self.undo.next, self._step(self.undo, self.redo, self.undo.edits, moved))

    def redone(self, moved: Places = _NOWHERE) -> EditHistory:
        """Return the history after one redo; `self` if nothing can be redone."""
        if self.redo is None:
            return self
        return EditHistory(self.redo.design, self._step(self.redo, self.undo, self.redo.edits, moved), self.redo.next)

    def _step(self, change: DesignChange | Step, next: Step | None, edits: int, moved: Places) -> Step:
        design = _without_tables(self.present)
        count = edits + (next.count if next else 0)
        return Step(design, moved, change.label, change.renamed, next, count, change.restored, change.has_own_view)


def _without_tables(design: Design) -> Design:
    """Return a design whose graph has no cached lookup tables, which are larger than the graph."""
    return replace(design, graph=replace(design.graph))


class CommandHistory:
    """The commands that led from the first design of a workbench to the current one."""

    def __init__(self, design: Design):
        self._present = _without_tables(design)
        self._changes: list[tuple[str, dict[str, Any], Design, Design]] = []

    def __repr__(self) -> str:
        return self.to_python() or "CommandHistory()"

    def add(self, name: str, args: Mapping[str, Any], design: Design) -> None:
        """Add a command that led to a design."""
        design = _without_tables(design)
        if name not in ("undo", "redo") and design != self._present:
            self._changes.append((name, dict(args), self._present, design))
        self._present = design

    @property
    def commands(self) -> list[tuple[str, dict[str, Any]]]:
        """Names and arguments of the commands, oldest first. Undone commands are left out."""
        commands, design = [], self._present
        for name, args, before, after in reversed(self._changes):
            if after == design:
                commands.append((name, args))
                design = before
        return commands[::-1]

    def to_python(self) -> str:
        """Return the commands as Python for a workbench `wb` that starts from the same model."""
        return "\n".join(
            f"wb.do({', '.join([repr(name), *(f'{key}={value!r}' for key, value in args.items())])})"
            for name, args in self.commands
        )


# Maximum number of designs whose stages are cached.
_SEEN = 12
_OUTSIDE = ("dtype", "precision", "remat")


class DesignEditor(Publisher):
    """An editable design, with its diagram, its history and its autosave."""

    def __init__(self, design: Design, backend: JaxBackend, autosave: Autosave | None):
        super().__init__()
        self.backend, self._autosave = backend, autosave
        self._is_edited_by_user = False
        self.commands_so_far = CommandHistory(design)
        self._history = EditHistory(design)
        self._view = ViewState(folded=frozenset(repeat_keys(design.graph)))
        self._left: dict[int, ViewState] = {}  # the view of each design when it was left, by its number of edits
        self._version = 1
        self._device: Any = None
        self._shares: dict[str, float] = {}

    def _forget_results(self) -> None:
        self._seen: dict[Design, LazyProgram] = {}
        self._analysis = self._analysed(self._history.present, self._version)
        self._graph: NestedGraph = graph_of(self._analysis, self._view, self._shares)
        self._view = replace(self._view, expanded=first_view(self._graph))
        self._described: Description = description_of(self._analysis)
        self._notice = self._analysis.warning

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
        """The diagram of the current model for static pictures."""
        return self.diagram_with(self._shares)

    def diagram_with(self, shares: Mapping[str, float]) -> Scene:
        """Return the diagram with other shares of the cost, by path of the block."""
        with self._lock:
            graph, view = self._graph, self._view
        return layout(graph.with_shares(shares), view.expanded, view.moved)

    # Edits

    def edit(self, name: str, /, **args: Any) -> None:
        """Apply an edit to the design: the function `EDITS[name]`, with the arguments `args`."""
        with self._lock:
            if name == "add_block" and self.selection:
                # A page may send this command before it receives the new selection, so add it here.
                args.setdefault("after", self.selection[-1])
            asked = name, dict(args)
            position = (args.pop("x", None), args.pop("y", None))
            if name == "add_block" and None not in position:
                name = "place_block"
                args.pop("after", None)
            change = EDITS[name](self.design, **args)
            change = replace(change, design=self._analysis.with_shapes_before(change.design))
            view = self._view.renamed(*change.renamed) if change.renamed else self._view
            if change.selection is not None:
                view = replace(view, selection=change.selection)
            if change.selection:
                view = view.with_place(change.selection[0], *position)
            self._set_history(self._with(change), view)
            self.commands_so_far.add(*asked, self.design)

    @command
    def apply_what_if(self, changes: Sequence[Sequence[Any]]) -> None:
        """Apply the changes of a what-if question as one edit."""
        with self._lock:
            change = change_of(self._analysis, checked_changes(changes))
            self._set_history(self._with(change), self._view)

    @command
    def set_training(self, name: str, value: Any) -> None:
        """Choose a setting of training, such as `epochs`, `optimizer`, or a parameter of the optimizer."""
        with self._lock:
            training = self._analysis.settings.changed(name, value)
            label = f"{name.replace('_', ' ')} of training"
            change = DesignChange(replace(self.design, training=training), label, is_gesture=True)
            self._set_history(self._with(change), self._view)

    @command
    def save_block(self, path: str, name: str) -> None:
        """Save a block, or the whole model for the path `""`, to *My blocks*, a folder of model files."""
        with self._lock:
            save_own(self.design.graph, path, name)
            self._list_own_blocks()

    @command
    def delete_block(self, kind: str) -> None:
        """Delete a file of *My blocks*, such as `"my_blocks/encoder.json"`."""
        with self._lock:
            check_choice("kind", kind, own_kinds())
            Path(kind).unlink()
            self._list_own_blocks()

    def _list_own_blocks(self) -> None:
        self._described = {**self._described, "palette": palette()}
        self._publish()

    @command
    def undo(self) -> None:
        """Undo one change."""
        with self._lock:
            step = self._history.undo
            renamed = (step.renamed[1], step.renamed[0]) if step and step.renamed else None
            self._return_to(self._history.undone(self._view.moved), step, renamed)

    @command
    def redo(self) -> None:
        """Redo one change."""
        with self._lock:
            step = self._history.redo
            self._return_to(self._history.redone(self._view.moved), step, step.renamed if step else None)

    def _return_to(self, history: EditHistory, step: Step | None, renamed: tuple[str, str] | None) -> None:
        paths = tuple(path for path, _ in self.design.graph.walk())
        view = self._view
        if renamed:
            view, paths = view.renamed(*renamed), ViewState(paths).renamed(*renamed).selection
        if was := self._left.get(history.edits):
            view = was if step and step.has_own_view else view.returned(was, set(paths))
        self._set_history(history, replace(view, moved=step.moved) if step else view)

    def set_design(self, design: Design, label: str = "set from Python", keeps_view: bool = True) -> None:
        """Replace the design; without `keeps_view`, the view too."""
        with self._lock:
            self._replace_design(DesignChange(design, label, has_own_view=not keeps_view))

    @command
    def restore_edits(self) -> None:
        """Restore the design that an earlier session of this workbench saved, as one edit."""
        with self._lock:
            saved = self._autosave and self._autosave.offer
            if not self._autosave or not saved:
                raise UnknownOptionError("there are no saved edits of an earlier run of this cell.")
            count = "1 edit" if saved.edits == 1 else f"{saved.edits} edits"
            with self._autosave.accepted() as design:
                change = DesignChange(design, f"restore {count}", edits=saved.edits, restored=saved.labels)
                self._replace_design(change)

    @command
    def decline_edits(self) -> None:
        """Keep the design that the code builds."""
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
        """Number of edits since the design that the code builds, counting restored edits; 0 if only code made edits."""
        return self._history.edits if self._is_edited_by_user else 0

    @command
    def select(self, paths: Sequence[str]) -> None:
        """Select blocks."""
        with self._lock:
            existing = {path for path, _ in self.design.graph.walk()}
            self._view = replace(self._view, selection=tuple(paths)).only(existing)
            self._send("selection", list(self._view.selection))

    @command
    def expand(self, path: str) -> None:
        """Show the blocks inside a composite block or a repeated part."""
        self._set_view(replace(self._view, expanded=self._view.expanded | {path}))

    @command
    def collapse(self, path: str) -> None:
        """Show a composite block or a repeated part as one node."""
        self._set_view(replace(self._view, expanded=self._view.expanded - {path}))

    @command
    def show_ports(self, paths: Sequence[str], is_shown: bool) -> None:
        """Show or hide the ports of the parameters of blocks."""
        ports = self._view.ports | {*paths} if is_shown else self._view.ports - {*paths}
        self._set_view(replace(self._view, ports=ports))

    @command
    def move(self, places: Sequence[Sequence[Any]], label: str = "") -> None:
        """Move blocks as one step: lists of path, x and y, relative to the frame of the block's group, if any."""
        if not all(isinstance(row, list | tuple) and len(row) == 3 and isinstance(row[0], str) for row in places):
            raise UnknownOptionError(
                f"{short_repr(places)} is not a list of positions.",
                (("needs", "lists of block path, x and y"),),
                'places=[["linear_0", 40, 120], ["relu_0", 240, 120]]',
            )
        view = self._view
        for path, x, y in places:
            view = view.with_place(path, *place_of(x, y))
        moved = "".join(split_path(places[0][0])[-1:]) if len(places) == 1 else f"{len(places)} blocks"
        self._move(view, label or f"move {moved}")

    @command
    def tidy(self) -> None:
        """Reset the layout: put moved blocks back, and fold repeated parts."""
        self._move(replace(self._view, moved={}, folded=frozenset(repeat_keys(self.design.graph))), "tidy up")

    def _move(self, view: ViewState, label: str) -> None:
        with self._lock:
            view = view.only({path for path, _ in self.design.graph.walk()})
            if view.moved != self._view.moved:
                self._history = self._with(DesignChange(self.design, label, is_gesture=True, edits=0))
            self._set_view(view)

    def _with(self, change: DesignChange) -> EditHistory:
        change = replace(change, design=with_source_of(change.design, self.design))
        return self._history.with_change(change, time.monotonic(), self._view.moved)

    def _analysed(self, design: Design, version: int) -> Analysis:
        options = self._training_options()
        key = replace(design, training=TrainSettings(options, design.training).of_program, source="")
        analysis = Analysis(design, version, self.backend, options, self._seen.get(key), self._device)
        # Undo, or a slider that moves back, reuses the cached stages.
        self._seen.pop(key, None)  # reinsert it as the most recently used
        self._seen[key] = analysis.program
        while len(self._seen) > _SEEN:
            del self._seen[next(iter(self._seen))]
        return analysis

    def _set_history(self, history: EditHistory, view: ViewState, old_keys: Collection[str] | None = None) -> None:
        if history.present == self._history.present:
            self._history = history
            self._set_view(replace(self._view, moved=view.moved))
            return
        analysis = self._analysed(history.present, self._version + 1)
        view = view.only({path for path, _ in history.present.graph.walk()})
        graph = graph_of(analysis, view, self._shares)
        described = description_of(analysis, (self._analysis, self._described))
        if old_keys is not None:
            view = replace(view, expanded=view.expanded | (first_view(graph) - set(old_keys)))
        # Nothing below raises, so that a failed edit changes nothing.
        self._left[self._history.edits] = self._view
        notice = None if self._analysis.warning else analysis.warning
        self._history, self._version, self._analysis = history, self._version + 1, analysis
        self._graph, self._described = graph, described
        self._view, self._notice = view, notice
        if self._autosave and self._is_edited_by_user:  # first, as Ctrl-C may end the rest
            self._autosave.save(history.present, self.edits, self.edit_labels)
        self._follow(analysis)
        self._publish()

    def _replace_design(self, change: DesignChange) -> None:
        view = ViewState() if change.has_own_view else self._view
        view = replace(view, folded=frozenset(repeat_keys(change.design.graph)))
        old_keys = set[str]() if change.has_own_view else {box.key for box in self._graph.boxes}
        self._set_history(self._with(change), view, old_keys)

    def _set_view(self, view: ViewState) -> None:
        with self._lock:
            view = view.only({path for path, _ in self.design.graph.walk()})
            if (view.folded, view.ports) != (self._view.folded, self._view.ports):
                self._graph = graph_of(self._analysis, view, self._shares)
            self._view = view
            self._publish()


def change_of(analysis: Analysis, changes: Changes) -> DesignChange:
    """Return several changes of settings as one edit of a design."""
    design = analysis.design
    shapes: dict[str, list[Any]] = {name: list(spec.shape) for name, spec in analysis.inference.inputs.items()}
    for path, name, value in changes:
        port, _, axis = name.rpartition(".")
        if path:
            design = set_attribute(design, path, name, value).design
        elif name == "batch":
            shapes = {input_name: [value, *shape[1:]] if shape else shape for input_name, shape in shapes.items()}
        elif port in shapes and axis in map(str, range(len(shapes[port]))):
            shapes[port][int(axis)] = value
        else:
            raise UnknownOptionError(
                f"the model has no setting {name!r}.",
                (("settings", f"batch; the axis of an input ({next(iter(shapes), 'x')}.0); attributes of blocks"),),
                'ml.workbench(model, backend=ml.JaxBackend(dtype="bfloat16"))'
                if name in _OUTSIDE
                else 'changes=[["linear_0", "dimension", 512], ["", "batch", 64]]',
            )
    if any(not path for path, _, _ in changes):
        for port, shape in shapes.items():
            design = set_shape(design, port, shape).design
    names = ", ".join(f"{f'{path}.' if path else ''}{name}" for path, name, _ in changes)
    return DesignChange(design, f"what-if: {names}")
