"""Which equations of a train step go forward, which backward, and which update: read from transforms and flow.

Reverse mode marks what it makes. The update is what depends on that, and what serves nothing else: neither the loss,
nor a result that is made of the forward pass, such as a metric.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from functools import lru_cache
from typing import Any

from mithril_nb.stages import jax_versions
from mithril_nb.stages.jax_versions import NameStack
from mithril_nb.stages.records import Role
from mithril_nb.stages.trace.equations import Site
from mithril_nb.stages.trace.reach import backwards, forwards

_TO_LOSS, _TO_UPDATE = 1, 2
_OF_LOSS, _OF_STATE, _OF_COUNTER = 1, 2, 4


def roles_of(
    jaxpr: Any, top: list[Site], updates: Set[str], lifted: Set[str], versions: Sequence[Sequence[int]]
) -> dict[str, Role | None]:
    """Return the role of each equation by id; of a call that holds several, `None`.

    What reverse mode makes is backward, and so is what is computed again for it. What depends on that is an update,
    unless a derivative of it is taken in turn, as in the next of several steps. All else is forward. A body is judged
    by what flows into it from outside, so that each step of a loop over steps starts anew.

    Args:
        jaxpr: The program.
        top: Sites of its equations.
        updates: Ids of what is an update whatever it depends on, such as an optimizer that counts its steps.
        lifted: Ids of what stands in a derivative though no transform around it says so.
        versions: For each input the places of the outputs that may be its new value. A program that gives back nothing
            like what it takes, and uses a gradient on its way to a result, updates nothing: all is forward.
    """
    has_updates = any(versions) or bool(updates)
    roles: dict[str, Role | None] = {}
    fixed: set[str] = set()  # what is differentiated, or made by that

    def follow(jaxpr: Any, body: list[Site], given: list[bool], is_lifted: bool) -> list[bool]:
        """Note the roles in a body, given which inputs depend on something backward; return which results do."""
        marks = {var for var, is_marked in zip(jaxpr.invars, given, strict=True) if is_marked}
        for site in body:
            results = site.equation.outvars
            role = _role(site.stack)
            is_derived = is_lifted or site.id in lifted
            is_differentiated = is_derived or _is_differentiated(site.stack)
            follows = has_updates and not is_differentiated and not marks.isdisjoint(site.variables)
            if role == "forward" and (site.id in updates or follows):
                role = "update"
            roles[site.id] = role
            if is_differentiated or role == "backward":
                fixed.add(site.id)
            leaving = [role != "forward"] * len(results)
            if site.bodies:
                arriving = _marked(site.equation.invars, marks)
                made = [
                    follow(inner, sites, _last(arriving, len(inner.invars)), is_derived) for inner, sites in site.bodies
                ]
                fitting = [one for one in made if len(one) == len(leaving)]
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
        _Rest(jaxpr, top, roles, fixed, versions).find()
    return roles


class _Rest:
    """Finds what an update does without a gradient: decay of moments and weights, schedules, counts of steps."""

    def __init__(
        self,
        jaxpr: Any,
        top: list[Site],
        roles: dict[str, Role | None],
        fixed: Set[str],
        versions: Sequence[Sequence[int]],
    ):
        self._jaxpr, self._top, self._roles, self._fixed, self._versions = jaxpr, top, roles, fixed, versions
        self._found: dict[str, bool] = {}
        self._inside: dict[tuple[str, int], list[int]] = {}
        self._with_derivatives: set[str] = set()  # equations that hold any
        self._steps: set[str] = set()  # loops among them

    def find(self) -> None:
        """Put the update into the roles."""
        self._note_steps(self._top)
        nothing, everything = ([mark] * len(self._jaxpr.outvars) for mark in (0, 1))
        leads = backwards(self._jaxpr, self._top, nothing, self._leads, self._steps, self._inside)
        given = [_mark(lead, bool(places)) for lead, places in zip(leads, self._versions, strict=True)]
        while True:
            made = forwards(self._jaxpr, self._top, given, self._depends, self._enter)
            # An input whose new value is made of the forward pass is a metric's, and no state of the optimizer.
            metrics = [
                at
                for at, places in enumerate(self._versions)
                if given[at] == _OF_COUNTER and places and not leads[at] and all(made[to] & _OF_LOSS for to in places)
            ]
            if not metrics:
                break
            for at in metrics:
                given[at] = _OF_LOSS
        self._settle()
        backwards(self._jaxpr, self._top, everything, self._is_kept)
        self._settle()
        self._judge_calls(self._top)

    def _note_steps(self, body: list[Site]) -> bool:
        """Note which equations hold a derivative; return whether any of these does, or is part of one."""
        found = False
        for site in body:
            inside = [self._note_steps(inner) for _, inner in site.bodies]
            if any(inside):
                self._with_derivatives.add(site.id)
                if site.primitive in ("scan", "while"):
                    self._steps.add(site.id)
            found |= any(inside) or self._roles[site.id] == "backward"
        return found

    def _leads(self, site: Site, wanted: int) -> int:
        if site.id in self._fixed or site.id in self._with_derivatives:
            return _TO_LOSS
        return _TO_UPDATE if self._is_update(site) else wanted

    def _is_update(self, site: Site) -> bool:
        """Whether an equation is an update, or holds one and chooses what is updated."""
        return self._roles[site.id] in ("update", None)

    def _enter(self, site: Site, place: int, given: list[int]) -> list[int]:
        """In a loop over steps, what only updates is told from what the loss needs as at the top of a program."""
        if site.id not in self._steps:
            return given
        return [
            _mark(lead, True) | (one & _OF_LOSS) for lead, one in zip(self._inside[site.id, place], given, strict=True)
        ]

    def _depends(self, site: Site, taken: int) -> int:
        if self._roles[site.id] == "update":
            return _OF_STATE
        if site.id in self._fixed:
            return _OF_LOSS
        is_update = bool(taken & _OF_STATE) or taken == _OF_COUNTER
        self._found[site.id] = is_update
        return _OF_STATE if taken & _OF_STATE else taken

    def _is_kept(self, site: Site, wanted: int) -> int:
        if site.id in self._fixed or site.id in self._with_derivatives:
            return 1
        if self._is_update(site):
            return 0
        if jax_versions.has_effects(site.equation):
            return 1
        self._found[site.id] = site.is_used and not wanted
        return wanted

    def _settle(self) -> None:
        self._roles.update(dict.fromkeys((id for id, is_update in self._found.items() if is_update), "update"))
        self._found = {}

    def _judge_calls(self, body: list[Site]) -> None:
        for site in body:
            for _, inner in site.bodies:
                self._judge_calls(inner)
            if site.bodies and self._roles[site.id] != "backward":
                inside: set[Role | None] = {self._roles[child.id] for _, inner in site.bodies for child in inner}
                self._roles[site.id] = _only(inside, self._roles[site.id])


def _mark(lead: int, is_given_back: bool) -> int:
    """Return what an input is, from where it leads: all that leads to the loss is of the forward pass."""
    if lead & _TO_LOSS:
        return _OF_LOSS
    if lead & _TO_UPDATE:
        return _OF_STATE if is_given_back else _OF_COUNTER
    return _OF_COUNTER if is_given_back else 0


def _marked(atoms: Sequence[Any], marks: Set[Any]) -> list[bool]:
    return [not jax_versions.is_literal(atom) and atom in marks for atom in atoms]


@lru_cache(maxsize=8192)
def _role(stack: NameStack) -> Role:
    return "backward" if ("transpose", True) in stack else "forward"


@lru_cache(maxsize=8192)
def _is_differentiated(stack: NameStack) -> bool:
    return ("jvp", True) in stack


def _only(found: set[Role | None], otherwise: Role | None) -> Role | None:
    if not found:
        return otherwise
    return found.pop() if len(found) == 1 else None


def _last(marks: list[bool], count: int) -> list[bool]:
    """Return what a body is given: the last operands, as a predicate or another body's constants stand in front."""
    return marks[len(marks) - count :] if count <= len(marks) else [any(marks)] * count
