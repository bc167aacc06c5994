"""From equations to costs, each by its rule: nothing is lowered, compiled or run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from mithril_nb.cost import contractions, randomness, reductions  # noqa: F401  They register their rules.
from mithril_nb.cost.records import NO_TRIP_COUNT, CostRow, Figures
from mithril_nb.cost.rules import counted
from mithril_nb.stages.records import Equation


def equation_rows(equations: Iterable[Equation]) -> tuple[CostRow, ...]:
    """Return what each equation costs that is not just a call of others.

    Of the branches of a condition only the dearest counts, as in XLA.

    Args:
        equations: The equations of a program, those of nested jaxprs after the one that holds them.

    Examples:
        >>> import jax.numpy as jnp
        >>> from mithril_nb.stages import inspect
        >>> (row,) = equation_rows(inspect(jnp.matmul, jnp.zeros((2, 3)), jnp.zeros((3, 4))).equations)
        >>> row.opcode, row.formula, row.flops
        ('dot_general', '2·B·M·N·K', 48)
    """
    everything = tuple(equations)
    found = tuple(equation_row(equation) for equation in everything if not equation.is_call)
    return dearest_branches((one.id for one in everything if one.primitive == "cond" and one.is_call), found)


def dearest_branches(conditions: Iterable[str], found: tuple[CostRow, ...]) -> tuple[CostRow, ...]:
    """Return the same costs with those of all branches but the dearest at nothing.

    Args:
        conditions: Ids of the conditions, those that hold others first.
        found: The costs of all equations.
    """
    for condition in reversed(tuple(conditions)):
        found = _dearest_branch(condition, found)
    return found


def equation_row(equation: Equation) -> CostRow:
    """Return what one equation costs, of whatever branch it is."""
    repeats = equation.repeats if equation.is_used else 0
    each = counted(equation)
    flops, transcendentals, once, moved = (
        value if isinstance(value, int) else None for value in (each.flops, each.transcendentals, each.once, each.bytes)
    )
    if repeats == 0:
        moved = 0
    return CostRow(
        equation.id,
        equation.primitive,
        ((equation.block, 1.0),) if equation.block else (),
        equation.role,
        _times(flops, repeats),
        _times(transcendentals, repeats),
        _times(moved, repeats),
        repeats,
        each.formula if flops is None or repeats is not None else f"{each.formula}; {NO_TRIP_COUNT}",
        None,
        Figures(once, transcendentals, moved),
        (equation.id,),
        tuple([(letter, value if isinstance(value, int) else str(value)) for letter, value in each.letters.items()]),
    )


def _times(each: int | None, repeats: int | None) -> int | None:
    return None if each is None or repeats is None else each * repeats


def _dearest_branch(condition: str, found: tuple[CostRow, ...]) -> tuple[CostRow, ...]:
    branches: dict[str, int] = {}
    start = len(condition) + 1
    for row in found:
        if row.id.startswith(f"{condition}.b"):
            branch = row.id[start:].split(".", 1)[0]
            known = 0 if row.once is None else row.once.flops or 0
            branches[branch] = branches.get(branch, 0) + known
    if len(branches) < 2:
        return found
    dearest = max(branches, key=lambda branch: branches[branch])
    return tuple(
        replace(
            row, flops=0, transcendentals=0, bytes_accessed=0, repeats=0, once=Figures(),
            formula="0: another branch costs more",
        )
        if row.id.startswith(f"{condition}.b") and not row.id.startswith(f"{condition}.{dearest}.")
        else row
        for row in found
    )  # fmt: skip
