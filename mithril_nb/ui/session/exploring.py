"""The state of an explorer: a program with its stages, graph, costs and passes, computed on demand.

An explorer shows an `Exploration`, as a workbench shows a `Session`. One thread computes results without the compiler,
another thread results with it, so that a long compilation does not delay opening a node.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypedDict

import jax

from mithril_nb.analysis.whatif import what_if
from mithril_nb.cost import Cost, cost_of
from mithril_nb.hardware import Device
from mithril_nb.inspection import Inspection
from mithril_nb.inspection.tour import MomentData
from mithril_nb.jobs import JobQueue
from mithril_nb.stages.once import paused_collector
from mithril_nb.stages.program_stages import first_stage
from mithril_nb.stages.stage_kinds import STAGE_KINDS
from mithril_nb.stages.transforms.stepping import TransformSteps
from mithril_nb.ui.session.commands import ProgramView, Reply, check_choice, command, commands_of, problem_data
from mithril_nb.ui.session.graphs.overlays import OverlaySubject
from mithril_nb.ui.session.passes import TransformRequests
from mithril_nb.ui.session.program_session import ProgramSession
from mithril_nb.ui.session.snapshot import BlockSummary, ExplorerSnapshot
from mithril_nb.ui.session.stages import STAGES_TIMED, StageState, figures_of, idle, state_of, with_wanted_stages
from mithril_nb.viz.costs.node_values import dtypes_of_stage
from mithril_nb.viz.costs.overlays import stage_shares
from mithril_nb.viz.diagrams.nested import Box
from mithril_nb.viz.diagrams.stages import nested_stage, opened_at_first
from mithril_nb.viz.palette import HUES, hue_of, hues_of_blocks


class StageHead(TypedDict):
    """The stage of a graph, or of shares of the cost in the order of its boxes."""

    stage: str


class GraphView:
    """A program on one device, and the state of its displayed graph: its stage, and the open nodes of each stage.

    Args:
        inspection: The program.
        other: The same program on another device, with the same jaxpr.
    """

    def __init__(self, inspection: Inspection, other: GraphView | None = None):
        self.inspection = inspection
        self.stage = other.stage if other else first_stage(inspection)
        self._lock = threading.RLock()
        self._opened = {"jaxpr": other._opened["jaxpr"]} if other and "jaxpr" in other._opened else {}
        self._made: dict[str, dict[str, Any]] = {}

    def open(self, key: str, is_open: bool = True) -> None:
        """Record that a node was opened or closed."""
        with self._lock:
            stage = self.stage
            if stage in self._opened and key in self.inspection.graph(stage).nodes:
                (self._opened[stage].add if is_open else self._opened[stage].discard)(key)

    def graph(self, stage: str, hues: Mapping[str, int]) -> Reply:
        """Return the graph of a stage for a front end, with its open nodes."""
        if stage not in self._made:  # without the lock, because clicks wait for it
            graph = self.inspection.graph(stage)
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
        graph = self.inspection.graph(stage)
        shares = stage_shares(self.inspection, graph)
        return Reply(StageHead(stage=stage), [shares.get(node.key) for node in graph.visible(graph.nodes)])


# Stages of the first view.
_FIRST = ("jaxpr", "stablehlo")
# Stages with useful graphs; the others are lists.
_GRAPHS = ("jaxpr", "stablehlo", "hlo_before", "hlo")


class Exploration(ProgramSession):
    """A program that an explorer shows, with the state of its stages and requests, and the moments of a tour."""

    def __init__(self, inspection: Inspection, steps: TransformSteps | None = None, tour: Sequence[MomentData] = ()):
        super().__init__()
        self._tour = list(tour)
        self._first = first_stage(inspection)
        first = {*_FIRST, self._first}
        with_wanted_stages(inspection, first)
        self.version = 1  # counts the choices of a device
        self.states = {name: StageState("loading" if name in first else "empty") for name in inspection.every_stage}
        self.cost: Cost | None = None
        self._wanted: set[str] = first
        self._blocks: dict[str, BlockSummary] = {}
        self._selection: tuple[str, ...] = ()
        self._latest: dict[str, tuple[int, Inspection]] = {}
        self._graph = GraphView(inspection)
        self._drawn: set[str] = set()
        self._quick, self._slow = JobQueue("mithril_nb-stages"), JobQueue("mithril_nb-compile")
        here = None if isinstance(inspection.device, Device) else inspection.device
        handlers = self._create_handlers(inspection.device, here, inspection.given)
        self._views = {self.devices.first: self._graph}
        self._graph = self._view_of(self.devices.name, self.devices.device)
        self.transforms = TransformRequests(steps, self._client)
        # Wait for the quick worker again: a compilation submits more work to it.
        self._workers = (self._quick, self._slow, *handlers, self.transforms, self._quick)

    def __repr__(self) -> str:
        return f"Exploration({self.inspection!r})"

    @property
    def inspection(self) -> Inspection:
        """The program, on the chosen device."""
        return self._graph.inspection

    # Messages

    def start(self) -> None:
        """Start to compute the first view."""
        self._quick.submit(self._work)
        self._submit(self._first)
        self.devices.follow()

    def snapshot(self) -> ExplorerSnapshot:
        """Return all data that a front end shows, except texts and graphs."""
        with self._lock:
            cost = self.cost
            return {
                **self._snapshot(
                    self.version,
                    self.inspection.name,
                    f"jax {jax.__version__}",
                    selection=self._selection,
                    notice=self._notice and problem_data(self._notice),
                    problems=[],
                    cost=cost,
                    paths=list(self._blocks),
                    hues=self._hues(),
                    stages=self.states,
                    passes=self.passes.view(self.version),
                    status=figures_of(dict.fromkeys(STAGES_TIMED, self.inspection), cost),
                ),
                "blocks": dict(self._blocks),
                "graph_stage": self._graph.stage,
                "graph_stages": list(_GRAPHS),
                "transforms": self.transforms.view(),
                "tour": self._tour,
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
        return self._latest.get(name)

    # Commands

    def _commands(self) -> dict[str, Callable[..., None]]:
        compares = [self.transforms] if self.transforms.steps is not None else []
        return commands_of(
            self,
            self.devices,
            self.passes,
            self.explanations,
            *compares,
            self.costs,
            self.what_if,
            self.overlays,
            self.exports,
        )

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
        check_choice("stage", stage, STAGE_KINDS, "jaxpr")

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

    def _view_of(self, name: str, device: Any) -> GraphView:
        with self._lock:
            if name not in self._views:
                self._views[name] = GraphView(self.inspection.on(device), self._graph)
            return self._views[name]

    def _show_on_device(self) -> None:
        stage, self._graph = self._graph.stage, self._view_of(self.devices.name, self.devices.device)
        self._graph.stage = stage
        self.version += 1
        with_wanted_stages(self.inspection, self._wanted)
        self.states = {name: self.states.get(name, StageState()) for name in self.inspection.every_stage}
        for name, state in self.states.items():
            if name in self._wanted:
                self.states[name] = replace(state, state="loading", message="")
            elif state.version:
                self.states[name] = idle(state)
        self._drawn.clear()
        self._publish()
        self._slow.abandon()
        self._quick.submit(self._work)
        self._slow.submit(self._compile)
        self.devices.follow()

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
        with self._lock:
            version, inspection = self.version, self.inspection
        if name not in self._wanted or self.states.get(name, StageState()).state != "loading":
            return
        state = state_of(inspection.stage(name), version)
        with self._lock:
            if version != self.version:
                return
            self.states[name] = state
            if state.state == "ready" or state.lines > 0 or name in self._latest:  # no text replaces an older one, too
                self._latest[name] = version, inspection
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
        if self.states[stage].version == self.version and stage not in self._drawn:
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
        version, program = self.version, self.inspection
        return ProgramView(
            version, lambda: program, tuple(self._blocks), self._hues(), lambda: what_if(program), here=self._here
        )

    def _here(self) -> Inspection:
        return self._view_of(self.devices.local, None).inspection

    def _overlaid(self) -> OverlaySubject | None:
        stage, cost = self._graph.stage, self.cost
        if cost is None or not self._graph.is_made(stage):
            return None
        graph, hues = self.inspection.graph(stage), self._hues()
        # Times were measured for the instructions of this machine. Another device has other instructions.
        measured = self.costs.measured(self.inspection) if self.devices.device is None else None

        def nodes() -> Sequence[Box]:
            return nested_stage(graph, hues=hues).boxes

        return OverlaySubject(stage, self.inspection, nodes, cost, graph, dtypes_of_stage(graph), measured)
