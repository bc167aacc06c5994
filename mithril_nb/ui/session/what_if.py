"""What-if questions: costs with other settings, from `ml.what_if`. The inspected program does not change."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from mithril_nb.analysis.whatif import Change, Peak, WhatIf
from mithril_nb.analysis.whatif.subjects import PRECISIONS, batch_of
from mithril_nb.errors import MithrilError, ShapeError, UnknownOptionError, short_repr
from mithril_nb.inspection import Inspection
from mithril_nb.jobs import rests
from mithril_nb.stages.once import paused_collector
from mithril_nb.ui.session.commands import Client, Reply, RequestHandler, check_choice, command, problem_of
from mithril_nb.ui.session.cost_requests import Look, draw_beside, picture_data
from mithril_nb.viz.costs.fields import BLOCK_FIELDS

Changes = Sequence[tuple[str, str, Any]]
"""Path of a block, or `""` for the whole program; name of the setting; new value."""

DTYPES = ("float32", "bfloat16", "float16")
"""Floating-point dtypes available in every process. float64 needs JAX's x64 mode."""
_DOCS = {
    "batch": "Number of samples: the first dim of the program's inputs.",
    "dtype": "Dtype of all floating-point arrays.",
    "precision": "Precision of matrix products, as in jax.default_matmul_precision.",
    "remat": "Recompute values of the forward pass in the backward pass, to save memory: rematerialization, or remat.",
}
_LABELS = {"remat": "recompute"}
"""Labels of settings whose names are not plain words."""


@dataclass(frozen=True)
class Subject:
    """A program whose costs are computed with other settings."""

    version: int  # version of the design
    ask: Callable[[], WhatIf]  # A function that returns the `WhatIf` of the program, which computes the costs
    hues: Mapping[str, int]  # hue by path of the block. A block without an entry has the hue of the block around it
    # The program of an `Explorer`, whose batch size is then inferred; `None` in a workbench.
    program: Inspection | None = None


def settings_of(subject: Subject, what_if: WhatIf) -> list[dict[str, Any]]:
    """Return the settings of the whole program as fields of a form, with current values."""
    values = dict(what_if.settings)
    if subject.program is not None and "batch" not in values:
        with suppress(ShapeError):  # the batch dim cannot always be inferred
            values = {"batch": batch_of(subject.program).size, **values}
    values.setdefault("precision", "default")
    # Skip symbolic sizes: they have no current value to compare with.
    plain = {name: value for name, value in values.items() if isinstance(value, bool | int | str)}
    return [_field(name, value) for name, value in plain.items() if _is_of_whole(name)]


def _is_of_whole(name: str) -> bool:
    return name in _DOCS or name.rpartition(".")[2].isdigit()


def _field(name: str, value: Any) -> dict[str, Any]:
    choices = {"dtype": DTYPES, "precision": PRECISIONS}.get(name)
    kind = "choice" if choices else "bool" if isinstance(value, bool) else "int"
    least, most = (1, 1 << 20) if kind == "int" else (None, None)
    port, _, axis = name.rpartition(".")
    return {
        "name": name,
        "label": _LABELS.get(name, name),
        "type": kind,
        "value": value,
        "min": least,
        "max": most,
        "choices": list(dict.fromkeys((value, *choices))) if choices else None,
        "doc": _DOCS.get(name) or f"Size of dim {axis} of the input {port}.",
        "optional": False,
    }


_REST_S = 0.2
_STEP_S = 0.02
_COMPARED = ("flops", "bytes_accessed", "transcendentals", "params")
_UNKNOWN = "unknown: see the notes of the table"
_COMPUTING = Peak(None, "computing")
_WAYS = {
    "learned and verified": "from rules that were learned at a few values and verified at others",
    "traced": "traced again",
    "estimate": "an estimate: the current equations with the new dtype",
}
_MEMORY = {"compiled": ("Peak memory from XLA.",), "analytic": ("Peak memory estimated from the equations.",)}


@dataclass(frozen=True)
class _Request:
    subject: Subject
    key: str
    changes: Changes
    figure: str
    width: int


class WhatIfRequests(RequestHandler):
    """Computes the costs of a program with other settings, such as another batch size."""

    def __init__(self, subject: Callable[[], Subject], client: Client):
        super().__init__(client, "what-if", "what-if-compiled")
        self._subject = subject
        self._view: dict[str, Any] = {"state": "empty", "message": "", "problem": None}
        self._settings: tuple[int, list[dict[str, Any]]] | None = None
        self._what_if: tuple[int, WhatIf] | None = None
        self._compiled: dict[Any, Change] = {}

    def view(self) -> dict[str, Any]:
        """Return the state of the answer, and the `settings` that can change; these are `None` until requested."""
        version, settings = self._settings or (0, None)
        return {**self._view, "settings": settings, "version": version}

    @command()
    def request_settings(self) -> None:
        """Find the settings that can change."""
        subject = self._subject()
        self._quick.submit(lambda _: self._find_settings(subject), "settings")

    @command('key="wider", changes=[["linear_0", "dimension", 512], ["", "batch", 64]]')
    def what_if(
        self,
        key: str,
        changes: Sequence[Sequence[Any]],
        figure: str = "flops",
        compile: bool = False,
        width: float = 720,
    ) -> None:
        """Send the costs with other settings."""
        check_choice("figure", figure, BLOCK_FIELDS)
        request = _Request(self._subject(), str(key), checked_changes(changes), figure, max(1, int(width)))
        if compile:
            self._slow.submit(lambda is_wanted: self._compile(request, is_wanted), "what if")
        else:
            self._quick.submit(lambda is_wanted: self._answer(request, is_wanted), "what if")

    def end(self) -> None:
        """Cancel all requests."""
        super().end()
        if self._what_if is not None:
            self._what_if[1].close()

    # In the threads

    def _what_if_of(self, subject: Subject) -> WhatIf | None:
        with self._lock:  # both threads use it, and creating it takes long
            version, what_if = self._what_if or (0, None)
            if version > subject.version:
                return None
            if what_if is None or version < subject.version:
                if what_if is not None:
                    what_if.close()
                    self._compiled.clear()
                with paused_collector():
                    what_if = subject.ask()
                self._what_if = subject.version, what_if
            return what_if

    def _change_of(self, request: _Request) -> Change | None:
        what_if = self._what_if_of(request.subject)
        return None if what_if is None else what_if(_named(request.changes))

    def _find_settings(self, subject: Subject) -> None:
        settings: list[dict[str, Any]] = []
        try:
            what_if = self._what_if_of(subject)
            if what_if is None:
                return
            settings = settings_of(subject, what_if)
            state, problem = "ready", None
        except MithrilError as error:  # the program cannot be traced, so no setting can change
            state, problem = "unavailable", problem_of(error).to_dict()
        self._settings = subject.version, settings
        if self._view["state"] == "loading":  # the other thread is busy, and sets the state when it is done
            self._client.changed()
        else:
            self._turn(state, problem=problem)

    def _turn(self, state: str, message: str = "", problem: dict[str, object] | None = None) -> None:
        self._view = {"state": state, "message": message, "problem": problem}
        self._client.changed()

    def _answer(self, request: _Request, is_wanted: Callable[[], bool]) -> None:
        def send(change: Change, start: float) -> None:
            took_s = time.perf_counter() - start
            self._show(request, is_wanted, change, took_s, (_COMPUTING, _COMPUTING))
            if rests(is_wanted, _REST_S):  # skip this while a slider moves
                self._show_with_memory(request, is_wanted, change, took_s)
            exact = change.exact.result() if is_wanted() else change
            if exact is not change:
                self._show_with_memory(request, is_wanted, exact, time.perf_counter() - start)

        self._work("Computing", request, is_wanted, send)

    def _compile(self, request: _Request, is_wanted: Callable[[], bool]) -> None:
        def send(change: Change, start: float) -> None:
            took_s = time.perf_counter() - start
            self._compiled[_key(request)] = change.compiled.result()
            self._show(request, is_wanted, change, took_s, change.peaks)

        self._work("Compiling both", request, is_wanted, send)

    def _work(
        self, message: str, request: _Request, is_wanted: Callable[[], bool], send: Callable[[Change, float], None]
    ) -> None:
        self._turn("loading", message)
        try:
            start = time.perf_counter()
            change = self._change_of(request)
            if change is not None:
                send(change, start)
        except Exception as error:  # the front end shows it instead of the answer
            self._report(request, is_wanted, error)
        finally:
            self._turn("ready")

    def _show_with_memory(
        self, request: _Request, is_wanted: Callable[[], bool], change: Change, took_s: float
    ) -> None:
        memory = change.memory.start()
        while is_wanted() and not memory.is_done:
            time.sleep(_STEP_S)
        if is_wanted():
            self._show(request, is_wanted, change, took_s, memory.result())

    def _show(
        self, request: _Request, is_wanted: Callable[[], bool], change: Change, took_s: float, peaks: tuple[Peak, Peak]
    ) -> None:
        if not is_wanted():
            return
        compiled = self._compiled.get(_key(request))  # `None` until requested
        method = f"Analytic, {_WAYS.get(change.way, change.way)}, in {1000 * took_s:.0f} ms."
        look = Look(request.figure, request.width, request.subject.hues)
        drawing = draw_beside(change.before, change.after, look, ("now", "then"))
        data: dict[str, Any] = {
            "changes": [list(setting) for setting in request.changes],
            "how": " ".join([method, *_MEMORY.get(peaks[1].source, ()), *change.notes]),
            "rows": _compared(change, peaks),
            "compiled": None if compiled is None else _compared(compiled, compiled.peaks),
            "problem": None,
            "picture": picture_data(drawing),
        }
        self._client.send("what_if", Reply({"key": request.key}, data))

    def _report(self, request: _Request, is_wanted: Callable[[], bool], error: Exception) -> None:
        data = {
            "changes": [list(setting) for setting in request.changes], "how": "", "rows": [], "compiled": None,
            "problem": self._problem_of(error).to_dict(), "picture": picture_data(),
        }  # fmt: skip
        if is_wanted():
            self._client.send("what_if", Reply({"key": request.key}, data))


def checked_changes(changes: Sequence[Sequence[Any]]) -> tuple[tuple[str, str, Any], ...]:
    """Return the changes of settings that a front end has sent, after checking their form."""
    if not all(
        isinstance(change, list | tuple)
        and len(change) == 3
        and isinstance(change[0], str)
        and isinstance(change[1], str)
        for change in changes
    ):
        raise UnknownOptionError(
            f"{short_repr(changes)} is not a list of changes.",
            (("needs", "lists of block path, name and value"),),
            'changes=[["linear_0", "dimension", 512], ["", "batch", 64]]',
        )
    return tuple((path, name, value) for path, name, value in changes)


def _named(changes: Changes) -> dict[str, Any]:
    return {f"{path}.{name}" if path else name: value for path, name, value in changes}


def _key(request: _Request) -> str:
    return repr((request.subject.version, request.changes))


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
