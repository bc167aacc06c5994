"""Costs of equations that hold others: the kernel of a `pallas_call` counts once for each step of the grid."""

from __future__ import annotations

from collections import Counter
from typing import Any

from mithril_nb.cost.analytic import equation_rows
from mithril_nb.cost.formulas.rules import Formula, Letters, rule
from mithril_nb.cost.formulas.sizes import as_size, bytes_of, times
from mithril_nb.cost.formulas.symbols import Expression, UndecidedError
from mithril_nb.cost.records import is_unknown, sum_of_rows
from mithril_nb.graph.spec import TensorSpec
from mithril_nb.stages.records import SIZE, Equation
from mithril_nb.stages.trace.params import BLOCKS, ESTIMATE, GRID, KERNEL, equations_of


def _blocks_bytes(equation: Equation) -> Expression | None:
    """Return the bytes of all block fetches, as a pipeline does them.

    A block is fetched each time its index changes, with the last axis of the grid fastest. If the index does not depend
    on the last axes, the block stays in place while these advance.
    """
    grid = _grid(equation)
    blocks: Any = equation.param.get(BLOCKS, ())
    whole: Expression = 0
    for shape, dtype, axes in blocks:
        size = bytes_of(TensorSpec(shape, dtype))
        if size is None:
            return None
        whole = whole + size * times(grid[:axes])
    return whole


@rule("pallas_call", flops="kernel·grid", transcendentals="calls·grid", moved=_blocks_bytes)
def pallas_call(equation: Equation) -> Formula | str:
    """The equations of the kernel, for each step of the grid: `kernel·grid`. The most expensive branch counts.

    Bytes are those of the blocks in the block specs. The author's `cost_estimate`, if there is one, is XLA's count, and
    replaces ours if the kernel has equations with unknown costs.
    """
    estimate: Any = equation.param.get(ESTIMATE)
    letters = _inside(equation)
    if isinstance(letters, str):
        has_estimate = estimate is not None
        return Formula(str(estimate[0]), {}, str(estimate[1]), note="its cost_estimate") if has_estimate else letters
    theirs = None if estimate is None or estimate[0] == -1 else str(estimate[0])
    calls = "calls·grid" if "calls" in letters else "0"
    return Formula("kernel·grid", {**letters, "grid": times(_grid(equation))}, calls, xla=theirs)


@rule("call_hi_primitive", flops="kernel", transcendentals="calls", note="written out")
def written_out(equation: Equation) -> Formula | str:
    """The equations that JAX expands the primitive to in lowering, as for `SearchSorted` since JAX 0.12: `kernel`."""
    letters = _inside(equation)
    if isinstance(letters, str):
        return letters
    return Formula("kernel", letters, "calls" if "calls" in letters else "0", note="written out")


def _grid(equation: Equation) -> list[Expression]:
    """Return the sizes of the grid of a kernel; dynamic sizes are its first operands.

    Raises:
        UndecidedError: The value of such an operand is unknown.
    """
    sizes: Any = equation.param[GRID]
    operands = iter(equation.constants)
    found: list[Expression] = []
    for size in sizes:
        given = next(operands, None) if size is None else size
        if given is None or given == "?":
            raise UndecidedError("the grid is known only when the program runs")
        found.append(as_size(given.removeprefix(SIZE) if isinstance(given, str) else int(given)))
    return found


def _inside(equation: Equation) -> Letters | str:
    """Return the summed cost of the equations inside an equation, or text that lists those with unknown costs."""
    rows = equation_rows(equations_of(equation.param.get(KERNEL, ())))
    unknown = Counter(f"{row.opcode} ({row.unknown})" for row in rows if is_unknown(row))
    if unknown:
        return f"inside {', '.join(f'{count} × {what}' for what, count in unknown.items())}"
    found = sum_of_rows(rows)
    return {"kernel": found.flops or 0, **({"calls": found.transcendentals} if found.transcendentals else {})}
