"""Which equations of a train step go forward, which backward, and which update: read from transforms and flow."""

from __future__ import annotations

from collections.abc import Sequence, Set
from functools import lru_cache
from typing import Any

from mithril_nb.stages import jax_versions
from mithril_nb.stages.jax_versions import NameStack
from mithril_nb.stages.records import Role
from mithril_nb.stages.trace.equations import Site


def roles_of(
    jaxpr: Any, top: list[Site], updates: Set[str], lifted: Set[str], gives_new_inputs: bool
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
        gives_new_inputs: Whether the program gives back something like what it takes, as a train step does its
            parameters. One that does not, and uses a gradient on its way to a result, updates nothing: all is forward.
    """
    has_updates = gives_new_inputs or bool(updates)
    roles: dict[str, Role | None] = {}

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
    return roles


def _marked(atoms: Sequence[Any], marks: Set[Any]) -> list[bool]:
    return [not jax_versions.is_literal(atom) and atom in marks for atom in atoms]


@lru_cache(maxsize=8192)
def _role(stack: NameStack) -> Role:
    return "backward" if ("transpose", True) in stack else "forward"


@lru_cache(maxsize=8192)
def _is_differentiated(stack: NameStack) -> bool:
    return ("jvp", True) in stack


def _only(found: set[Role | None], otherwise: Role) -> Role | None:
    if not found:
        return otherwise
    return found.pop() if len(found) == 1 else None


def _last(marks: list[bool], count: int) -> list[bool]:
    """Return what a body is given: the last operands, as a predicate or another body's constants stand in front."""
    return marks[len(marks) - count :] if count <= len(marks) else [any(marks)] * count
