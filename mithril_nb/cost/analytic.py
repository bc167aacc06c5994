"""Costs of equations by our rules. Nothing is lowered, compiled or run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from mithril_nb.cost.formulas.communication import sends_no_more
from mithril_nb.cost.formulas.rules import Counted, counted, has_cost
from mithril_nb.cost.formulas.sizes import repeated, sum_of
from mithril_nb.cost.records import NO_TRIP_COUNT, CostRow, Figures, is_unknown
from mithril_nb.stages.records import Equation

if TYPE_CHECKING:
    from mithril_nb.stages.records import Input


def equation_rows(equations: Iterable[Equation]) -> tuple[CostRow, ...]:
    """Return the cost of each equation except calls, whose inner equations are counted.

    Only the most expensive branch of a condition counts, as in XLA.

    Args:
        equations: The equations of a program; those of a nested jaxpr follow the equation that holds it.

    Examples:
        >>> import jax.numpy as jnp
        >>> from mithril_nb.inspection import inspect
        >>> (row,) = equation_rows(inspect(jnp.matmul, jnp.zeros((2, 3)), jnp.zeros((3, 4))).equations)
        >>> row.opcode, row.formula, row.flops
        ('dot_general', '2·B·M·N·K', 48)
    """
    everything = tuple(equations)
    found = tuple(equation_row(one, counted(one), one.repeats) for one in everything if has_cost(one))
    return most_expensive_branches((one.id for one in everything if one.primitive == "cond" and one.is_call), found)


def most_expensive_branches(conditions: Iterable[str], found: tuple[CostRow, ...]) -> tuple[CostRow, ...]:
    """Return the costs with only the most expensive branch of each condition counted; the others cost 0.

    The most expensive branch has the most FLOPs and transcendentals, with loops counted as often as they run. A branch
    with an unknown cost may be more expensive, so its costs and repeats are unknown. If a cheaper branch may
    communicate more than the most expensive one, payload and wire bytes of its collectives are unknown.

    Args:
        conditions: Ids of the conditions, outer ones first.
        found: The costs of all equations.
    """
    every = tuple(conditions)
    rows, places = list(found), _places_in_branches(every, found)
    for condition in reversed(every):
        _count_most_expensive(places[condition], rows)
    return tuple(rows)


def equation_row(equation: Equation, each: Counted, repeats: int | None) -> CostRow:
    """Return the cost of one equation in any branch.

    Args:
        equation: The equation.
        each: The cost of one run.
        repeats: How often it runs if its results are used; `None` if unknown.
    """
    repeats = repeats if equation.is_used else 0
    flops, transcendentals, once, moved, payload, wire = (
        value if isinstance(value, int) else None
        for value in (each.flops, each.transcendentals, each.once, each.bytes, each.payload, each.wire)
    )
    if repeats == 0:
        moved = 0
    return CostRow(
        equation.id,
        equation.primitive,
        ((equation.block, 1.0),) if equation.block else (),
        equation.role,
        repeated(flops, repeats),
        repeated(transcendentals, repeats),
        repeated(moved, repeats),
        repeats,
        each.formula if not (flops or transcendentals) or repeats is not None else f"{each.formula}; {NO_TRIP_COUNT}",
        None,
        Figures(once, transcendentals, moved),
        (equation.id,),
        tuple([(letter, value if isinstance(value, int) else str(value)) for letter, value in each.letters.items()]),
        "",
        repeated(payload, repeats),
        repeated(wire, repeats),
    )


def moved_rows(inputs: Iterable[Input]) -> tuple[CostRow, ...]:
    """Return a row for each argument that is also a result with another sharding.

    The bytes moved are unknown until XLA partitions the program.

    Args:
        inputs: The arguments of a program.
    """
    return tuple(
        CostRow(
            f"arg{place}", "parameter", ((one.block, 1.0),) if one.block else (), None, 0, 0, 0, 1, "0: moves data",
            None, Figures(), (f"arg{place}",), payload_bytes=None, wire_bytes=None,
        )
        for place, one in enumerate(inputs)
        if one.is_moved
    )  # fmt: skip


def _places_in_branches(conditions: Iterable[str], found: Iterable[CostRow]) -> dict[str, dict[str, list[int]]]:
    """Return the indices of the rows in each branch of each condition, including those in nested conditions."""
    places: dict[str, dict[str, list[int]]] = {condition: {} for condition in conditions}
    for place, row in enumerate(found if places else ()):
        outer, _, inner = row.id.partition(".b")
        while inner:
            if outer in places:
                places[outer].setdefault(inner.partition(".")[0], []).append(place)
            head, _, inner = inner.partition(".b")
            outer = f"{outer}.b{head}"
    return places


def _count_most_expensive(places: Mapping[str, Sequence[int]], rows: list[CostRow]) -> None:
    """Set the rows of all cheaper branches of a condition to 0, or to unknown.

    Args:
        places: Indices of the rows of each branch.
        rows: The rows of the program, which are changed in place.
    """
    if len(places) < 2:
        return
    branches = {branch: [rows[place] for place in each] for branch, each in places.items()}
    most_expensive = max(branches, key=lambda branch: sum(map(_weight, branches[branch])))
    is_known = {branch: not any(map(is_unknown, rows)) for branch, rows in branches.items()}
    sums = {branch: _sent(rows) for branch, rows in branches.items()}
    is_quiet = {branch: sends_no_more(each, sums[most_expensive]) for branch, each in sums.items()}
    for branch, each in places.items():
        if branch != most_expensive:
            for place in each:
                rows[place] = _idle(rows[place], is_quiet[branch]) if is_known[branch] else _maybe(rows[place])


def _sent(rows: Iterable[CostRow]) -> tuple[int | None, int | None]:
    every = tuple(rows)
    return sum_of(*(row.payload_bytes for row in every)), sum_of(*(row.wire_bytes for row in every))


def _weight(row: CostRow) -> int:
    """Return the cost of a row in all its runs; if that is unknown, with loops counted once."""
    known = row.once if is_unknown(row) else row
    return 0 if known is None else (known.flops or 0) + (known.transcendentals or 0)


def _idle(row: CostRow, is_quiet: bool) -> CostRow:
    """Return the row of a cheaper branch; `is_quiet` if the branch sends no more than the most expensive one."""
    payload, wire = (0 if is_quiet or value == 0 else None for value in (row.payload_bytes, row.wire_bytes))
    return replace(
        row, flops=0, transcendentals=0, bytes_accessed=0, repeats=0, once=Figures(), payload_bytes=payload,
        wire_bytes=wire, formula="0: another branch costs more",
    )  # fmt: skip


def _maybe(row: CostRow) -> CostRow:
    """Return the row of a branch that may be the most expensive one."""
    flops, transcendentals, moved, payload, wire = (
        0 if value == 0 else None
        for value in (row.flops, row.transcendentals, row.bytes_accessed, row.payload_bytes, row.wire_bytes)
    )
    has_rule = row.once is not None and row.once.flops is not None
    once = Figures() if has_rule else Figures(None, None)
    return replace(
        row, flops=flops, transcendentals=transcendentals, bytes_accessed=moved, repeats=None, once=once,
        payload_bytes=payload, wire_bytes=wire,
    )  # fmt: skip
