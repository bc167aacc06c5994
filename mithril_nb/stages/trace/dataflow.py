"""Which equation makes each value of a jaxpr, and which ones take it, through calls, loops and branches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from mithril_nb.graph.spec import TensorSpec
from mithril_nb.stages import jax_versions
from mithril_nb.stages.trace.equations import Site, constants_of_scan
from mithril_nb.stages.trace.traced import Program

BEFORE = -1
"""Where a value is made that is there before the program runs."""


_CHANGE = frozenset({"scan", "while", "scatter", "dynamic_update_slice"})
"""Primitives whose result may lie where their operand was."""


@dataclass(slots=True)
class Value:
    """One array of a program. What a call is given, or gives, is the same value inside of it and around it.

    Attributes:
        id: The equation that makes it, with which of its results (`"12{1}"`) if it has several, or the name of the
            argument; of a value that a loop keeps for its body, the loop with what of its operands (`"12.x1"`).
        spec: Its shape and dtype.
        block: Path of the block that makes it, or that it belongs to.
        made: Place of that equation in `Inspection.equations`; `BEFORE` if it is there before the program runs.
        uses: Places of the equations that take it, in order. What a body takes from around it is needed to its end.
        is_argument: Whether it is an argument of the program.
        is_donated: Whether its memory may be reused for results.
        given: How many of the program's results it is.
        is_in_place: Whether it lies in the memory of what the loop around it carries, which is its next value.
    """

    id: str
    spec: TensorSpec
    block: str
    made: int
    uses: list[int] = field(default_factory=list)
    is_argument: bool = False
    is_donated: bool = False
    given: int = 0
    is_in_place: bool = False

    @property
    def is_output(self) -> bool:
        """Whether the program gives it."""
        return self.given > 0


def dataflow(program: Program) -> tuple[Value, ...]:
    """Return every value of a program whose equation anything needs, in the order in which they are made."""
    return _Flow(program).values_in_order()


class _Flow:
    def __init__(self, program: Program):
        self._program = program
        self._values: list[Value] = []
        self._places = {site.id: place for place, site in enumerate(program.sites)}
        self._last_inside = _last_inside(program.sites, self._places)
        jaxpr = program.trace.closed.jaxpr
        known: dict[Any, Value] = {}
        inputs = zip(jaxpr.invars, program.inputs, program.trace.donated_leaves, strict=True)
        for var, one, is_donated in inputs:
            known[var] = self._new(one.name, one.spec, one.block, BEFORE)
            known[var].is_argument, known[var].is_donated = True, is_donated
        for number, var in enumerate(jaxpr.constvars):
            known[var] = self._new(f"constant {number}", _spec(var), "", BEFORE)
        self._walk(program.top, known)
        for value in _those(known, jaxpr.outvars):
            value.given += 1

    def values_in_order(self) -> tuple[Value, ...]:
        return tuple(sorted(self._values, key=lambda value: value.made))

    def _new(self, id: str, spec: TensorSpec, block: str, made: int) -> Value:
        value = Value(id, spec, block, made)
        self._values.append(value)
        return value

    def _walk(self, sites: Sequence[Site], known: dict[Any, Value]) -> None:
        """Go through a body in which some variables are known already."""
        for site in sites:
            if not site.is_used:
                continue
            place = self._places[site.id]
            for var in site.variables:
                value = known.get(var)
                if value is not None:
                    value.uses.append(place)
            if site.bodies:
                self._enter(site, known, place)
            else:
                self._results(site, known, place)

    def _results(self, site: Site, known: dict[Any, Value], made: int) -> None:
        record = self._program.by_id[site.id]
        outvars = site.equation.outvars
        if len(outvars) == 1:
            known[outvars[0]] = self._new(site.id, record.outputs[0], record.block, made)
            return
        for number, (var, spec) in enumerate(zip(outvars, record.outputs, strict=True)):
            if number not in site.dropped:
                known[var] = self._new(f"{site.id}{{{number}}}", spec, record.block, made)

    def _enter(self, site: Site, known: dict[Any, Value], place: int) -> None:
        if site.primitive == "scan":
            self._scan(site, known, place)
        elif site.primitive == "while":
            self._while(site, known, place)
        elif len(site.bodies) == 1 and len(site.equation.outvars) == len(site.bodies[0][0].outvars):
            self._call(site, known, place)
        else:
            self._branches(site, known, place)

    def _call(self, site: Site, known: dict[Any, Value], place: int) -> None:
        body, inner = site.bodies[0]
        inside = self._given(site, body, _matching(body, site.equation.invars), known, place)
        self._walk(inner, inside)
        record = self._program.by_id[site.id]
        for number, (var, atom) in enumerate(zip(site.equation.outvars, body.outvars, strict=True)):
            if jax_versions.is_literal(atom):
                known[var] = self._new(f"{site.id}{{{number}}}", record.outputs[number], record.block, place)
            elif atom in inside:  # else nothing needs it
                known[var] = inside[atom]

    def _branches(self, site: Site, known: dict[Any, Value], place: int) -> None:
        """One of several bodies runs; its results are those of the condition."""
        for body, inner in site.bodies:
            inside = self._given(site, body, _matching(body, site.equation.invars), known, place)
            self._walk(inner, inside)
            end = self._places[inner[-1].id] if inner else place
            self._keep(_those(inside, body.outvars), end)
        self._results(site, known, self._last_inside[site.id])
        self._keep(_those(known, site.variables), self._last_inside[site.id])

    def _scan(self, site: Site, known: dict[Any, Value], place: int) -> None:
        body, inner = site.bodies[0]
        end = self._last_inside[site.id]
        atoms, carried = site.equation.invars, jax_versions.carried(site.equation)
        constants = constants_of_scan(site.equation, body)
        self._results(site, known, place)
        # What is carried is one value from the first round to the last; of what is cut into slices one is there.
        inside = self._given(site, body, atoms[:constants], known, place)
        for number, var in enumerate(body.invars[constants:], constants):
            if number >= constants + carried:
                whole = _value(known, atoms[number])
                block = (whole and whole.block) or self._program.by_id[site.id].block
                inside[var] = self._new(f"{site.id}.x{number}", _spec(var), block, place)
            elif number - constants not in site.dropped:
                inside[var] = known[site.equation.outvars[number - constants]]
        self._walk(inner, inside)
        self._round_ends(site, body, inside, known, end, atoms[constants : constants + carried])
        self._keep(_those(known, [*atoms[:constants], *atoms[constants + carried :]]), end)

    def _while(self, site: Site, known: dict[Any, Value], place: int) -> None:
        atoms, carried = site.equation.invars, len(site.equation.outvars)
        end = self._last_inside[site.id]
        self._results(site, known, place)
        test = next((body for body, _ in site.bodies if jax_versions.is_condition(site.equation, body)), None)
        constants = 0 if test is None else len(test.invars) - carried
        for body, inner in site.bodies:
            own = atoms[:constants] if body is test else atoms[constants : len(atoms) - carried]
            inside = self._given(site, body, own, known, place)
            for var, outer in zip(body.invars[len(own) :], site.equation.outvars, strict=True):
                if outer in known:
                    inside[var] = known[outer]
            self._walk(inner, inside)
            if body is not test:
                self._round_ends(site, body, inside, known, end, atoms[len(atoms) - carried :])
        self._keep(_those(known, atoms[: len(atoms) - carried]), end)

    def _round_ends(
        self,
        site: Site,
        body: Any,
        inside: dict[Any, Value],
        known: dict[Any, Value],
        end: int,
        carried: Sequence[Any],
    ) -> None:
        """What a round gives is needed to its end; what the loop gives lies there for the next round.

        It belongs to the block that makes it in the body, be it carried or stacked; or, where the body only passes on
        what it is given, to the one that made that.
        """
        for var, atom, _ in zip(site.equation.outvars, body.outvars, carried, strict=False):
            whole, made = known.get(var), _value(inside, atom)
            if whole is not None and made is not None:
                made.is_in_place = self._is_written_over(whole, made)
        self._keep(_those(inside, body.outvars), end)
        self._keep(_those(known, site.equation.outvars), end)
        for number, (var, atom) in enumerate(zip(site.equation.outvars, body.outvars, strict=True)):
            whole, made = known.get(var), _value(inside, atom)
            if made is whole and number < len(carried):
                made = _value(known, carried[number])
            if whole is not None and made is not None and made.block:
                whole.block = made.block

    def _is_written_over(self, carried: Value, made: Value) -> bool:
        """Whether a body makes the next value once it has no more need of what is carried, or by changing it."""
        last = max(carried.uses, default=carried.made)
        primitive = self._program.sites[made.made].primitive
        is_alone = primitive.startswith("scatter") and {*carried.uses} == {made.made}
        is_changed = last == made.made and (primitive in _CHANGE or is_alone)
        return made.made > carried.made and (last < made.made or is_changed)

    def _given(
        self, site: Site, body: Any, atoms: Sequence[Any], known: dict[Any, Value], place: int
    ) -> dict[Any, Value]:
        """What the first variables of a body are: the operands. Where those are literals, they are made for it."""
        block = self._program.by_id[site.id].block
        inside: dict[Any, Value] = {}
        for number, (var, atom) in enumerate(zip(body.invars, atoms, strict=False)):
            if atom is None or jax_versions.is_literal(atom):
                inside[var] = self._new(f"{site.id}.x{number}", _spec(var), block, place)
            elif atom in known:  # else it is not needed
                inside[var] = known[atom]
        for number, var in enumerate(body.constvars):
            inside[var] = self._new(f"{site.id}.constant{number}", _spec(var), block, BEFORE)
        return inside

    @staticmethod
    def _keep(values: Iterable[Value], place: int) -> None:
        for value in values:
            value.uses.append(place)


def _those(known: dict[Any, Value], atoms: Iterable[Any]) -> list[Value]:
    """Those of some operands, or results, that are values. What nothing needs is none."""
    return [value for value in (_value(known, atom) for atom in atoms) if value is not None]


def _value(known: dict[Any, Value], atom: Any) -> Value | None:
    return None if jax_versions.is_literal(atom) else known.get(atom)


def _matching(body: Any, atoms: Sequence[Any]) -> list[Any]:
    """Which operand each variable of a body is: all of them in order, or the last of its shape that is not taken yet.

    A condition has its index first, and a linear solve has operands of other jaxprs that do not run among its own.
    """
    left = list(atoms)
    if len(left) == len(body.invars):
        return left
    found: list[Any] = []
    for var in reversed(body.invars):
        at = next((at for at in reversed(range(len(left))) if _spec(left[at]) == _spec(var)), None)
        found.append(None if at is None else left.pop(at))
    return found[::-1]


def _spec(var: Any) -> TensorSpec:
    return jax_versions.specs_of((var,))[0]


def _last_inside(sites: Sequence[Site], places: dict[str, int]) -> dict[str, int]:
    """The place of the last equation inside of each; its own place if there is none."""
    found = dict(places)
    for site in reversed(sites):
        if site.parent is not None:
            found[site.parent.id] = max(found[site.parent.id], found[site.id])
    return found
