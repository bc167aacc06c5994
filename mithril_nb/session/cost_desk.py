"""Costs that are made when a page asks for them: by XLA's counting, by measuring, and the pictures of them.

What compiles or runs the program has a thread of its own, so that it keeps no table and no picture waiting.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mithril_nb.cost import Cost
from mithril_nb.errors import MithrilError, UnknownOptionError, short_repr
from mithril_nb.measure import profile
from mithril_nb.session.analysis import problem_of
from mithril_nb.session.cost_pictures import PICTURES, Look
from mithril_nb.session.costs import FIGURES, cost_table, rows_of
from mithril_nb.session.desk import Desk, Page
from mithril_nb.session.formulas import BlockFormula, formula_of
from mithril_nb.session.wishes import Wishes, rests
from mithril_nb.stages import Inspection
from mithril_nb.stages.collector import paused_collector
from mithril_nb.stages.given import Given

RUNS = 20
"""How often a program is run to measure it."""
_NEEDS = {"analytic": "jaxpr", "lowered": "hlo_before", "compiled": "hlo", "measured": "jaxpr"}
"""The stage that each way of counting needs."""
SOURCES = tuple(_NEEDS)
_REST_S = 0.15
"""How long the hand must rest before XLA compiles: a compilation cannot be given up half way."""


@dataclass(frozen=True)
class Looked:
    """The program that is looked at.

    Attributes:
        version: Version of its design.
        inspection: Makes it.
        paths: Paths of its blocks, in the order of the model.
        hues: Hue of each block that has one of its own, by path.
    """

    version: int
    inspection: Callable[[], Inspection]
    paths: Sequence[str]
    hues: Mapping[str, int]


@dataclass(frozen=True)
class CostTable:
    """Costs by one way of counting, for a page.

    Attributes:
        source: The way of counting.
        version: Version of the design that they are of.
        data: The table.
    """

    source: str
    version: int
    data: Mapping[str, Any]


@dataclass(frozen=True)
class BlockRows:
    """What is in a row of the table.

    Attributes:
        source: The way of counting.
        block: Path of the block.
        figure: What the rows are sorted by.
        data: The rows.
    """

    source: str
    block: str
    figure: str
    data: Mapping[str, Any]


@dataclass(frozen=True)
class CostPicture:
    """A picture of costs.

    Attributes:
        key: What the page calls what it asked for.
        svg: The picture; `""` if there is none.
        text: The same in words.
        reason: Why there is none, or `""`.
    """

    key: str
    svg: str = ""
    text: str = ""
    reason: str = ""


@dataclass(frozen=True)
class SourceState:
    """How far the costs by one way of counting are.

    Attributes:
        state: `"empty"`, `"loading"`, `"ready"`, `"failed"` or `"unavailable"`.
        message: Why there are none.
        version: Version of the design that they are of; 0 if there are none.
    """

    state: str = "empty"
    message: str = ""
    version: int = 0


class CostDesk(Desk):
    """Makes the costs that a page asks for.

    Args:
        program: Returns the program that is looked at now.
        page: Told `("cost", CostTable)`, `("cost_rows", BlockRows)`, `("cost_picture", CostPicture)` and
            `("formula", BlockFormula)`.
        given: What the program was given as, if it begins at a later stage than Python: it has not all costs.
    """

    def __init__(self, program: Callable[[], Looked], page: Page, given: Given | None = None):
        super().__init__(page, "costs", "measure")
        self._program = program
        self._lock = threading.Lock()
        reasons = {} if given is None else {source: given.reason(stage) for source, stage in _NEEDS.items()}
        unavailable = {source: SourceState("unavailable", reason) for source, reason in reasons.items() if reason}
        self._states = {**dict.fromkeys(SOURCES, SourceState()), **unavailable}
        self._measured: tuple[int, Cost] | None = None
        self.commands = {
            "want_cost": self.want_cost,
            "want_cost_rows": self.want_cost_rows,
            "want_cost_picture": self.want_cost_picture,
            "want_formula": self.want_formula,
            "measure": self.measure,
        }

    def view(self) -> dict[str, Any]:
        """Return how far the costs are, by way of counting."""
        return {name: vars(state) for name, state in self._states.items()}

    # What a page asks for

    def want_cost(self, source: str) -> None:
        """Make the costs by one way of counting.

        Raises:
            UnknownOptionError: There is no such way.
        """
        _check("source", source, SOURCES)
        looked = self._program()
        if source != "measured":
            self._turn(source, SourceState("loading", version=self._states[source].version))
        self._worker(source).ask(f"cost {source}", lambda wanted: self._make(looked, source, wanted))

    def want_cost_rows(self, source: str, block: str, figure: str = "flops") -> None:
        """Tell what is in a row of the table.

        Raises:
            UnknownOptionError: There is no such way of counting, or no such figure.
        """
        _check("source", source, SOURCES)
        _check("figure", figure, FIGURES)
        looked = self._program()
        self._worker(source).ask(
            f"rows {block}", lambda _: self._tell_rows(looked, source, block, figure)
        )  # several rows may be open

    def want_formula(self, block: str) -> None:
        """Tell by which formula the FLOPs of a block are counted."""
        looked = self._program()
        self._quick.ask("formula", lambda wanted: self._tell_formula(looked, str(block), wanted))

    def want_cost_picture(
        self,
        key: str,
        view: str,
        sources: Sequence[str],
        figure: str = "flops",
        width: float = 900,
        opened: Sequence[str] = (),
    ) -> None:
        """Draw costs.

        Args:
            key: What the page calls it.
            view: `"treemap"`, `"roofline"`, `"memory"` or `"beside"`.
            sources: The way of counting, or the two that stand beside each other.
            figure: What is drawn.
            width: How wide, in px.
            opened: Paths of blocks that are drawn as what is in them.

        Raises:
            UnknownOptionError: There is no such picture, way of counting or figure.
        """
        for source in sources:
            _check("source", source, SOURCES)
        _check("figure", figure, FIGURES)
        _check("view", view, PICTURES)
        if len(sources) != (2 if view == "beside" else 1):
            raise UnknownOptionError(
                f"a picture {view!r} is not of {len(sources)} ways of counting.",
                (("needs", "2, before and after" if view == "beside" else "1"),),
                'sources=["lowered", "compiled"]' if view == "beside" else 'sources=["analytic"]',
            )
        looked = self._program()
        slowest = max(sources, key=SOURCES.index)
        empty, look = CostPicture(str(key)), Look(figure, max(1, int(width)), looked.hues, tuple(map(str, opened)))
        self._worker(slowest).ask("picture", lambda wanted: self._draw(looked, empty, view, sources, look, wanted))

    def measure(self) -> None:
        """Run the program, and measure how long each of its instructions takes."""
        looked = self._program()
        if self._states["measured"].state == "loading":
            return
        self._turn("measured", SourceState("loading", version=self._states["measured"].version))
        self._slow.ask("measure", lambda _: self._measure(looked))

    # In the threads

    def _worker(self, source: str) -> Wishes:
        return self._slow if source in ("compiled", "measured") else self._quick

    def _turn(self, source: str, state: SourceState) -> None:
        with self._lock:
            self._states[source] = state
        self._page.changed()

    def _make(self, looked: Looked, source: str, wanted: Callable[[], bool]) -> None:
        try:
            cost, version = self._cost(looked, source, wanted)
            if cost is None:
                return
            with paused_collector():  # beside a large traced program it stops everything for as long as this takes
                table = cost_table(cost, looked.paths, looked.hues)
        except Exception as error:  # a page shows it where the costs would stand
            self._refuse(source, error)
            return
        self._page.tell("cost", CostTable(source, version, table))
        self._turn(source, SourceState("ready", version=version))

    def _refuse(self, source: str, error: Exception) -> None:
        self._turn(source, _why_not(error))
        if not isinstance(error, MithrilError):
            self._page.failed(error)

    def _cost(self, looked: Looked, source: str, wanted: Callable[[], bool]) -> tuple[Cost | None, int]:
        """Return the costs, and the version of the design that they are of; `None` if nobody wants them any more."""
        if source == "measured":
            return (None, 0) if self._measured is None else (self._measured[1], self._measured[0])
        inspection = looked.inspection()
        if source == "compiled" and not inspection.is_optimized and not rests(wanted, _REST_S):
            return None, 0
        with paused_collector():
            return inspection.cost(source), looked.version

    def _tell_rows(self, looked: Looked, source: str, block: str, figure: str) -> None:
        cost, _ = self._cost(looked, source, lambda: True)
        if cost is not None:
            self._page.tell("cost_rows", BlockRows(source, block, figure, rows_of(cost, block, figure)))

    def _tell_formula(self, looked: Looked, block: str, wanted: Callable[[], bool]) -> None:
        try:
            cost, version = self._cost(looked, "analytic", wanted)
            if cost is None:
                return
            found = formula_of(cost, block, version)
        except Exception as error:  # the page shows it where the formula would stand
            if not isinstance(error, MithrilError):
                self._page.failed(error)
            found = BlockFormula(block, looked.version, why=_why_not(error).message)
        self._page.tell("formula", found)

    def _measure(self, looked: Looked) -> None:
        try:
            inspection = looked.inspection()
            inspection.want()  # what runs is compiled in full: machine code that is shown later is of the same turn
            measured = profile(inspection, runs=RUNS)
        except Exception as error:  # a page shows it where the costs would stand
            self._refuse("measured", error)
            return
        self._measured = looked.version, measured
        self._make(looked, "measured", lambda: True)

    def _draw(
        self, looked: Looked, empty: CostPicture, view: str, sources: Sequence[str], look: Look,
        wanted: Callable[[], bool],
    ) -> None:  # fmt: skip
        try:
            costs: list[Cost] = []
            for source in sources:
                cost, _ = self._cost(looked, source, wanted)
                if cost is None:
                    return
                costs.append(cost)
            with paused_collector():
                drawn = PICTURES[view](looked.inspection(), costs, look)
            picture = replace(empty, svg=drawn.svg, text=drawn.text)
        except Exception as error:  # the page shows it in the place of the picture
            if not isinstance(error, MithrilError):
                self._page.failed(error)
            picture = replace(empty, reason=_why_not(error).message)
        self._page.tell("cost_picture", picture)


def _why_not(error: Exception) -> SourceState:
    """Return how it stands with costs that cannot be made: the reason alone, where there is one."""
    problem = problem_of(error)
    reason = "; ".join(value for name, value in problem.shown().facts if name == "reason")
    is_known = isinstance(error, MithrilError)
    return SourceState("unavailable" if is_known else "failed", reason or problem.summary)


def _check(what: str, value: str, known: Sequence[str] | Mapping[str, Any]) -> None:
    if value not in known:
        raise UnknownOptionError(
            f"unknown {what} {short_repr(value)}.",
            (("known", ", ".join(known) or "none"),),
            f"{what}={next(iter(known), '')!r}",
        )
