"""Cholesky and LU factors, and triangular systems, in C."""

from __future__ import annotations

from mithril_nb.emission.c.rules import rule
from mithril_nb.emission.c.types import C_TYPES, is_float, literal
from mithril_nb.emission.c.writing import Body
from mithril_nb.emission.program import Statement
from mithril_nb.emission.unsupported import unsupported


def check_float(one: Statement) -> None:
    """Raise an `UnsupportedPrimitiveError` if a statement does not compute floats."""
    dtype = one.outputs[0].dtype
    if not is_float(dtype):
        raise unsupported(one, "c", f"dtype {dtype}")


@rule("cholesky")
def cholesky(to: Body, one: Statement) -> None:
    """Write the lower Cholesky factor of a symmetric matrix, row by row. The root of a negative pivot is NaN."""
    (source,), (output,) = one.inputs, one.outputs
    check_float(one)
    form, size = to.reserve(output, one), output.shape[-1]
    kind, end = C_TYPES[output.dtype], "f" if output.dtype == "float32" else ""
    i, j, k, rest = (to.new_name(name) for name in ("row", "column", "before", "rest"))
    with to.loops(output.shape[:-2], one) as batch:
        given = to.item(source, (*batch, i, j))
        factor = lambda *index: form.item((*batch, *index))  # noqa: E731
        with to.block(f"for (int {i} = 0; {i} < {size}; {i}++)", one):
            with to.block(f"for (int {j} = 0; {j} <= {i}; {j}++)", one):
                to.add(f"{kind} {rest} = {given};", one)
                to.add(f"for (int {k} = 0; {k} < {j}; {k}++)", one)
                to.add(f"    {rest} -= {factor(i, k)} * {factor(j, k)};", one)
                to.add(f"{factor(i, j)} = {i} == {j} ? sqrt{end}({rest}) : {rest} / {factor(j, j)};", one)
            to.add(f"for (int {j} = {i} + 1; {j} < {size}; {j}++)", one)
            to.add(f"    {factor(i, j)} = 0;", one)
        to.touch(form)
        to.item(source, (*batch, i, j))


@rule("triangular_solve")
def triangular_solve(to: Body, one: Statement) -> None:
    """Write the solution of a triangular system by substitution, one unknown after the other."""
    (matrix, given), (output,), params = one.inputs, one.outputs, one.params
    check_float(one)
    form, size = to.reserve(output, one), matrix.shape[-1]
    left, transposed = params["left_side"], params["transpose_a"]
    # On the right side, X A = B is A^T X^T = B^T.
    swapped = transposed if left else not transposed
    is_forward = bool(params["lower"]) != bool(swapped)
    kind = C_TYPES[output.dtype]
    row, k, rest = (to.new_name(name) for name in ("row", "known", "rest"))
    columns = output.shape[-1 if left else -2]
    with to.loops((*output.shape[:-2], columns), one) as index:
        *batch, column = index

        def at(place: str) -> tuple[str, ...]:
            return (*batch, place, column) if left else (*batch, column, place)

        def coefficient(first: str, second: str) -> str:
            return to.item(matrix, (*batch, second, first) if swapped else (*batch, first, second))

        head = f"for (int {row} = 0; {row} < {size}; {row}++)"
        with to.block(head if is_forward else f"for (int {row} = {size - 1}; {row} >= 0; {row}--)", one):
            to.add(f"{kind} {rest} = {to.item(given, at(row))};", one)
            first, last = ("0", row) if is_forward else (f"{row} + 1", str(size))
            to.add(f"for (int {k} = {first}; {k} < {last}; {k}++)", one)
            to.add(f"    {rest} -= {coefficient(row, k)} * {form.item(at(k))};", one)
            divided = "" if params["unit_diagonal"] else f" / {coefficient(row, row)}"
            to.touch(form)
            to.add(f"{form.item(at(row))} = {rest}{divided};", one)


@rule("lu")
def lu(to: Body, one: Statement) -> None:
    """Write the LU factors of a matrix. Row exchanges make the item with the largest absolute value the pivot."""
    (source,), (output, _, permutation) = one.inputs, one.outputs
    check_float(one)
    factor, exchanged, order = (to.reserve(value, one) for value in one.outputs)
    to.copy(source, factor, one)
    rows, columns = output.shape[-2:]
    kind, absolute = C_TYPES[output.dtype], "fabsf" if output.dtype == "float32" else "fabs"
    step, best, i, j = (to.new_name(name) for name in ("pivot", "best", "row", "column"))
    with to.loops(output.shape[:-2], one) as batch:
        item = lambda *index: factor.item((*batch, *index))  # noqa: E731
        places = lambda index: order.item((*batch, index))  # noqa: E731

        def swap(kind: str, head: str, first: str, second: str) -> None:
            with to.block(head, one):
                held = to.new_name("held")
                to.add(f"const {kind} {held} = {first};", one)
                to.add(f"{first} = {second};", one)
                to.add(f"{second} = {held};", one)

        to.add(f"for (int {i} = 0; {i} < {rows}; {i}++)", one)
        to.add(f"    {places(i)} = {i};", one)
        with to.block(f"for (int {step} = 0; {step} < {min(rows, columns)}; {step}++)", one):
            to.add(f"int {best} = {step};", one)
            to.add(f"for (int {i} = {step} + 1; {i} < {rows}; {i}++)", one)
            to.add(f"    if ({absolute}({item(i, step)}) > {absolute}({item(best, step)}))", one)
            to.add(f"        {best} = {i};", one)
            to.add(f"{exchanged.item((*batch, step))} = {best};", one)
            with to.block(f"if ({best} != {step})", one):
                swap(C_TYPES[permutation.dtype], "", places(step), places(best))
                head = f"for (int {j} = 0; {j} < {columns}; {j}++)"
                swap(kind, head, item(step, j), item(best, j))
            with to.block(f"for (int {i} = {step} + 1; {i} < {rows}; {i}++)", one):
                to.add(f"if ({item(step, step)} != {literal(0, output.dtype)})", one)
                to.add(f"    {item(i, step)} /= {item(step, step)};", one)
                to.add(f"for (int {j} = {step} + 1; {j} < {columns}; {j}++)", one)
                to.add(f"    {item(i, j)} -= {item(i, step)} * {item(step, j)};", one)
        for form in (factor, exchanged, order):
            to.touch(form)
