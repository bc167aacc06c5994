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


# Primitives whose result may reuse the memory of their operand.
_CHANGE = frozenset({"scan", "while", "scatter", "dynamic_update_slice"})


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


Values = dict[Any, Value]
"""The value of each variable of a jaxpr."""


def dataflow(program: Program) -> tuple[Value, ...]:
    """Return all arrays of a program in order of creation: arguments, constants, and results of used equations."""
    return tuple(sorted(_Flow(program).values, key=lambda value: value.made))


class _Flow:
    def __init__(self, program: Program):
        self._program = program
        self.values: list[Value] = []
        self._places = {site.id: index for index, site in enumerate(program.sites)}
        self._last_inside = _last_inside(program.sites, self._places)
        jaxpr = program.trace.closed.jaxpr
        values: Values = {}
        inputs = zip(jaxpr.invars, program.inputs, program.trace.donated_leaves, strict=True)
        for var, array, is_donated in inputs:
            values[var] = self._new(array.name, array.spec, array.block, BEFORE)
            values[var].is_argument, values[var].is_donated = True, is_donated
        for number, var in enumerate(jaxpr.constvars):
            values[var] = self._new(f"constant {number}", _spec(var), "", BEFORE)
        self._walk(program.top, values)
        for value in _values(values, jaxpr.outvars):
            value.given += 1

    def _new(self, id: str, spec: TensorSpec, block: str, created_at: int) -> Value:
        value = Value(id, spec, block, created_at)
        self.values.append(value)
        return value

    def _walk(self, sites: Sequence[Site], values: Values) -> None:
        for site in sites:
            if not site.is_used:
                continue
            index = self._places[site.id]
            for var in site.variables:
                value = values.get(var)
                if value is not None:
                    value.uses.append(index)
            if not site.bodies or site.primitive == "pallas_call":  # the blocks of a kernel are on the chip
                self._results(site, values, index)
            elif site.primitive in ("scan", "while"):
                self._loop(site, values, index)
            elif len(site.bodies) == 1 and len(site.equation.outvars) == len(site.bodies[0][0].outvars):
                self._call(site, values, index)
            else:
                self._branches(site, values, index)

    def _results(self, site: Site, values: Values, created_at: int) -> None:
        record = self._program.by_id[site.id]
        outvars = site.equation.outvars
        if len(outvars) == 1:
            values[outvars[0]] = self._new(site.id, record.outputs[0], record.block, created_at)
            return
        for number, (var, spec) in enumerate(zip(outvars, record.outputs, strict=True)):
            if number not in site.dropped:
                values[var] = self._new(f"{site.id}{{{number}}}", spec, record.block, created_at)

    def _call(self, site: Site, values: Values, index: int) -> None:
        body, inner = site.bodies[0]
        inside = self._inputs_inside(site, body, _matching(body, site.equation.invars), values, index)
        self._walk(inner, inside)
        record = self._program.by_id[site.id]
        for number, (var, atom) in enumerate(zip(site.equation.outvars, body.outvars, strict=True)):
            # A call may return a constant, which no equation computes.
            if jax_versions.is_literal(atom):
                values[var] = self._new(f"{site.id}{{{number}}}", record.outputs[number], record.block, index)
            elif atom in inside:  # else it is unused
                values[var] = inside[atom]

    def _branches(self, site: Site, values: Values, index: int) -> None:
        for body, inner in site.bodies:
            inside = self._inputs_inside(site, body, _matching(body, site.equation.invars), values, index)
            self._walk(inner, inside)
            # In the order of the equations, a branch ends before the next one begins.
            end = self._places[inner[-1].id] if inner else index
            self._use(_values(inside, body.outvars), end)
        self._results(site, values, self._last_inside[site.id])
        self._use(_values(values, site.variables), self._last_inside[site.id])

    def _loop(self, site: Site, values: Values, index: int) -> None:
        atoms, results = site.equation.invars, site.equation.outvars
        end = self._last_inside[site.id]
        self._results(site, values, index)
        loop, *conditions = wirings(site)
        # A carry is one `Value` for all iterations. Each iteration of a scan reads one slice of a scanned input.
        carried = {(loop.operands or ())[at]: result for at, result in loop.carried}
        for wiring in (*conditions, loop):
            operands = wiring.operands or ()
            own = [atoms[at] for at in operands[: wiring.constants]]
            inside = self._inputs_inside(site, wiring.jaxpr, own, values, index)
            for number in range(wiring.constants, len(operands)):
                var, operand = wiring.jaxpr.invars[number], operands[number]
                if operand not in carried:
                    array = _value(values, atoms[operand])
                    block = (array and array.block) or self._program.by_id[site.id].block
                    inside[var] = self._new(f"{site.id}.x{number}", _spec(var), block, index)
                elif carried[operand] not in site.dropped:  # an unused carry has no value: XLA removes it
                    inside[var] = values[results[carried[operand]]]
            self._walk(wiring.sites, inside)
            if wiring is not loop:
                continue
            for var, atom, _ in zip(results, loop.jaxpr.outvars, carried, strict=False):
                result, next_value = values.get(var), _value(inside, atom)
                if result is not None and next_value is not None:
                    last, primitive = (
                        max(result.uses, default=result.made),
                        self._program.sites[next_value.made].primitive,
                    )
                    # XLA scatters in place if nothing else reads the array.
                    is_alone = primitive.startswith("scatter") and {*result.uses} == {next_value.made}
                    is_changed = last == next_value.made and (primitive in _CHANGE or is_alone)
                    next_value.is_in_place = next_value.made > result.made and (last < next_value.made or is_changed)
            self._use(_values(inside, loop.jaxpr.outvars), end)
            self._use(_values(values, results), end)
            initial = [atoms[at] for at in carried]
            # A result belongs to the block that computes it in the body. If the body returns an input unchanged, the
            # result belongs to the block that computed the initial value.
            for number, (var, atom) in enumerate(zip(results, loop.jaxpr.outvars, strict=True)):
                result, next_value = values.get(var), _value(inside, atom)
                if next_value is result and number < len(initial):
                    next_value = _value(values, initial[number])
                if result is not None and next_value is not None and next_value.block:
                    result.block = next_value.block
        self._use(_values(values, [atom for at, atom in enumerate(atoms) if at not in carried]), end)

    def _inputs_inside(self, site: Site, body: Any, atoms: Sequence[Any], values: Values, index: int) -> Values:
        block = self._program.by_id[site.id].block
        inside: Values = {}
        for number, (var, atom) in enumerate(zip(body.invars, atoms, strict=False)):
            if atom is None or jax_versions.is_literal(atom):
                inside[var] = self._new(f"{site.id}.x{number}", _spec(var), block, index)
            elif atom in values:  # else it is unused
                inside[var] = values[atom]
        for number, var in enumerate(body.constvars):
            inside[var] = self._new(f"{site.id}.constant{number}", _spec(var), block, BEFORE)
        return inside

    @staticmethod
    def _use(values: Iterable[Value], index: int) -> None:
        for value in values:
            value.uses.append(index)


def _values(values: Values, atoms: Iterable[Any]) -> list[Value]:
    return [value for value in (_value(values, atom) for atom in atoms) if value is not None]


def _value(values: Values, atom: Any) -> Value | None:
    return None if jax_versions.is_literal(atom) else values.get(atom)


def _matching(body: Any, atoms: Sequence[Any]) -> list[Any]:
    """Return the operand of an equation that each input of its body receives."""
    left = list(atoms)
    if len(left) == len(body.invars):
        return left
    matches: list[Any] = []
    for var in reversed(body.invars):
        at = next((at for at in reversed(range(len(left))) if _spec(left[at]) == _spec(var)), None)
        matches.append(None if at is None else left.pop(at))
    return matches[::-1]


def _spec(var: Any) -> TensorSpec:
    return jax_versions.specs_of((var,))[0]


def _last_inside(sites: Sequence[Site], indices: dict[str, int]) -> dict[str, int]:
    last = dict(indices)
    for site in reversed(sites):
        if site.parent is not None:
            last[site.parent.id] = max(last[site.parent.id], last[site.id])
    return last
