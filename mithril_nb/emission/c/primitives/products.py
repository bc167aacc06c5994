"""Matrix products in C: plain loops for small products, a tiled helper function for large ones."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import pairwise

from mithril_nb.emission.c.rules import rule
from mithril_nb.emission.c.types import C_TYPES, dims, is_float, literal
from mithril_nb.emission.c.writing import Body, Index, Stored
from mithril_nb.emission.program import Operand, Statement, Value
from mithril_nb.emission.unsupported import unsupported

_LARGE = 4096
"""For at least this many multiplications, the helper function is faster than plain loops."""


@rule("dot_general")
def dot_general(to: Body, one: Statement) -> None:
    (left, right), (output,) = one.inputs, one.outputs
    if output.dtype == "bool":
        raise unsupported(one, "c", "bool operands")
    (left_over, right_over), (left_batch, right_batch) = one.params["dimension_numbers"]
    left_free = _others(left, (*left_over, *left_batch))
    right_free = _others(right, (*right_over, *right_batch))
    batches = [left.shape[axis] for axis in left_batch]
    rows, over, columns = (
        [value.shape[axis] for axis in axes]
        for value, axes in ((left, left_free), (left, left_over), (right, right_free))
    )
    form = to.reserve(output, one)
    if is_large(output.dtype, rows=rows, columns=columns, over=over):
        first = Matrix.of(to, one, left, left_batch, left_free, left_over)
        second = Matrix.of(to, one, right, right_batch, right_over, right_free)
        to.add(_describe(one), one)
        with to.loops(batches, one) as batch:
            corner = (*batch, *("0" for _ in (*rows, *columns)))
            multiply(to, one, first, second, batch, form, corner, math.prod(columns))
        return
    to.add(_describe(one), one)
    kind = C_TYPES[output.dtype]

    def item(value: Operand, axes: Sequence[int], index: Index) -> str:
        at = dict(zip(axes, index, strict=True))
        return to.item(value, tuple([at[axis] for axis in range(len(value.shape))]))

    with to.loops((*batches, *rows), one) as outer:
        batch = outer[: len(batches)]
        if math.prod(columns) == 1:
            sum_name, corner = to.new_name("sum"), tuple(["0" for _ in columns])
            to.add(f"{kind} {sum_name} = {literal(0, output.dtype)};", one)
            with to.loops(over, one) as inner:
                first_item = item(left, (*left_batch, *left_free, *left_over), (*outer, *inner))
                second_item = item(right, (*right_batch, *right_over, *right_free), (*batch, *inner, *corner))
                to.add(f"{sum_name} += {first_item} * {second_item};", one)
            to.touch(form)
            to.add(f"{form.item((*outer, *corner))} = {sum_name};", one)
            return
        with to.loops(columns, one) as column:
            to.touch(form)
            to.add(f"{form.item((*outer, *column))} = {literal(0, output.dtype)};", one)
        with to.loops(over, one) as inner:
            factor = to.new_name("factor")
            text = item(left, (*left_batch, *left_free, *left_over), (*outer, *inner))
            to.add(f"const {kind} {factor} = {text};", one)
            with to.loops(columns, one) as column:
                second_item = item(right, (*right_batch, *right_over, *right_free), (*batch, *inner, *column))
                to.add(f"{form.item((*outer, *column))} += {factor} * {second_item};", one)


def _others(value: Operand, axes: Sequence[int]) -> list[int]:
    return [axis for axis in range(len(value.shape)) if axis not in axes]


def describe(one: Statement, what: str, transposed: Sequence[bool] = (False, False)) -> str:
    """Return a comment such as `// y (2 x 4): product of x (2 x 3) and w (3 x 4)`; `what` is the word `product`."""
    names: list[str] = []
    for each, is_transposed in zip(one.inputs, transposed, strict=True):
        name = each.name if isinstance(each, Value) else each.text
        shape = (*each.shape[:-2], each.shape[-1], each.shape[-2]) if is_transposed else each.shape
        names.append(f"{name}{' transposed' * is_transposed} ({dims(shape)})")
    return f"// {one.outputs[0].name} ({dims(one.outputs[0].shape)}): {what} of {' and '.join(names)}"


def _describe(one: Statement) -> str:
    """Return the comment for a product. It calls an operand `transposed` if its rows and columns are swapped."""
    over, batches = one.params["dimension_numbers"]
    transposed = [
        len(value.shape) == len(batch) + 2 and [*batch] == [*range(len(batch))] and [*axes] == [len(value.shape) - back]
        for value, axes, batch, back in zip(one.inputs, over, batches, (2, 1), strict=True)
    ]
    return describe(one, "product", transposed)


def is_large(dtype: str, rows: Sequence[int], columns: Sequence[int], over: Sequence[int]) -> bool:
    """Return whether a matrix product uses the helper function: it is large, and its dtype is a float."""
    sizes = [math.prod(one) for one in (rows, columns, over)]
    return is_float(dtype) and min(sizes) > 1 and math.prod(sizes) >= _LARGE


class Matrix:
    """An array in memory, read as a batch of matrices. Several axes of the array may form the rows or columns.

    Attributes:
        shape: Number of rows and number of columns.
        strides: Distance from one row to the next, and from one column to the next, in items.
    """

    def __init__(
        self, to: Body, value: Operand, batch: Sequence[int], shape: tuple[int, int], strides: tuple[int, int]
    ):
        self._to, self._value, self._batch = to, value, batch
        self.shape, self.strides = shape, strides

    @classmethod
    def of(
        cls, to: Body, one: Statement, value: Operand, batch: Sequence[int], rows: Sequence[int], columns: Sequence[int]
    ) -> Matrix:
        """Return an operand as matrices, whose `batch`, `rows` and `columns` are axes of the operand.

        If the distance between rows or between columns is not constant in memory, the operand is copied first.
        """
        shape = math.prod(value.shape[axis] for axis in rows), math.prod(value.shape[axis] for axis in columns)
        strides = _strides(to, value)
        if strides is not None:
            found = _merged(value.shape, strides, rows), _merged(value.shape, strides, columns)
            if found[0] is not None and found[1] is not None:
                return cls(to, value, batch, shape, (found[0], found[1]))
        order = (*batch, *rows, *columns)
        name = value.name if isinstance(value, Value) else "number"
        copy = Value(name, tuple([value.shape[axis] for axis in order]), value.dtype)
        form = to.reserve(copy, one, to.new_name(f"{name.rstrip('_')}_copy"))
        with to.loops(copy.shape, one) as index:
            at = dict(zip(order, index, strict=True))
            text = to.item(value, tuple([at[axis] for axis in range(len(order))]))
            to.add(f"{form.item(index)} = {text};", one)
        return cls(to, copy, range(len(batch)), shape, (shape[1], 1))

    def corner(self, batch: Index) -> str:
        """Return the expression of the first item of one matrix. `batch` is the index of the matrix."""
        at = dict(zip(self._batch, batch, strict=True))
        return self._to.item(self._value, tuple([at.get(axis, "0") for axis in range(len(self._value.shape))]))


def multiply(
    to: Body, one: Statement, left: Matrix, right: Matrix, batch: Index, form: Stored, corner: Index, row: int
) -> None:
    """Write a call of the helper function for the product of two matrices.

    Args:
        to: Receives the line.
        one: The statement.
        left: The first matrix.
        right: The second matrix.
        batch: Index of the matrices in their batches.
        form: Memory of the result.
        corner: Index of the first item of the product in the result.
        row: Distance from one row of the product to the next, in items.
    """
    to.touch(form)
    sizes = (left.shape[0], right.shape[1], left.shape[1])
    arguments = [
        *sizes, f"&{left.corner(batch)}", *left.strides, f"&{right.corner(batch)}", *right.strides,
        f"&{form.item(corner)}", row,
    ]  # fmt: skip
    function = to.helpers.use("matmul", one.outputs[0].dtype)
    to.add(f"{function}({', '.join(map(str, arguments))});", one)


def _strides(to: Body, value: Operand) -> tuple[int, ...] | None:
    """Return the strides of an array in items, or `None` if it is not in memory or has no constant strides.

    The function parses the C expression of each subscript. The strides are constant if each expression is a linear
    function of at most one index.
    """
    found = to.place(value, tuple([f"axis_{axis}" for axis in range(len(value.shape))]))
    if found is None or not found[0].shape:
        return None
    form, index = found
    strides = [0] * len(value.shape)
    step = math.prod(form.shape)
    for text, size in zip(index, form.shape, strict=True):
        step //= size
        parts = re.fullmatch(r"(?:(\d+) \* )?axis_(\d+)(?: [+-] \d+)?|(?:\d+ - )axis_(\d+)|-?\d+", text)
        if parts is None:
            return None
        factor, axis, reversed_axis = parts.groups()
        if axis is not None:
            strides[int(axis)] += step * int(factor or 1)
        elif reversed_axis is not None:
            strides[int(reversed_axis)] -= step
    return tuple(strides)


def _merged(shape: Sequence[int], strides: Sequence[int], axes: Sequence[int]) -> int | None:
    """Return the stride of some axes joined to one axis, or `None` if it is not constant."""
    long = [axis for axis in axes if shape[axis] != 1]
    for outer, inner in pairwise(long):
        if strides[outer] != shape[inner] * strides[inner]:
            return None
    return strides[long[-1]] if long else 0
