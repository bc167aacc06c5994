"""What a program costs at any settings: told from what is known of it where that is exact, else traced anew."""

from __future__ import annotations

from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from typing import Any

import jax

from mithril_nb.cost import Cost
from mithril_nb.stages import Inspection
from mithril_nb.stages.jax_jit import context_now
from mithril_nb.whatif.behind import Behind, Turns
from mithril_nb.whatif.dtypes import in_other_dtype
from mithril_nb.whatif.inferred import agree
from mithril_nb.whatif.learning import Learned, first_line, learn, where_wrong
from mithril_nb.whatif.settings import Key, Settings, is_size, key_of, told
from mithril_nb.whatif.subjects import Subject

FORMULA, LEARNED, TRACED, ESTIMATE = "formula", "learned and verified", "traced", "estimate"
"""How costs came about: by formulas in the settings, by polynomials in one, by tracing, or nearly."""
MOST_KEPT = 16
"""Traced programs that are kept: one of thousands of equations takes megabytes."""
WORTH_LEARNING_S = 0.1
"""What is traced as quickly as this is simply traced; more takes a thread that prepares."""


@dataclass(frozen=True)
class Answer:
    """What a program costs at some settings.

    Attributes:
        cost: The analytic cost.
        way: `FORMULA`, `LEARNED`, `TRACED` or `ESTIMATE`.
    """

    cost: Cost
    way: str
    notes: tuple[str, ...] = ()

    @property
    def is_exact(self) -> bool:
        """Whether tracing gives the same."""
        return self.way != ESTIMATE


class Answers:
    """The costs of a program by its settings.

    Args:
        subject: The program.
        behind: What prepares.
        learns: Whether to prepare at all; by default if the program takes long to trace.

    Attributes:
        subject: The program.
        ways: How each setting is answered, as far as it is known: `FORMULA`, `LEARNED`, or why it is traced.
    """

    def __init__(self, subject: Subject, behind: Behind, learns: bool | None = None):
        self.subject = subject
        self.ways: dict[str, str] = {}
        self._behind, self._turns = behind, Turns()
        self._context = context_now()
        self._traced: dict[Key, tuple[Inspection, Cost]] = {}
        self._failed: dict[Key, Exception] = {}
        self._formula: tuple[tuple[str, ...], Cost] | None = None
        self._learned: Learned | None = None
        self._base: Cost | None = None
        self._start = key_of(subject.base)
        self._asked: set[str] = set()
        self._learns = learns

    def start(self) -> None:
        """Trace the program at its base, and begin to prepare if that took long.

        Raises:
            Exception: As `traced`.
        """
        inspection, self._base = self.traced(self.subject.base)
        if self._learns is None:
            self._learns = sum(inspection.elapsed.values()) > WORTH_LEARNING_S
        self.prepare(*self.subject.base)

    def context(self) -> AbstractContextManager[None]:
        """JAX as it was when the program was first looked at, in whatever thread."""
        return self._context()

    # By tracing

    def traced(self, settings: Settings, behind: bool = False) -> tuple[Inspection, Cost]:
        """Return the program at some settings and its cost, traced once.

        Args:
            settings: Values of all settings.
            behind: Whether nobody waits for it.

        Raises:
            Exception: What the function that makes the program raised.
            StageUnavailableError: The program cannot be traced.
        """
        key = key_of(settings)
        with self._turns.taken(behind):
            if key not in self._traced:
                if key in self._failed:
                    raise self._failed[key].with_traceback(None)
                try:
                    with self.context():
                        inspection = self.subject.inspection(settings)
                        self._traced[key] = inspection, inspection.cost("analytic")
                        if len(self._traced) > MOST_KEPT:
                            del self._traced[next(one for one in self._traced if one != self._start)]
                except Exception as error:
                    self._failed[key] = error
                    raise
            return self._traced[key]

    # What is known already

    def at(self, settings: Settings) -> Answer:
        """Return the cost at some settings, in the quickest way that is exact.

        Raises:
            Exception: As `traced`.
        """
        found = self._known(settings)
        if found is None:
            found = self._estimated(settings) or Answer(self.traced(settings)[1], TRACED)
            self.prepare(*self._different(settings))
        return found

    def _known(self, settings: Settings) -> Answer | None:
        key = key_of(settings)
        if key in self._failed:
            raise self._failed[key].with_traceback(None)
        if key in self._traced:
            return Answer(self._traced[key][1], TRACED)
        found, way = self._by_formula(settings), FORMULA
        if found is None and self._learned is not None:
            found, way = self._learned.at(settings), LEARNED
        return Answer(found, way) if found is not None and self._is_there(settings, way) else None

    def _is_there(self, settings: Settings, way: str) -> bool:
        """Whether the program exists at some settings, as far as can be told untraced: its arguments are as told."""
        with self._turns.taken(), self.context():
            inspection = self.subject.inspection(settings)
        known = self._learned.input_shapes(settings) if way == LEARNED and self._learned is not None else None
        shapes = [tuple(leaf.shape) for leaf in jax.tree.leaves(inspection.arguments) if hasattr(leaf, "shape")]
        return known is None or known == shapes

    def _different(self, settings: Settings) -> list[str]:
        base = self.subject.base
        return [
            name
            for name, value in settings.items()
            if name not in base or key_of({name: value}) != key_of({name: base[name]})
        ]

    def _estimated(self, settings: Settings) -> Answer | None:
        """The cost in another dtype by the equations of this one, if it takes long to trace it."""
        before = self.subject.base.get("dtype")
        after = self._dtype(settings.get("dtype"))
        if not self._learns or before is None or not after or told(before) == after:
            return None
        known = self._known({**settings, "dtype": before})
        program = known.cost.symbolic if known is not None else None
        if program is None or not self._is_there(settings, ESTIMATE):
            return None
        cost = in_other_dtype(program, told(before), after)
        note = f"bytes as if every {told(before)} were {after}; what is converted is in change.exact"
        return Answer(cost, ESTIMATE, (note,))

    def _dtype(self, given: Any) -> str:
        """Return the dtype that JAX takes in the place of one; `""` if it is none."""
        with self.context(), suppress(TypeError):
            return "" if given is None else jax.dtypes.canonicalize_dtype(given).name
        return ""

    # Behind

    def prepare(self, *names: str) -> None:
        """Have everything that there is to know of some settings found out behind, if that is worth it."""
        base = self.subject.base
        new = [name for name in names if name in base and name not in self._asked]
        if not self._learns or not new or self._base is None or self._behind.is_closed:
            return
        self._asked.update(new)
        asked, cost = tuple(name for name in base if name in self._asked), self._base
        self._behind.submit(lambda: self._prepare(asked, cost))

    def known_ways(self) -> dict[str, str]:
        """Return how each setting is answered."""
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
        except _GivenUp:
            return
        except Exception as error:  # then all of them are traced, which is always right
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
            found = costs[key]
            if isinstance(found, Exception):
                raise found
            return found

        learned = learn(trace, base, sizes)
        self.ways.update({name: f"{TRACED}: {reason}" for name, reason in learned.reasons.items()})
        self.ways.update({name: LEARNED for name in learned.names})
        self.ways.update({name: FORMULA for name in self._symbols})
        self._learned = learned

    def _trace_ahead(self, settings: Settings) -> None:
        if self._behind.is_closed:
            raise _GivenUp
        with suppress(Exception):  # kept, for whoever asks
            self.traced(settings, behind=True)

    def _costed(self, settings: Settings) -> Cost:
        if self._behind.is_closed:
            raise _GivenUp
        with self._turns.taken(behind=True), self.context():
            return self.subject.inspection(settings).cost("analytic")

    def _by_formula(self, settings: Settings) -> Cost | None:
        """The cost by formulas. JAX treats dims of size 1 otherwise than others, and formulas are for others."""
        formula = self._formula
        if formula is None or not set(self._different(settings)) <= set(formula[0]):
            return None
        values = {name: settings[name] for name in formula[0]}
        return _with_numbers(formula[1], values) if all(is_size(one) and one > 1 for one in values.values()) else None

    @property
    def _symbols(self) -> tuple[str, ...]:
        return self._formula[0] if self._formula is not None else ()

    def _try_symbol(self, name: str, cost: Cost) -> None:
        """Find out whether a setting may be a symbol, together with those that may already."""
        symbols = (*self._symbols, name)
        base = dict(self.subject.base)
        try:
            dims = jax.export.symbolic_shape(", ".join(symbols))
            formula = _renumbered(self._costed({**base, **dict(zip(symbols, dims, strict=True))}), cost)
            found = _with_numbers(formula, {one: base[one] for one in symbols})
        except Exception as error:
            self.ways[name] = f"{TRACED}: no symbol can take its place: {first_line(error)}"
            return
        if not agree(found, cost):
            self.ways[name] = f"{TRACED}: with a symbol in its place it has other equations"
            return

        def told(settings: Settings) -> Cost:
            return _with_numbers(formula, {one: settings[one] for one in symbols})

        # A symbol equals no number: an `if` on a remainder goes one way with it, whatever the number would be.
        where = where_wrong(told, self._costed, base, name)
        if where is None:
            self._formula, self.ways[name] = (symbols, formula), FORMULA
        else:
            self.ways[name] = f"{TRACED}: at {where} it has other equations than with a symbol in its place"


class _GivenUp(BaseException):
    """Nobody waits any more; no program is told to be missing because of it."""


def _usual(name: str, value: Any) -> tuple[Any, ...]:
    """Values that a setting which is no size is likely to be asked for: there are no others, or the usual dtype."""
    if isinstance(value, bool):
        return (not value,)
    return ("bfloat16",) if name == "dtype" and value is not None and told(value) == "float32" else ()


def _with_numbers(formula: Cost, values: Settings) -> Cost:
    return formula.at(**{name: int(value) for name, value in values.items() if name in formula.symbols})


def _renumbered(formula: Cost, like: Cost) -> Cost:
    """Return a formula whose rows have the ids of a program without symbols: with them it has equations besides."""
    program, other = formula.symbolic, like.symbolic
    if program is None or other is None or len(program.kinds.members) != len(other.kinds.members):
        return formula
    pairs = zip(program.kinds.members, other.kinds.members, strict=True)
    members = tuple([(replace(one, id=same.id), place) for (one, place), (same, _) in pairs])
    kinds = replace(program.kinds, members=members, conditions=other.kinds.conditions)
    return replace(formula, symbolic=replace(program, known_kinds=kinds))
