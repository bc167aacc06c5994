"""`ml.workbench`: a session as a widget, which passes commands to the session and snapshots to the front end."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import traitlets
from IPython import get_ipython

from mithril_nb.backends.jax import JaxBackend
from mithril_nb.cost import Cost
from mithril_nb.display import render
from mithril_nb.errors import UnknownOptionError, refuse_unknown, short_repr
from mithril_nb.graph.records import Block, LogicalGraph
from mithril_nb.hardware import as_device
from mithril_nb.models.model import Model
from mithril_nb.models.naming import input_specs
from mithril_nb.models.saving.reading import from_source
from mithril_nb.stages import Stage
from mithril_nb.stages.once import paused_collector, running_collector
from mithril_nb.train import Run
from mithril_nb.ui.session import Session, design_of
from mithril_nb.ui.session.autosave import Autosave
from mithril_nb.ui.session.design import Design, set_output, set_program, source_of, with_text
from mithril_nb.ui.session.editor import CommandHistory
from mithril_nb.ui.session.session import DESIGN_MIME, MOST_QUICK_BLOCKS, design_bundle
from mithril_nb.ui.session.stages import LazyStages
from mithril_nb.ui.session.training import check_options
from mithril_nb.ui.widgets.cells import current_cell, replace_older, report_interrupts
from mithril_nb.ui.widgets.followed_file import FollowedFile
from mithril_nb.ui.widgets.front_end import shown_in_widget
from mithril_nb.ui.widgets.protocol import curves_message
from mithril_nb.ui.widgets.session_widget import SessionWidget

_TRAINING = (
    "data",
    "loss",
    "optimizer",
    "learning_rate",
    "epochs",
    "batch_size",
    "validation",
    "seed",
    "metrics",
    "norms",
)


class Workbench(SessionWidget):
    """A widget to build a model: canvas, inspector, linked stages, costs and training.

    Create it with `workbench`. It is an ordinary ipywidget: `observe`, `link` and `VBox` work with it.

    Attributes:
        model: The current model. Set it to replace the model (undo restores the old one).
        selection: Paths of the selected blocks. Set it to change the selection.
        run: The latest run; `None` before the first one.
        session: The session of the widget.
        errors: Errors of handlers and workers, latest last.
    """

    session: Session
    model = traitlets.Instance(Model)
    selection = traitlets.Tuple()
    run = traitlets.Instance(Run, allow_none=True)

    def __init__(self, session: Session):
        self._follows = threading.RLock()
        self._file: FollowedFile | None = None
        self._published: tuple[Design | None, Model | None, tuple[str, ...]] = (None, None, ())
        # traitlets creates a default on the first read. It would overwrite a value that another thread has just set.
        self.selection = ()
        self._pictured = session.design
        super().__init__(session, "workbench.js", lambda: render(session), quick=self._quick_picture)
        report_interrupts()
        self._follow()
        self.observe(self._apply_trait, ["model", "selection"])

    def __repr__(self) -> str:
        return f"Workbench({', '.join(node.name for node in self.session.design.graph.nodes)})"

    @property
    def cost(self) -> Cost | None:
        """The cost of each block of the latest design that can run; `None` if no design could run yet."""
        return self.session.cost

    @property
    def runs(self) -> list[Run]:
        """All runs so far, oldest first."""
        return self.session.training.runs

    @property
    def stages(self) -> Mapping[str, Stage]:
        """The stages of the inspected program by name, each computed on first use."""
        return LazyStages(self.session.analysis.inspection)

    @property
    def source(self) -> str:
        """Python that rebuilds the model."""
        return self.session.snapshot()["source"]

    @property
    def history(self) -> CommandHistory:
        """The commands that changed the design, by mouse and by code; `wb.history.to_python()` repeats them."""
        return self.session.commands_so_far

    def to_cell(self) -> None:
        """Put the code of the model into a new cell below the running cell.

        Raises:
            UnknownOptionError: There is no notebook.
        """
        shell = get_ipython()
        if shell is None:
            raise UnknownOptionError("there is no notebook to put a cell into.", (), "print(wb.source)")
        shell.set_next_input(self.source)

    def on_change(self, function: Callable[[Model], Any]) -> Callable[[], None]:
        """Call a function with the model after each edit, on any thread; return a function that ends this.

        Examples:
            >>> from mithril_nb.models import Linear
            >>> wb, sizes = workbench(Linear(3)), []
            >>> stop = wb.on_change(lambda model: sizes.append(len(model.graph.nodes)))
            >>> wb.do("add_block", kind="Relu")
            >>> stop()
            >>> sizes
            [2]
        """
        return self._on_trait("model", function)

    def on_select(self, function: Callable[[tuple[str, ...]], Any]) -> Callable[[], None]:
        """Call a function with the paths of the selected blocks when they change; return a function that ends this."""
        return self._on_trait("selection", function)

    def _on_trait(self, name: str, function: Callable[[Any], Any]) -> Callable[[], None]:
        def handler(change: Mapping[str, Any]) -> None:
            function(change["new"])

        self.observe(handler, name)
        return lambda: self.unobserve(handler, name)

    def do(self, command: str, /, **args: Any) -> None:
        """Execute a command of the widget. Anything you can do with the mouse has a command.

        Args:
            command: `"add_block"`, `"remove"`, `"connect"`, `"disconnect"`, `"rename"`, `"set_attribute"`,
                `"set_shape"`, `"set_program"`, `"undo"`, `"redo"`, `"select"`, `"expand"`, `"collapse"`, `"train"`,
                `"pause"`, `"resume"`, `"stop"`, `"step_once"`, `"set_learning_rate"`, ...
            args: Arguments of the command, such as `path="linear_0", name="dimension", value=128`.

        Raises:
            MithrilError: The command failed and changed nothing.
        """
        self.session.do(command, **args)

    # From the session, on any thread

    @shown_in_widget
    def _on_change(self, kind: str, value: Any) -> None:
        super()._on_change(kind, value)
        if kind in ("snapshot", "selection"):
            self._follow()
        elif kind == "run":
            self.send({"type": "run", "run": value})
        elif kind == "curves":
            self.send(*curves_message(value))
        # Without a page, the output of a cell must not change after the cell ran. While a run trains, wait for its end.
        if self._is_attended and (kind == "snapshot" or (kind == "run" and value["state"] != "running")):
            self._twin.refresh()

    def _follow_file(self, path: Path, text: str) -> None:
        self._file = FollowedFile(path, text, weakref.WeakMethod(self._read_again))

    @shown_in_widget
    def _read_again(self, text: str) -> None:
        self.session.do("set_source", text=text)

    def _end(self, *, is_replaced: bool) -> None:
        if self._file is not None:
            self._file.stop()
        self.session.end(stops_run=not is_replaced)  # the newer widget takes over the run
        self._packer.end()

    def _quick_picture(self) -> Mapping[str, Any] | None:
        if self.session.design is self._pictured or len(self.session.design.graph.nodes) > MOST_QUICK_BLOCKS:
            return None
        self._pictured = self.session.design
        return design_bundle(self.session)

    def _follow(self) -> None:
        with self._follows:
            design, model, selection = self._published
            held, selected = self.session.design, self.session.selection
            if held is not design:
                model = Model.of(held.graph, held.name)
            self._published = held, model, selected
            with running_collector():  # observers of the traits are the user's code
                if held is not design:
                    self.model = model
                if selected != selection:
                    self.selection = selected
                self.run = self.session.training.run

    # From the user's code

    def _apply_trait(self, change: Mapping[str, Any]) -> None:
        _, published, selected = self._published
        if change["name"] == "selection":
            if tuple(change["new"]) != selected:
                self.session.select(list(change["new"]))
        elif change["new"] is not published and change["new"] != self.session.model:
            design = self.session.design
            new = design_of(change["new"], None)
            name = new.name if new.name != "model" else design.name
            self.session.set_design(replace(design, graph=new.graph, name=name, template=""))
            design = self.session.design
            self.session.commands_so_far.add("set_source", {"text": source_of(design)}, design)


@paused_collector()
def workbench(
    model: Model | LogicalGraph | Block | str | Path | None = None,
    *,
    shapes: Mapping[str, Sequence[int | str]] | None = None,
    backend: JaxBackend | None = None,
    program: str = "train step",
    autosave: bool | str | Path = True,
    output: str | None = None,
    device: Any = None,
    **training: Any,
) -> Workbench:
    """Open a workbench for a model: build it, see its stages and costs, train it.

    Args:
        model: Initial model; default: an empty canvas. Or the path of a Python file that builds a model, such as
            `"net.py"`: it is read as syntax and never run, and read again when it changes on disk. Or a file or link
            that `Model.load` takes.
        shapes: Shape of each input, such as `{"input": [32, 64]}`. With names of sizes, such as
            `{"input": ["batch", 64]}`, costs are formulas; the stages after StableHLO need numbers.
        backend: Backend that runs programs; default: `JaxBackend()`.
        program: The program that is shown first: `"forward"`, `"forward+backward"` or `"train step"`. A model with
            several outputs starts with `"forward"` until you choose the output to train on.
        output: Name of the output to train on, for a model with several outputs.
        autosave: File in which the widget saves edits, within a second, so that a later run of the cell can restore
            them. Default: a file for this cell in `.mithril_nb`, next to the notebook; `False` saves nothing.
        device: The device to compile for, such as `"h100"` or `"v5e:4x4"`, as in `ml.inspect`; default: that of
            `backend`. The widget has a menu with other devices. It always trains on `backend`.
        training: Arguments that the Run button passes to `ml.fit`: `data=(x, y)`, `validation=`, `loss=`, `optimizer=`,
            `learning_rate=`, `epochs=`, `batch_size=`, `seed=`.

    Returns:
        The widget. As the last expression of a cell, it is displayed.

    Raises:
        UnknownOptionError: An argument does not exist or has an invalid value, or `output` is not an output of the
            model.
        UnexpectedInputError: `shapes` names an input that the model does not have.
        ModelFileError: The file is damaged, or its code does more than build a model.

    Examples:
        >>> from mithril_nb.models import MLP
        >>> wb = workbench(MLP(64, [32], 10), shapes={"input": [32, 64]})
        >>> wb.model.kind
        'Model'
    """
    unknown = {key: value for key, value in training.items() if key not in _TRAINING}
    refuse_unknown("workbench", unknown, workbench, _TRAINING)
    check_options(training)
    path, text = None, ""
    if isinstance(model, str | Path) and str(model).endswith(".py"):
        path = Path(model)
        text = path.read_text(encoding="utf-8")
        model = from_source(text)
    elif isinstance(model, str | Path):
        model = Model.load(model)
    design = set_program(design_of(model, shapes), program).design
    if path is not None:
        design = with_text(design, text)
    if output is not None:
        design = set_output(design, output).design
    input_specs(design.graph, shapes or {})  # raises if `shapes` names an unknown input
    if not isinstance(backend, JaxBackend | None):
        raise UnknownOptionError(f"a workbench cannot run on {backend!r}.", advice="backend=ml.JaxBackend()")
    if not isinstance(autosave, bool | str | Path):
        raise UnknownOptionError(
            f"cannot save edits to {short_repr(autosave)}.",
            (("needs", "the path of a file, or False to save none"),),
            'ml.workbench(model, autosave="design.json")',
        )
    device = as_device(device)
    # Replace older widgets first, so that they save their edits before `Autosave` reads the file.
    older = replace_older()
    session = Session(design, backend or JaxBackend(), training, partial(_autosave, autosave), device)
    for widget in older:
        if isinstance(widget, Workbench):
            session.training.take_over(widget.session.training)
    widget = Workbench(session)
    if path is not None:
        widget._follow_file(path, text)
    return widget


def _autosave(destination: bool | str | Path, design: Design) -> Autosave | None:
    if not isinstance(destination, bool):
        return Autosave(Path(destination), design)
    cell = current_cell() if destination else None
    return cell and Autosave(cell.file(Workbench), design, cell.saved_output(DESIGN_MIME))
