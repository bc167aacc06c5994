"""XLA passes and transforms for a front end, read and compared in separate threads because both take long."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import TypedDict

from mithril_nb.errors import StageUnavailableError, UnknownOptionError
from mithril_nb.inspection import Inspection
from mithril_nb.stages.instruction_history import STAGES_WITH_HISTORY
from mithril_nb.stages.once import paused_collector
from mithril_nb.stages.transforms.stepping import TransformSteps
from mithril_nb.stages.xla.passes import Pass
from mithril_nb.ui.session.commands import (
    Client,
    ProgramView,
    Reply,
    RequestHandler,
    RequestState,
    State,
    check_choice,
    command,
    problem_of,
    without_code,
)

# Maximum number of lines of a diff. The diff of a fusion pass may have fifty thousand.
MOST_DIFF_LINES = 10_000

# Seconds without requests before background work continues, because Python runs one thread at a time.
_REST_S = 0.5
_LOOK_S = 0.02
# Maximum number of outcomes shown per line.
_MOST_OUTCOMES = 3

# Maximum number of lines that a search returns.
MOST_MATCHES = 1_000

# Number, name, pipeline; numbers of added, removed and rewritten instructions, `None` until counted.
PassRow = tuple[int, str, str, int | None, int | None, int | None]


class PassesHead(TypedDict):
    """The passes of a version of the design; the data are `PassRow`s."""

    version: int  # 0 before the passes were read
    number: int  # of the pass whose diff was requested last


class DiffHead(TypedDict):
    """The changes of one pass; the data are a text: `-` and `+` lines under the name of each computation."""

    version: int
    number: int
    cut: bool  # whether the text is truncated


class MatchesHead(TypedDict):
    """The answer to a search in all diffs; the data are the number and the matching lines, from 1, of each pass."""

    version: int
    text: str
    total: int  # number of matching lines; the data may have fewer


class HistoryHead(TypedDict):
    """The passes that changed an instruction."""

    stage: str
    index: int
    events: list[tuple[str, str, int]]  # event, name and number of a pass
    fused: list[int]  # indices of the fusions of the optimized HLO that contain the instruction
    became: str  # outcomes that no pass caused


class ComparedTransforms(TypedDict):
    """The state of the comparison of transforms."""

    state: State
    message: str
    compared: list[tuple[bool | None, str]]  # for each step: whether the results agree, and a description


@dataclass
class _Search:
    text: str  # the text to find
    matches: list[tuple[int, list[int]]] = field(default_factory=list)
    total: int = 0  # number of matching lines, also if `found` contains only `MOST_MATCHES` of them
    searched: int = 0  # number of passes searched so far

    def read(self, number: int, diff: str) -> None:
        self.searched += 1
        text, diff = self.text.lower(), diff.lower()
        if text not in diff:
            return
        lines = [at for at, line in enumerate(diff.split("\n"), 1) if text in line]
        sent = lines[: max(0, MOST_MATCHES - self.total)]
        self.total += len(lines)
        if sent:
            self.matches.append((number, sent))


@dataclass(frozen=True)
class _Reading:
    version: int
    inspection: Inspection
    diffs: dict[int, Reply] = field(default_factory=dict)


class PassRequests(RequestHandler):
    """Reads the passes of a program on request, and answers requests about them."""

    def __init__(self, program: Callable[[], ProgramView], client: Client):
        # Requests of the user must not wait for the change counts of all passes, which take seconds.
        super().__init__(client, "passes", "pass-sizes")
        self._program = program
        self._view = RequestState(state="empty", message="", version=0)
        self._reading: _Reading | None = None
        self._latest_s = 0.0
        self._number = 0
        self._searched: _Search | None = None
        self.latest: Reply | None = None  # the latest list of passes

    def view(self, version: int) -> RequestState:
        """Return the state of the passes, for a front end that shows a version of the design."""
        view = self._view
        return view if view["version"] in (0, version) else {**view, "state": "stale", "message": ""}

    def has_read(self, inspection: Inspection) -> bool:
        """Return whether the passes of a program were read."""
        return self._reading is not None and self._reading.inspection is inspection

    @command
    def request_passes(self) -> None:
        """Read the changes of each pass."""
        program = self._program()
        with self._lock:
            if self._view["version"] == program.version and self._view["state"] in ("loading", "ready"):
                return
            self._view = RequestState(state="loading", message="", version=program.version)
        self._client.changed()
        self._slow.submit(lambda is_wanted: self._read(program, is_wanted), "passes")

    @command
    def request_diff(self, number: int) -> None:
        """Send the diff of one pass."""
        self._number = int(number)

        def answer(reading: _Reading, number: int = self._number) -> None:
            passes = reading.inspection.passes
            if 0 <= number < len(passes):
                self._client.send("diff", self._diff_of(reading, passes[number]))

        self._request("diff", answer)

    @command
    def search_passes(self, text: str) -> None:
        """Send the numbers of the lines of all diffs that contain a text, ignoring case; at most `MOST_MATCHES`."""
        reading = self._known_reading()
        self._continue(reading, _Search(str(text)), is_new=True)

    @command
    def request_instruction_history(self, stage: str, index: int) -> None:
        """Send the passes in which an instruction appeared or vanished."""
        check_choice("stage", stage, STAGES_WITH_HISTORY, "hlo")
        self._request("instruction_history", lambda reading: self._history(reading, stage, int(index)))

    def _request(self, kind: str, answer: Callable[[_Reading], None]) -> None:
        reading = self._known_reading()
        self._latest_s = time.monotonic()
        self._quick.submit(lambda _: answer(reading), kind)

    def _known_reading(self) -> _Reading:
        if self._reading is None:
            raise UnknownOptionError("no passes have been read.", (("passes", "none"),), 'wb.do("request_passes")')
        return self._reading

    def _continue(self, reading: _Reading, search: _Search, *, is_new: bool = False) -> None:
        with self._lock:  # an older search must not replace a newer one in the queue
            if is_new:
                self._latest_s, self._searched = time.monotonic(), search
            if search is self._searched:
                self._quick.submit(lambda _: self._search(reading, search), "search")

    # In the threads

    def _read(self, program: ProgramView, is_wanted: Callable[[], bool]) -> None:
        try:
            self._read_through(program.version, program.inspection(), is_wanted)
        except StageUnavailableError as error:
            facts = problem_of(error).shortened().facts
            self._turn(program.version, "unavailable", "; ".join(value for _, value in facts) or str(error))
        except Exception as error:  # the thread has no caller
            self._turn(program.version, "failed", str(without_code(problem_of(error))))
            self._client.failed(error)

    def _turn(self, version: int, state: State, message: str = "") -> None:
        with self._lock:
            if self._view["version"] != version:
                return
            self._view = RequestState(state=state, message=message, version=version)
        self._client.changed()

    def _read_through(self, version: int, inspection: Inspection, is_wanted: Callable[[], bool]) -> None:
        passes = inspection.passes
        if not is_wanted():
            return
        rows: list[PassRow] = [
            (xla_pass.number, xla_pass.name, xla_pass.pipeline, None, None, None) for xla_pass in passes
        ]
        self._reading = reading = _Reading(version, inspection)
        self._number = max(0, min(self._number, len(passes) - 1))
        first = self._diff_of(reading, passes[self._number]) if passes else None
        self._show(version, rows)
        # Send the diff unrequested: a request would wait for the HLO, which the front end requests at the same time.
        if first is not None:
            self._client.send("diff", first)
        self._turn(version, "ready")
        for at, xla_pass in enumerate(passes):
            if not self._rests(is_wanted):
                return
            with paused_collector():
                changes = xla_pass.changes
            rows[at] = (*rows[at][:3], len(changes.added), len(changes.removed), len(changes.rewritten))
        self._show(version, rows)
        for xla_pass in passes:  # compute all diffs in advance
            if not self._rests(is_wanted):
                return
            self._diff_of(reading, xla_pass)

    def _show(self, version: int, rows: list[PassRow]) -> None:
        self.latest = Reply(PassesHead(version=version, number=self._number), list(rows))
        self._client.send("passes", self.latest)

    def _rests(self, is_wanted: Callable[[], bool]) -> bool:
        while is_wanted() and time.monotonic() < self._latest_s + _REST_S:
            time.sleep(_LOOK_S)
            self._quick.wait()
        return is_wanted()

    def _search(self, reading: _Reading, search: _Search) -> None:
        passes = reading.inspection.passes
        if search.searched == len(passes):
            head = MatchesHead(version=reading.version, text=search.text, total=search.total)
            self._client.send("pass_matches", Reply(head, search.matches))
            return
        xla_pass = passes[search.searched]
        search.read(xla_pass.number, self._diff_of(reading, xla_pass).data)
        # One job per pass: a diff takes up to a second, and other requests must not wait for all of them.
        self._continue(reading, search)

    def _diff_of(self, reading: _Reading, xla_pass: Pass) -> Reply:
        if xla_pass.number not in reading.diffs:
            with paused_collector():  # it creates many small objects next to a large traced program
                lines = list(islice(xla_pass.diff_lines(), MOST_DIFF_LINES + 1))
            text = "".join(f"{line}\n" for line in lines[:MOST_DIFF_LINES])
            is_cut = len(lines) > MOST_DIFF_LINES
            head = DiffHead(version=reading.version, number=xla_pass.number, cut=is_cut)
            reading.diffs[xla_pass.number] = Reply(head, text)
        return reading.diffs[xla_pass.number]

    def _history(self, reading: _Reading, stage: str, index: int) -> None:
        inspection = reading.inspection
        instructions = inspection.stage(stage).instructions
        if not 0 <= index < len(instructions):
            return
        history = inspection.who_changed(stage, instructions[index].id)
        changes = [("appeared in", history.appeared), ("vanished in", history.vanished)]
        became = ""
        if stage in ("jaxpr", "stablehlo"):
            outcomes = history.outcomes[:_MOST_OUTCOMES]
            changes = [(f"{outcome.without_pass} by", outcome.by) for outcome in outcomes]
            became = ", ".join(dict.fromkeys(outcome.without_pass for outcome in outcomes if outcome.by is None))
        fusions = inspection.stage("hlo").instructions if history.fused_into else ()
        positions = {fusion.id: at for at, fusion in enumerate(fusions)}
        head = HistoryHead(
            stage=stage,
            index=index,
            events=[(event, xla_pass.name, xla_pass.number) for event, xla_pass in changes if xla_pass is not None],
            fused=[positions[id] for id in history.fused_into if id in positions],
            became=became,
        )
        self._client.send("instruction_history", Reply(head))


class TransformRequests(RequestHandler):
    """Checks the steps of `ml.step_through`, one for each transform such as `grad`, by running them on numbers."""

    def __init__(self, steps: TransformSteps | None, client: Client):
        super().__init__(client, "transforms", "transforms")
        self.steps = steps
        self._view = ComparedTransforms(state="empty", message="", compared=[])

    def view(self) -> ComparedTransforms | None:
        """Return the state of the comparison as a dict; `None` without transforms."""
        return None if self.steps is None else self._view

    @command
    def compare_transforms(self) -> None:
        """Run the programs before and after each step on the same numbers, and compare the results."""
        with self._lock:
            if self._view["state"] in ("loading", "ready"):
                return
            self._view = ComparedTransforms(state="loading", message="", compared=[])
        self._client.changed()
        self._slow.submit(lambda _: self._compare())

    def _compare(self) -> None:
        assert self.steps is not None
        try:
            compared = [
                (comparison.agrees, str(comparison).removeprefix(f"{comparison.step}: "))
                for comparison in self.steps.check()
            ]
            self._view = ComparedTransforms(state="ready", message="", compared=compared)
            self._client.changed()
        except Exception as error:  # the thread has no caller
            self._view = ComparedTransforms(state="failed", message=str(without_code(problem_of(error))), compared=[])
            self._client.failed(error)
