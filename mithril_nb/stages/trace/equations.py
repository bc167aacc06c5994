"""A jaxpr as a flat list of equations with paths, scopes and run counts. An equation precedes those of its bodies."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from mithril_nb.stages import jax_versions
from mithril_nb.stages.jax_versions import NameStack, is_literal
from mithril_nb.stages.records import SIZE, Constant
from mithril_nb.stages.trace.trips import trip_count


@dataclass(slots=True)
class Site:
    """One equation at its place in a program: an equation in a body that is called twice has two sites.

    Attributes that are not listed here have the same meaning as in `Equation`.

    Attributes:
        equation: JAX's own object.
        variables: The operands that are not literals. If a `select_n` selects between equal values, its predicate is
            left out.
        parent: The site whose body contains this one; `None` if no other equation contains it.
        stack: The name stack: names of scopes and transforms around the equation, the outermost first.
        bodies: The nested jaxprs, without their constants, each with the sites of its equations.
        dropped: Indices of unused results of a loop or of a QR factorization; empty for other equations.
    """

    id: str
    equation: Any
    primitive: str
    variables: tuple[Any, ...]
    parent: Site | None
    stack: NameStack
    repeats: int | None
    bodies: Sequence[tuple[Any, Sites]] = ()
    is_used: bool = True
    constants: tuple[Constant, ...] = ()
    transforms: tuple[str, ...] = ()
    dropped: frozenset[int] = frozenset()

    @property
    def is_call(self) -> bool:
        """Return whether the equation only runs nested jaxprs."""
        return bool(self.bodies)


Sites = list[Site]
"""The sites of a jaxpr's own equations, without nested ones, or of all its equations."""


class Wiring(NamedTuple):
    """Connection between the inputs and outputs of a body and the operands and results of its equation.

    Attributes:
        jaxpr: The body, as an open jaxpr.
        sites: The sites of the body's equations.
        operands: For each input of the body, the index of the operand that it receives; `None` if unknown.
        results: For each output of the body, the index of the result that it becomes; `None` if unknown.
        carried: For each carry of a loop, the index of the body's input for it, and of the output with its next value;
            `()` for other equations.
        constants: Number of the first inputs of a loop body that are the same in each iteration, and are not sliced.
    """

    jaxpr: Any
    sites: Sites
    operands: Sequence[int] | None
    results: range | None
    carried: tuple[tuple[int, int], ...] = ()
    constants: int = 0


def wirings(site: Site) -> list[Wiring]:
    """Return a `Wiring` for each body of an equation."""
    # For a `while`, the loop body precedes the condition.
    equation = site.equation
    operand_count, result_count = len(equation.invars), len(equation.outvars)
    if site.primitive == "scan":
        ((jaxpr, body),) = site.bodies
        count = jax_versions.carried(equation)
        pairs = zip(jaxpr.invars, equation.invars, strict=True)
        # JAX 0.12 does not store how many operands are sliced. A sliced operand has one axis less inside the body.
        sliced = sum(len(var.aval.shape) < len(atom.aval.shape) for var, atom in pairs)
        first = operand_count - count - sliced
        return [
            Wiring(
                jaxpr,
                body,
                range(operand_count),
                range(result_count),
                tuple((first + k, k) for k in range(count)),
                first,
            )
        ]
    loop = jax_versions.while_parts(equation)
    if loop is not None:
        by_jaxpr = {id(jaxpr): body for jaxpr, body in site.bodies}
        first, state = loop.condition_constants, list(range(operand_count - result_count, operand_count))
        own = loop.body_constants
        operands = [*range(first, first + own), *state]
        carried = tuple((own + k, k) for k in range(result_count))
        return [
            Wiring(loop.body, by_jaxpr[id(loop.body)], operands, range(result_count), carried, own),
            Wiring(loop.condition, by_jaxpr[id(loop.condition)], [*range(first), *state], None, constants=first),
        ]
    # The first operands are a predicate, or constants of another body.
    return [
        Wiring(
            jaxpr,
            body,
            range(operand_count - len(jaxpr.invars), operand_count) if len(jaxpr.invars) <= operand_count else None,
            range(result_count) if len(jaxpr.outvars) == result_count else None,
        )
        for jaxpr, body in site.bodies
    ]


def each_equation(jaxpr: Any) -> Iterator[Any]:
    """Yield the equations of a jaxpr and of its nested jaxprs, as JAX's objects."""
    # A shared body is visited once.
    seen: dict[int, Any] = {}  # keeps the bodies alive, so their ids stay unique

    def walk(jaxpr: Any) -> Iterator[Any]:
        for equation in jaxpr.eqns:
            yield equation
            for _, body in jax_versions.bodies(equation):
                if id(body) not in seen:
                    seen[id(body)] = body
                    yield from walk(jax_versions.open_jaxpr(body))

    return walk(jaxpr)


class Outline(NamedTuple):
    """tuple[str, ...] and names of a jaxpr, which take less time to compute than its sites.

    Attributes:
        ids: The ids of all equations. An equation precedes those of its bodies.
        inside: A dict from the index in `ids` of each equation with a body to 1 plus the number of equations in it.
        names: Names of all scopes and of all called functions.
        have_frames: True if JAX recorded Python frames for every equation.
    """

    ids: list[str]
    inside: dict[int, int]
    names: set[str]
    have_frames: bool


def outline_of(jaxpr: Any) -> Outline:
    """Return the outline of a jaxpr."""
    outlines: dict[int, Outline] = {}
    names: set[str] = set()

    def read(jaxpr: Any) -> Outline:
        ids: list[str] = []
        inside: dict[int, int] = {}
        have_frames = True
        for index, equation in enumerate(jaxpr.eqns):
            names.update([scope for scope, _ in jax_versions.name_stack(equation)])
            if "name" in equation.params:
                names.add(str(equation.params["name"]))
            # A jaxpr that was built by code, instead of traced from Python, has no tracebacks.
            have_frames &= equation.source_info.traceback is not None
            position = len(ids)
            ids.append(str(index))
            for prefix, body in jax_versions.bodies(equation):
                plain = jax_versions.open_jaxpr(body)
                # `id` is unique here, because the jaxpr keeps its bodies alive.
                own = outlines[id(plain)] if id(plain) in outlines else outlines.setdefault(id(plain), read(plain))
                inside.update({len(ids) + at: count for at, count in own.inside.items()})
                ids += [f"{index}.{prefix}{id}" for id in own.ids]
                inside[position] = len(ids) - position
                have_frames &= own.have_frames
        return Outline(ids, inside, names, have_frames)

    return read(jaxpr)


def sites_of(jaxpr: Any) -> tuple[Sites, Sites]:
    """Return the sites of a jaxpr's own equations, and the sites of all equations, nested ones included."""
    everything: Sites = []
    read: dict[int, list[_Read]] = {}  # a shared body is read once

    def parts(jaxpr: Any, is_top: bool) -> Iterable[_Read]:
        if is_top:
            return map(_read, jaxpr.eqns)
        if id(jaxpr) not in read:
            read[id(jaxpr)] = [_read(equation) for equation in jaxpr.eqns]
        return read[id(jaxpr)]

    def walk(
        jaxpr: Any,
        prefix: str,
        parent: Site | None,
        stack: NameStack,
        repeats: int | None,
        transforms: tuple[str, ...],
        constants: dict[Any, Constant],
    ) -> Sites:
        here = []
        originals: dict[Any, Any] = {}
        for index, (equation, own, variables, bodies) in enumerate(parts(jaxpr, parent is None)):
            site = Site(
                f"{prefix}{index}",
                equation,
                equation.primitive.name,
                variables,
                parent,
                stack + own if own else stack,
                repeats,
            )
            site.constants = _constants(site, constants)
            if site.primitive == "stop_gradient" and site.variables:
                originals[equation.outvars[0]] = originals.get(site.variables[0], site.variables[0])
            elif site.primitive == "select_n" and len(site.variables) == len(equation.invars) > 2:
                cases = site.variables[1:]
                if len({originals.get(case, case) for case in cases}) == 1:  # the start of a vmapped `cond`
                    site.variables, site.constants = cases, ("?", *site.constants[1:])
            site.transforms = _inside(transforms, jax_versions.transforms_of(own)) if own else transforms
            here.append(site)
            everything.append(site)
            if bodies:
                site.bodies = own_bodies = []
                trips = trip_count(equation, site.constants)
                times = None if repeats is None or trips is None else repeats * trips
                within = _inside(site.transforms, jax_versions.transform_of(site.primitive))
                for inner, body in bodies:
                    plain = jax_versions.open_jaxpr(body)
                    # The condition of a loop runs once more than the body.
                    more = repeats if site.primitive == "while" and jax_versions.is_condition(equation, plain) else 0
                    runs = None if times is None or more is None else times + more
                    inner_constants: dict[Any, Constant] = {}
                    # JAX inlines the function of a custom derivative, so XLA folds the constants among its inputs.
                    if site.primitive in jax_versions.WRITTEN_OUT and len(plain.invars) == len(site.constants):
                        pairs = zip(plain.invars, site.constants, strict=True)
                        inner_constants = {var: constant for var, constant in pairs if constant is not None}
                    sites = walk(plain, f"{site.id}.{inner}", site, site.stack, runs, within, inner_constants)
                    own_bodies.append((plain, sites))
        return here

    top = walk(jaxpr, "", None, (), 1, (), {})
    _mark_used(jaxpr, top, [True] * len(jaxpr.outvars))
    return top, everything


# An equation, its name stack in its jaxpr, its operands without literals, and its bodies.
_Read = tuple[Any, NameStack, tuple[Any, ...], list[tuple[str, Any]]]


def _read(equation: Any) -> _Read:
    variables = jax_versions.variables(equation.invars)
    return equation, jax_versions.name_stack(equation), variables, jax_versions.bodies(equation)


def _inside(outer: tuple[str, ...], own: tuple[str, ...]) -> tuple[str, ...]:
    # JAX names remat twice, in its equation and in the scopes of its body; here it appears once.
    return outer + (own[1:] if outer[-1:] == own[:1] == ("remat",) else own)


def _constants(site: Site, constants: dict[Any, Constant]) -> tuple[Constant, ...]:
    atoms = site.equation.invars
    if len(site.variables) == len(atoms):
        operands = tuple(map(constants.get, atoms))
    else:
        operands = tuple(
            [
                constants.get(atom)
                if not is_literal(atom)
                else float(atom.val)
                if jax_versions.is_number(atom.val)
                else None
                for atom in atoms
            ]
        )
    if operands and None not in operands and len(site.equation.outvars) == 1:
        if site.primitive in _KEEPS_VALUE:
            constants[site.equation.outvars[0]] = _converted(operands[0], site.equation.outvars[0].aval.dtype)
        elif site.primitive in _FOLDS:
            constants[site.equation.outvars[0]] = _folded(site.primitive, operands)
    elif site.primitive == "iota" and site.equation.outvars[0].aval.shape[site.equation.params["dimension"]] == 1:
        constants[site.equation.outvars[0]] = 0.0  # an iota of size 1, with which derivatives start
    elif site.primitive == "dim_as_value":
        constants[site.equation.outvars[0]] = f"{SIZE}{jax_versions.size_as_value(site.equation)}"
    return operands


def _converted(value: Constant, dtype: Any) -> Constant:
    if not isinstance(value, float) or dtype == np.float32:
        return value
    if np.issubdtype(dtype, np.complexfloating):
        return "?"
    # A number outside the range of the dtype overflows, so it compares as changed.
    with np.errstate(all="ignore"):
        return value if float(np.asarray(value).astype(dtype)) == value else "?"


def _folded(primitive: str, operands: tuple[Constant, ...]) -> Constant:
    if len(operands) == 2 and all(isinstance(operand, float) for operand in operands):
        left, right = operands
        if primitive in _COMPARED:
            return float(_COMPARED[primitive](left, right))
        if primitive == "add" and 0.0 in operands:
            return right if left == 0.0 else left
    return "?"


_KEEPS_VALUE = frozenset(
    "broadcast_in_dim reshape squeeze expand_dims split convert_element_type copy pvary pcast".split()
)
_COMPARED = {name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")}
_FOLDS = frozenset(
    "add sub mul div max min neg abs exp log sqrt rsqrt integer_pow pow square eq ne lt le gt ge and or not "
    "select_n".split()
)


def _mark_used(jaxpr: Any, body: Sites, used: list[bool]) -> list[bool]:
    live = {atom for atom, is_used in zip(jaxpr.outvars, used, strict=True) if is_used and not is_literal(atom)}
    for site in reversed(body):
        equation = site.equation
        site.is_used = jax_versions.has_effects(equation) or not live.isdisjoint(equation.outvars)
        if not site.is_used:
            for _, inner in site.bodies:
                _mark_unused(inner)
            continue
        if not site.bodies:
            live.update(site.variables)
            if site.primitive == "qr":
                site.dropped = frozenset(index for index, var in enumerate(equation.outvars) if var not in live)
            continue
        used = [var in live for var in equation.outvars]
        if site.primitive in ("scan", "while"):
            needed = _mark_loop(site, used)
        else:
            inputs = [
                _mark_used(body, sites, used if len(used) == len(body.outvars) else [True] * len(body.outvars))
                for body, sites in site.bodies
            ]
            needed = [True] * len(equation.invars)
            if site.primitive == "cond":  # the operands of its branches, after the index of the branch
                needed = [True, *map(any, zip(*inputs, strict=True))]
            elif site.primitive in jax_versions.CALL_NAMES and len(inputs[0]) == len(needed):
                needed = inputs[0]
        # JAX also removes operands of a call that only unused results depend on.
        live.update(
            atom for atom, is_needed in zip(equation.invars, needed, strict=True) if is_needed and not is_literal(atom)
        )
    return [var in live for var in jaxpr.invars]


def _mark_unused(body: Sites) -> None:
    for site in body:
        site.is_used = False
        for _, inner in site.bodies:
            _mark_unused(inner)


def _mark_loop(site: Site, used: list[bool]) -> list[bool]:
    """Set `is_used` in the body of a loop, from the used flag of each result; return the flag of each operand."""
    # A carry is used if its final value is used, or if another used value depends on it. Unused carries are removed:
    # by JAX for scans, and for `while` since JAX 0.12; else by XLA.
    needed = [False] * len(site.equation.invars)
    loop, *conditions = wirings(site)
    assert loop.operands is not None
    for condition in conditions:
        _need(needed, condition, _mark_used(condition.jaxpr, condition.sites, [True]))
    used = list(used)
    for at, result in loop.carried:
        used[result] |= needed[loop.operands[at]]
    while True:
        inputs = _mark_used(loop.jaxpr, loop.sites, used)
        more = list(used)
        for at, result in loop.carried:
            more[result] |= inputs[at]
        if more == used:
            break
        used = more
    site.dropped = frozenset(index for index, is_used in enumerate(used) if not is_used)
    for at, result in loop.carried:
        inputs[at] = used[result]
    _need(needed, loop, inputs)
    return needed


def _need(needed: list[bool], wiring: Wiring, inputs: list[bool]) -> None:
    for at, is_used in zip(wiring.operands or (), inputs, strict=True):
        needed[at] |= is_used
