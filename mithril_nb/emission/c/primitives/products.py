"""Matrix products and convolutions in C: plain loops for small ones, a tiled helper function for large ones."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from itertools import pairwise

from mithril_nb.emission.c.types import C_TYPES, dims, divided, enclosed, is_float, is_number, literal, scaled, total
from mithril_nb.emission.c.writing import CBody, Index, InMemory, by_axis, rule
from mithril_nb.emission.params import product_axes
from mithril_nb.emission.program import Number, Operand, Statement, Value

_LARGE = 4096
"""For at least this many multiplications, the helper function is faster than plain loops."""


@rule("dot_general")
def dot_general(to: CBody, op: Statement) -> None:
    left, right = op.inputs
    if op.dtype == "bool":  # a sum of bools is an `or`
        raise to.unsupported("bool operands")
    (left_batch, left_free, left_over), (right_batch, right_free, right_over) = product_axes(op)
    batches, rows, over = ([left.shape[axis] for axis in axes] for axes in (left_batch, left_free, left_over))
    columns = [right.shape[axis] for axis in right_free]
    form = to.reserve(op.output)
    if is_large(op.dtype, rows, columns, over):
        first = Matrix(to, left, left_batch, left_free, left_over)
        second = Matrix(to, right, right_batch, right_over, right_free)
        to.add(_describe_product(op))
        with to.loops(batches) as batch:
            corner = (*batch, *("0" for _ in (*rows, *columns)))
            multiply(to, op, first, second, batch, form, corner, math.prod(columns))
        return
    to.add(_describe_product(op))
    kind = C_TYPES[op.dtype]

    def left_item(outer: Index, inner: Index) -> str:
        at = dict(zip((*left_batch, *left_free, *left_over), (*outer, *inner), strict=True))
        return to.item_by_axis(left, at)

    def right_item(batch: Index, inner: Index, column: Index) -> str:
        at = dict(zip((*right_batch, *right_over, *right_free), (*batch, *inner, *column), strict=True))
        return to.item_by_axis(right, at)

    # With several columns, the innermost loop runs along memory, which the compiler turns into vectors.
    with to.loops((*batches, *rows)) as outer:
        batch = outer[: len(batches)]
        if math.prod(columns) == 1:
            local, corner = to.new_name("sum"), ("0",) * len(columns)
            to.add(f"{kind} {local} = {literal(0, op.dtype)};")
            with to.loops(over) as inner:
                factors = left_item(outer, inner), right_item(batch, inner, corner)
                to.add(f"{local} += {' * '.join(factors)};")
            to.add(f"{form.item((*outer, *corner))} = {local};")
            return
        with to.loops(columns) as column:
            to.add(f"{form.item((*outer, *column))} = {literal(0, op.dtype)};")
        with to.loops(over) as inner:
            factor = to.new_name("factor")
            text = left_item(outer, inner)
            to.add(f"const {kind} {factor} = {text};")
            with to.loops(columns) as column:
                text = right_item(batch, inner, column)
                to.add(f"{form.item((*outer, *column))} += {factor} * {text};")


def _describe(op: Statement, word: str, transposed: Sequence[bool] = (False, False)) -> str:
    names: list[str] = []
    for operand, is_transposed in zip(op.inputs, transposed, strict=True):
        name, shape = operand.text if isinstance(operand, Number) else operand.name, operand.shape
        shape = (*shape[:-2], shape[-1], shape[-2]) if is_transposed else shape
        names.append(f"{name}{' transposed' * is_transposed} ({dims(shape)})")
    return f"// {op.output.name} ({dims(op.shape)}): {word} of {' and '.join(names)}"


def _describe_product(op: Statement) -> str:
    transposed = [
        len(value.shape) == len(batch) + 2 and [*batch] == [*range(len(batch))] and [*over] == [len(value.shape) - back]
        for value, (batch, _, over), back in zip(op.inputs, product_axes(op), (2, 1), strict=True)
    ]
    return _describe(op, "product", transposed)


def is_large(dtype: str, rows: Sequence[int], columns: Sequence[int], over: Sequence[int]) -> bool:
    sizes = [*map(math.prod, (rows, columns, over))]
    return is_float(dtype) and min(sizes) > 1 and math.prod(sizes) >= _LARGE


class Matrix:
    """An array in memory, read as a batch of matrices. Several axes of the array may form the rows or columns.

    If the distance between rows or between columns is not constant in memory, the array is copied first.

    Attributes:
        shape: Number of rows and number of columns.
        strides: Distance from one row to the next, and from one column to the next, in items.
    """

    def __init__(
        self, to: CBody, value: Operand, batch: Sequence[int], rows: Sequence[int], columns: Sequence[int]
    ) -> None:
        self._to, self._value, self._batch = to, value, batch
        sizes = value.shape
        self.shape = math.prod(sizes[axis] for axis in rows), math.prod(sizes[axis] for axis in columns)
        strides = _strides(to, value)
        self.strides = [None if strides is None else _merged(sizes, strides, axes) for axes in (rows, columns)]
        if None in self.strides:
            order = (*batch, *rows, *columns)
            copy = Value(value.name, tuple([sizes[axis] for axis in order]), value.dtype)
            form = to.reserve(copy, to.new_name(f"{value.name.rstrip('_')}_copy"))
            with to.loops(copy.shape) as index:
                text = to.item_by_axis(value, dict(zip(order, index, strict=True)))
                to.add(f"{form.item(index)} = {text};")
            self._value, self._batch, self.strides = copy, range(len(batch)), [self.shape[1], 1]

    def corner(self, batch: Index) -> str:
        return self._to.item_by_axis(self._value, dict(zip(self._batch, batch, strict=True)))


def multiply(
    to: CBody, op: Statement, left: Matrix, right: Matrix, batch: Index, form: InMemory, corner: Index, row: int
) -> None:
    """Write a call of the helper function for the product of the matrices with the index `batch`.

    `corner` is the index of its first item in the result, and `row` the distance from one row to the next, in items.
    """
    arguments = [
        left.shape[0], right.shape[1], left.shape[1], f"&{left.corner(batch)}", *left.strides,
        f"&{right.corner(batch)}", *right.strides, f"&{form.item(corner)}", row,
    ]  # fmt: skip
    to.add(f"{to.helpers.use('matmul', op.dtype)}({', '.join(map(str, arguments))});")


def _strides(to: CBody, value: Operand) -> tuple[int, ...] | None:
    # The strides are constant if the C expression of each subscript is a linear function of at most one index.
    # Names that no expression of an index contains, so that the pattern below finds the axes again.
    memory = to.memory_of(value, tuple([f"axis_{axis}" for axis in range(len(value.shape))]))
    if memory is None or not memory[0].shape:
        return None
    form, index = memory
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
    long = [axis for axis in axes if shape[axis] != 1]  # any stride suits an axis of size 1
    if any(strides[outer] != shape[inner] * strides[inner] for outer, inner in pairwise(long)):
        return None
    return strides[long[-1]] if long else 0


@rule("conv_general_dilated")
def conv(to: CBody, op: Statement) -> None:
    check_float(to, op)
    params, kernel = op.params, op.inputs[1]
    rhs, out = params["dimension_numbers"].rhs_spec, params["dimension_numbers"].out_spec
    form = to.reserve(op.output)
    spatial = [op.shape[axis] for axis in out[2:]]
    over = [kernel.shape[axis] for axis in rhs[1:]]
    is_plain = params["feature_group_count"] == 1 == params["batch_group_count"]
    # The product has the outputs in its rows, so their axis must come before the spatial ones in memory.
    is_plain = is_plain and tuple(out[2:]) == tuple(range(2, len(out))) and kernel.shape[rhs[0]] > 2
    if is_plain and is_large(op.dtype, [kernel.shape[rhs[0]]], spatial, over):
        _by_products(to, op, form, spatial, over)
    else:
        _direct(to, op, form)


def check_float(to: CBody, op: Statement) -> None:
    if not is_float(op.dtype):
        raise to.unsupported(f"dtype {op.dtype}")


def _by_products(to: CBody, op: Statement, form: InMemory, spatial: list[int], over: list[int]) -> None:
    # One product for each image: each column of the matrix `windows` is a window.
    (array, kernel), params = op.inputs, op.params
    lhs, rhs, out = params["dimension_numbers"]
    weights = Matrix(to, kernel, (), rhs[:1], rhs[1:])  # (outputs, features of a window)
    columns = Value(f"{array.name.rstrip('_')}_columns", (*over, *spatial), op.dtype)
    windows = to.reserve(columns, to.new_name(columns.name))
    to.add(_describe(op, "convolution"))
    if any(low > 0 or high > 0 for low, high in params["padding"]) or max(params["lhs_dilation"]) > 1:
        to.fill(windows, literal(0, op.dtype))  # padding, and zeros between the items of a dilated input
    with to.loops((op.shape[out[0]],)) as (n,):
        with to.loops(over) as (c, *taps):

            def copy(position: Index, sources: Index) -> None:
                text = to.item_by_axis(array, dict(zip(lhs, (n, c, *sources), strict=True)))
                to.add(f"{windows.item((c, *taps, *position))} = {text};")

            _window_loops(to, op, taps, copy)
        product = Matrix(to, columns, (), range(len(over)), range(len(over), len(columns.shape)))
        corner = by_axis({out[0]: n}, len(out))
        multiply(to, op, weights, product, (), form, corner, math.prod(op.shape[out[1] + 1 :]))


def _direct(to: CBody, op: Statement, form: InMemory) -> None:
    (array, kernel), params = op.inputs, op.params
    lhs, rhs, out = params["dimension_numbers"]
    groups, batch_groups = params["feature_group_count"], params["batch_group_count"]
    to.add(_describe(op, "convolution"))
    to.fill(form, literal(0, op.dtype))
    batches, features = op.shape[out[0]], op.shape[out[1]]
    # Weights in the outer loops: each adds its products to a row of the output.
    inside = kernel.shape[rhs[1]]

    def grouped(index: str, feature: str, count: int, size: int) -> str:
        group = divided(feature, features // count)
        return index if count == 1 else total(scaled(group, size), index)

    with to.loops((batches, features, *(kernel.shape[axis] for axis in rhs[1:]))) as (n, o, c, *taps):
        weight = to.new_name("weight_item")
        text = to.item_by_axis(kernel, dict(zip(rhs, (o, c, *taps), strict=True)))
        to.add(f"const {C_TYPES[op.dtype]} {weight} = {text};")
        feature, batch = grouped(c, o, groups, inside), grouped(n, o, batch_groups, batches)

        def add_product(position: Index, sources: Index) -> None:
            text = to.item_by_axis(array, dict(zip(lhs, (batch, feature, *sources), strict=True)))
            at = by_axis(dict(zip(out, (n, o, *position), strict=True)), len(out))
            to.add(f"{form.item(at)} += {weight} * {text};")

        _window_loops(to, op, taps, add_product)


def _edges(to: CBody, op: Statement, axis: int, tap: str) -> tuple[str, str, Callable[[str], tuple[str, str]]]:
    # The output with index `p` reads `input[(p * stride + tap * dilation - low) / lhs_dilation]`, where `low` is the
    # padding before the input. If the index is not a whole number, the item is a zero between the items of the input.
    # Returned are the first index of the range, the index after the last one, and a function from an output index to a
    # C test whether the input index is whole (`""` if always), and the input index.
    params = op.params
    lhs, rhs, out = params["dimension_numbers"]
    size, taps, count = op.operand.shape[lhs[2 + axis]], op.inputs[1].shape[rhs[2 + axis]], op.shape[out[2 + axis]]
    stride, low = params["window_strides"][axis], params["padding"][axis][0]
    dilation, between = params["rhs_dilation"][axis], params["lhs_dilation"][axis]
    span = (size - 1) * between + 1 if size else 0
    offset = scaled(tap, dilation, -low)  # of index 0, in the dilated input

    def source(index: str) -> tuple[str, str]:
        text = total(scaled(index, stride), offset)
        return ("", text) if between == 1 else (f"{enclosed(text)} % {between} == 0", divided(text, between))

    if is_number(offset):  # the range is known, so no variables are needed
        start = max(0, -(int(offset) // stride))
        return str(start), str(max(min(count, (span - 1 - int(offset)) // stride + 1), start)), source
    first, end = "0", str(count)
    # A range of outputs instead of a test in the innermost loop, which the compiler could not turn into vectors.
    if low > 0:
        first = to.new_name("first")
        to.add(f"const int {first} = {offset} < 0 ? {divided(scaled(offset, -1, stride - 1), stride)} : 0;")
    if (count - 1) * stride + (taps - 1) * dilation - low > span - 1:
        end = to.new_name("end")
        room = scaled(offset, -1, span - 1)
        reach = scaled(divided(room, stride), 1, 1)
        to.add(f"const int {end} = {room} < 0 ? 0 : {reach} < {count} ? {reach} : {count};")
    return first, end, source


def _window_loops(to: CBody, op: Statement, taps: Sequence[str], write: Callable[[Index, Index], None]) -> None:
    """Write loops over the indices of the output that `_edges` returns for each axis. `write` adds their content."""
    edges = [_edges(to, op, axis, tap) for axis, tap in enumerate(taps)]

    def inner(axis: int, position: Index, tests: Index, sources: Index) -> None:
        if axis == len(edges):
            with to.block(f"if ({' && '.join(tests)})") if tests else nullcontext():
                write(position, sources)
            return
        first, end, source = edges[axis]
        is_loop = (first, end) != ("0", "1")
        name = to.variable() if is_loop else "0"
        with to.block(f"for (int {name} = {first}; {name} < {end}; {name}++)", 1) if is_loop else nullcontext():
            test, index = source(name)
            inner(axis + 1, (*position, name), (*tests, test) if test else tests, (*sources, index))

    inner(0, (), (), ())
