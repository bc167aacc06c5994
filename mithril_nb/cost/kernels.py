"""What a `pallas_call` costs: the equations of its kernel, as often as the grid has steps."""

from __future__ import annotations

from collections import Counter
from typing import Any

from mithril_nb.cost.analytic import equation_rows
from mithril_nb.cost.formulas.rules import Formula, as_size, bytes_of, rule, times
from mithril_nb.cost.formulas.symbols import Expression
from mithril_nb.cost.records import is_unknown, sum_of_rows
from mithril_nb.graph.spec import TensorSpec
from mithril_nb.stages.records import Equation
from mithril_nb.stages.trace.kernels import BLOCKS, ESTIMATE, GRID, KERNEL, equations_of


def _blocks_bytes(equation: Equation) -> Expression | None:
    """Return the bytes of all blocks, each as often as its place changes while the last axis of the grid goes fastest.

    So a pipeline fetches them: a block whose place does not depend on the last axes stays where it is meanwhile.
    """
    grid: Any = equation.param.get(GRID, ())
    blocks: Any = equation.param.get(BLOCKS, ())
    whole: Expression = 0
    for shape, dtype, axes in blocks:
        size = bytes_of(TensorSpec(shape, dtype))
        if size is None:
            return None
        whole = whole + size * times(map(as_size, grid[:axes]))
    return whole


@rule("pallas_call", flops="kernel·grid", transcendentals="calls·grid", moved=_blocks_bytes)
def pallas_call(equation: Equation) -> Formula | str:
    """The equations of the kernel, for each step of the grid: `kernel·grid`; of branches the dearest in each step.

    Bytes are those of the blocks of the block specs. If the kernel has equations without a count, the author's
    `cost_estimate` is the count where there is one; else it is what XLA counts.
    """
    param: Any = equation.param
    estimate = param.get(ESTIMATE)
    rows = equation_rows(equations_of(param.get(KERNEL, ())))
    unknown = Counter(f"{row.opcode} ({row.unknown})" for row in rows if is_unknown(row))
    if unknown and estimate is not None:
        return Formula(str(estimate[0]), {}, str(estimate[1]), note="its cost_estimate")
    if unknown:
        return f"in its kernel {', '.join(f'{count} × {what}' for what, count in unknown.items())}"
    found = sum_of_rows(rows)
    letters = {
        "kernel": found.flops or 0,
        "calls": found.transcendentals or 0,
        "grid": times(map(as_size, param[GRID])),
    }
    theirs = None if estimate is None or estimate[0] == -1 else str(estimate[0])
    return Formula("kernel·grid", letters, "calls·grid", xla=theirs)
