"""Cholesky and LU factors, and triangular systems, in C."""

from __future__ import annotations

from mithril_nb.emission.c.primitives.products import check_float
from mithril_nb.emission.c.types import C_TYPES, literal
from mithril_nb.emission.c.writing import CBody, Index, rule
from mithril_nb.emission.program import Statement


@rule("cholesky")
def cholesky(to: CBody, op: Statement) -> None:
    """Write the lower Cholesky factor of a symmetric matrix, row by row. The root of a negative pivot is NaN."""
    check_float(to, op)
    form, size = to.reserve(op.output), op.shape[-1]
    kind, end = C_TYPES[op.dtype], "f" if op.dtype == "float32" else ""
    i, j, k, rest = map(to.new_name, ("row", "column", "before", "rest"))
    with to.loops(op.shape[:-2]) as batch:
        item = to.item(op.operand, (*batch, i, j))
        factor = lambda *index: form.item((*batch, *index))  # noqa: E731
        # Only items of the lower triangle are read, as in JAX with symmetrize_input=False.
        with to.block(f"for (int {i} = 0; {i} < {size}; {i}++)"):
            with to.block(f"for (int {j} = 0; {j} <= {i}; {j}++)"):
                to.add(f"{kind} {rest} = {item};")
                to.add(f"for (int {k} = 0; {k} < {j}; {k}++)")
                to.add(f"    {rest} -= {factor(i, k)} * {factor(j, k)};")
                to.add(f"{factor(i, j)} = {i} == {j} ? sqrt{end}({rest}) : {rest} / {factor(j, j)};")
            to.add(f"for (int {j} = {i} + 1; {j} < {size}; {j}++)")
            to.add(f"    {factor(i, j)} = 0;")


@rule("triangular_solve")
def triangular_solve(to: CBody, op: Statement) -> None:
    check_float(to, op)
    (matrix, right), params = op.inputs, op.params
    form, size = to.reserve(op.output), matrix.shape[-1]
    left = params["left_side"]
    swapped = params["transpose_a"] == bool(left)  # on the right side, X A = B is A^T X^T = B^T
    is_forward = bool(params["lower"]) != swapped
    row, k, rest = map(to.new_name, ("row", "known", "rest"))
    with to.loops((*op.shape[:-2], op.shape[-1 if left else -2])) as (*batch, column):

        def at(index: str) -> Index:
            return (*batch, index, column) if left else (*batch, column, index)

        def coefficient(first: str, second: str) -> str:
            return to.item(matrix, (*batch, second, first) if swapped else (*batch, first, second))

        # A lower triangle is solved from the first row on, an upper one from the last; the result holds what is known.
        head = f"for (int {row} = 0; {row} < {size}; {row}++)"
        with to.block(head if is_forward else f"for (int {row} = {size - 1}; {row} >= 0; {row}--)"):
            to.add(f"{C_TYPES[op.dtype]} {rest} = {to.item(right, at(row))};")
            first, last = ("0", row) if is_forward else (f"{row} + 1", str(size))
            to.add(f"for (int {k} = {first}; {k} < {last}; {k}++)")
            to.add(f"    {rest} -= {coefficient(row, k)} * {form.item(at(k))};")
            divided = "" if params["unit_diagonal"] else f" / {coefficient(row, row)}"
            to.add(f"{form.item(at(row))} = {rest}{divided};")


@rule("lu")
def lu(to: CBody, op: Statement) -> None:
    """Write the LU factors of a matrix. Row exchanges make the item with the largest absolute value the pivot."""
    check_float(to, op)
    factor, exchanged, order = map(to.reserve, op.outputs)
    to.copy(op.operand, factor)
    rows, columns = op.shape[-2:]
    absolute = "fabsf" if op.dtype == "float32" else "fabs"
    step, best, i, j = map(to.new_name, ("pivot", "best", "row", "column"))
    with to.loops(op.shape[:-2]) as batch:
        item = lambda *index: factor.item((*batch, *index))  # noqa: E731
        row_order = lambda index: order.item((*batch, index))  # noqa: E731

        def swap(dtype: str, head: str, first: str, second: str) -> None:
            with to.block(head):
                held = to.new_name("held")
                to.add(f"const {C_TYPES[dtype]} {held} = {first};")
                to.add(f"{first} = {second};")
                to.add(f"{second} = {held};")

        to.add(f"for (int {i} = 0; {i} < {rows}; {i}++)")
        to.add(f"    {row_order(i)} = {i};")
        with to.block(f"for (int {step} = 0; {step} < {min(rows, columns)}; {step}++)"):
            to.add(f"int {best} = {step};")
            to.add(f"for (int {i} = {step} + 1; {i} < {rows}; {i}++)")
            to.add(f"    if ({absolute}({item(i, step)}) > {absolute}({item(best, step)}))")
            to.add(f"        {best} = {i};")
            to.add(f"{exchanged.item((*batch, step))} = {best};")
            with to.block(f"if ({best} != {step})"):
                swap(op.outputs[2].dtype, "", row_order(step), row_order(best))
                swap(op.dtype, f"for (int {j} = 0; {j} < {columns}; {j}++)", item(step, j), item(best, j))
            with to.block(f"for (int {i} = {step} + 1; {i} < {rows}; {i}++)"):
                # A singular matrix has a pivot 0, whose column XLA leaves as it is.
                to.add(f"if ({item(step, step)} != {literal(0, op.dtype)})")
                to.add(f"    {item(i, step)} /= {item(step, step)};")
                to.add(f"for (int {j} = {step} + 1; {j} < {columns}; {j}++)")
                to.add(f"    {item(i, j)} -= {item(i, step)} * {item(step, j)};")
