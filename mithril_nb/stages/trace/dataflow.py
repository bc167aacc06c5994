"""Producer and users of each value of a jaxpr, followed through calls, loops and branches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from mithril_nb.graph.spec import TensorSpec
from mithril_nb.stages import jax_versions
from mithril_nb.stages.trace.equations import Site, wirings
from mithril_nb.stages.trace.traced import Program

BEFORE = -1
"""`Value.made` of an array that exists before the program runs."""


_CHANGE = frozenset({"scan", "while", "scatter", "dynamic_update_slice"})
"""Primitives whose result may reuse the memory of their operand."""


@dataclass(slots=True)
class Value:
    """One array of a program. An array that is passed to a call is the same `Value` inside the call and around it.

    Attributes:
        id: For an argument, its name. For a result, the id of its equation: `"12"`, or `"12{1}"` for the result with
            index 1 of several. `"12.x1"` is the input with index 1 of the body of equation 12, if no other value is the
            same array. `"constant 0"` and `"12.constant0"` are constants of the program and of this body.
        spec: Shape and dtype of the array.
        block: Path of the block that computes the array, or that an argument belongs to; `""` if unknown.
        made: Index of the equation that computes the array, among all equations of the program; `BEFORE` if the array
            exists before the program runs.
        uses: Indices of the equations that use the array, in order. An operand of a loop is used until the last
            equation of the loop, because each iteration reads it. The initial value of a carry is used only when the
            loop starts.
        is_argument: True for an argument of the program.
        is_donated: True for an argument whose memory the program may reuse.
        given: Number of results of the program that are this array; 0 for an intermediate array.
        is_in_place: True if the array is the next value of a carry and can be stored in the memory of the carry.
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
        """Return whether it is a result of the program."""
        return self.given > 0


def dataflow(program: Program) -> tuple[Value, ...]:
    """Return all arrays of a program in order of creation: arguments, constants, and results of used equations."""
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
        for value in _values(known, jaxpr.outvars):
            value.given += 1

    def values_in_order(self) -> tuple[Value, ...]:
        return tuple(sorted(self._values, key=lambda value: value.made))

    def _new(self, id: str, spec: TensorSpec, block: str, made: int) -> Value:
        value = Value(id, spec, block, made)
        self._values.append(value)
        return value

    def _walk(self, sites: Sequence[Site], known: dict[Any, Value]) -> None:
        """Collect the values that some equations compute. `known` has the values of their inputs, by variable."""
        for site in sites:
            if not site.is_used:
                continue
            place = self._places[site.id]
            for var in site.variables:
                value = known.get(var)
                if value is not None:
                    value.uses.append(place)
            if site.bodies and site.primitive != "pallas_call":  # the blocks of a kernel are on the chip
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
        if site.primitive in ("scan", "while"):
            self._loop(site, known, place)
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
            # A call may return a constant, which no equation computes.
            if jax_versions.is_literal(atom):
                known[var] = self._new(f"{site.id}{{{number}}}", record.outputs[number], record.block, place)
            elif atom in inside:  # else it is unused
                known[var] = inside[atom]

    def _branches(self, site: Site, known: dict[Any, Value], place: int) -> None:
        for body, inner in site.bodies:
            inside = self._given(site, body, _matching(body, site.equation.invars), known, place)
            self._walk(inner, inside)
            # In the order of the equations, a branch ends before the next one begins.
            end = self._places[inner[-1].id] if inner else place
            self._keep(_values(inside, body.outvars), end)
        self._results(site, known, self._last_inside[site.id])
        self._keep(_values(known, site.variables), self._last_inside[site.id])

    def _loop(self, site: Site, known: dict[Any, Value], place: int) -> None:
        atoms, results = site.equation.invars, site.equation.outvars
        end = self._last_inside[site.id]
        self._results(site, known, place)
        loop, *conditions = wirings(site)
        # A carry is one `Value` for all iterations. Each iteration of a scan reads one slice of a scanned input.
        carried = {(loop.operands or ())[at]: result for at, result in loop.carried}
        for wiring in (*conditions, loop):
            operands = wiring.operands or ()
            own = [atoms[at] for at in operands[: wiring.constants]]
            inside = self._given(site, wiring.jaxpr, own, known, place)
            for number in range(wiring.constants, len(operands)):
                var, operand = wiring.jaxpr.invars[number], operands[number]
                if operand not in carried:
                    whole = _value(known, atoms[operand])
                    block = (whole and whole.block) or self._program.by_id[site.id].block
                    inside[var] = self._new(f"{site.id}.x{number}", _spec(var), block, place)
                elif carried[operand] not in site.dropped:  # an unused carry has no value: XLA removes it
                    inside[var] = known[results[carried[operand]]]
            self._walk(wiring.sites, inside)
            if wiring is loop:
                self._end_iteration(site, loop.jaxpr, inside, known, end, [atoms[at] for at in carried])
        self._keep(_values(known, [atom for at, atom in enumerate(atoms) if at not in carried]), end)

    def _end_iteration(
        self, site: Site, body: Any, inside: dict[Any, Value], known: dict[Any, Value], end: int, carried: Sequence[Any]
    ) -> None:
        """Mark the results of a body as used until the end of the loop, and set the blocks of the loop's results.

        A result belongs to the block that computes it in the body. If the body returns an input unchanged, the result
        belongs to the block that computed the initial value.
        """
        for var, atom, _ in zip(site.equation.outvars, body.outvars, carried, strict=False):
            whole, made = known.get(var), _value(inside, atom)
            if whole is not None and made is not None:
                made.is_in_place = self._is_written_over(whole, made)
        self._keep(_values(inside, body.outvars), end)
        self._keep(_values(known, site.equation.outvars), end)
        for number, (var, atom) in enumerate(zip(site.equation.outvars, body.outvars, strict=True)):
            whole, made = known.get(var), _value(inside, atom)
            if made is whole and number < len(carried):
                made = _value(known, carried[number])
            if whole is not None and made is not None and made.block:
                whole.block = made.block

    def _is_written_over(self, carried: Value, made: Value) -> bool:
        """Return whether the next value of a carry can be stored in the memory of the carry."""
        last = max(carried.uses, default=carried.made)
        primitive = self._program.sites[made.made].primitive
        # XLA scatters in place if nothing else reads the array.
        is_alone = primitive.startswith("scatter") and {*carried.uses} == {made.made}
        is_changed = last == made.made and (primitive in _CHANGE or is_alone)
        return made.made > carried.made and (last < made.made or is_changed)

    def _given(
        self, site: Site, body: Any, atoms: Sequence[Any], known: dict[Any, Value], place: int
    ) -> dict[Any, Value]:
        """Return the values of the inputs of a body by variable; a literal operand gets a new value."""
        block = self._program.by_id[site.id].block
        inside: dict[Any, Value] = {}
        for number, (var, atom) in enumerate(zip(body.invars, atoms, strict=False)):
            if atom is None or jax_versions.is_literal(atom):
                inside[var] = self._new(f"{site.id}.x{number}", _spec(var), block, place)
            elif atom in known:  # else it is unused
                inside[var] = known[atom]
        for number, var in enumerate(body.constvars):
            inside[var] = self._new(f"{site.id}.constant{number}", _spec(var), block, BEFORE)
        return inside

    @staticmethod
    def _keep(values: Iterable[Value], place: int) -> None:
        for value in values:
            value.uses.append(place)


def _values(known: dict[Any, Value], atoms: Iterable[Any]) -> list[Value]:
    """Return the values of operands or results, without literals and unused results."""
    return [value for value in (_value(known, atom) for atom in atoms) if value is not None]


def _value(known: dict[Any, Value], atom: Any) -> Value | None:
    return None if jax_versions.is_literal(atom) else known.get(atom)


def _matching(body: Any, atoms: Sequence[Any]) -> list[Any]:
    """Return the operand of an equation that each input of its body receives.

    The equation may have further operands. For example, the first operand of a conditional selects the branch. Then the
    operands are matched by shape and dtype, from the last to the first; an input without a match has `None`.
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
    """Return the index of the last equation inside each equation by id; for one without a body, its own index."""
    found = dict(places)
    for site in reversed(sites):
        if site.parent is not None:
            found[site.parent.id] = max(found[site.parent.id], found[site.id])
    return found
