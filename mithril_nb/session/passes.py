"""What XLA's passes did, worked out in a thread of its own: reading them takes long, and a compilation first."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from mithril_nb.errors import StageUnavailableError, UnknownOptionError
from mithril_nb.session.analysis import problem_of
from mithril_nb.session.desk import Desk, Page
from mithril_nb.stages import Inspection
from mithril_nb.stages.collector import paused_collector
from mithril_nb.stages.fates import FATED
from mithril_nb.stages.xla.passes import Pass

MOST_DIFF_LINES = 10_000
"""How many lines of what a pass did are shown: a pass that fuses writes fifty thousand, which nobody reads."""

_REST_S = 0.5
"""How long nobody must have asked before what nobody waits for is worked on: Python runs one thread at a time."""
_LOOK_S = 0.02
_MOST_TOLD = 3
"""Outcomes of one line that are shown."""

PassRow = tuple[int, str, str, int | None, int | None, int | None]
"""Number, name, pipeline; how many instructions it added, removed and rewrote, `None` while nobody has counted."""


@dataclass(frozen=True)
class PassList:
    """The passes of a program that changed something.

    Attributes:
        version: Of the design that they were read of.
        rows: One for each pass.
        number: Of the pass whose diff follows when the list is new: the one that was asked for last, if there is one.
    """

    version: int = 0
    rows: tuple[PassRow, ...] = ()
    number: int = 0


@dataclass(frozen=True)
class Diff:
    """What one pass did.

    Attributes:
        version: Of the design that the passes were read of.
        number: Its number.
        text: Lines taken away (`-`) and put in (`+`), each computation with its name.
        is_cut: Whether these are only the first `MOST_DIFF_LINES`.
    """

    version: int
    number: int
    text: str
    is_cut: bool = False


@dataclass(frozen=True)
class FateOf:
    """What became of an instruction, for a page.

    Attributes:
        stage: Its stage.
        index: Its place there.
        said: Pairs of what happened and the pass in which, with its number: `("appeared in", "fusion", 12)`.
        fused: Places, in the optimized HLO, of the fusions that do its work.
        became: What happened to it outside of passes, as `"dropped: nothing uses it"`, or `""`.
    """

    stage: str
    index: int
    said: tuple[tuple[str, str, int], ...]
    fused: tuple[int, ...] = ()
    became: str = ""


@dataclass(frozen=True)
class _Reading:
    """A program whose passes were read, and what was worked out of them."""

    version: int
    inspection: Inspection
    diffs: dict[int, Diff] = field(default_factory=dict)


class PassDesk(Desk):
    """Reads the passes of a program when a page asks for them, and answers what it asks of them then.

    Args:
        program: Returns the version of the program that is looked at now, and what makes it.
        page: Told `("passes", PassList)`, `("diff", Diff)` and `("fate", FateOf)`.

    Attributes:
        latest: The passes that were read last.
    """

    def __init__(self, program: Callable[[], tuple[int, Callable[[], Inspection]]], page: Page):
        # What a person waits for with a hand on a key does not wait for the sizes of all passes, which take seconds.
        super().__init__(page, "passes", "pass-sizes")
        self._program = program
        self._lock = threading.Lock()
        self._view: dict[str, Any] = {"state": "empty", "message": "", "version": 0}
        self._reading: _Reading | None = None
        self._latest_s = 0.0
        self._number = 0
        self.latest = PassList()
        self.commands = {
            "want_passes": self.want_passes,
            "request_diff": self.request_diff,
            "request_fate": self.request_fate,
        }

    def view(self, version: int) -> dict[str, Any]:
        """Return how far they are, for a page that shows a version of the design."""
        view = dict(self._view)
        return view if view["version"] in (0, version) else {**view, "state": "stale", "message": ""}

    def want_passes(self) -> None:
        """Read what each pass did; compiles the program."""
        version, make = self._program()
        with self._lock:
            if self._view["version"] == version and self._view["state"] in ("loading", "ready"):
                return
            self._view = {"state": "loading", "message": "", "version": version}
        self._page.changed()
        self._slow.ask("passes", lambda wanted: self._read(version, make, wanted))

    def request_diff(self, number: int) -> None:
        """Say what one pass did.

        Raises:
            UnknownOptionError: No passes have been read.
        """
        self._number = int(number)
        self._ask("diff", lambda reading, number=self._number: self._diff(reading, number))

    def request_fate(self, stage: str, index: int) -> None:
        """Say in which pass an instruction appeared, or vanished.

        Raises:
            UnknownOptionError: No passes have been read, or they did not see the stage.
        """
        if stage not in FATED:
            raise UnknownOptionError(f"unknown stage {stage!r}.", (("known", ", ".join(FATED)),), 'stage="hlo"')
        self._ask("fate", lambda reading: self._fate(reading, stage, int(index)))

    def _ask(self, what: str, answer: Callable[[_Reading], None]) -> None:
        reading = self._reading
        if reading is None:
            raise UnknownOptionError(
                "no passes have been read.", (("passes", "none"),), "the command 'want_passes' first."
            )
        self._latest_s = time.monotonic()
        self._quick.ask(what, lambda _: answer(reading))

    # In the threads

    def _read(self, version: int, make: Callable[[], Inspection], wanted: Callable[[], bool]) -> None:
        try:
            self._read_through(version, make, wanted)
        except StageUnavailableError as error:
            facts = problem_of(error).shown().facts
            self._turn(version, "unavailable", "; ".join(value for _, value in facts) or str(error))
        except Exception as error:  # nobody else hears of it
            self._turn(version, "failed", str(problem_of(error)))
            self._page.failed(error)

    def _turn(self, version: int, state: str, message: str = "") -> None:
        with self._lock:
            if self._view["version"] != version:
                return
            self._view = {"state": state, "message": message, "version": version}
        self._page.changed()

    def _read_through(self, version: int, make: Callable[[], Inspection], wanted: Callable[[], bool]) -> None:
        inspection = make()
        passes = inspection.passes
        if not wanted():
            return
        rows: list[PassRow] = [(one.number, one.name, one.pipeline, None, None, None) for one in passes]
        self._reading = reading = _Reading(version, inspection)
        self._number = max(0, min(self._number, len(passes) - 1))
        first = self._diff_of(reading, passes[self._number]) if passes else None
        self._show(version, rows)
        # Asked for, it would wait until the HLO is packed, which a page asks for at the same time.
        if first is not None:
            self._page.tell("diff", first)
        self._turn(version, "ready")
        for at, one in enumerate(passes):
            if not self._rests(wanted):
                return
            with paused_collector():
                changes = one.changes
            rows[at] = (*rows[at][:3], len(changes.added), len(changes.removed), len(changes.rewritten))
        self._show(version, rows)
        for one in passes:  # who asks from now on gets an answer that is there
            if not self._rests(wanted):
                return
            self._diff_of(reading, one)

    def _show(self, version: int, rows: list[PassRow]) -> None:
        self.latest = PassList(version, tuple(rows), self._number)
        self._page.tell("passes", self.latest)

    def _rests(self, wanted: Callable[[], bool]) -> bool:
        """Wait until nobody has asked anything for a moment; return whether it is still wanted then."""
        while wanted() and time.monotonic() < self._latest_s + _REST_S:
            time.sleep(_LOOK_S)
            self._quick.wait()
        return wanted()

    def _diff(self, reading: _Reading, number: int) -> None:
        passes = reading.inspection.passes
        if 0 <= number < len(passes):
            self._page.tell("diff", self._diff_of(reading, passes[number]))

    def _diff_of(self, reading: _Reading, one: Pass) -> Diff:
        if one.number not in reading.diffs:
            with paused_collector():  # many small values, and a traced program in memory
                lines = list(islice(one.diff_lines(), MOST_DIFF_LINES + 1))
            text = "".join(f"{line}\n" for line in lines[:MOST_DIFF_LINES])
            reading.diffs[one.number] = Diff(reading.version, one.number, text, len(lines) > MOST_DIFF_LINES)
        return reading.diffs[one.number]

    def _fate(self, reading: _Reading, stage: str, index: int) -> None:
        inspection = reading.inspection
        instructions = inspection.stage(stage).instructions
        if not 0 <= index < len(instructions):
            return
        fate = inspection.who_changed(stage, instructions[index].id)
        said = [_said("appeared in", fate.appeared), _said("vanished in", fate.vanished)]
        became = ""
        if stage in ("jaxpr", "stablehlo"):
            told = fate.outcomes[:_MOST_TOLD]
            said = [_said(f"{one.without_pass} by", one.by) for one in told]
            became = ", ".join(dict.fromkeys(one.without_pass for one in told if one.by is None))
        places = {one.id: at for at, one in enumerate(inspection.stage("hlo").instructions)} if fate.fused_into else {}
        fused = tuple(places[id] for id in fate.fused_into if id in places)
        self._page.tell("fate", FateOf(stage, index, tuple(one for one in said if one), fused, became))


def _said(what: str, found: Pass | None) -> tuple[str, str, int] | None:
    return None if found is None else (what, found.name, found.number)
