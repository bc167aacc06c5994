"""What XLA's passes did, worked out in a thread of its own: reading them takes long, and a compilation first."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any

from mithril_nb.errors import StageUnavailableError
from mithril_nb.session.analysis import problem_of
from mithril_nb.session.worker import Worker
from mithril_nb.stages import Inspection
from mithril_nb.stages.collector import paused_collector
from mithril_nb.stages.passes import Pass

MOST_DIFF_LINES = 10_000
"""How many lines of what a pass did are shown: a pass that fuses writes fifty thousand, which nobody reads."""

_REST_S = 0.5
"""How long nobody must have asked before what nobody waits for is worked on: Python runs one thread at a time."""
_LOOK_S = 0.02

PassRow = tuple[int, str, str, int | None, int | None, int | None]
"""Number, name, pipeline; how many instructions it added, removed and rewrote, `None` while nobody has counted."""


@dataclass(frozen=True)
class Diff:
    """What one pass did.

    Attributes:
        number: Its number.
        text: Lines taken away (`-`) and put in (`+`), each computation with its name.
        is_cut: Whether these are only the first `MOST_DIFF_LINES`.
    """

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
    """

    stage: str
    index: int
    said: tuple[tuple[str, str, int], ...]
    fused: tuple[int, ...] = ()


class PassDesk:
    """Answers what a page asks about the passes of a program, the newest question of each kind.

    Args:
        tell: Told `("passes", rows)`, `("passes_failed", why)`, `("diff", Diff)` and `("fate", FateOf)`, in the thread.
        failed: Told what nobody expected.
    """

    def __init__(self, tell: Callable[[str, Any], None], failed: Callable[[BaseException], None]):
        self._tell, self._failed = tell, failed
        self._lock = threading.Lock()
        self._asked: dict[str, tuple[Inspection, tuple[Any, ...]]] = {}
        self._latest_s = 0.0
        self._diffs: dict[Pass, Diff] = {}
        # What a person waits for with a hand on a key does not wait for the sizes of all passes, which take seconds.
        self._worker, self._counter = Worker("mithril_nb-passes"), Worker("mithril_nb-pass-sizes")

    def ask(self, what: str, inspection: Inspection, *args: Any) -> None:
        """Ask for `"list"`, `"diff"` (number) or `"fate"` (stage, place of the instruction)."""
        with self._lock:
            self._asked[what] = (inspection, args)
            self._latest_s = time.monotonic()
        if what == "list":
            self._counter.submit(lambda wanted: self._work(("list",), wanted))
        else:
            self._worker.submit(lambda wanted: self._work(("diff", "fate"), wanted))

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the answers; return whether they came in time."""
        return self._counter.wait_until_idle(timeout_s) and self._worker.wait_until_idle(timeout_s)

    def end(self) -> None:
        """Give up what is asked."""
        self._worker.end(0)
        self._counter.end(0)

    def _work(self, kinds: tuple[str, ...], wanted: Callable[[], bool]) -> None:
        answers: dict[str, Callable[..., None]] = {"diff": self._diff, "fate": self._fate, "list": self._list}
        for what in kinds:
            with self._lock:
                asked = self._asked.pop(what, None)
            if asked is None:
                continue
            answer, (inspection, args) = answers[what], asked
            try:
                answer(inspection, *args, wanted=wanted)
            except StageUnavailableError as error:
                self._tell("passes_failed", "; ".join(value for _, value in problem_of(error).facts) or str(error))
            except Exception as error:  # nobody else hears of it
                self._failed(error)

    def _list(self, inspection: Inspection, *, wanted: Callable[[], bool]) -> None:
        passes = inspection.passes
        rows: list[PassRow] = [(one.number, one.name, one.pipeline, None, None, None) for one in passes]
        self._tell("passes", tuple(rows))
        for at, one in enumerate(passes):
            if not self._rests(wanted):
                return
            with paused_collector():
                changes = one.changes
            rows[at] = (*rows[at][:3], len(changes.added), len(changes.removed), len(changes.rewritten))
        self._tell("passes", tuple(rows))
        for one in passes:  # who asks from now on gets an answer that is there
            if not self._rests(wanted):
                return
            self._diff_of(one)

    def _rests(self, wanted: Callable[[], bool]) -> bool:
        """Wait until nobody has asked anything for a moment; return whether it is still wanted then."""
        while wanted() and time.monotonic() < self._latest_s + _REST_S:
            time.sleep(_LOOK_S)
            self._worker.wait_until_idle()
        return wanted()

    def _diff(self, inspection: Inspection, number: int, *, wanted: Callable[[], bool]) -> None:
        passes = inspection.passes
        if 0 <= number < len(passes):
            self._tell("diff", self._diff_of(passes[number]))

    def _diff_of(self, one: Pass) -> Diff:
        if one not in self._diffs:
            with paused_collector():  # many small values, and a traced program in memory
                lines = list(islice(one.diff_lines(), MOST_DIFF_LINES + 1))
            text = "".join(f"{line}\n" for line in lines[:MOST_DIFF_LINES])
            self._diffs[one] = Diff(one.number, text, is_cut=len(lines) > MOST_DIFF_LINES)
        return self._diffs[one]

    def _fate(self, inspection: Inspection, stage: str, index: int, *, wanted: Callable[[], bool]) -> None:
        instructions = inspection.stage(stage).instructions
        if not 0 <= index < len(instructions):
            return
        fate = inspection.who_changed(stage, instructions[index].id)
        said = [_said("appeared in", fate.appeared), _said("vanished in", fate.vanished)]
        places = {one.id: at for at, one in enumerate(inspection.stage("hlo").instructions)} if fate.fused_into else {}
        fused = tuple(places[id] for id in fate.fused_into if id in places)
        self._tell("fate", FateOf(stage, index, tuple(one for one in said if one), fused))


def _said(what: str, found: Pass | None) -> tuple[str, str, int] | None:
    return None if found is None else (what, found.name, found.number)
