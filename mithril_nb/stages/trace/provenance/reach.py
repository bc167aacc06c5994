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
    given: Sequence[int],
    rule: Rule,
    enter: Callable[[Site, int, list[int]], list[int]],
    known: Known | None = None,
) -> list[int]:
    """Propagate marks, integers whose bits are flags, from the inputs of a jaxpr to its outputs.

    Return the marks of the outputs.

    Args:
        jaxpr: The open jaxpr.
        body: The sites of the jaxpr's equations, without nested ones.
        given: The mark of each input.
        rule: A function that returns the mark of the results of an equation without nested jaxprs. It takes the
            equation and the union of the marks of its operands.
        enter: A function that may change the marks of the inputs of a nested jaxpr. It takes the equation, the index of
            the nested jaxpr in it, and the marks.
        known: A cache of results for loop bodies; `None` for a new one.
    """
    known = {} if known is None else known
    marks: dict[Any, int] = {var: mark for var, mark in zip(jaxpr.invars, given, strict=True) if mark}
    for site in body:
        equation = site.equation
        if not site.bodies:
            arriving = 0
            for var in site.variables:
                arriving |= marks.get(var, 0)
            made = rule(site, arriving)
            if made:
                marks.update(dict.fromkeys(equation.outvars, made))
            continue
        operands = _of(marks, equation.invars)
        results = [0] * len(equation.outvars)
        for place, wiring in enumerate(wirings(site)):
            if wiring.operands is None:
                inputs = [_union(operands)] * len(wiring.jaxpr.invars)
            else:
                inputs = [operands[at] for at in wiring.operands]
            outputs = _fixed_point(
                enter(site, place, inputs),
                [(of, to) for to, of in wiring.carried],
                lambda given, wiring=wiring: forwards(wiring.jaxpr, wiring.sites, given, rule, enter, known),
                known.setdefault(id(wiring.sites), {}),
            )
            if wiring.results is not None:
                results = [one | made for one, made in zip(results, outputs, strict=True)]
            elif site.primitive != "while":  # the number of iterations is not part of its result
                results = [one | _union(outputs) | _union(operands) for one in results]
        marks.update({var: mark for var, mark in zip(equation.outvars, results, strict=True) if mark})
    return _of(marks, jaxpr.outvars)


def backwards(
    jaxpr: Any,
    body: list[Site],
    outgoing: Sequence[int],
    rule: Rule,
    alone: Set[str] = frozenset(),
    seen: dict[tuple[str, int], list[int]] | None = None,
    known: Known | None = None,
) -> list[int]:
    """Propagate marks, integers whose bits are flags, from the outputs of a jaxpr to its inputs.

    Return the marks of the inputs.

    Args:
        jaxpr: The open jaxpr.
        body: The sites of the jaxpr's equations, without nested ones.
        outgoing: The mark of each output.
        rule: A function that returns the mark of the operands of an equation without nested jaxprs, or of the predicate
            of a conditional. It takes the equation and the union of the marks of its results.
        alone: Ids of loops that marks do not enter from outside. Inside, marks are not passed between iterations.
        seen: A dict to which the marks of the inputs of nested jaxprs are added. The key is the id of the equation and
            the index of the nested jaxpr in it.
        known: A cache of results for loop bodies; `None` for a new one.
    """
    known = {} if known is None else known
    marks: dict[Any, int] = {}

    def mark(atom: Any, one: int) -> None:
        if one and not jax_versions.is_literal(atom):
            marks[atom] = marks.get(atom, 0) | one

    for atom, one in zip(jaxpr.outvars, outgoing, strict=True):
        mark(atom, one)
    for site in reversed(body):
        equation = site.equation
        results = [marks.get(var, 0) for var in equation.outvars]
        whole = _union(results)
        if not site.bodies:
            whole = rule(site, whole)
            if whole:
                for var in site.variables:
                    marks[var] = marks.get(var, 0) | whole
            continue
        operands: list[int | None] = [None] * len(equation.invars)
        for place, wiring in enumerate(wirings(site)):
            outputs = [whole] * len(wiring.jaxpr.outvars) if wiring.results is None else list(results)
            if site.id in alone:
                outputs = [0] * len(outputs)
            inputs = _fixed_point(
                outputs,
                wiring.carried if site.id not in alone else (),
                lambda outgoing, wiring=wiring: backwards(
                    wiring.jaxpr, wiring.sites, outgoing, rule, alone, seen, known
                ),
                known.setdefault(id(wiring.sites), {}),
            )
            if seen is not None:
                seen[site.id, place] = inputs
            whole |= _union(inputs)
            for at, one in zip(wiring.operands or (), inputs, strict=wiring.operands is not None):
                operands[at] = (operands[at] or 0) | one
        choice = rule(site, whole) if None in operands else 0
        for atom, one in zip(equation.invars, operands, strict=True):
            mark(atom, choice if one is None else one)
    return [marks.get(var, 0) for var in jaxpr.invars]


def _fixed_point(
    given: list[int],
    carried: Sequence[tuple[int, int]],
    follow: Callable[[list[int]], list[int]],
    known: dict[tuple[int, ...], list[int]],
) -> list[int]:
    """Propagate marks through the body of a loop, again and again until they do not change.

    Return the marks at the other end of the body.

    Args:
        given: The marks at the end of the body where the propagation starts; updated in place.
        carried: Pairs of indices for each carry: of its mark in the result, and of its mark in `given` for the next
            iteration.
        follow: A function that propagates marks through the body once.
        known: A cache from `given` to the result. Without it, each loop would repeat the loops inside it.
    """
    if not carried:
        return follow(given)
    while True:
        key = tuple(given)
        is_new = key not in known
        if is_new:
            known[key] = follow(list(given))
        made = known[key]
        for of, to in carried:
            given[to] |= made[of]
        # This ends, because bits are only added.
        if tuple(given) == key:
            return made if is_new else follow(given)  # again, because `follow` also stores marks inside the body


def _of(marks: dict[Any, int], atoms: Sequence[Any]) -> list[int]:
    return [0 if jax_versions.is_literal(atom) else marks.get(atom, 0) for atom in atoms]


def _union(marks: Sequence[int]) -> int:
    whole = 0
    for mark in marks:
        whole |= mark
    return whole
