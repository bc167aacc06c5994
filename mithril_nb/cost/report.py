"""From equations to costs: each by its rule, added up by block and role."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from mithril_nb.cost import contractions, randomness, reductions  # noqa: F401  They register their rules.
from mithril_nb.cost.records import BlockCost, CostReport, EquationCost, Total, Unknown, known_sum, total_of
from mithril_nb.cost.rules import NO_RULE as NO_RULE
from mithril_nb.cost.rules import NO_SIZE as NO_SIZE
from mithril_nb.cost.rules import counted
from mithril_nb.cost.xla import Source, memory_of, source_of
from mithril_nb.stages.collector import paused_collector
from mithril_nb.stages.records import Equation

if TYPE_CHECKING:
    from mithril_nb.stages.inspection import Inspection

ANALYTIC = "analytic (jaxpr)"
ANALYTIC_ONCE = "analytic, loops once"
LOWERED = "XLA lowered"
COMPILED = "XLA compiled"

NO_TRIP_COUNT = "trip count unknown"


_KNOWN: WeakKeyDictionary[Inspection, tuple[EquationCost, ...]] = WeakKeyDictionary()
"""The picture, the text and the table of a program ask for the same: its equations do not change."""


def _known(inspection: Inspection) -> tuple[EquationCost, ...]:
    if inspection not in _KNOWN:
        equations = inspection.equations
        with paused_collector():
            _KNOWN[inspection] = cost_equations(equations)
    return _KNOWN[inspection]


def report(inspection: Inspection) -> CostReport:
    """Add up what a program costs, from its jaxpr alone: nothing is lowered, compiled or run.

    Figures of XLA that are there already are taken along; `with_xla` makes them.

    Args:
        inspection: The program.

    Returns:
        Its costs.

    Raises:
        StageUnavailableError: The program cannot be traced.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from mithril_nb.stages import inspect
        >>> square = jax.ShapeDtypeStruct((128, 128), jnp.float32)
        >>> def ten(x, w):
        ...     return jax.lax.scan(lambda c, _: (c @ w, None), x, None, length=10)[0]
        >>> report(inspect(ten, square, square)).total.flops
        41943040
    """
    found = _known(inspection)
    blocks: dict[str, list[EquationCost]] = {}
    for cost in found:
        blocks.setdefault(cost.block, []).append(cost)
    params: dict[str, int] = {}
    for one in inspection.inputs:
        if one.is_param:
            params[one.block] = params.get(one.block, 0) + (one.spec.size or 0)
            blocks.setdefault(one.block, [])
    rows = tuple(_block(path, costs, params.get(path, 0)) for path, costs in blocks.items())
    whole = total_of("", rows)
    total = Total(
        whole.flops or 0, whole.transcendentals or 0, whole.bytes or 0, whole.params, whole.unknown, whole.unknown_bytes
    )
    sources = [Source(ANALYTIC, total.flops, total.transcendentals, total.bytes)]
    once = sum(cost.once for cost in found)
    if once != total.flops:
        sources.append(Source(ANALYTIC_ONCE, once))
    made = CostReport(inspection.name, found, rows, total, tuple(sources), _unknown(found))
    return with_xla(made, inspection, lower=False)


def with_xla(costs: CostReport, inspection: Inspection, *, lower: bool = True, compile: bool = False) -> CostReport:
    """Return the report with XLA's own figures, for the stages that exist or are asked for.

    Args:
        costs: The report.
        inspection: The program that it is about.
        lower: Whether to lower the program for it.
        compile: Whether to compile the program for it, which may take long.

    Raises:
        Exception: What JAX or XLA said when they could not lower or compile it.
    """
    sources = [source for source in costs.sources if source.name not in (LOWERED, COMPILED)]
    memory = costs.memory
    if lower or compile or inspection.is_lowered:
        _ = inspection.lowered
        sources.append(source_of(LOWERED, lambda: inspection.analysis("lowered")))
    if compile or inspection.is_compiled:
        _ = inspection.compiled
        sources.append(source_of(COMPILED, lambda: inspection.analysis("compiled")))
        memory = memory_of(lambda: inspection.analysis("memory"))
    return replace(costs, sources=tuple(sources), memory=memory)


def cost_equations(equations: Iterable[Equation]) -> tuple[EquationCost, ...]:
    """Return what each equation costs that is not just a call of others.

    Of the branches of a condition only the dearest counts, as in XLA.
    """
    everything = tuple(equations)
    found = tuple(cost_equation(equation) for equation in everything if not equation.is_call)
    return dearest_branches((one.id for one in everything if one.primitive == "cond" and one.is_call), found)


def dearest_branches(conditions: Iterable[str], found: tuple[EquationCost, ...]) -> tuple[EquationCost, ...]:
    """Return the same costs with those of all branches but the dearest at nothing.

    Args:
        conditions: Ids of the conditions, those that hold others first.
        found: The costs of all equations.
    """
    for condition in reversed(tuple(conditions)):
        found = _dearest_branch(condition, found)
    return found


def cost_equation(equation: Equation) -> EquationCost:
    """Return what one equation costs, of whatever branch it is."""
    repeats = equation.repeats if equation.is_used else 0
    each = counted(equation)
    flops, transcendentals, once, moved = (
        value if isinstance(value, int) else None for value in (each.flops, each.transcendentals, each.once, each.bytes)
    )
    is_known = flops is not None and repeats is not None
    return EquationCost(
        equation.id,
        equation.primitive,
        equation.block,
        equation.role,
        None if flops is None or repeats is None else flops * repeats,
        None if transcendentals is None or repeats is None else transcendentals * repeats,
        None if moved is None or repeats is None else moved * repeats,
        repeats,
        flops,
        once or 0,
        each.formula if is_known or flops is None else f"{each.formula}; {NO_TRIP_COUNT}",
        tuple((letter, value if isinstance(value, int) else str(value)) for letter, value in each.letters.items()),
    )


def _dearest_branch(condition: str, found: tuple[EquationCost, ...]) -> tuple[EquationCost, ...]:
    branches: dict[str, int] = {}
    start = len(condition) + 1
    for cost in found:
        if cost.id.startswith(f"{condition}.b"):
            branch = cost.id[start:].split(".", 1)[0]
            branches[branch] = branches.get(branch, 0) + cost.once
    if len(branches) < 2:
        return found
    dearest = max(branches, key=lambda branch: branches[branch])
    return tuple(
        replace(cost, flops=0, transcendentals=0, bytes=0, repeats=0, once=0, formula="0: another branch costs more")
        if cost.id.startswith(f"{condition}.b") and not cost.id.startswith(f"{condition}.{dearest}.")
        else cost
        for cost in found
    )


def _block(path: str, costs: list[EquationCost], params: int) -> BlockCost:
    def of(role: str) -> int | None:
        return known_sum(cost.flops for cost in costs if cost.role == role)

    return BlockCost(
        path,
        known_sum(cost.flops for cost in costs),
        known_sum(cost.transcendentals for cost in costs),
        known_sum(cost.bytes for cost in costs),
        params,
        of("forward"),
        of("backward"),
        of("update"),
        sum(cost.flops is None for cost in costs),
        sum(cost.bytes is None for cost in costs),
    )


def _unknown(found: tuple[EquationCost, ...]) -> tuple[Unknown, ...]:
    groups: dict[tuple[str, str], list[EquationCost]] = {}
    for cost in found:
        if cost.flops is None:
            reason = NO_TRIP_COUNT if cost.each is not None else NO_RULE if cost.formula == NO_RULE else NO_SIZE
            groups.setdefault((cost.primitive, reason), []).append(cost)
    return tuple(
        Unknown(
            primitive,
            reason,
            len(costs),
            sum(cost.each or 0 for cost in costs) if reason == NO_TRIP_COUNT else None,
            len(costs) / len(found),
            tuple(dict.fromkeys(cost.block for cost in costs)),
        )
        for (primitive, reason), costs in groups.items()
    )
