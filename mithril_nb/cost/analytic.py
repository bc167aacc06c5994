"""Costs of a program's equations by our rules; of the branches of a `cond`, only the most expensive one counts.

Nothing is lowered, compiled or run. Importing this module registers the cost rules of Pallas kernels and expansions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mithril_nb.cost.formulas.communication import NOTHING, UNKNOWN, Sent, sends_no_more
from mithril_nb.cost.formulas.rules import Counted, Formula, counted, estimated, has_cost, rule
from mithril_nb.cost.formulas.sizes import as_size, bytes_of, repeated, sum_of, times
from mithril_nb.cost.formulas.symbols import Expression, Polynomial, UndecidedError, total
from mithril_nb.cost.records import NO_TRIP_COUNT, CostRow, Figures, is_unknown, sum_of_rows
from mithril_nb.graph.spec import TensorSpec
from mithril_nb.stages.records import SIZE, Equation
from mithril_nb.stages.trace.params import BLOCKS, ESTIMATE, GRID, KERNEL, equations_of

if TYPE_CHECKING:
    from mithril_nb.stages.records import Input

COUNTS, IDLE, UNDECIDED, SENDS = "counts", "idle", "undecided", "sends"
"""States of an equation in a branch of a `cond`.

- `COUNTS`: the branch is the most expensive one, so the equation counts.
- `IDLE`: another branch is more expensive, so the equation counts 0.
- `UNDECIDED`: the most expensive branch depends on symbolic sizes or unknown costs.
- `SENDS`: the equation is a collective. Another branch is more expensive but may send less to other devices.
"""


def equation_rows(equations: Iterable[Equation]) -> tuple[CostRow, ...]:
    """Return the cost of each equation. A call such as `jit` has no row: the equations inside it have their own.

    Only the most expensive branch of a `cond` counts, as in XLA.

    Examples:
        >>> import jax.numpy as jnp
        >>> from mithril_nb.inspection import inspect
        >>> (row,) = equation_rows(inspect(jnp.matmul, jnp.zeros((2, 3)), jnp.zeros((3, 4))).equations)
        >>> row.opcode, row.formula, row.flops
        ('dot_general', '2·B·M·N·K', 48)
    """
    everything = tuple(equations)
    rows = tuple(
        equation_row(equation, counted(equation), equation.repeats) for equation in everything if has_cost(equation)
    )
    return count_most_expensive_branches(
        (equation.id for equation in everything if equation.primitive == "cond" and equation.is_call), rows
    )


def count_most_expensive_branches(conditions: Iterable[str], all_rows: tuple[CostRow, ...]) -> tuple[CostRow, ...]:
    """Return the rows with the costs of all branches set to 0, except the most expensive branch of each `cond`.

    The most expensive branch has the largest sum of FLOPs and transcendentals. There are two exceptions:

    - A branch with unknown FLOPs may be more expensive than the chosen one. Its costs become unknown instead of 0.
    - A branch may send more to other devices than the chosen one. The bytes that it sends become unknown instead of 0.

    Args:
        conditions: Ids of the `cond` equations, outer ones first.
        all_rows: The rows of all equations.
    """
    ids = tuple(conditions)
    rows, indices = list(all_rows), _places_in_branches(ids, all_rows)
    # Inner conditions first: the weight of an outer branch contains only the counting branch of an inner one.
    for condition in reversed(ids):
        _count_most_expensive(indices[condition], rows)
    return tuple(rows)


def equation_row(equation: Equation, each: Counted, repeats: int | None, devices: int = 1) -> CostRow:
    """Return the row of an equation that costs `each` per run, and runs `repeats` times on each of some devices.

    Communication is that of one device.
    """
    # XLA removes unused equations, so they run 0 times whatever their loop does.
    repeats = repeats if equation.is_used else 0
    flops, transcendentals, once, moved, payload, wire, products = (
        value if isinstance(value, int) else None
        for value in (each.flops, each.transcendentals, each.once, each.bytes, each.payload, each.wire, each.products)
    )
    if repeats == 0:
        moved = 0
    runs = repeated(devices, repeats)
    return CostRow(
        equation.id,
        equation.primitive,
        ((equation.block, 1.0),) if equation.block else (),
        equation.role,
        repeated(flops, runs),
        repeated(transcendentals, runs),
        repeated(moved, runs),
        runs,
        each.formula if not (flops or transcendentals) or repeats is not None else f"{each.formula}; {NO_TRIP_COUNT}",
        None,
        Figures(once, transcendentals, moved),
        (equation.id,),
        tuple([(letter, value if isinstance(value, int) else str(value)) for letter, value in each.letters.items()]),
        "",
        repeated(payload, repeats),
        repeated(wire, repeats),
        (),
        repeated(None if products is None else products // 2, runs),
    )


def moved_rows(inputs: Iterable[Input]) -> tuple[CostRow, ...]:
    """Return a cost row for each argument that the program returns with another sharding.

    No equation moves this argument between devices: XLA does. The bytes that each device sends are unknown.
    """
    return tuple(
        CostRow(
            f"arg{index}",
            "parameter",
            ((argument.block, 1.0),) if argument.block else (),
            None,
            0,
            0,
            0,
            1,
            "0: moves data",
            None,
            Figures(),
            (f"arg{index}",),
            payload_bytes=None,
            wire_bytes=None,
            macs=0,
        )
        for index, argument in enumerate(inputs)
        if argument.is_moved
    )


def _places_in_branches(conditions: Iterable[str], rows: Iterable[CostRow]) -> dict[str, dict[str, list[int]]]:
    """Return the indices of the rows in each branch of each `cond`, including the rows of a `cond` in the branch."""
    indices: dict[str, dict[str, list[int]]] = {condition: {} for condition in conditions}
    for index, row in enumerate(rows if indices else ()):
        # Equation `12.b1.3` is the fourth one in branch 1 of the `cond` with id `12`.
        outer, _, inner = row.id.partition(".b")
        while inner:
            if outer in indices:
                indices[outer].setdefault(inner.partition(".")[0], []).append(index)
            head, _, inner = inner.partition(".b")
            outer = f"{outer}.b{head}"
    return indices


def _count_most_expensive(indices: Mapping[str, Sequence[int]], rows: list[CostRow]) -> None:
    """Set costs in the rows of one `cond` to 0 or unknown, in place, except in the most expensive branch.

    Args:
        indices: A dict from each branch to the indices of its rows in `rows`.
        rows: The rows of all equations.
    """
    # If only one branch has equations, it is the most expensive one.
    if len(indices) < 2:
        return
    branches = {branch: [rows[index] for index in each] for branch, each in indices.items()}
    most_expensive = max(branches, key=lambda branch: sum(map(_weight, branches[branch])))
    is_known = {branch: not any(map(is_unknown, rows)) for branch, rows in branches.items()}
    sums = {branch: _sent(rows) for branch, rows in branches.items()}
    sends_less = {branch: sends_no_more(each, sums[most_expensive]) for branch, each in sums.items()}
    for branch, each in indices.items():
        if branch != most_expensive:
            for position in each:
                row = rows[position]
                rows[position] = _cheaper(row, sends_less[branch]) if is_known[branch] else _undecided(row)


def _sent(rows: Iterable[CostRow]) -> tuple[int | None, int | None]:
    parts = tuple(rows)
    return sum_of(*(row.payload_bytes for row in parts)), sum_of(*(row.wire_bytes for row in parts))


def _weight(row: CostRow) -> int:
    """Return the FLOPs plus transcendentals of a row in all runs; of one run if the number of runs is unknown."""
    counted_row = row.once if is_unknown(row) else row
    return 0 if counted_row is None else (counted_row.flops or 0) + (counted_row.transcendentals or 0)


def _cheaper(row: CostRow, sends_less: bool) -> CostRow:
    """Return a row of a cheaper branch, with costs of 0; the bytes sent are unknown if the branch may send more."""
    payload, wire = (0 if sends_less or value == 0 else None for value in (row.payload_bytes, row.wire_bytes))
    return replace(
        row,
        flops=0,
        transcendentals=0,
        bytes_accessed=0,
        repeats=0,
        once=Figures(),
        payload_bytes=payload,
        wire_bytes=wire,
        formula="0: another branch costs more",
        macs=0,
    )


def _undecided(row: CostRow) -> CostRow:
    """Return a row of a branch that may be the most expensive one: costs that are not 0 become unknown."""
    flops, transcendentals, moved, payload, wire, macs = (
        0 if value == 0 else None
        for value in (row.flops, row.transcendentals, row.bytes_accessed, row.payload_bytes, row.wire_bytes, row.macs)
    )
    has_rule = row.once is not None and row.once.flops is not None
    once = Figures() if has_rule else Figures(None, None)
    return replace(
        row,
        flops=flops,
        transcendentals=transcendentals,
        bytes_accessed=moved,
        repeats=None,
        once=once,
        payload_bytes=payload,
        wire_bytes=wire,
        macs=macs,
    )


def branch_states(
    conditions: Sequence[str],
    members: Iterable[tuple[Equation, int]],
    weight: Callable[[int], Expression | None],
    sent: Callable[[int], Sent],
) -> dict[str, str]:
    """Return a dict from the id of each equation in a cheaper branch to its state: `IDLE`, `UNDECIDED` or `SENDS`.

    Equations that cost the same form a kind (see `Kinds`). `weight` and `sent` take the index of a kind.

    Args:
        conditions: Ids of the `cond` equations, outer ones first.
        members: Pairs of an equation and the index of its kind.
        weight: A function that returns the FLOPs plus transcendentals of one equation of a kind in all its runs, or
            `None` if unknown.
        sent: A function that returns the payload and wire bytes of one equation of a kind in all its runs.
    """
    all_members = tuple(members)
    states: dict[str, str] = {}
    for condition in reversed(conditions):
        branches: dict[str, list[tuple[str, int]]] = {}
        for equation, index in all_members:
            if equation.id.startswith(f"{condition}.b"):
                branches.setdefault(equation.id[len(condition) + 1 :].split(".", 1)[0], []).append((equation.id, index))
        if len(branches) < 2:
            continue
        weights = {
            name: [0 if states.get(id) in (IDLE, SENDS) else weight(index) for id, index in body]
            for name, body in branches.items()
        }
        is_open = any(states.get(id) == UNDECIDED for body in branches.values() for id, _ in body)
        sums = {name: total(0 if each is None else each for each in some) for name, some in weights.items()}
        most_expensive = None if is_open else _most_expensive(sums)
        for name, body in branches.items():
            if name == most_expensive:
                continue
            state, own = UNDECIDED, IDLE
            if most_expensive is not None and None not in weights[name]:
                sums_sent = [_sum_sent(branches[branch], states, sent) for branch in (name, most_expensive)]
                state, own = IDLE, IDLE if sends_no_more(*sums_sent) else SENDS
            for id, index in body:
                if states.get(id) not in (IDLE, SENDS):
                    states[id] = own if state == IDLE and sent(index) != NOTHING else state
    return states


def _sum_sent(body: Iterable[tuple[str, int]], states: Mapping[str, str], sent: Callable[[int], Sent]) -> Sent:
    """Return the payload and wire bytes of a branch, given the states of equations of a `cond` inside the branch."""
    each = [UNKNOWN if states.get(id) == SENDS else sent(index) for id, index in body if states.get(id) != IDLE]
    return sum_of(*(payload for payload, _ in each)), sum_of(*(wire for _, wire in each))


def _most_expensive(branches: Mapping[str, Polynomial]) -> str | None:
    """Return the branch that is most expensive for all sizes, the first of equal ones; `None` if sizes decide."""
    best = next(iter(branches))
    try:
        for name, cost in branches.items():
            if cost > branches[best]:
                best = name
    except UndecidedError:
        return None
    return best


def _pallas_bytes(equation: Equation) -> Expression | None:
    """Return the bytes that a Pallas kernel reads and writes: the blocks of its block specs.

    The kernel visits the grid with the last axis fastest, and moves a block each time the index of the block changes.
    If the index does not depend on the last axes, the block is not moved again while these axes advance.
    """
    grid = grid_of(equation)
    blocks: Any = equation.param.get(BLOCKS, ())
    moved: Expression = 0
    for shape, dtype, axes in blocks:
        size = bytes_of(TensorSpec(shape, dtype))
        if size is None:
            return None
        moved = moved + size * times(grid[:axes])
    return moved


@rule("pallas_call", flops="0", note="the equations of the kernel are counted", moved=_pallas_bytes)
def pallas_call(equation: Equation) -> Formula | str:
    """The author's `cost_estimate`, only used if the cost of an equation in the kernel is unknown."""
    estimate: Any = equation.param.get(ESTIMATE)
    return estimated(estimate) if estimate else "the kernel is not a jaxpr"


@rule("call_hi_primitive", flops="products + others", transcendentals="calls", note="written out")
def expanded(equation: Equation) -> Formula | str:
    """The equations that the lowering replaces the primitive with: `products` for matrix products and convolutions.

    JAX 0.12 has this primitive for `SearchSorted`. Primitives of other packages, such as Equinox, count the same way.
    """
    rows = equation_rows(equations_of(equation.param.get(KERNEL, ())))
    unknown = Counter(f"{row.opcode} ({row.unknown})" for row in rows if is_unknown(row))
    if unknown:
        return f"inside {', '.join(f'{count} × {opcode}' for opcode, count in unknown.items())}"
    total_cost = sum_of_rows(rows)
    macs = [row.macs for row in rows]
    products = 2 * sum(count for count in macs if count)
    letters = {
        "products": products,
        "others": (total_cost.flops or 0) - products,
        "calls": total_cost.transcendentals or 0,
    }
    return Formula(
        "products + others",
        letters,
        "calls" if total_cost.transcendentals else "0",
        note="written out",
        products=None if None in macs else "products",
    )


def grid_of(kernel: Equation) -> list[Expression]:
    """Return the size of each axis of a kernel's grid.

    Raises:
        UndecidedError: A size is an operand whose value is unknown.
    """
    sizes: Any = kernel.param[GRID]
    # A dynamic size is `None` in the grid, and an operand of pallas_call. These operands come first.
    operands = iter(kernel.constants)
    axes: list[Expression] = []
    for size in sizes:
        length = next(operands, None) if size is None else size
        if length is None or length == "?":
            raise UndecidedError("the grid is known only when the program runs")
        axes.append(as_size(length.removeprefix(SIZE) if isinstance(length, str) else int(length)))
    return axes
