"""The cost of a program at any settings: predicted, estimated for another dtype, or traced again."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import jax

from mithril_nb.analysis.whatif.learning import Learned, first_line, learn
from mithril_nb.analysis.whatif.subjects import Key, Settings, VariableProgram, format_value, is_size, key_of
from mithril_nb.cost import Cost
from mithril_nb.cost.costs import of_equations
from mithril_nb.cost.equations import SymbolicProgram
from mithril_nb.graph.spec import TensorSpec
from mithril_nb.inspection import Inspection
from mithril_nb.jobs import JobQueue
from mithril_nb.stages.jax_jit import context_now

LEARNED, TRACED, ESTIMATE = "learned and verified", "traced", "estimate"
"""Values of `Answer.way`, which `WhatIf.ways` and `Change.way` describe."""
MOST_KEPT = 16
"""Most traced programs that are cached; a program with thousands of equations takes megabytes."""
WORTH_LEARNING_S = 0.1
"""Programs that trace faster than this are always traced; for slower ones, answers are prepared in the background."""


@dataclass(frozen=True)
class Answer:
    """The cost of a program at some settings."""

    cost: Cost
    way: str
    notes: tuple[str, ...] = ()


# Tracing is Python and holds the GIL: a trace in the background would double the time of an answer.
class PriorityLock:
    """A lock with two priorities: foreground work goes before background work."""

    def __init__(self) -> None:
        self._wake = threading.Condition()
        self._busy = False
        self._waiting = 0

    @contextmanager
    def held(self, background: bool = False) -> Iterator[None]:
        """Hold the lock."""
        with self._wake:
            self._waiting += not background
            try:
                self._wake.wait_for(lambda: not self._busy and not (background and self._waiting))
                self._busy = True
            finally:
                self._waiting -= not background
        try:
            yield
        finally:
            with self._wake:
                self._busy = False
                self._wake.notify_all()


class CostOracle:
    """Computes or predicts the costs of a program for different settings, such as its batch size or dtype.

    Args:
        subject: The program.
        queue: Queue that runs jobs in a background thread.
        learns: True to learn rules for the costs in the background, as `WhatIf.ways` describes. By default, this is
            done if the program takes long to trace.

    Attributes:
        subject: The program.
        context: A function that returns a context manager. It restores, in any thread, the JAX context in which this
            oracle was created.
        ways: How costs for other values of a setting are found, by name of the setting: `LEARNED`, or `TRACED` with the
            reason. Settings without an entry are traced.
    """

    def __init__(self, subject: VariableProgram, queue: JobQueue, learns: bool | None = None):
        self.subject = subject
        self.ways: dict[str, str] = {}
        self._queue, self._lock = queue, PriorityLock()
        self.context = context_now()
        self._traced: dict[Key, tuple[Inspection, Cost]] = {}
        self._failed: dict[Key, Exception] = {}
        self._learned: Learned | None = None
        self._base: Cost | None = None
        self._start = key_of(subject.base)
        self._prepared: set[str] = set()
        self._learns = learns

    def start(self) -> None:
        """Trace the program at its base settings. If that takes long, start to learn rules in the background."""
        inspection, self._base = self.traced(self.subject.base)
        if self._learns is None:
            self._learns = sum(inspection.elapsed.values()) > WORTH_LEARNING_S
        self.prepare(*self.subject.base)

    def traced(self, settings: Settings, background: bool = False) -> tuple[Inspection, Cost]:
        """Return the program at some settings, and its analytic cost; the last traces are cached.

        If `background` is true, waiting calls without `background` run first.
        """
        key = key_of(settings)
        with self._lock.held(background):
            if key not in self._traced:
                self._raise_again(key)
                try:
                    with self.context():
                        inspection = self.subject.inspection(settings)
                        if self.subject.device is not None:
                            inspection = inspection.on(self.subject.device)
                        self._traced[key] = inspection, inspection.cost("analytic")
                        if len(self._traced) > MOST_KEPT:
                            # The base stays, because each change is compared with it.
                            del self._traced[next(key for key in self._traced if key != self._start)]
                except Exception as error:
                    self._failed[key] = error
                    raise
            return self._traced[key]

    def _raise_again(self, key: Key) -> None:
        if key in self._failed:
            # Each raise would add its frames to the traceback, and keep their arrays alive.
            raise self._failed[key].with_traceback(None)

    def at(self, settings: Settings) -> Answer:
        """Return the cost at some settings: a cached or predicted cost, else an estimate, else the cost of a trace."""
        answer = self._known(settings)
        if answer is None:
            answer = self._estimated(settings) or Answer(self.traced(settings)[1], TRACED)
            base = self.subject.base
            self.prepare(*[name for name in base if key_of({name: settings.get(name)}) != key_of({name: base[name]})])
        return answer

    def _known(self, settings: Settings) -> Answer | None:
        key = key_of(settings)
        self._raise_again(key)
        if key in self._traced:
            return Answer(self._traced[key][1], TRACED)
        learned = self._learned
        cost = None if learned is None else learned.at(settings)
        if learned is None or cost is None:
            return None
        # A rule may fit by chance where the user's function rounds or caps a size, so the shapes are compared.
        shapes = [tuple(leaf.shape) for leaf in jax.tree.leaves(self._arguments(settings)) if hasattr(leaf, "shape")]
        return Answer(cost, LEARNED) if learned.input_shapes(settings) in (None, shapes) else None

    def _arguments(self, settings: Settings) -> Any:
        # Makes the program without a trace, so that errors of the user's function are raised.
        with self._lock.held(), self.context():
            return self.subject.inspection(settings).arguments

    def _estimated(self, settings: Settings) -> Answer | None:
        before, after = self.subject.base.get("dtype"), self._dtype(settings.get("dtype"))
        # A quick program is traced instead, which is exact.
        if not self._learns or before is None or not after or format_value(before) == after:
            return None
        answer = self._known({**settings, "dtype": before})
        program = answer.cost.symbolic if answer is not None else None
        if program is None:
            return None
        self._arguments(settings)
        cost = in_other_dtype(program, format_value(before), after)
        note = f"bytes estimated: every {format_value(before)} array counted as {after}; change.exact adds conversions"
        return Answer(cost, ESTIMATE, (note,))

    def _dtype(self, value: Any) -> str:
        with self.context(), suppress(TypeError):
            return "" if value is None else jax.dtypes.canonicalize_dtype(value).name
        return ""

    def prepare(self, *names: str) -> None:
        """Learn the effect of some settings in the background, if this oracle learns."""
        base = self.subject.base
        new = [name for name in names if name in base and name not in self._prepared]
        if not self._learns or not new or self._base is None or self._queue.is_ended:
            return
        self._prepared.update(new)
        # All settings so far again: rules of products need changes of several settings.
        prepared, cost = tuple(name for name in base if name in self._prepared), self._base
        self._queue.submit(lambda _: self._prepare(prepared, cost), prepared)

    def _prepare(self, names: tuple[str, ...], cost: Cost) -> None:
        base = dict(self.subject.base)
        sizes = [name for name in names if is_size(base[name]) and base[name] > 1]
        try:
            # Rules first: a trace for a truth value or a dtype helps with one answer only.
            if sizes:
                self._learn(base, sizes, cost)
            for name in names:
                # What the user may try next.
                is_wide = name == "dtype" and base[name] is not None and format_value(base[name]) == "float32"
                values = (not base[name],) if isinstance(base[name], bool) else ("bfloat16",) if is_wide else ()
                for value in values:
                    self._raise_if_ended()
                    with suppress(Exception):  # cached, and raised again on request
                        self.traced({**base, name: value}, background=True)
        except _Cancelled:
            return
        except Exception as error:  # then all settings are traced
            self.ways.update({name: f"{TRACED}: {first_line(error)}" for name in sizes})

    def _learn(self, base: Settings, sizes: list[str], cost: Cost) -> None:
        costs: dict[Key, Cost | Exception] = {key_of(base): cost}

        def trace(settings: Settings) -> Cost:
            key = key_of(settings)
            if key not in costs:
                try:
                    self._raise_if_ended()
                    with self._lock.held(background=True), self.context():
                        costs[key] = self.subject.inspection(settings).cost("analytic")
                # Errors are kept, because several settings try the same points.
                except Exception as error:
                    costs[key] = error
            result = costs[key]
            if isinstance(result, Exception):
                raise result
            return result

        learned = learn(trace, base, sizes)
        self.ways.update({name: f"{TRACED}: {reason}" for name, reason in learned.reasons.items()})
        self.ways.update({name: LEARNED for name in learned.names})
        self._learned = learned

    def _raise_if_ended(self) -> None:
        if self._queue.is_ended:
            raise _Cancelled


class _Cancelled(BaseException):
    # Not an `Exception`, so it is not cached as a program's error.
    pass


def in_other_dtype(program: SymbolicProgram, before: str, after: str) -> Cost:
    """Return the costs of the same equations with arrays of another dtype.

    The result is an estimate: JAX inserts conversions where dtypes differ, and libraries compute some operations in
    float32 for any input dtype. Only a trace with the dtype is exact.
    """

    def other(specs: tuple[TensorSpec, ...]) -> tuple[TensorSpec, ...]:
        return tuple(replace(spec, dtype=after) if spec.dtype == before else spec for spec in specs)

    # Equations of a kind change in the same way, so only the examples are replaced.
    kinds = program.kinds
    examples = tuple(
        (replace(equation, inputs=other(equation.inputs), outputs=other(equation.outputs)), times, devices)
        for equation, times, devices in kinds.examples
    )
    changed = replace(program, known_kinds=replace(kinds, examples=examples))
    return of_equations(changed.costs(), changed)
