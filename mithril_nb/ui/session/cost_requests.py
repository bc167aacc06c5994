"""Costs computed on request, from the jaxpr, from XLA or measured: as tables, formulas and pictures.

A separate thread compiles and runs the program, so that other tables and pictures do not wait for the compilation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypedDict, cast

from mithril_nb.analysis.measure import machine, profile
from mithril_nb.cost import Cost
from mithril_nb.cost.memory.use import memory_of
from mithril_nb.errors import MithrilError, StageUnavailableError, UnknownOptionError
from mithril_nb.hardware import Device
from mithril_nb.inspection import Inspection
from mithril_nb.jobs import JobQueue, rests
from mithril_nb.stages.given.program import Given
from mithril_nb.stages.once import paused_collector
from mithril_nb.ui.session.commands import (
    Client,
    ProgramView,
    Reply,
    RequestHandler,
    RequestState,
    State,
    check_choice,
    command,
)
from mithril_nb.ui.session.cost_tables import BlockFormula, Source, cost_table, formula_of, rows_of
from mithril_nb.viz.costs.beside import beside, pair_of
from mithril_nb.viz.costs.drawing import Drawing
from mithril_nb.viz.costs.fields import BLOCK_FIELDS
from mithril_nb.viz.costs.roofline import roofline
from mithril_nb.viz.costs.treemap import treemap
from mithril_nb.viz.renderers.costs import peaks_of

Hues = Mapping[str, int]


@dataclass(frozen=True)
class Look:
    """Drawing options of a picture."""

    figure: str
    width: int  # in px
    hues: Hues
    opened: Sequence[str] = ()  # paths of the blocks to draw open, with the blocks inside them


Draw = Callable[[Inspection, Sequence[Cost], Look], Drawing]


class CostPicture(TypedDict):
    """A picture as data."""

    svg: str
    text: str  # the same numbers
    reason: str  # why there is no picture


def picture_data(drawing: Drawing | None = None, reason: str = "") -> CostPicture:
    """Return a picture as data, or the reason why there is none."""
    return {"svg": drawing.svg if drawing else "", "text": drawing.text if drawing else "", "reason": reason}


def draw_beside(before: Cost, after: Cost, look: Look, names: tuple[str, str]) -> Drawing:
    """Draw two costs side by side, block by block; `names` are their labels."""
    pair = pair_of(before.compare(after).to_dict(), look.figure)
    labels = {"program": "", "before": names[0], "after": names[1], "hues": dict(look.hues)}
    return beside({**pair, **labels}, look.width)


def _roofline(inspection: Inspection, costs: Sequence[Cost], look: Look) -> Drawing:
    data = _data(costs[0], look.hues)
    if "peaks" in data:  # measured costs include the measured peaks of the machine
        return roofline(data, data["peaks"], look.width)
    if isinstance(costs[0].device, Device):
        return roofline(data, peaks_of(costs[0].device), look.width)
    here = machine(device=inspection.device)
    return roofline(data, {**here.peaks(), "source": here.source}, look.width)


def _memory(inspection: Inspection, costs: Sequence[Cost], look: Look) -> Drawing:
    from mithril_nb.viz.costs.memory import memory_timeline

    source = "analytic" if costs[0].source == "analytic" else "compiled"
    data = {**memory_of(inspection, source).to_dict(), "hues": dict(look.hues)}
    return memory_timeline(data, look.width, look.opened)


def _data(cost: Cost, hues: Hues) -> dict[str, Any]:
    return {**cost.to_dict(rows=False), "hues": dict(hues)}


# Drawing functions by name. They take a program and its costs from one or two sources.
PICTURES: Mapping[str, Draw] = {
    "treemap": lambda inspection, costs, look: treemap(_data(costs[0], look.hues), look.figure, look.width),
    "roofline": _roofline,
    "memory": _memory,
    "beside": lambda inspection, costs, look: draw_beside(costs[0], costs[1], look, (costs[0].source, costs[1].source)),
}


# Number of runs of a measurement.
RUNS = 20
# The stage that each source of costs needs.
_NEEDS = {"analytic": "jaxpr", "lowered": "hlo_before", "compiled": "hlo", "predicted": "hlo", "measured": "jaxpr"}
SOURCES = tuple(_NEEDS)
# Seconds without edits before XLA compiles, because a compilation cannot be cancelled.
_REST_S = 0.15


class CostHead(TypedDict):
    """The source of costs, and the version of the design; the data are a `CostTableData`."""

    source: Source
    version: int


class CostRowsHead(TypedDict):
    """The block whose most expensive rows follow as `CostDetails`."""

    source: Source
    block: str
    figure: str


class FormulaHead(TypedDict):
    """The block whose FLOP formula follows as a `BlockFormula`."""

    block: str
    version: int


class KeyHead(TypedDict):
    """The key that the client has chosen for a request."""

    key: str


class CostRequests(RequestHandler):
    """Computes costs on request."""

    def __init__(
        self,
        program: Callable[[], ProgramView],
        client: Client,
        given: Given | None = None,
        measured: Callable[[], None] = lambda: None,
    ):
        super().__init__(client, "costs", "measure")
        self._program, self._has_measured = program, measured
        self._states = {source: RequestState(state="empty", message="", version=0) for source in SOURCES}
        for source, stage in _NEEDS.items():
            if given is not None and (reason := given.reason(stage)):
                self._states[source] = RequestState(state="unavailable", message=reason, version=0)
        self._measured: tuple[Inspection, int, Cost] | None = None

    def view(self) -> dict[str, RequestState]:
        """Return the state of the costs by source."""
        return dict(self._states)

    def measured(self, program: Inspection) -> Cost | None:
        """Return the measured costs of a program on this machine; `None` if it was not measured."""
        return self._measured[2] if self._measured and self._measured[0] is program else None

    def forget_reasons(self) -> None:
        """Forget why costs were unavailable, because another device may have them."""
        for source, state in self._states.items():
            if state["state"] in ("unavailable", "failed"):
                self._states[source] = RequestState(state="empty", message="", version=0)

    # Commands

    @command
    def request_cost(self, source: str) -> None:
        """Compute the costs from one source."""
        check_choice("source", source, SOURCES)
        current = self._program()
        if source != "measured":
            self._turn(source, "loading")
        self._worker(source).submit(lambda is_wanted: self._make(current, source, is_wanted), f"cost {source}")

    @command
    def request_cost_rows(self, source: str, block: str, figure: str = "flops") -> None:
        """Send the most expensive equations or instructions of a block, by the cost `figure`."""
        check_choice("source", source, SOURCES)
        check_choice("figure", figure, BLOCK_FIELDS)
        current = self._program()
        # One key per block, because several rows may be open.
        self._worker(source).submit(lambda _: self._send_rows(current, source, block, figure), f"rows {block}")

    @command
    def request_formula(self, block: str) -> None:
        """Send the formula for the FLOPs of a block."""
        current = self._program()
        self._quick.submit(lambda is_wanted: self._send_formula(current, str(block), is_wanted), "formula")

    @command
    def request_cost_picture(
        self,
        key: str,
        view: str,
        sources: Sequence[str],
        figure: str = "flops",
        width: float = 900,
        opened: Sequence[str] = (),
    ) -> None:
        """Draw costs."""
        for source in sources:
            check_choice("source", source, SOURCES)
        check_choice("figure", figure, BLOCK_FIELDS)
        check_choice("view", view, PICTURES)
        if len(sources) != (2 if view == "beside" else 1):
            raise UnknownOptionError(
                f"the picture {view!r} received {len(sources)} sources.",
                (("needs", "2, before and after" if view == "beside" else "1"),),
                'sources=["lowered", "compiled"]' if view == "beside" else 'sources=["analytic"]',
            )
        current = self._program()
        slowest = max(sources, key=SOURCES.index)
        look = Look(figure, max(1, int(width)), current.hues, tuple(map(str, opened)))
        self._worker(slowest).submit(
            lambda is_wanted: self._draw(current, key, view, sources, look, is_wanted), "picture"
        )

    @command
    def measure(self) -> None:
        """Run the program and measure the time of each instruction."""
        current = self._program()
        if self._states["measured"]["state"] == "loading":
            return
        self._turn("measured", "loading")
        self._slow.submit(lambda _: self._measure(current), "measure")

    # In the threads

    def _worker(self, source: str) -> JobQueue:
        return self._slow if source in ("compiled", "predicted", "measured") else self._quick

    def _turn(self, source: str, state: State, message: str = "", version: int | None = None) -> None:
        with self._lock:
            version = self._states[source]["version"] if version is None else version
            self._states[source] = RequestState(state=state, message=message, version=version)
        self._client.changed()

    def _make(self, current: ProgramView, source: str, is_wanted: Callable[[], bool]) -> None:
        try:
            cost, version = self._cost(current, source, is_wanted)
            if cost is None:
                return
            with paused_collector():  # with a large traced program in memory, a collection takes as long as the table
                table = cost_table(cost, current.paths, current.hues)
        except Exception as error:  # the front end shows it instead of the costs
            self._turn(source, *self._why_not(error), 0)
            return
        self._client.send("cost", Reply(CostHead(source=cast(Source, source), version=version), table))
        self._turn(source, "ready", version=version)

    def _cost(self, current: ProgramView, source: str, is_wanted: Callable[[], bool]) -> tuple[Cost | None, int]:
        if source == "measured":
            if self._measured is None:
                return None, 0
            program, version, cost = self._measured
            if (device := current.inspection().device) is not program.device:
                cost = replace(cost, notes=(*cost.notes, f"measured on this machine, not on {device}"))
            return cost, current.version if program is current.local() else version
        inspection = current.inspection()
        if _NEEDS[source] == "hlo" and not inspection.is_optimized and not rests(is_wanted, _REST_S):
            return None, 0
        with paused_collector():
            return inspection.cost(source), current.version

    def _send_rows(self, current: ProgramView, source: str, block: str, figure: str) -> None:
        try:
            cost, _ = self._cost(current, source, lambda: True)
            rows = None if cost is None else rows_of(cost, block, figure)
        except Exception as error:  # the front end shows it instead of the costs
            self._turn(source, *self._why_not(error), 0)
            return
        if rows is not None:
            self._client.send(
                "cost_rows", Reply(CostRowsHead(source=cast(Source, source), block=block, figure=figure), rows)
            )

    def _send_formula(self, current: ProgramView, block: str, is_wanted: Callable[[], bool]) -> None:
        try:
            cost, version = self._cost(current, "analytic", is_wanted)
            if cost is None:
                return
            formula = formula_of(cost, block, version)
        except Exception as error:  # the front end shows it instead of the formula
            formula = BlockFormula(block, current.version, why=self._why_not(error)[1])
        self._client.send("formula", Reply(FormulaHead(block=block, version=formula.version), formula.to_dict()))

    def _measure(self, current: ProgramView) -> None:
        try:
            inspection = current.local()
            inspection.want()  # compile in full, so that machine code shown later is from the same compilation
            measured = profile(inspection, runs=RUNS)
        except Exception as error:  # the front end shows it instead of the costs
            self._turn("measured", *self._why_not(error), 0)
            return
        self._measured = inspection, current.version, measured
        self._make(current, "measured", lambda: True)
        self._has_measured()

    def _draw(
        self, current: ProgramView, key: str, view: str, sources: Sequence[str], look: Look,
        is_wanted: Callable[[], bool],
    ) -> None:  # fmt: skip
        try:
            costs: list[Cost] = []
            for source in sources:
                cost, _ = self._cost(current, source, is_wanted)
                if cost is None:
                    return
                costs.append(cost)
            with paused_collector():
                drawn = PICTURES[view](current.inspection(), costs, look)
            picture = picture_data(drawn)
        except Exception as error:  # the front end shows it instead of the picture
            picture = picture_data(reason=self._why_not(error)[1])
        self._client.send("cost_picture", Reply(KeyHead(key=key), picture))

    def _why_not(self, error: Exception) -> tuple[State, str]:
        """Return the state after an error, and the reason in the error, or the summary if it has none."""
        problem = self._problem_of(error)
        facts = problem.shortened().facts
        reason = "; ".join(value for name, value in facts if name == "reason")
        if isinstance(error, StageUnavailableError) and not reason and facts:
            reason = f"{problem.summary} {facts[0][0]}: {facts[0][1]}"  # the error of JAX or XLA
        return "unavailable" if isinstance(error, MithrilError) else "failed", reason or problem.summary
