"""Where values of a jaxpr lead, and what they come from: marks carried along the data, both ways, through all bodies.

A mark is a number whose bits are joined where values meet. Loops are followed until nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import Any, NamedTuple

from mithril_nb.stages import jax_versions
from mithril_nb.stages.trace.equations import Site, constants_of_scan

Rule = Callable[[Site, int], int]
"""Returns the mark that an equation without a body passes on, from the marks that arrive."""


Known = dict[int, dict[tuple[int, ...], list[int]]]
"""For the equations of a body, by their list's `id`: the marks that come out of it, by those that went in."""


class Wiring(NamedTuple):
    """How a body is connected to the equation that holds it.

    Attributes:
        jaxpr: The body.
        sites: Its equations.
        operands: For each of its inputs the place of the operand; `None` if each input depends on all operands.
        results: For each of its outputs the place of the result; `None` if all results depend on all outputs.
        carried: Pairs of an input and the output that takes its place in the next round.
    """

    jaxpr: Any
    sites: list[Site]
    operands: range | list[int] | None
    results: range | None
    carried: tuple[tuple[int, int], ...] = ()


def wirings(site: Site) -> list[Wiring]:
    """Return how each body of an equation is connected to it; the body of a `while` before its condition."""
    equation = site.equation
    taken, given = len(equation.invars), len(equation.outvars)
    if site.primitive == "scan":
        ((jaxpr, body),) = site.bodies
        first, count = constants_of_scan(equation, jaxpr), jax_versions.carried(equation)
        return [Wiring(jaxpr, body, range(taken), range(given), tuple((first + k, k) for k in range(count)))]
    loop = jax_versions.while_parts(equation)
    if loop is not None:
        by_jaxpr = {id(jaxpr): body for jaxpr, body in site.bodies}
        first, state = loop.condition_constants, list(range(taken - given, taken))
        places = [*range(first, first + loop.body_constants), *state]
        carried = tuple((loop.body_constants + k, k) for k in range(given))
        return [
            Wiring(loop.body, by_jaxpr[id(loop.body)], places, range(given), carried),
            Wiring(loop.condition, by_jaxpr[id(loop.condition)], [*range(first), *state], None),
        ]
    # A predicate, or the constants of another body, stand in front.
    return [
        Wiring(
            jaxpr,
            body,
            range(taken - len(jaxpr.invars), taken) if len(jaxpr.invars) <= taken else None,
            range(given) if len(jaxpr.outvars) == given else None,
        )
        for jaxpr, body in site.bodies
    ]


def forwards(
    jaxpr: Any,
    body: list[Site],
    given: Sequence[int],
    rule: Rule,
    enter: Callable[[Site, int, list[int]], list[int]] | None = None,
    known: Known | None = None,
) -> list[int]:
    """Carry marks from inputs to outputs; return those of the outputs.

    Args:
        jaxpr: The program.
        body: Its equations.
        given: The marks of its inputs.
        rule: Gives the mark of the results of an equation.
        enter: Gives the marks of the inputs of a body, from its equation, the place of the body and the marks outside.
        known: What is known of the bodies of loops so far.
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
            if enter is not None:
                inputs = enter(site, place, inputs)
            outputs = _rounds(
                inputs,
                [(of, to) for to, of in wiring.carried],
                lambda given, wiring=wiring: forwards(wiring.jaxpr, wiring.sites, given, rule, enter, known),
                known.setdefault(id(wiring.sites), {}),
            )
            if wiring.results is not None:
                results = [one | made for one, made in zip(results, outputs, strict=True)]
            elif site.primitive != "while":  # how often it goes round is no part of what it gives
                results = [one | _union(outputs) | _union(operands) for one in results]
        marks.update({var: mark for var, mark in zip(equation.outvars, results, strict=True) if mark})
    return _of(marks, jaxpr.outvars)


def backwards(
    jaxpr: Any,
    body: list[Site],
    wanted: Sequence[int],
    rule: Rule,
    alone: Set[str] = frozenset(),
    seen: dict[tuple[str, int], list[int]] | None = None,
    known: Known | None = None,
) -> list[int]:
    """Carry marks from outputs to inputs; return those of the inputs.

    Args:
        jaxpr: The program.
        body: Its equations.
        wanted: The marks of its outputs.
        rule: Gives the mark of the operands of an equation; of one with bodies, of the operand that chooses one.
        alone: Ids of loops of which each round is looked at alone.
        seen: Takes the marks of the inputs of each body, by the id of its equation and its place.
        known: What is known of the bodies of loops so far.
    """
    known = {} if known is None else known
    marks: dict[Any, int] = {}

    def mark(atom: Any, one: int) -> None:
        if one and not jax_versions.is_literal(atom):
            marks[atom] = marks.get(atom, 0) | one

    for atom, one in zip(jaxpr.outvars, wanted, strict=True):
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
            inputs = _rounds(
                outputs,
                wiring.carried if site.id not in alone else (),
                lambda wanted, wiring=wiring: backwards(wiring.jaxpr, wiring.sites, wanted, rule, alone, seen, known),
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


def _rounds(
    given: list[int],
    carried: Sequence[tuple[int, int]],
    follow: Callable[[list[int]], list[int]],
    known: dict[tuple[int, ...], list[int]],
) -> list[int]:
    """Follow the marks that go into a body, until nothing changes from round to round; return those that come out.

    A body is followed once with the same marks, as that of a loop in a loop in a loop would be asked for them in each
    round of each: only the last time, when all that it notes is final, it is followed again.

    Args:
        given: The marks that go in; is completed.
        carried: Pairs of the place where a mark comes out, and of the place where it goes in again.
        follow: Follows the marks through the body.
        known: What came out so far, by what went in.
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
        if tuple(given) == key:
            return made if is_new else follow(given)


def _of(marks: dict[Any, int], atoms: Sequence[Any]) -> list[int]:
    return [0 if jax_versions.is_literal(atom) else marks.get(atom, 0) for atom in atoms]


def _union(marks: Sequence[int]) -> int:
    whole = 0
    for mark in marks:
        whole |= mark
    return whole
