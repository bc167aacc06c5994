"""The state of an explorer: a program with its stages, graph, costs and passes, computed on demand.

An explorer shows an `Exploration`, as a workbench shows a `Session`. One thread computes results without the compiler,
another thread results with it, so that a long compilation does not delay opening a node.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

import jax

from mithril_nb.analysis.whatif import what_if
from mithril_nb.cost import Cost, cost_of
from mithril_nb.inspection import Inspection
from mithril_nb.jobs import JobQueue
from mithril_nb.stages.once import paused_collector
from mithril_nb.stages.program_stages import first_stage
from mithril_nb.stages.stage_kinds import STAGE_KINDS
from mithril_nb.stages.transforms.stepping import TransformSteps
from mithril_nb.ui.session.commands import ProgramView, Reply, check_choice, command, commands_of, problem_data
from mithril_nb.ui.session.cost_tables import cost_table
from mithril_nb.ui.session.graphs.overlays import OverlaySubject
from mithril_nb.ui.session.passes import TransformRequests
from mithril_nb.ui.session.program_session import ProgramSession
from mithril_nb.ui.session.snapshot import BlockSummary, ExplorerSnapshot
from mithril_nb.ui.session.stages import STAGES_TIMED, StageState, figures_of, state_of, with_wanted_stages
from mithril_nb.viz.costs.node_values import dtypes_of_stage
from mithril_nb.viz.costs.overlays import stage_shares
from mithril_nb.viz.diagrams.nested import Box
from mithril_nb.viz.diagrams.stages import nested_stage, opened_at_first
from mithril_nb.viz.palette import HUES, hue_of, hues_of_blocks


class StageHead(TypedDict):
    """The stage of a graph, or of shares of the cost in the order of its boxes."""

    stage: str


class GraphView:
    """State of the displayed graph: its stage, and the open nodes of each stage."""

    def __init__(self, inspection: Inspection):
        self._inspection = inspection
        self.stage = first_stage(inspection)
        self._lock = threading.RLock()
        self._opened: dict[str, set[str]] = {}
        self._made: dict[str, dict[str, Any]] = {}

    def open(self, key: str, is_open: bool = True) -> None:
        """Record that a node was opened or closed."""
        with self._lock:
            stage = self.stage
            if stage in self._opened and key in self._inspection.graph(stage).nodes:
                (self._opened[stage].add if is_open else self._opened[stage].discard)(key)

    def graph(self, stage: str, hues: Mapping[str, int]) -> Reply:
        """Return the graph of a stage for a front end, with its open nodes."""
        if stage not in self._made:  # without the lock, because clicks wait for it
            graph = self._inspection.graph(stage)
            nested = nested_stage(graph, hues=hues)
            opened = opened_at_first(graph, nested)
            with self._lock:
                self._opened.setdefault(stage, set(opened))
                self._made[stage] = nested.to_dict()
        with self._lock:
            return Reply(StageHead(stage=stage), {**self._made[stage], "opened": sorted(self._opened[stage])})

    def is_made(self, stage: str) -> bool:
        """Return whether the graph of a stage was made before."""
        return stage in self._made

    def shares(self, stage: str) -> Reply:
        """Return the share of each box of a stage's graph, in the order of its boxes; `None` if unknown."""
        graph = self._inspection.graph(stage)
        shares = stage_shares(self._inspection, graph)
        return Reply(StageHead(stage=stage), [shares.get(node.key) for node in graph.visible(graph.nodes)])


# Stages of the first view.
_FIRST = ("jaxpr", "stablehlo")
# Stages with useful graphs; the others are lists.
_GRAPHS = ("jaxpr", "stablehlo", "hlo_before", "hlo")


class Exploration(ProgramSession):
    """A program that an explorer shows, with the state of its stages and requests."""

    def __init__(self, inspection: Inspection, steps: TransformSteps | None = None):
        super().__init__()
        self._first = first_stage(inspection)
        first = {*_FIRST, self._first}
        self.inspection = with_wanted_stages(inspection, first)
        self.states = {name: StageState("loading" if name in first else "empty") for name in inspection.every_stage}
        self.cost: Cost | None = None
        self._wanted: set[str] = first
        self._blocks: dict[str, BlockSummary] = {}
        self._selection: tuple[str, ...] = ()
        self._graph = GraphView(inspection)
        self._drawn: set[str] = set()
        self._quick, self._slow = JobQueue("mithril_nb-stages"), JobQueue("mithril_nb-compile")
        handlers = self._create_handlers(inspection.given)
        self.transforms = TransformRequests(steps, self._client)
        # Wait for the quick worker again: a compilation submits more work to it.
        self._workers = (self._quick, self._slow, *handlers, self.transforms, self._quick)

    def __repr__(self) -> str:
        return f"Exploration({self.inspection!r})"

    # Messages

    def start(self) -> None:
        """Start to compute the first view."""
        self._quick.submit(self._work)
        self._submit(self._first)

    def snapshot(self) -> ExplorerSnapshot:
        """Return all data that a front end shows, except texts and graphs."""
        with self._lock:
            cost = self.cost
            return {
                **self._snapshot(
                    1,
                    self.inspection.name,
                    f"jax {jax.__version__}",
                    selection=self._selection,
                    notice=self._notice and problem_data(self._notice),
                    problems=[],
                    cost=None if cost is None else cost_table(cost, list(self._blocks), self._hues()),
                    stages=self.states,
                    passes=self.passes.view(1),
                    status=figures_of(dict.fromkeys(STAGES_TIMED, self.inspection), cost),
                ),
                "blocks": dict(self._blocks),
                "graph_stage": self._graph.stage,
                "graph_stages": list(_GRAPHS),
                "transforms": self.transforms.view(),
            }

    def graph(self) -> tuple[tuple[str, Reply], ...]:
        """Return the messages with the graph and its shares of the cost; empty before its stage is computed."""
        stage = self._graph.stage
        if not self._graph.is_made(stage):
            return ()
        messages: list[tuple[str, Reply]] = [("graph", self._graph.graph(stage, self._hues()))]
        if self.cost is not None:
            messages.append(("graph_shares", self._graph.shares(stage)))
        return tuple(messages)

    def stage(self, name: str) -> tuple[int, Inspection] | None:
        """Return the version and program of a stage that has a text."""
        state = self.states[name]
        return (1, self.inspection) if state.state == "ready" or state.lines > 0 else None

    # Commands

    def _commands(self) -> dict[str, Callable[..., None]]:
        compares = [self.transforms] if self.transforms.steps is not None else []
        return commands_of(self, self.passes, *compares, self.costs, self.what_if, self.overlays, self.exports)

    @command
    def request_stage(self, stage: str) -> None:
        """Compute a stage in the background."""
        check_choice("stage", stage, self.inspection.every_stage, "jaxpr")
        with self._lock:
            if stage in self._wanted:
                return
            self._wanted.add(stage)
            with_wanted_stages(self.inspection, self._wanted)
            self.states[stage] = StageState("loading")
        self._publish()
        self._submit(stage)

    @command
    def leave_stage(self, stage: str) -> None:
        """Do nothing but check the name: an explorer keeps the text of a stage that the front end no longer shows."""
        check_choice("stage", stage, self.inspection.every_stage, "jaxpr")

    @command
    def show_graph(self, stage: str) -> None:
        """Show the graph of another stage."""
        check_choice("stage", stage, _GRAPHS)
        self._graph.stage = stage
        self.request_stage(stage)
        self._publish()
        self._drawn.discard(stage)
        self._quick.submit(self._work)

    @command
    def open_node(self, key: str) -> None:
        """Record that the inside of a node of the graph is shown, so that it is shown again after a reload."""
        self._graph.open(key)

    @command
    def close_node(self, key: str) -> None:
        """Record that the inside of a node of the graph is hidden."""
        self._graph.open(key, is_open=False)

    @command
    def select(self, paths: Sequence[str]) -> None:
        """Store the paths pinned in the front end as the selection."""
        with self._lock:
            self._selection = tuple(map(str, paths))
            self._send("selection", list(self._selection))

    # Threads

    def _submit(self, stage: str) -> None:
        if STAGE_KINDS[stage].needs == "compile":
            self._slow.submit(self._compile)
        else:
            self._quick.submit(self._work)

    def _work(self, is_wanted: Callable[[], bool]) -> None:
        names = [name for name in self.inspection.every_stage if STAGE_KINDS[name].needs != "compile"]
        steps = [*(lambda name=name: self._make(name) for name in names), self._draw, self._figure]
        with paused_collector():
            for step in steps:
                if not is_wanted():
                    return
                self._try(step)

    def _compile(self, is_wanted: Callable[[], bool]) -> None:
        for name in self.inspection.every_stage:
            if STAGE_KINDS[name].needs == "compile" and is_wanted():
                self._try(lambda name=name: self._make(name))
        self._quick.submit(self._work)  # draw the graph of the compiled stage

    def _try(self, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception as error:  # the thread has no caller
            self._fail(error)

    def _make(self, name: str) -> None:
        if name not in self._wanted or self.states[name].state != "loading":
            return
        state = state_of(self.inspection.stage(name), 1)
        with self._lock:
            self.states[name] = state
            if name == self._first:
                self._blocks = self._blocks_found()
        self._publish()

    def _blocks_found(self) -> dict[str, BlockSummary]:
        if self.inspection.given is None:
            kinds = {instruction.id: instruction.opcode for instruction in self.inspection.stage("graph").instructions}
        else:  # the program starts at a later stage, whose instructions name only the paths of blocks
            instructions = self.inspection.stage(self._first).instructions
            kinds = {path: "" for instruction in instructions for path, _ in instruction.shares}
        hues, blocks = hues_of_blocks(kinds), {}
        for path, kind in kinds.items():
            hue = hue_of(path, hues)
            name = path.rpartition("/")[2]
            blocks[path] = BlockSummary(path=path, name=name, kind=kind, hue=HUES - 1 if hue is None else hue)
        return blocks

    def _draw(self) -> None:
        stage = self._graph.stage
        if self.states[stage].version and stage not in self._drawn:
            self._send("graph", self._graph.graph(stage, self._hues()))
            self._drawn.add(stage)
            self._draw_shares(stage)
            self.overlays.refresh()

    def _draw_shares(self, stage: str) -> None:
        if self.cost is not None and self._graph.is_made(stage):
            self._send("graph_shares", self._graph.shares(stage))

    def _figure(self) -> None:
        if self.states[self._first].state != "ready" or self.cost is not None:
            return
        cost = cost_of(self.inspection)
        with self._lock:
            self.cost = cost
        self._publish()
        self._draw_shares(self._graph.stage)
        self.overlays.refresh()

    def _hues(self) -> dict[str, int]:
        return {path: block["hue"] for path, block in self._blocks.items()}

    def _program(self) -> ProgramView:
        program = self.inspection
        return ProgramView(1, lambda: program, tuple(self._blocks), self._hues(), lambda: what_if(program))

    def _overlaid(self) -> OverlaySubject | None:
        stage, cost = self._graph.stage, self.cost
        if cost is None or not self._graph.is_made(stage):
            return None
        graph, hues, measured = self.inspection.graph(stage), self._hues(), self.costs.measured(1)

        def nodes() -> Sequence[Box]:
            return nested_stage(graph, hues=hues).boxes

        return OverlaySubject(stage, self.inspection, nodes, cost, graph, dtypes_of_stage(graph), measured)
