"""Role of each equation of a train step: forward, backward or update, from transforms and data flow.

JAX marks the equations of the backward pass. The update consists of the equations that depend on the backward pass, and
of those that only the update needs, such as a learning rate schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import Any

from mithril_nb.stages import jax_versions
from mithril_nb.stages.records import Role
from mithril_nb.stages.trace.equations import Site, Sites, Wiring, wirings

Rule = Callable[[Site, int], int]
"""A function that takes an equation and the union of the marks that reach it, and returns the mark it passes on."""

Cache = dict[int, dict[tuple[int, ...], list[int]]]
"""Results of loop bodies: `cache[id(body)][incoming marks]` are the outgoing marks."""


def propagate(
    jaxpr: Any,
    body: Sites,
    incoming: Sequence[int],
    rule: Rule,
    *,
    is_forward: bool,
    enter: Callable[[Site, int, list[int]], list[int]] = lambda site, index, marks: marks,
    alone: Set[str] = frozenset(),
    seen: dict[tuple[str, int], list[int]] | None = None,
    cache: Cache | None = None,
) -> list[int]:
    """Propagate marks, integers whose bits are flags, from the inputs of a jaxpr to its outputs, or back.

    Args:
        jaxpr: The open jaxpr.
        body: The sites of the jaxpr's equations, without nested ones.
        incoming: The mark of each input, or of each output to go back.
        rule: A function that returns the mark that an equation without nested jaxprs passes on, or, to go back, that
            of the predicate of a conditional. It takes the equation and the union of the marks that reach it.
        is_forward: True to go from inputs to outputs.
        enter: A function that may change the marks that enter a nested jaxpr. It takes the equation, the index of the
            nested jaxpr in it, and the marks.
        alone: Ids of loops that marks do not enter from outside. Inside, marks are not passed between iterations.
        seen: A dict to which the marks that leave nested jaxprs are added. The key is the id of the equation and the
            index of the nested jaxpr in it.
        cache: A cache of results for loop bodies; `None` for a new one.
    """
    cache = {} if cache is None else cache
    marks: dict[Any, int] = {}

    def arrive(atom: Any, mark: int) -> None:
        if mark and not jax_versions.is_literal(atom):
            marks[atom] = marks.get(atom, 0) | mark

    def through(wiring: Wiring, incoming: list[int]) -> list[int]:
        return propagate(
            wiring.jaxpr, wiring.sites, incoming, rule,
            is_forward=is_forward, enter=enter, alone=alone, seen=seen, cache=cache,
        )  # fmt: skip

    starts, ends = (jaxpr.invars, jaxpr.outvars) if is_forward else (jaxpr.outvars, jaxpr.invars)
    for atom, mark in zip(starts, incoming, strict=True):
        arrive(atom, mark)
    for site in body if is_forward else reversed(body):
        operands = site.equation.invars if site.bodies else site.variables
        sources, targets = (operands, site.equation.outvars) if is_forward else (site.equation.outvars, operands)
        arriving = _of(marks, sources)
        union = _union(arriving)
        if not site.bodies:
            passed_on = rule(site, union)
            for atom in targets:
                arrive(atom, passed_on)
            continue
        leaving: list[int | None] = [None] * len(targets)
        for index, wiring in enumerate(wirings(site)):
            entries, exits = (wiring.operands, wiring.results) if is_forward else (wiring.results, wiring.operands)
            count = len(wiring.jaxpr.invars if is_forward else wiring.jaxpr.outvars)
            inner = [union] * count if entries is None else [arriving[at] for at in entries]
            outgoing = _fixed_point(
                [0] * count if site.id in alone else enter(site, index, inner),
                () if site.id in alone else [(to, of) if is_forward else (of, to) for of, to in wiring.carried],
                partial(through, wiring),
                cache.setdefault(id(wiring.sites), {}),
            )
            if seen is not None:
                seen[site.id, index] = outgoing
            for at, mark in zip(exits or (), outgoing, strict=exits is not None):
                leaving[at] = (leaving[at] or 0) | mark
            if not is_forward:
                union |= _union(outgoing)
            elif exits is None and site.primitive != "while":  # the number of iterations is not part of its result
                leaving = [(mark or 0) | _union(outgoing) | union for mark in leaving]
        rest = rule(site, union) if None in leaving and not is_forward else 0
        for atom, mark in zip(targets, leaving, strict=True):
            arrive(atom, rest if mark is None else mark)
    return _of(marks, ends)


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


# Bits, because an input may be used by both the loss and the update.
_TO_LOSS, _TO_UPDATE = 1, 2
_OF_LOSS, _OF_STATE, _OF_COUNTER = 1, 2, 4


def roles_of(
    jaxpr: Any,
    top: Sites,
    updates: Set[str],
    lifted: Set[str],
    versions: Sequence[Sequence[int]],
    are_params: Sequence[bool],
) -> dict[str, Role | None]:
    """Return the role of each equation by id; `None` for a call whose equations have several roles.

    `versions`: For each input, the indices of the outputs that may be its new value. `are_params`: For each input,
    whether it is a parameter.
    """
    # - `"backward"`: equations of reverse mode, and equations that a checkpoint recomputes for it.
    # - `"update"`: the equations in `updates`; equations that depend on the backward pass; and equations that only the
    #   update needs, such as a schedule. An equation that is differentiated is not part of the update: in a program of
    #   two steps, the second forward pass depends on the first backward pass.
    # - `"forward"`: all other equations.
    # In a loop over training steps, values from the previous iteration are ignored: the forward pass stays forward,
    # although it depends on the previous update.
    # A result is a new parameter if it is computed from a gradient and, not only through it, from a parameter.
    param, gradient = 1, 2

    def rule(site: Site, incoming: int) -> int:
        if ("transpose", True) in site.stack:
            return gradient
        return 0 if ("jvp", True) in site.stack or site.id in lifted else incoming

    incoming = [param * (is_param and bool(outputs)) for is_param, outputs in zip(are_params, versions, strict=True)]
    outgoing = propagate(jaxpr, top, incoming, rule, is_forward=True) if any(incoming) and not updates else []
    has_updates = bool(updates) or any(
        outgoing[to] == param | gradient
        for start, outputs in zip(incoming, versions, strict=True)
        if start
        for to in outputs
    )
    roles: dict[str, Role | None] = {}
    fixed: set[str] = set()  # differentiated equations, and those of derivatives

    def follow(jaxpr: Any, body: Sites, incoming: list[bool], is_lifted: bool) -> list[bool]:
        marks = {var for var, is_marked in zip(jaxpr.invars, incoming, strict=True) if is_marked}
        for site in body:
            results = site.equation.outvars
            role: Role = "backward" if ("transpose", True) in site.stack else "forward"
            is_derived = is_lifted or site.id in lifted
            is_differentiated = is_derived or ("jvp", True) in site.stack
            follows = has_updates and not is_differentiated and not marks.isdisjoint(site.variables)
            if role == "forward" and (site.id in updates or follows):
                role = "update"
            roles[site.id] = role
            if is_differentiated or role == "backward":
                fixed.add(site.id)
            leaving = [role != "forward"] * len(results)
            if site.bodies:
                arriving = _marked(site.equation.invars, marks)
                outputs = [
                    follow(inner, sites, _last(arriving, len(inner.invars)), is_derived) for inner, sites in site.bodies
                ]
                # The result of a condition is not a result of its loop.
                fitting = [output for output in outputs if len(output) == len(leaving)]
                if role != "backward":
                    roles[site.id] = _only({roles[child.id] for _, sites in site.bodies for child in sites}, role)
                    leaving = (
                        [any(each) for each in zip(*fitting, strict=True)]
                        if fitting
                        else [any(arriving)] * len(leaving)
                    )
            marks.update([var for var, is_marked in zip(results, leaving, strict=True) if is_marked])
        return _marked(jaxpr.outvars, marks)

    follow(jaxpr, top, [False] * len(jaxpr.invars), False)
    if has_updates and "backward" in roles.values():
        _UpdateFinder(jaxpr, top, roles, fixed, versions).find()
    return roles


@dataclass
class _UpdateFinder:
    """Finds the equations of the update that use no gradient, such as weight decay, schedules and step counts."""

    jaxpr: Any
    top: Sites
    roles: dict[str, Role | None]
    fixed: Set[str]
    versions: Sequence[Sequence[int]]

    def find(self) -> None:
        self._are_updates: dict[str, bool] = {}
        self._inside: dict[tuple[str, int], list[int]] = {}
        self._with_derivatives: set[str] = set()  # ids of equations whose bodies contain backward equations
        self._steps: set[str] = set()  # ids of the loops among these equations
        # Loops that contain a derivative are loops over steps.
        self._record_steps(self.top)
        nothing, everything = ([mark] * len(self.jaxpr.outvars) for mark in (0, 1))
        leads = propagate(
            self.jaxpr, self.top, nothing, self._leads, is_forward=False, alone=self._steps, seen=self._inside
        )
        incoming = [_mark(lead, bool(outputs)) for lead, outputs in zip(leads, self.versions, strict=True)]
        while True:
            outgoing = propagate(self.jaxpr, self.top, incoming, self._depends, is_forward=True, enter=self._enter)
            # If the forward pass computes the new value of an input, the input is a metric, not optimizer state.
            metrics = [
                at
                for at, outputs in enumerate(self.versions)
                if incoming[at] == _OF_COUNTER
                and outputs
                and not leads[at]
                and all(outgoing[to] & _OF_LOSS for to in outputs)
            ]
            if not metrics:
                break
            for at in metrics:
                incoming[at] = _OF_LOSS
        self._settle()
        propagate(self.jaxpr, self.top, everything, self._is_kept, is_forward=False)
        self._settle()
        self._set_calls(self.top)

    def _record_steps(self, body: Sites) -> bool:
        has_backward = False
        for site in body:
            inside = [self._record_steps(inner) for _, inner in site.bodies]
            if any(inside):
                self._with_derivatives.add(site.id)
                if site.primitive in ("scan", "while"):
                    self._steps.add(site.id)
            has_backward |= any(inside) or self.roles[site.id] == "backward"
        return has_backward

    def _leads(self, site: Site, outgoing: int) -> int:
        if site.id in self.fixed or site.id in self._with_derivatives:
            return _TO_LOSS
        return _TO_UPDATE if self.roles[site.id] in ("update", None) else outgoing

    def _enter(self, site: Site, index: int, incoming: list[int]) -> list[int]:
        """Return the marks of a body's inputs."""
        if site.id not in self._steps:
            return incoming
        return [
            _mark(lead, True) | (mark & _OF_LOSS)
            for lead, mark in zip(self._inside[site.id, index], incoming, strict=True)
        ]

    def _depends(self, site: Site, incoming: int) -> int:
        if self.roles[site.id] == "update":
            return _OF_STATE
        if site.id in self.fixed:
            return _OF_LOSS
        is_update = bool(incoming & _OF_STATE) or incoming == _OF_COUNTER
        self._are_updates[site.id] = is_update
        # A value computed from optimizer state is optimizer state.
        return _OF_STATE if incoming & _OF_STATE else incoming

    def _is_kept(self, site: Site, outgoing: int) -> int:
        if site.id in self.fixed or site.id in self._with_derivatives:
            return 1
        if self.roles[site.id] in ("update", None):
            return 0
        if jax_versions.has_effects(site.equation):
            return 1
        self._are_updates[site.id] = site.is_used and not outgoing
        return outgoing

    def _settle(self) -> None:
        self.roles.update(dict.fromkeys((id for id, is_update in self._are_updates.items() if is_update), "update"))
        self._are_updates = {}

    def _set_calls(self, body: Sites) -> None:
        for site in body:
            for _, inner in site.bodies:
                self._set_calls(inner)
            if site.bodies and self.roles[site.id] != "backward":
                inside: set[Role | None] = {self.roles[child.id] for _, inner in site.bodies for child in inner}
                self.roles[site.id] = _only(inside, self.roles[site.id])


def _mark(lead: int, is_returned: bool) -> int:
    if lead & _TO_LOSS:
        return _OF_LOSS
    if lead & _TO_UPDATE:
        return _OF_STATE if is_returned else _OF_COUNTER
    return _OF_COUNTER if is_returned else 0


def _marked(atoms: Sequence[Any], marks: Set[Any]) -> list[bool]:
    return [not jax_versions.is_literal(atom) and atom in marks for atom in atoms]


def _only(roles: set[Role | None], otherwise: Role | None) -> Role | None:
    if not roles:
        return otherwise
    return roles.pop() if len(roles) == 1 else None


def _last(marks: list[bool], count: int) -> list[bool]:
    # Operands before them are a predicate, or constants of another body. If there are fewer operands than inputs,
    # each input has a mark if any operand has.
    return marks[len(marks) - count :] if count <= len(marks) else [any(marks)] * count
