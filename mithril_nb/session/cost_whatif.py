"""What other settings would make of the costs: asked of `ml.what_if`, while what is looked at stays as it is."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mithril_nb.errors import Diagnostic, MithrilError, UnknownOptionError, short_repr
from mithril_nb.session.analysis import problem_of
from mithril_nb.session.cost_desk import CostPicture
from mithril_nb.session.cost_pictures import Look, draw_beside
from mithril_nb.session.costs import FIGURES
from mithril_nb.session.desk import Desk, Page
from mithril_nb.session.subjects import Changes, Subject, settings_of
from mithril_nb.session.wishes import rests
from mithril_nb.stages.collector import paused_collector
from mithril_nb.whatif import Change, Peak, WhatIf

_REST_S = 0.2
_STEP_S = 0.02
_COMPARED = ("flops", "bytes_accessed", "transcendentals", "params")
_UNKNOWN = "not known: the notes of the table say why"
_BEING_FOUND = Peak(None, "being worked out")
_WAYS = {
    "formula": "by a formula in which the setting has a name",
    "learned and verified": "learned from other values, and verified",
    "traced": "traced anew",
    "estimate": "an estimate: the equations of now with the dtype of then",
}
_MEMORY = {"compiled": ("Peak memory as XLA plans it.",), "analytic": ("Peak memory estimated from the equations.",)}


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


@dataclass(frozen=True)
class _Asked:
    """What a page asked for."""

    subject: Subject
    key: str
    changes: Changes
    figure: str
    width: int


class WhatIfDesk(Desk):
    """Answers what other settings would cost.

    Args:
        subject: Returns what is looked at now.
        page: Told `("what_if", WhatIfAnswer)`: at once, again with the memory at its peak and with exact figures in
            the place of an estimate, and with what the compiler makes of it if that is asked for.
    """

    def __init__(self, subject: Callable[[], Subject], page: Page):
        super().__init__(page, "what-if", "what-if-compiled")
        self._subject = subject
        self._view: dict[str, Any] = {"state": "empty", "message": "", "problem": None}
        self._settings: tuple[int, list[dict[str, Any]]] | None = None
        self._what_if: tuple[int, WhatIf] | None = None
        self._lock = threading.Lock()
        self._compiled: dict[Any, Change] = {}
        self.commands = {"want_settings": self.want_settings, "what_if": self.what_if}

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
            raise UnknownOptionError(
                f"unknown figure {short_repr(figure)}.", (("known", ", ".join(FIGURES)),), f"figure={FIGURES[0]!r}"
            )
        asked = _Asked(self._subject(), str(key), checked_changes(changes), figure, max(1, int(width)))
        if compile:
            self._slow.ask("what if", lambda wanted: self._compile(asked, wanted))
        else:
            self._quick.ask("what if", lambda wanted: self._answer(asked, wanted))

    def end(self) -> None:
        """Give up what is asked."""
        super().end()
        if self._what_if is not None:
            self._what_if[1].close()

    # In the threads

    def _asks(self, subject: Subject) -> WhatIf | None:
        """Return what answers; that of an older design is given up, and of one that is older now nobody asks."""
        with self._lock:  # both threads need it, and to make it takes long
            version, made = self._what_if or (0, None)
            if version > subject.version:
                return None
            if made is None or version < subject.version:
                if made is not None:
                    made.close()
                    self._compiled.clear()
                with paused_collector():
                    made = subject.ask()
                self._what_if = subject.version, made
            return made

    def _changed_by(self, asked: _Asked) -> Change | None:
        made = self._asks(asked.subject)
        return None if made is None else made(_named(asked.changes))

    def _find_settings(self, subject: Subject) -> None:
        found: list[dict[str, Any]] = []
        try:
            made = self._asks(subject)
            if made is None:
                return
            found = settings_of(subject, made)
            state, problem = "ready", None
        except MithrilError as error:  # of a program that cannot be traced, nothing can be another
            state, problem = "unavailable", problem_of(error).to_dict()
        self._settings = subject.version, found
        if self._view["state"] == "loading":  # the other thread is at work, and says so when it has done
            self._page.changed()
        else:
            self._turn(state, problem=problem)

    def _turn(self, state: str, message: str = "", problem: dict[str, object] | None = None) -> None:
        self._view = {"state": state, "message": message, "problem": problem}
        self._page.changed()

    def _answer(self, asked: _Asked, wanted: Callable[[], bool]) -> None:
        def tell(change: Change, start: float) -> None:
            took_s = time.perf_counter() - start
            self._show(asked, wanted, change, took_s, (_BEING_FOUND, _BEING_FOUND))
            if rests(wanted, _REST_S):  # a slider that is being moved waits for none of this
                self._show_with_memory(asked, wanted, change, took_s)
            exact = change.exact.result() if wanted() else change
            if exact is not change:
                self._show_with_memory(asked, wanted, exact, time.perf_counter() - start)

        self._work("Working it out", asked, wanted, tell)

    def _compile(self, asked: _Asked, wanted: Callable[[], bool]) -> None:
        def tell(change: Change, start: float) -> None:
            took_s = time.perf_counter() - start
            self._compiled[_key(asked)] = change.compiled.result()
            self._show(asked, wanted, change, took_s, change.peaks)

        self._work("Compiling both", asked, wanted, tell)

    def _work(
        self, doing: str, asked: _Asked, wanted: Callable[[], bool], tell: Callable[[Change, float], None]
    ) -> None:
        self._turn("loading", doing)
        try:
            start = time.perf_counter()
            change = self._changed_by(asked)
            if change is not None:
                tell(change, start)
        except Exception as error:  # the page shows it where the answer would stand
            self._refuse(asked, wanted, error)
        finally:
            self._turn("ready")

    def _show_with_memory(self, asked: _Asked, wanted: Callable[[], bool], change: Change, took_s: float) -> None:
        """Send the change once its memory is known, or nothing if a newer question came."""
        found = change.memory.start()
        while wanted() and not found.is_done:
            time.sleep(_STEP_S)
        if wanted():
            self._show(asked, wanted, change, took_s, found.result())

    def _show(
        self, asked: _Asked, wanted: Callable[[], bool], change: Change, took_s: float, peaks: tuple[Peak, Peak]
    ) -> None:
        if not wanted():
            return
        compiled = self._compiled.get(_key(asked))  # as soon as somebody has asked for it
        how = f"Analytic, {_WAYS.get(change.way, change.way)}, in {1000 * took_s:.0f} ms."
        data: dict[str, Any] = {
            "changes": [list(one) for one in asked.changes],
            "how": " ".join([how, *_MEMORY.get(peaks[1].source, ()), *change.notes]),
            "rows": _compared(change, peaks),
            "compiled": None if compiled is None else _compared(compiled, compiled.peaks),
            "problem": None,
        }
        look = Look(asked.figure, asked.width, asked.subject.hues)
        drawing = draw_beside(change.before, change.after, look, ("now", "then"))
        self._page.tell("what_if", WhatIfAnswer(asked.key, data, CostPicture(asked.key, drawing.svg, drawing.text)))

    def _refuse(self, asked: _Asked, wanted: Callable[[], bool], error: Exception) -> None:
        if not isinstance(error, MithrilError):
            self._page.failed(error)
        problem: Diagnostic = problem_of(error)
        data = {
            "changes": [list(one) for one in asked.changes], "how": "", "rows": [], "compiled": None,
            "problem": problem.to_dict(),
        }  # fmt: skip
        if wanted():
            self._page.tell("what_if", WhatIfAnswer(asked.key, data, CostPicture(asked.key)))


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
            f"{short_repr(changes)} are no changes.",
            (("needs", "lists of block path, name and value"),),
            'changes=[["linear_0", "dimension", 512], ["", "batch", 64]]',
        )
    return tuple((path, name, value) for path, name, value in changes)


def _named(changes: Changes) -> dict[str, Any]:
    """Return changes by the names that `ml.what_if` has for them."""
    return {f"{path}.{name}" if path else name: value for path, name, value in changes}


def _key(asked: _Asked) -> str:
    return repr((asked.subject.version, asked.changes))


def _compared(change: Change, peaks: tuple[Peak, Peak]) -> list[dict[str, Any]]:
    before, after = change.before.total, change.after.total
    rows = [
        {"figure": name, "before": getattr(before, name), "after": getattr(after, name), "reason": _UNKNOWN}
        for name in _COMPARED
    ]
    now, then = peaks
    return [
        *rows,
        {"figure": "peak_bytes", "before": now.bytes, "after": then.bytes, "reason": now.reason or then.reason},
    ]
