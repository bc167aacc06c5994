"""The cost of a program at any settings: predicted, estimated for another dtype, or traced again."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import jax

from mithril_nb.analysis.whatif.inferred import agree
from mithril_nb.analysis.whatif.learning import Learned, first_line, first_mismatch, learn
from mithril_nb.analysis.whatif.settings import Key, Settings, format_value, is_size, key_of
from mithril_nb.analysis.whatif.subjects import Subject
from mithril_nb.cost import Cost
from mithril_nb.cost.costs import of_equations
from mithril_nb.cost.symbolic import SymbolicProgram
from mithril_nb.graph.spec import TensorSpec
from mithril_nb.inspection import Inspection
from mithril_nb.jobs import JobQueue
from mithril_nb.stages.jax_jit import context_now

FORMULA, LEARNED, TRACED, ESTIMATE = "formula", "learned and verified", "traced", "estimate"
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

    @property
    def is_exact(self) -> bool:
        """True unless the cost is an estimate."""
        return self.way != ESTIMATE


class PriorityLock:
    """A lock with two priorities: foreground work goes before background work."""

    def __init__(self) -> None:
        self._wake = threading.Condition()
        self._busy = False
        self._waiting = 0

    @contextmanager
    def held(self, background: bool = False) -> Iterator[None]:
        """Hold the lock.

        Args:
            background: True to wait until no foreground work waits for the lock.
        """
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
        learns: True to find formulas and rules for the costs in the background, as `WhatIf.ways` describes. By default,
            this is done if the program takes long to trace.

    Attributes:
        subject: The program.
        ways: How costs for other values of a setting are found, by name of the setting: `FORMULA`, `LEARNED`, or
            `TRACED` with the reason. Settings without an entry are traced.
    """

    def __init__(self, subject: Subject, queue: JobQueue, learns: bool | None = None):
        self.subject = subject
        self.ways: dict[str, str] = {}
        self._queue, self._lock = queue, PriorityLock()
        self._context = context_now()
        self._traced: dict[Key, tuple[Inspection, Cost]] = {}
        self._failed: dict[Key, Exception] = {}
        self._formula: tuple[tuple[str, ...], Cost] | None = None
        self._learned: Learned | None = None
        self._base: Cost | None = None
        self._start = key_of(subject.base)
        self._prepared: set[str] = set()
        self._learns = learns

    def start(self) -> None:
        """Trace the program at its base settings. If that takes long, start to find formulas in the background.

        Raises:
            Exception: As in `traced`.
        """
        inspection, self._base = self.traced(self.subject.base)
        if self._learns is None:
            self._learns = sum(inspection.elapsed.values()) > WORTH_LEARNING_S
        self.prepare(*self.subject.base)

    def context(self) -> AbstractContextManager[None]:
        """Return a context manager that restores, in any thread, the JAX context in which this oracle was created."""
        return self._context()

    # Tracing

    def traced(self, settings: Settings, background: bool = False) -> tuple[Inspection, Cost]:
        """Return the program at some settings, and its analytic cost; the last traces are cached.

        If `background` is true, waiting calls without `background` run first.

        Raises:
            Exception: The error that the function that makes the program raised.
            StageUnavailableError: The program cannot be traced.
        """
        key = key_of(settings)
        with self._lock.held(background):
            if key not in self._traced:
                if key in self._failed:
                    raise self._failed[key].with_traceback(None)
                try:
                    with self.context():
                        inspection = self.subject.inspection(settings)
                        self._traced[key] = inspection, inspection.cost("analytic")
                        if len(self._traced) > MOST_KEPT:
                            del self._traced[next(key for key in self._traced if key != self._start)]
                except Exception as error:
                    self._failed[key] = error
                    raise
            return self._traced[key]

    # Cached and predicted costs

    def at(self, settings: Settings) -> Answer:
        """Return the cost at some settings: a cached or predicted cost, else an estimate, else the cost of a new trace.

        Raises:
            Exception: As in `traced`.
        """
        answer = self._known(settings)
        if answer is None:
            answer = self._estimated(settings) or Answer(self.traced(settings)[1], TRACED)
            self.prepare(*self._different(settings))
        return answer

    def _known(self, settings: Settings) -> Answer | None:
        key = key_of(settings)
        if key in self._failed:
            raise self._failed[key].with_traceback(None)
        if key in self._traced:
            return Answer(self._traced[key][1], TRACED)
        cost, origin = self._by_formula(settings), FORMULA
        if cost is None and self._learned is not None:
            cost, origin = self._learned.at(settings), LEARNED
        return Answer(cost, origin) if cost is not None and self._exists(settings, origin) else None

    def _exists(self, settings: Settings, origin: str) -> bool:
        """Return whether the arguments of the program have the predicted shapes at some settings; trace nothing.

        Args:
            settings: The settings.
            origin: How the cost was predicted. Only for `LEARNED`, shapes are predicted too.

        Raises:
            Exception: The error that the function that makes the program raised.
        """
        with self._lock.held(), self.context():
            inspection = self.subject.inspection(settings)
        predicted = self._learned.input_shapes(settings) if origin == LEARNED and self._learned is not None else None
        shapes = [tuple(leaf.shape) for leaf in jax.tree.leaves(inspection.arguments) if hasattr(leaf, "shape")]
        return predicted is None or predicted == shapes

    def _different(self, settings: Settings) -> list[str]:
        base = self.subject.base
        return [
            name
            for name, value in settings.items()
            if name not in base or key_of({name: value}) != key_of({name: base[name]})
        ]

    def _estimated(self, settings: Settings) -> Answer | None:
        """Return an estimate for another dtype, computed from the equations of the base dtype.

        The result is `None` if tracing is fast, if the dtype stays the same, or if the cost in the base dtype is
        neither traced nor predicted.
        """
        before = self.subject.base.get("dtype")
        after = self._dtype(settings.get("dtype"))
        if not self._learns or before is None or not after or format_value(before) == after:
            return None
        answer = self._known({**settings, "dtype": before})
        program = answer.cost.symbolic if answer is not None else None
        if program is None or not self._exists(settings, ESTIMATE):
            return None
        cost = in_other_dtype(program, format_value(before), after)
        note = f"bytes estimated: every {format_value(before)} array counted as {after}; change.exact adds conversions"
        return Answer(cost, ESTIMATE, (note,))

    def _dtype(self, value: Any) -> str:
        """Return the name of the dtype that JAX uses for a value of the setting; `""` if the value is not a dtype."""
        with self.context(), suppress(TypeError):
            return "" if value is None else jax.dtypes.canonicalize_dtype(value).name
        return ""

    # Preparing in the background

    def prepare(self, *names: str) -> None:
        """Find formulas or rules for the effect of some settings in the background, if this oracle learns."""
        base = self.subject.base
        new = [name for name in names if name in base and name not in self._prepared]
        if not self._learns or not new or self._base is None or self._queue.is_ended:
            return
        self._prepared.update(new)
        prepared, cost = tuple(name for name in base if name in self._prepared), self._base
        self._queue.submit(lambda _: self._prepare(prepared, cost), prepared)

    def known_ways(self) -> dict[str, str]:
        """Return the origin of the costs for each setting, as `WhatIf.ways` describes."""
        return {name: self.ways.get(name, TRACED) for name in self.subject.base}

    def _prepare(self, names: tuple[str, ...], cost: Cost) -> None:
        base = dict(self.subject.base)
        sizes = [name for name in names if is_size(base[name]) and base[name] > 1]
        try:
            for name in sizes:
                self._try_symbol(name, cost)
            if any(name not in self._symbols for name in sizes):
                self._learn(base, sizes, cost)
            for name in names:
                for value in _usual(name, base[name]):
                    self._trace_ahead({**base, name: value})
        except _Cancelled:
            return
        except Exception as error:  # then all settings are traced
            self.ways.update({name: f"{TRACED}: {first_line(error)}" for name in sizes})

    def _learn(self, base: Settings, sizes: list[str], cost: Cost) -> None:
        costs: dict[Key, Cost | Exception] = {}

        def trace(settings: Settings) -> Cost:
            key = key_of(settings)
            if key not in costs:
                try:
                    costs[key] = cost if key == key_of(base) else self._costed(settings)
                except Exception as error:
                    costs[key] = error
            result = costs[key]
            if isinstance(result, Exception):
                raise result
            return result

        learned = learn(trace, base, sizes)
        self.ways.update({name: f"{TRACED}: {reason}" for name, reason in learned.reasons.items()})
        self.ways.update({name: LEARNED for name in learned.names})
        self.ways.update({name: FORMULA for name in self._symbols})
        self._learned = learned

    def _trace_ahead(self, settings: Settings) -> None:
        if self._queue.is_ended:
            raise _Cancelled
        with suppress(Exception):  # cached, and raised again on request
            self.traced(settings, background=True)

    def _costed(self, settings: Settings) -> Cost:
        if self._queue.is_ended:
            raise _Cancelled
        with self._lock.held(background=True), self.context():
            return self.subject.inspection(settings).cost("analytic")

    def _by_formula(self, settings: Settings) -> Cost | None:
        """Return the cost by formulas; `None` if they do not cover the settings.

        JAX treats axes of size 1 specially, so formulas cover only larger sizes.
        """
        formula = self._formula
        if formula is None or not set(self._different(settings)) <= set(formula[0]):
            return None
        values = {name: settings[name] for name in formula[0]}
        return (
            _with_numbers(formula[1], values)
            if all(is_size(value) and value > 1 for value in values.values())
            else None
        )

    @property
    def _symbols(self) -> tuple[str, ...]:
        return self._formula[0] if self._formula is not None else ()

    def _try_symbol(self, name: str, cost: Cost) -> None:
        """Find the cost as a formula of a setting, by a trace with a symbolic size for it.

        The formula also contains the settings for which this succeeded before. If the formula agrees with traces, it is
        stored; else the reason is stored in `ways`.

        Args:
            name: Name of the setting.
            cost: The cost at the base settings.
        """
        symbols = (*self._symbols, name)
        base = dict(self.subject.base)
        try:
            dims = jax.export.symbolic_shape(", ".join(symbols))
            formula = _renumbered(self._costed({**base, **dict(zip(symbols, dims, strict=True))}), cost)
            predicted = _with_numbers(formula, {symbol: base[symbol] for symbol in symbols})
        except Exception as error:
            self.ways[name] = f"{TRACED}: tracing with a symbolic size fails: {first_line(error)}"
            return
        if not agree(predicted, cost):
            self.ways[name] = f"{TRACED}: the equations with a symbolic size differ"
            return

        def predict(settings: Settings) -> Cost:
            return _with_numbers(formula, {symbol: settings[symbol] for symbol in symbols})

        # With a symbol, an `if` such as `size % 8 == 0` always takes the same branch, so numbers must be tried too.
        where = first_mismatch(predict, self._costed, base, name)
        if where is None:
            self._formula, self.ways[name] = (symbols, formula), FORMULA
        else:
            self.ways[name] = f"{TRACED}: the equations at {where} differ from those with a symbolic size"


class _Cancelled(BaseException):
    """Raised when the preparation is cancelled. It is not an `Exception`, so it is not cached as a program's error."""


def _usual(name: str, value: Any) -> tuple[Any, ...]:
    """Return values that the user may try next: the other one of `True` and `False`, or bfloat16 instead of float32."""
    if isinstance(value, bool):
        return (not value,)
    return ("bfloat16",) if name == "dtype" and value is not None and format_value(value) == "float32" else ()


def _with_numbers(formula: Cost, values: Settings) -> Cost:
    return formula.at(**{name: int(value) for name, value in values.items() if name in formula.symbols})


def _renumbered(formula: Cost, like: Cost) -> Cost:
    """Return a formula with the row ids of `like`. The ids differ, because symbolic sizes add equations."""
    program, other = formula.symbolic, like.symbolic
    if program is None or other is None or len(program.kinds.members) != len(other.kinds.members):
        return formula
    pairs = zip(program.kinds.members, other.kinds.members, strict=True)
    members = tuple([(replace(equation, id=same.id), index) for (equation, index), (same, _) in pairs])
    kinds = replace(program.kinds, members=members, conditions=other.kinds.conditions)
    return replace(formula, symbolic=replace(program, known_kinds=kinds))


def in_other_dtype(program: SymbolicProgram, before: str, after: str) -> Cost:
    """Return the costs of the same equations with arrays of another dtype.

    The result is an estimate: JAX inserts conversions where dtypes differ, and libraries compute some operations in
    float32 for any input dtype. Only a trace with the dtype is exact.
    """

    def other(specs: tuple[TensorSpec, ...]) -> tuple[TensorSpec, ...]:
        return tuple(replace(spec, dtype=after) if spec.dtype == before else spec for spec in specs)

    kinds = program.kinds
    examples = tuple(
        (replace(equation, inputs=other(equation.inputs), outputs=other(equation.outputs)), times)
        for equation, times in kinds.examples
    )
    changed = replace(program, known_kinds=replace(kinds, examples=examples))
    return of_equations(changed.costs(), changed)
