"""`ml.workbench`: the session as one widget. It passes commands in and snapshots out, and keeps no state of its own."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import traitlets

from mithril_nb.backends.jax import JaxBackend
from mithril_nb.cost import Cost
from mithril_nb.display import render
from mithril_nb.errors import UnknownOptionError, refuse_unknown, short_repr
from mithril_nb.graph.records import Block, LogicalGraph
from mithril_nb.models.model import Model
from mithril_nb.models.naming import input_specs
from mithril_nb.session import Session, design_of
from mithril_nb.session.autosave import Autosave
from mithril_nb.session.design import Design, set_output, set_program
from mithril_nb.session.lazy import LazyStages
from mithril_nb.session.static import DESIGN_MIME, design_bundle
from mithril_nb.stages import Stage
from mithril_nb.train import Run
from mithril_nb.widgets.cells import current_cell, replace_older
from mithril_nb.widgets.guard import shown_in_widget
from mithril_nb.widgets.interrupts import report_interrupts
from mithril_nb.widgets.protocol import curves_message
from mithril_nb.widgets.session_widget import SessionWidget

_TRAINING = ("data", "loss", "optimizer", "learning_rate", "epochs", "batch_size", "validation", "seed", "metrics")


class Workbench(SessionWidget):
    """A model in the making: canvas, inspector, linked stages, costs and training in one widget.

    Made by `workbench`. An ordinary ipywidget: `observe`, `link` and `VBox` work with it.

    Attributes:
        model: The model as it is designed now; set it to put another in place (undo brings the old one back).
        selection: Paths of the selected blocks; may be set.
        run: The latest run, or `None`.
        session: The session behind it.
        errors: Everything that went wrong in handlers and workers, latest last.
    """

    session: Session
    model = traitlets.Instance(Model)
    selection = traitlets.Tuple()
    run = traitlets.Instance(Run, allow_none=True)

    def __init__(self, session: Session):
        self._follows = threading.RLock()
        self._told: tuple[Design | None, Model | None, tuple[str, ...]] = (None, None, ())
        self._pictured = session.design
        super().__init__(session, "workbench.js", lambda: render(session), quick=self._quick_picture)
        report_interrupts()
        self._follow()
        self.observe(self._put_in_place, ["model", "selection"])

    def __repr__(self) -> str:
        return f"Workbench({', '.join(node.name for node in self.session.design.graph.nodes)})"

    @property
    def cost(self) -> Cost | None:
        """What each block costs, of the design as it is now; `None` while nothing can run."""
        return self.session.cost

    @property
    def runs(self) -> list[Run]:
        """All runs so far, oldest first."""
        return self.session.training.runs

    @property
    def stages(self) -> Mapping[str, Stage]:
        """The stages of the program that is looked at, by name; each is made when it is asked for."""
        return LazyStages(self.session.analysis.inspection)

    @property
    def source(self) -> str:
        """Python that rebuilds the model."""
        return self.session.snapshot()["source"]

    def do(self, command: str, /, **args: Any) -> None:
        """Do what a hand can do in the widget, by the same command.

        Args:
            command: `"add_block"`, `"remove"`, `"connect"`, `"disconnect"`, `"rename"`, `"set_attribute"`,
                `"set_shape"`, `"set_program"`, `"undo"`, `"redo"`, `"select"`, `"expand"`, `"collapse"`, `"train"`,
                `"pause"`, `"go_on"`, `"stop"`, `"step_once"`, `"set_learning_rate"`, ...
            args: Its arguments, as `path="linear_0", name="dimension", value=128`.

        Raises:
            MithrilError: It cannot be done; everything is as it was.
        """
        self.session.do(command, **args)

    # From the session, on any thread

    @shown_in_widget
    def _hear(self, kind: str, value: Any) -> None:
        super()._hear(kind, value)
        if kind == "snapshot":
            self._follow()
        elif kind == "run":
            self.send({"type": "run", "run": value})
        elif kind == "curves":
            self.send(*curves_message(value))
        # With no page to change anything by hand, a cell's output stays what it was when the cell ran; and of a run
        # that goes on, the twin can wait for its end.
        if self._is_attended and (kind == "snapshot" or (kind == "run" and value["state"] != "running")):
            self._twin.refresh()

    def _end_session(self, *, is_replaced: bool) -> None:
        self.session.end(stops_run=not is_replaced)  # the newer widget takes the run over

    def _quick_picture(self) -> Mapping[str, Any] | None:
        """Return the design as it is now if an edit has changed it since the last picture."""
        if self.session.design is self._pictured:
            return None
        self._pictured = self.session.design
        return design_bundle(self.session)

    def _follow(self) -> None:
        """Let the traits say what the session holds, so that whoever observes them is told.

        Of what it has told before it says nothing: a worker that tells of a design again, while somebody sets another,
        would put the old one back.
        """
        with self._follows:
            design, model, selection = self._told
            held, selected = self.session.design, self.session.selection
            if held is not design:
                model = Model.of(held.graph, held.name)
            self._told = held, model, selected
            if held is not design:
                self.model = model
            if selected != selection:
                self.selection = selected
            self.run = self.session.training.run

    # From the person's own code

    def _put_in_place(self, change: Mapping[str, Any]) -> None:
        _, told, selected = self._told
        if change["name"] == "selection":
            if tuple(change["new"]) != selected:
                self.session.select(list(change["new"]))
        elif change["new"] is not told and change["new"] != self.session.model:
            design = self.session.design
            new = design_of(change["new"], None)
            name = new.name if new.name != "model" else design.name
            self.session.set_design(replace(design, graph=new.graph, name=name, uses_example_data=False))


def workbench(
    model: Model | LogicalGraph | Block | None = None,
    *,
    shapes: Mapping[str, Sequence[int | str]] | None = None,
    backend: JaxBackend | None = None,
    program: str = "train step",
    autosave: bool | str | Path = True,
    output: str | None = None,
    **training: Any,
) -> Workbench:
    """Open a workbench on a model: build it, see what it becomes and costs, train it.

    Args:
        model: What to start from; nothing for an empty canvas.
        shapes: Shape of each input, as `{"input": [32, 64]}`. With names of sizes, as `{"input": ["batch", 64]}`, costs
            are formulas; the stages after StableHLO need numbers.
        backend: Where programs run; by default `JaxBackend()`.
        program: What the stages show first: `"forward"`, `"forward+backward"` or `"train step"`. A model with several
            outputs starts with `"forward"` until the output to train on is chosen.
        output: Name of the output to train on, of a model with several.
        autosave: The file that edits made in the widget are saved to, within a second, so that a later run of the cell
            can restore them. By default a file for this cell in `.mithril_nb`, beside the notebook; `False` saves
            nothing.
        training: What the Run button gives to `ml.fit`: `data=(x, y)`, `validation=`, `loss=`, `optimizer=`,
            `learning_rate=`, `epochs=`, `batch_size=`, `seed=`.

    Returns:
        The widget; the last expression of a cell shows it.

    Raises:
        UnknownOptionError: An argument that does not exist, or `output` is no output of the model.
        UnexpectedInputError: `shapes` names an input that the model does not have.

    Examples:
        >>> from mithril_nb.models import MLP
        >>> wb = workbench(MLP(64, [32], 10), shapes={"input": [32, 64]})
        >>> wb.model.kind
        'Model'
    """
    unknown = {key: value for key, value in training.items() if key not in _TRAINING}
    refuse_unknown("workbench", unknown, workbench, _TRAINING)
    design = set_program(design_of(model, shapes), program).design
    if output is not None:
        design = set_output(design, output).design
    input_specs(design.graph, shapes or {})  # says so if a shape is for no input
    if not isinstance(backend, JaxBackend | None):
        raise UnknownOptionError(f"cannot run on {backend!r}.", advice="backend=ml.JaxBackend()")
    if not isinstance(autosave, bool | str | Path):
        raise UnknownOptionError(
            f"cannot save edits to {short_repr(autosave)}.",
            (("needs", "the path of a file, or False to save none"),),
            'ml.workbench(model, autosave="design.json")',
        )
    # First, so that the edits made in the widget of an earlier run are saved before they are looked for.
    older = replace_older()
    session = Session(design, backend or JaxBackend(), training, partial(_autosave, autosave))
    for one in older:
        if isinstance(one, Workbench):
            session.training.take_over(one.session.training)
    return Workbench(session)


def _autosave(wanted: bool | str | Path, design: Design) -> Autosave | None:
    """Return where a design is saved: as the user asked, else by the cell that runs."""
    if not isinstance(wanted, bool):
        return Autosave(Path(wanted), design)
    cell = current_cell() if wanted else None
    return cell and Autosave(cell.file(Workbench), design, cell.saved_output(DESIGN_MIME))
