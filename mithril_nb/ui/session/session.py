"""The mutable session of a workbench: takes commands, publishes snapshots, and renders itself for a saved notebook.

It does not depend on widgets. Commands may come from any thread. Cheap results (graph, shapes, problems, diagram) are
computed at once. A worker thread computes expensive results (trace, lower, compile), the latest request first, and
publishes each result when it is ready.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial, wraps
from typing import Any, cast

from mithril_nb.backends.jax import JaxBackend
from mithril_nb.cost import Cost, costs_so_far
from mithril_nb.display import renderer
from mithril_nb.errors import Diagnostic
from mithril_nb.inspection import Inspection
from mithril_nb.models.model import Model
from mithril_nb.models.saving.serialization import MARK, is_link
from mithril_nb.train.losses import LOSSES
from mithril_nb.ui.session.analysis import Analysis
from mithril_nb.ui.session.autosave import Autosave, saved_design
from mithril_nb.ui.session.commands import (
    ProblemData,
    ProgramView,
    RequestState,
    check_arguments,
    check_choice,
    command,
    commands_of,
)
from mithril_nb.ui.session.design import EDITS, PROGRAMS, Design, design_of
from mithril_nb.ui.session.editor import DesignEditor
from mithril_nb.ui.session.fixes import problem_with_fix
from mithril_nb.ui.session.graphs.fits import FitRequests
from mithril_nb.ui.session.graphs.overlays import OverlaySubject
from mithril_nb.ui.session.graphs.values import ValueRequests
from mithril_nb.ui.session.program_session import ProgramSession
from mithril_nb.ui.session.snapshot import ModelGraph, WorkbenchSnapshot, hues_of, shares_of
from mithril_nb.ui.session.stages import StageMaker
from mithril_nb.ui.session.templates import FIRST, TEMPLATES, template_design, template_menu
from mithril_nb.ui.session.training import Training, example_design
from mithril_nb.viz.bundles import bundle
from mithril_nb.viz.costs.node_values import dtypes_of_model
from mithril_nb.viz.diagrams.logical import model_graph
from mithril_nb.viz.diagrams.nested import Box
from mithril_nb.viz.pages.report import fragment_html

_EDITS_OF_DESIGN = frozenset(
    {*EDITS, "apply_what_if", "set_training", "undo", "redo", "restore_edits", "load_example", "open_link"}
)


class Session(DesignEditor, ProgramSession):
    """An editable design, with its stages, costs and run.

    Args:
        design: Initial design.
        backend: Backend that runs programs.
        training: Options of `fit`: `data`, `loss`, `optimizer`, `epochs`, ...
        autosave: A function that returns the `Autosave` for the design, which saves the user's edits in a file; `None`
            for no file. By default, nothing is saved.
        device: The device that is shown first; `None` for that of the backend.

    Attributes:
        errors: Errors of commands and of the worker, latest last, with tracebacks.
        training: The runs of `fit`.
        passes: Answers requests about XLA's passes.
        costs: Computes compiled and measured costs, and draws pictures of costs.
        what_if: Computes costs with other settings.
        overlays: Computes the values on the graph.
        exports: Creates files, such as a report.
        values: Feeds the model with a sample, and shows the values inside it.
    """

    def __init__(
        self,
        design: Design,
        backend: JaxBackend,
        training: Mapping[str, Any] | None = None,
        autosave: Callable[[Design], Autosave | None] = lambda design: None,
        device: Any = None,
    ):
        saved = autosave(design)
        super().__init__(design, backend, saved)
        if saved is not None:
            saved.changed = self._publish
        self._first_device = device
        self.training = Training(
            training or {}, self._send_of_run, self._lock, lambda: self._analysis, self._run_failed
        )
        self._start_afresh()
        self._follow(self._analysis)

    def _start_afresh(self) -> None:
        # Also called at the end: an ended session uses little memory without computed results.
        handlers = self._create_handlers(self._first_device, self.backend.device)
        self._device = self.devices.device
        self._forget_results()
        self._maker = StageMaker(self._lock, self._stages_changed, self._fail)
        self.fits = FitRequests(lambda: self._analysis, self._client)
        self.values = ValueRequests(lambda: self._analysis, lambda: self.training, self.overlays, self._client)
        # In this order, because new values compute the overlay again.
        self._workers = (self.values, self._maker, *handlers, self.fits)

    def _send_of_run(self, kind: str, value: Any) -> None:
        self._send(kind, value)
        if kind != "run":
            return
        self.overlays.offer("run", self.training.norms())
        # While the run trains, the values would be outdated at once.
        if value["state"] != "running":
            self.values.refresh()

    def _training_options(self) -> dict[str, Any]:
        return self.training.options

    def _follow(self, analysis: Analysis) -> None:
        self._maker.follow(analysis)
        self.overlays.offer("run", self.training.norms())
        self.devices.follow(can_run=analysis.can_run)
        if not analysis.can_run:
            self.overlays.refresh()
        self.values.refresh()

    def _show_on_device(self) -> None:
        self._device = self.devices.device
        self._version += 1
        self._analysis = self._analysed(self.design, self._version)
        self._maker.abandon()
        self._follow(self._analysis)
        self._publish()

    # State in the kernel

    @property
    def cost(self) -> Cost | None:
        """Costs of the blocks of the latest design that can run. Traces the design if that is not done yet."""
        return self._analysis.cost if self._analysis.can_run else self._maker.cost

    def snapshot(self) -> WorkbenchSnapshot:
        """Return all data that a front end shows."""
        with self._lock:
            analysis, history, view, cost = self._analysis, self._history, self._view, self._maker.cost
            design, loss = analysis.design, analysis.loss
            notice = self._notice or (self._autosave and self._autosave.notice())
            can_run = analysis.can_run
            passes = RequestState(state="unavailable", message=analysis.why_not, version=0)
            undo_label, redo_label = (step.label if step else "" for step in (history.undo, history.redo))
            return {
                **self._snapshot(
                    analysis.version,
                    design.name,
                    f"jax {self.backend.device_name}",
                    selection=view.selection,
                    notice=self.problem_data(notice) if notice else None,
                    problems=[
                        problem_with_fix(problem, analysis) for problem in (*analysis.problems, *self.values.problems)
                    ],
                    cost=cost,
                    paths=self._paths(),
                    hues=hues_of(design.graph),
                    is_stale=self._maker.cost_version != self._version,
                    stages=self._maker.states,
                    passes=self.passes.view(analysis.version) if can_run else passes,
                    status=self._maker.figures(),
                ),
                **self._described,
                "program": analysis.program_name,
                "programs": list(PROGRAMS),
                "program_note": analysis.why_not_trained if design.program != "forward" else "",
                "loss": loss.name,
                "losses": list(dict.fromkeys((*([] if loss.parts else [loss.name]), *LOSSES))),
                "loss_of": {name: dict(design.losses).get(name, "") for name in analysis.inference.outputs},
                "output": loss.output or "",
                "outputs": list(analysis.inference.outputs),
                "shapes": {
                    name: list(spec.shape) if name in analysis.shaped else []
                    for name, spec in analysis.inference.inputs.items()
                },
                "dtypes": {name: str(spec.dtype) for name, spec in analysis.inference.inputs.items()},
                "graph": cast(
                    ModelGraph,
                    {**self._graph.to_dict(), "opened": sorted(view.expanded), "moved": dict(view.moved)},
                ),
                "autosave": self._autosave.view(self.edits) if self._autosave else None,
                "can_undo": bool(undo_label),
                "can_redo": bool(redo_label),
                "undo_label": undo_label,
                "redo_label": redo_label,
                "run": self.training.view(),
                "values": self.values.view(),
                "templates": [] if self.design.graph.nodes else template_menu(),
                "training": analysis.settings.form(has_accuracy=loss.is_correct is not None or loss.targets == "any"),
            }

    def problem_data(self, problem: Diagnostic) -> ProblemData:
        """Return a notice, or the error of a command, for a front end."""
        reason, command, args = self._failed
        return problem_with_fix(problem, self._analysis, (command, args) if problem is reason else None)

    def stage(self, name: str) -> tuple[int, Inspection] | None:
        """Return the version and program of the latest text of a stage; `None` without a text."""
        return self._maker.latest(name)

    # Messages

    def end(self, *, stops_run: bool = True) -> None:
        """Stop the threads, drop computed results and, with `stops_run`, stop the run. Keep the design and the runs."""
        if self.training.run is not None and stops_run:
            self.training.run.stop()
        super().end()
        if self._autosave:
            self._autosave.end()
        with self._lock:
            self._start_afresh()

    @command
    def dismiss(self) -> None:
        """Remove the notice."""
        if self._autosave and not self._notice:
            self._autosave.dismissed = self._autosave.problem
        super().dismiss()

    def _execute(self, name: str, args: Mapping[str, Any]) -> None:
        was_edited = self._is_edited_by_user
        # Edits by code need no autosave. After the first edit in the widget, save the whole design.
        self._is_edited_by_user |= name in _EDITS_OF_DESIGN
        if any(fix and (fix["command"], fix["args"]) == (name, args) for fix in self._analysis.fixes.values()):
            self._history = replace(self._history, changed_at=-1e9)  # a fix is an undo step of its own
        try:
            self.do(name, **args)
        except Exception:
            self._is_edited_by_user = was_edited
            raise

    def do(self, command: str, /, **args: Any) -> None:
        """Execute a command.

        Raises:
            MithrilError: The command failed and changed nothing.
        """
        if command in _EDITS_OF_DESIGN - EDITS.keys():
            with self._lock:  # another thread, such as that of a followed file, may edit too
                super().do(command, **args)
                self.commands_so_far.add(command, args, self.design)
            return
        if command not in EDITS:
            super().do(command, **args)
            return
        # `edit` adds the design, and takes the position of a block, `x` and `y`, out of the arguments.
        is_placed = command in ("add_block", "place_block", "insert")
        plain = {key: value for key, value in args.items() if not is_placed or key not in ("x", "y")}
        check_arguments(command, EDITS[command], plain, ignored=("design",))
        self.edit(command, **args)

    def _commands(self) -> dict[str, Callable[..., None]]:
        commands = {name: self._published(run) for name, run in commands_of(self.training).items()}
        commands |= commands_of(
            self.devices,
            self.passes,
            self.explanations,
            self.costs,
            self.what_if,
            self.overlays,
            self.exports,
            self.fits,
            self.values,
            self,
        )
        return dict(sorted({**commands, **{name: partial(self.edit, name) for name in EDITS}}.items()))

    # Commands

    @command
    def load_example(self, template: str = "") -> None:
        """Replace the design by a template, which trains on generated data if the user passed no data.

        Without a template, it is a small model with the sizes of the user's data.
        """
        with self._lock:
            options = self.training.options
            has_data = "data" in options
            if has_data and not template:
                example = example_design(options["data"], options.get("loss", "cross_entropy"))
            else:
                check_choice("template", template or FIRST, TEMPLATES)
                example = template_design(template or FIRST, has_data=has_data)
                if has_data and "loss" in options:
                    example = replace(example, loss="")  # that of the user's data
            title = TEMPLATES[template].title if template else "an example"
            self.set_design(replace(example, program=self.design.program), f"load {title}")

    @command
    def request_stage(self, stage: str) -> None:
        """Compute a stage, and compute it again after each edit, because a front end shows it.

        Raises:
            UnknownOptionError: The stage is unknown.
        """
        with self._lock:
            if self._maker.want(stage):
                self._publish()

    @command
    def leave_stage(self, stage: str) -> None:
        """Stop computing a stage, because no front end shows it or the user cancels it.

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

    def _stages_changed(self) -> None:
        cost = self._maker.cost
        if cost is not None:
            self._shares = shares_of(cost, self._paths())
            self._graph = self._graph.with_shares(self._shares)
        self._publish()
        if self._maker.cost_version == self._version or self._has_failed():
            self.overlays.refresh()

    @command
    def open_link(self, link: str) -> None:
        """Replace the model by the model in a link from `Model.share_link`, as one edit. No code in the link runs.

        Raises:
            ModelFileError: The text is not a link to a model, or the link is damaged.
        """
        full_link = link if is_link(link) else f"{MARK}{link}"  # never a path
        self.set_design(design_of(Model.load(full_link), None), "open a link", keeps_view=False)

    def _paths(self) -> list[str]:
        return [path for path, _ in self._analysis.design.graph.walk()]

    def _program(self) -> ProgramView:
        analysis = self._analysis
        return ProgramView(
            analysis.version,
            lambda: self._maker.inspection_of(analysis),
            self._paths(),
            hues_of(analysis.design.graph),
            analysis.what_if,
            Model.of(analysis.design.graph, analysis.design.name),
            lambda: analysis.local,
        )

    def _overlaid(self) -> OverlaySubject:
        analysis, cost = self._analysis, self._maker.cost
        is_known = analysis.can_run and self._maker.cost_version == analysis.version

        def nodes() -> Sequence[Box]:
            return model_graph(analysis.design.graph, fold=True).boxes

        return OverlaySubject(
            "",
            self._maker.inspection_of(analysis) if is_known else None,
            nodes,
            cost if is_known else None,
            None,
            dtypes_of_model(analysis.inference.blocks),
            self.costs.measured(analysis.local) if is_known else None,
            has_failed=self._has_failed(),
        )

    def _run_failed(self, problem: Diagnostic) -> None:
        self._notice = problem
        self._failed = problem, "resume", {}  # after which the notice disappears
        self._publish()

    def _has_failed(self) -> bool:
        state = self._maker.states["jaxpr"]
        is_traced = state.state in ("failed", "unavailable") and state.version == self._version
        return is_traced or not self._analysis.can_run


# Stages in a saved notebook, if the model can run. `"hlo"` is added only if it is already computed.
QUICK_STAGES = ("jaxpr", "stablehlo")

# Maximum number of lines per stage in a saved notebook; 200 lines take about 60 kB.
MOST_LINES = 200


# MIME type of the design as data. The output has it once the user has edited the design, to keep the edits.
DESIGN_MIME = "application/vnd.mithril-nb.design+json"


def design_bundle(session: Session) -> dict[str, Any]:
    """Return a MIME bundle that is available at once: graph and source, without stages and costs."""
    design = session.design
    now, diagram = session.snapshot(), session.diagram
    diagram_bundle = bundle(diagram)
    page = fragment_html(design.name, diagram, [], None, now["run"], now["source"], session.analysis.problems)
    return {**diagram_bundle, "text/html": page, **design_data(session)}


def design_data(session: Session) -> dict[str, Any]:
    """Return the design as data by MIME type; an empty dict if the user has not edited it."""
    if session.edits == 0:
        return {}
    saved = asdict(saved_design(session.design, session.edits, session.edit_labels))
    # Omit the time, so that the output changes only if the design changes.
    return {DESIGN_MIME: {name: saved[name] for name in ("edits", "labels", "source", "design")}}


# A static picture of more blocks on one level has no stages and costs: 10,000 would keep the cell busy for 20 s.
_MOST_BLOCKS = 2000
# With more blocks on one level, a picture after each edit would delay the next edit: 1,000 take 0.4 s.
MOST_QUICK_BLOCKS = 200


@renderer(Session)
def _session_bundle(session: Session) -> dict[str, Any]:
    design, analysis = session.design, session.analysis
    if not design.graph.nodes:
        # Add HTML, which the widget can hide; it cannot hide plain text.
        return {"text/plain": "Workbench: no block yet", "text/html": "<p>Workbench: no block yet</p>"}
    if len(design.graph.nodes) > _MOST_BLOCKS:
        return design_bundle(session)
    cost = session.cost
    # Always include the cost shares, so that a saved picture does not depend on the progress of the worker.
    diagram = session.diagram if cost is None else session.diagram_with(shares_of(cost, session._paths()))
    diagram_bundle = bundle(diagram)
    names = ", ".join(node.name for node in design.graph.nodes)
    lines = [f"Workbench of {design.name!r}: {names}", *map(str, analysis.problems)]
    now, run = session.snapshot(), session.training.run
    stages, costs = [], None if cost is None else cost.to_dict(rows=False)
    if analysis.can_run:
        inspection = analysis.inspection
        stage_names = (*QUICK_STAGES, *(["hlo"] if inspection.has_stage("hlo") else []))
        stages = [inspection.stage(name) for name in stage_names]
        costs = costs_so_far(inspection).to_dict(rows=False)
    page = fragment_html(
        design.name,
        diagram,
        stages,
        costs,
        now["run"],
        now["source"],
        analysis.problems,
        columns=None if run is None else run.history.to_dict(),
        most_lines=MOST_LINES,
    )
    return {**diagram_bundle, "text/html": page, "text/plain": "\n".join(lines), **design_data(session)}
