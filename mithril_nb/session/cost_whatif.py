"""What other settings would make of the costs: tried on a copy of the program, which stays as it is."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mithril_nb.cost import Cost
from mithril_nb.cost.memory import memory_of
from mithril_nb.errors import Diagnostic, MithrilError, StageUnavailableError, UnknownOptionError
from mithril_nb.session.analysis import problem_of
from mithril_nb.session.cost_desk import CostPicture
from mithril_nb.session.cost_pictures import draw_beside
from mithril_nb.session.costs import FIGURES
from mithril_nb.session.subjects import Changes, Subject
from mithril_nb.session.wishes import Wishes
from mithril_nb.stages import Inspection
from mithril_nb.stages.collector import paused_collector

_KEPT = 8
"""Programs with other settings that are kept, so that a slider that comes back finds them."""
_UNKNOWN = "not known: the notes of the table say why"
_TOLD = ("flops", "bytes_accessed", "transcendentals", "params")


@dataclass(frozen=True)
class WhatIfAnswer:
    """What other settings make of the costs.

    Attributes:
        key: What the page calls what it asked for.
        data: The changes, how the answer was found, the figures before and after, and what went wrong.
        picture: Before and after, block by block.
    """

    key: str
    data: Mapping[str, Any]
    picture: CostPicture


@dataclass
class _Tried:
    """A program that was tried: the programs before and after, and their costs as far as they are made."""

    before: Inspection
    after: Inspection
    hues: Mapping[str, int]
    took_s: float
    costs: dict[str, tuple[Cost, Cost]] = field(default_factory=dict[str, tuple[Cost, Cost]])


class WhatIfDesk:
    """Answers what other settings would cost.

    Args:
        subject: Returns the program that is looked at now.
        tell: Told `("what_if", WhatIfAnswer)`, in a thread.
        changed: Called where `view` is another, in a thread.
        failed: Told what nobody expected.

    Attributes:
        commands: What a page can ask for, by name.
    """

    def __init__(
        self,
        subject: Callable[[], Subject],
        tell: Callable[[str, Any], None],
        changed: Callable[[], None],
        failed: Callable[[BaseException], None],
    ):
        self._subject, self._tell, self._changed, self._failed = subject, tell, changed, failed
        self._view: dict[str, Any] = {"state": "empty", "message": ""}
        self._settings: tuple[int, list[dict[str, Any]]] | None = None
        self._tried: dict[str, _Tried] = {}
        self._quick, self._slow = Wishes("mithril_nb-what-if", failed), Wishes("mithril_nb-what-if-compiled", failed)
        self.commands: dict[str, Callable[..., None]] = {"want_settings": self.want_settings, "what_if": self.what_if}

    def view(self) -> dict[str, Any]:
        """Return how far the answer is, and what can be another, as far as somebody asked for it."""
        version, settings = self._settings or (0, None)
        return {**self._view, "settings": settings, "version": version}

    def want_settings(self) -> None:
        """Find out what can be another."""
        subject = self._subject()
        self._quick.ask("settings", lambda _: self._find_settings(subject))

    def what_if(
        self,
        key: str,
        changes: Sequence[Sequence[Any]],
        figure: str = "flops",
        compile: bool = False,
        width: float = 720,
    ) -> None:
        """Tell what a program costs with other settings.

        Args:
            key: What the page calls it.
            changes: The other settings: path of a block or `""`, name, value.
            figure: What the picture shows.
            compile: Whether to compile both for it, which may take long.
            width: How wide the picture is, in px.

        Raises:
            UnknownOptionError: There is no such figure, or what is given are no changes.
        """
        if figure not in FIGURES:
            raise UnknownOptionError(f"unknown figure {figure!r}.", (("known", ", ".join(FIGURES)),))
        subject, read = self._subject(), checked_changes(changes)
        worker = self._slow if compile else self._quick
        worker.ask("what if", lambda wanted: self._answer(subject, str(key), read, figure, compile, int(width), wanted))

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the answers; return whether they came in time."""
        return self._quick.wait(timeout_s) and self._slow.wait(timeout_s)

    def end(self) -> None:
        """Give up what is asked."""
        self._quick.end()
        self._slow.end()

    # In the threads

    def _find_settings(self, subject: Subject) -> None:
        with paused_collector():
            self._settings = subject.version, subject.settings
        self._changed()

    def _turn(self, state: str, message: str = "") -> None:
        self._view = {"state": state, "message": message}
        self._changed()

    def _answer(
        self, subject: Subject, key: str, changes: Changes, figure: str, compile: bool, width: int,
        wanted: Callable[[], bool],
    ) -> None:  # fmt: skip
        self._turn("loading", "Compiling both" if compile else "Tracing")
        problem: Diagnostic | None = None
        found: _Tried | None = None
        try:
            with paused_collector():
                found = self._try(subject, changes)
                if compile:
                    found.costs["compiled"] = found.before.cost("compiled"), found.after.cost("compiled")
        except Exception as error:  # the page shows it where the answer would stand
            problem = problem_of(error)
            if not isinstance(error, MithrilError):
                self._failed(error)
        if wanted():
            self._tell("what_if", self._told(key, changes, figure, width, found, problem))
        self._turn("ready")

    def _try(self, subject: Subject, changes: Changes) -> _Tried:
        key = repr((subject.version, changes))
        found = self._tried.pop(key, None)
        if found is None:
            start = time.perf_counter()
            after = subject.altered(changes)
            costs = subject.inspection.cost(), after.cost()
            took_s = time.perf_counter() - start
            found = _Tried(subject.inspection, after, subject.hues, took_s, {"analytic": costs})
        self._tried[key] = found
        while len(self._tried) > _KEPT:
            del self._tried[next(iter(self._tried))]
        return found

    def _told(
        self, key: str, changes: Changes, figure: str, width: int, found: _Tried | None, problem: Diagnostic | None
    ) -> WhatIfAnswer:
        picture = CostPicture(key)
        data: dict[str, Any] = {
            "changes": [list(one) for one in changes], "how": "", "rows": [], "compiled": None,
            "problem": None if problem is None else problem.to_dict(),
        }  # fmt: skip
        if found is not None:
            data["how"] = f"Analytic, traced anew in {1000 * found.took_s:.0f} ms."
            data["rows"] = _compared(found, "analytic")
            if "compiled" in found.costs:
                data["compiled"] = _compared(found, "compiled")
            before, after = found.costs["analytic"]
            drawing = draw_beside(before, after, figure, width, found.hues, ("now", "then"))
            picture = CostPicture(key, drawing.svg, drawing.text)
        return WhatIfAnswer(key, data, picture)


def checked_changes(changes: Sequence[Sequence[Any]]) -> tuple[tuple[str, str, Any], ...]:
    """Return changes that come from a page.

    Raises:
        UnknownOptionError: What is given are no changes.
    """
    if not all(
        isinstance(one, list | tuple) and len(one) == 3 and isinstance(one[0], str) and isinstance(one[1], str)
        for one in changes
    ):
        raise UnknownOptionError(
            f"{changes!r} are no changes.",
            (("needs", "lists of block path, name and value"),),
            'changes=[["linear_0", "dimension", 512], ["", "batch", 64]]',
        )
    return tuple((path, name, value) for path, name, value in changes)


def _compared(found: _Tried, source: str) -> list[dict[str, Any]]:
    before, after = found.costs[source]
    rows = [
        {"figure": name, "before": getattr(before.total, name), "after": getattr(after.total, name), "reason": _UNKNOWN}
        for name in _TOLD
    ]
    (now, why), (then, why_then) = (_peak(one, source) for one in (found.before, found.after))
    return [*rows, {"figure": "peak_bytes", "before": now, "after": then, "reason": why or why_then}]


def _peak(inspection: Inspection, source: str) -> tuple[int | None, str]:
    try:
        found = memory_of(inspection, source)
    except StageUnavailableError as error:
        return None, str(error)
    return found.peak_bytes, "; ".join(found.notes)
