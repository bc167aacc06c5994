"""Dataflow analysis of a jaxpr: marks are propagated forwards or backwards, also through nested jaxprs.

A mark is an integer whose bits are flags. Marks are combined with `|`. A loop is repeated until its marks do not
change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import Any

from mithril_nb.stages import jax_versions
from mithril_nb.stages.trace.equations import Site, wirings

Rule = Callable[[Site, int], int]
"""A function that takes an equation and the union of the marks that reach it, and returns the mark it passes on."""

Known = dict[int, dict[tuple[int, ...], list[int]]]
"""Cached results of loop bodies: `known[id(body)][incoming marks]` are the outgoing marks."""


def forwards(
    jaxpr: Any,
    body: list[Site],
    incoming: Sequence[int],
    rule: Rule,
    enter: Callable[[Site, int, list[int]], list[int]],
    cache: Known | None = None,
) -> list[int]:
    """Propagate marks, integers whose bits are flags, from the inputs of a jaxpr to its outputs.

    `incoming`: The mark of each input. `enter`: A function that may change the marks of the inputs of a nested jaxpr.
    `cache`: A cache of results for loop bodies; `None` for a new one.
    """
    # Return the marks of the outputs.
    cache = {} if cache is None else cache
    marks: dict[Any, int] = {var: mark for var, mark in zip(jaxpr.invars, incoming, strict=True) if mark}
    for site in body:
        equation = site.equation
        if not site.bodies:
            arriving = 0
            for var in site.variables:
                arriving |= marks.get(var, 0)
            result_mark = rule(site, arriving)
            if result_mark:
                marks.update(dict.fromkeys(equation.outvars, result_mark))
            continue
        operands = _of(marks, equation.invars)
        results = [0] * len(equation.outvars)
        for index, wiring in enumerate(wirings(site)):
            if wiring.operands is None:
                inputs = [_union(operands)] * len(wiring.jaxpr.invars)
            else:
                inputs = [operands[at] for at in wiring.operands]
            outputs = _fixed_point(
                enter(site, index, inputs),
                [(of, to) for to, of in wiring.carried],
                lambda incoming, wiring=wiring: forwards(wiring.jaxpr, wiring.sites, incoming, rule, enter, cache),
                cache.setdefault(id(wiring.sites), {}),
            )
            if wiring.results is not None:
                results = [result | output for result, output in zip(results, outputs, strict=True)]
            elif site.primitive != "while":  # the number of iterations is not part of its result
                results = [result | _union(outputs) | _union(operands) for result in results]
        marks.update({var: mark for var, mark in zip(equation.outvars, results, strict=True) if mark})
    return _of(marks, jaxpr.outvars)


def backwards(
    jaxpr: Any,
    body: list[Site],
    outgoing: Sequence[int],
    rule: Rule,
    alone: Set[str] = frozenset(),
    seen: dict[tuple[str, int], list[int]] | None = None,
    cache: Known | None = None,
) -> list[int]:
    """Propagate marks, integers whose bits are flags, from the outputs of a jaxpr to its inputs.

    `outgoing`: The mark of each output. `seen`: A dict to which the marks of the inputs of nested jaxprs are added.
    `cache`: A cache of results for loop bodies; `None` for a new one.
    """
    # Return the marks of the inputs.
    cache = {} if cache is None else cache
    marks: dict[Any, int] = {}

    def mark(atom: Any, value: int) -> None:
        if value and not jax_versions.is_literal(atom):
            marks[atom] = marks.get(atom, 0) | value

    for atom, value in zip(jaxpr.outvars, outgoing, strict=True):
        mark(atom, value)
    for site in reversed(body):
        equation = site.equation
        results = [marks.get(var, 0) for var in equation.outvars]
        union = _union(results)
        if not site.bodies:
            union = rule(site, union)
            if union:
                for var in site.variables:
                    marks[var] = marks.get(var, 0) | union
            continue
        operands: list[int | None] = [None] * len(equation.invars)
        for index, wiring in enumerate(wirings(site)):
            outputs = [union] * len(wiring.jaxpr.outvars) if wiring.results is None else list(results)
            if site.id in alone:
                outputs = [0] * len(outputs)
            inputs = _fixed_point(
                outputs,
                wiring.carried if site.id not in alone else (),
                lambda outgoing, wiring=wiring: backwards(
                    wiring.jaxpr, wiring.sites, outgoing, rule, alone, seen, cache
                ),
                cache.setdefault(id(wiring.sites), {}),
            )
            if seen is not None:
                seen[site.id, index] = inputs
            union |= _union(inputs)
            for at, value in zip(wiring.operands or (), inputs, strict=wiring.operands is not None):
                operands[at] = (operands[at] or 0) | value
        choice = rule(site, union) if None in operands else 0
        for atom, value in zip(equation.invars, operands, strict=True):
            mark(atom, choice if value is None else value)
    return [marks.get(var, 0) for var in jaxpr.invars]


def _fixed_point(
    marks: list[int],
    carried: Sequence[tuple[int, int]],
    follow: Callable[[list[int]], list[int]],
    cache: dict[tuple[int, ...], list[int]],
) -> list[int]:
    """Propagate marks through the body of a loop, again and again until they do not change."""
    if not carried:
        return follow(marks)
    while True:
        key = tuple(marks)
        is_new = key not in cache
        if is_new:
            cache[key] = follow(list(marks))
        result = cache[key]
        for of, to in carried:
            marks[to] |= result[of]
        # This ends, because bits are only added.
        if tuple(marks) == key:
            return result if is_new else follow(marks)  # again, because `follow` also stores marks inside the body


def _of(marks: dict[Any, int], atoms: Sequence[Any]) -> list[int]:
    return [0 if jax_versions.is_literal(atom) else marks.get(atom, 0) for atom in atoms]


def _union(marks: Sequence[int]) -> int:
    union = 0
    for mark in marks:
        union |= mark
    return union
