"""What-if questions: costs with other settings, from `ml.what_if`. The inspected program does not change."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import Any, NotRequired, TypedDict

from mithril_nb.analysis.whatif import Change, Peak, WhatIf
from mithril_nb.analysis.whatif.subjects import PRECISIONS, batch_of
from mithril_nb.errors import MithrilError, ShapeError, UnknownOptionError, short_repr
from mithril_nb.figures import MEASURED, OF_BLOCKS, OVERVIEW
from mithril_nb.jobs import rests
from mithril_nb.models.fields import Field
from mithril_nb.stages.once import paused_collector
from mithril_nb.ui.session.commands import (
    Client,
    ProblemData,
    ProgramView,
    Reply,
    RequestHandler,
    RequestState,
    State,
    check_choice,
    command,
    problem_data,
    problem_of,
)
from mithril_nb.ui.session.cost_requests import CostPicture, KeyHead, Look, draw_beside, picture_data
from mithril_nb.viz.costs.fields import BLOCK_FIELDS

FieldValue = int | float | str | bool | list[int] | None
# Path of a block, or `""` for the whole program; name of the setting; new value.
SettingChange = tuple[str, str, FieldValue]
Changes = Sequence[SettingChange]

# Floating-point dtypes available in every process. float64 needs JAX's x64 mode.
DTYPES = ("float32", "bfloat16", "float16")
_DOCS = {
    "batch": "Number of samples: the first dim of the program's inputs.",
    "dtype": "Dtype of all floating-point arrays.",
    "precision": "Precision of matrix products, as in jax.default_matmul_precision.",
    "remat": "Recompute values of the forward pass in the backward pass, to save memory: rematerialization, or remat.",
}
# Labels of settings whose names are not plain words.
_LABELS = {"remat": "recompute"}


class FormField(TypedDict):
    """A field of a form."""

    name: str
    type: str  # "int", "float", "bool", "choice", "ints" or "text"
    min: float | None
    max: float | None
    choices: list[str] | None
    doc: str
    optional: bool


class SettingField(FormField):
    """A setting with its current value."""

    label: NotRequired[str]  # if it differs from the name
    value: FieldValue
    unset: NotRequired[str]  # text for a choice without a value


def form_field(field: Field) -> FormField:
    """Return a field as data for a front end."""
    limits = field.range
    return {
        "name": field.name,
        "type": field.type,
        "min": limits.least if limits else None,
        "max": limits.most if limits and limits.most != inf else None,
        "choices": list(field.choices) or None,
        "doc": field.doc,
        "optional": field.is_optional,
    }


class ComparedFigure(TypedDict):
    """A figure before and after a change of settings."""

    figure: str  # a figure of costs, or "peak_bytes"
    before: float | None
    after: float | None
    reason: str  # why it is unknown


class WhatIfAnswer(TypedDict):
    """The costs with other settings."""

    changes: list[SettingChange]
    how: str  # how the costs were computed
    rows: list[ComparedFigure]
    compiled: list[ComparedFigure] | None  # the same figures from the compiler; null until requested
    problem: ProblemData | None
    picture: CostPicture


class WhatIfState(RequestState):
    """The state of the answer, and the settings of the whole program at a version."""

    problem: ProblemData | None
    settings: list[SettingField] | None  # null before the first request


def settings_of(program: ProgramView, what_if: WhatIf) -> list[SettingField]:
    """Return the settings of the whole program as fields of a form, with current values."""
    values = dict(what_if.settings)
    if program.model is None and "batch" not in values:
        with suppress(ShapeError):  # the batch dim cannot always be inferred
            values = {"batch": batch_of(program.inspection()).size, **values}
    values.setdefault("precision", "default")
    # Skip symbolic sizes: they have no current value to compare with.
    plain = {name: value for name, value in values.items() if isinstance(value, bool | int | str)}
    of_whole = (name for name in plain if name in _DOCS or name.rpartition(".")[2].isdigit())
    return [_field(name, plain[name]) for name in of_whole]


def _field(name: str, value: Any) -> SettingField:
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
        "choices": [str(choice) for choice in dict.fromkeys((value, *choices))] if choices else None,
        "doc": _DOCS.get(name) or f"Size of dim {axis} of the input {port}.",
        "optional": False,
    }


_REST_S = 0.2
_STEP_S = 0.02
_COMPARED = tuple(key for key in OVERVIEW if key in OF_BLOCKS and key not in MEASURED)
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
    program: ProgramView
    key: str
    changes: Changes
    figure: str
    width: int


class WhatIfRequests(RequestHandler):
    """Computes the costs of a program with other settings, such as another batch size."""

    def __init__(self, program: Callable[[], ProgramView], client: Client):
        super().__init__(client, "what-if", "what-if-compiled")
        self._program = program
        self._view: WhatIfState = WhatIfState(state="empty", message="", problem=None, settings=None, version=0)
        self._what_if: tuple[int, WhatIf] | None = None
        self._compiled: dict[Any, Change] = {}

    def view(self) -> WhatIfState:
        """Return the state of the answer, and the `settings` that can change; these are `None` until requested."""
        return self._view

    @command
    def request_settings(self) -> None:
        """Find the settings that can change."""
        program = self._program()
        self._quick.submit(lambda _: self._find_settings(program), "settings")

    @command
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
        request = _Request(self._program(), str(key), checked_changes(changes), figure, max(1, int(width)))
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

    def _what_if_of(self, program: ProgramView) -> WhatIf | None:
        with self._lock:  # both threads use it, and creating it takes long
            version, what_if = self._what_if or (0, None)
            if version > program.version:
                return None
            if what_if is None or version < program.version:
                if what_if is not None:
                    what_if.close()
                    self._compiled.clear()
                with paused_collector():
                    what_if = program.what_if()
                self._what_if = program.version, what_if
            return what_if

    def _find_settings(self, program: ProgramView) -> None:
        settings: list[SettingField] = []
        state: State = "ready"
        problem = None
        try:
            what_if = self._what_if_of(program)
            if what_if is None:
                return
            settings = settings_of(program, what_if)
        except MithrilError as error:  # the program cannot be traced, so no setting can change
            state, problem = "unavailable", problem_data(problem_of(error))
        self._view = {**self._view, "settings": settings, "version": program.version}
        if self._view["state"] == "loading":  # the other thread is busy, and sets the state when it is done
            self._client.changed()
        else:
            self._turn(state, problem=problem)

    def _turn(self, state: State, message: str = "", problem: ProblemData | None = None) -> None:
        self._view = {**self._view, "state": state, "message": message, "problem": problem}
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
            what_if = self._what_if_of(request.program)
            if what_if is not None:
                send(
                    what_if({f"{path}.{name}" if path else name: value for path, name, value in request.changes}), start
                )
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
        look = Look(request.figure, request.width, request.program.hues)
        drawing = draw_beside(change.before, change.after, look, ("now", "then"))
        answer: WhatIfAnswer = {
            "changes": list(request.changes),
            "how": " ".join([method, *_MEMORY.get(peaks[1].source, ()), *change.notes]),
            "rows": _compared(change, peaks),
            "compiled": None if compiled is None else _compared(compiled, compiled.peaks),
            "problem": None,
            "picture": picture_data(drawing),
        }
        self._client.send("what_if", Reply(KeyHead(key=request.key), answer))

    def _report(self, request: _Request, is_wanted: Callable[[], bool], error: Exception) -> None:
        problem = problem_data(self._problem_of(error))
        changes = list(request.changes)
        answer = WhatIfAnswer(changes=changes, how="", rows=[], compiled=None, problem=problem, picture=picture_data())
        if is_wanted():
            self._client.send("what_if", Reply(KeyHead(key=request.key), answer))


def checked_changes(changes: Sequence[Sequence[Any]]) -> Changes:
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


def _key(request: _Request) -> str:
    return repr((request.program.version, request.changes))


def _compared(change: Change, peaks: tuple[Peak, Peak]) -> list[ComparedFigure]:
    before, after = change.before.total, change.after.total
    now, then = peaks
    return [
        *(
            ComparedFigure(figure=name, before=getattr(before, name), after=getattr(after, name), reason=_UNKNOWN)
            for name in _COMPARED
        ),
        ComparedFigure(figure="peak_bytes", before=now.bytes, after=then.bytes, reason=now.reason or then.reason),
    ]
