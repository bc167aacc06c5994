"""Convolutions in C."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from mithril_nb.emission.c.arithmetic import divided, is_number, scaled, total
from mithril_nb.emission.c.primitives.linear import check_float
from mithril_nb.emission.c.primitives.products import Matrix, describe, is_large, multiply
from mithril_nb.emission.c.primitives.shapes import fill
from mithril_nb.emission.c.rules import rule
from mithril_nb.emission.c.types import C_TYPES, literal
from mithril_nb.emission.c.writing import Body, Index, Stored
from mithril_nb.emission.program import Operand, Statement, Value


@rule("conv_general_dilated")
def conv(to: Body, one: Statement) -> None:
    """Write a convolution. A large one without groups is written as matrix products."""
    kernel, (output,), params = one.inputs[1], one.outputs, one.params
    check_float(one)
    numbers = params["dimension_numbers"]
    rhs, out = numbers.rhs_spec, numbers.out_spec
    form = to.reserve(output, one)
    places = [output.shape[axis] for axis in out[2:]]
    is_plain = params["feature_group_count"] == 1 == params["batch_group_count"]
    is_plain = is_plain and tuple(out[2:]) == tuple(range(2, len(out))) and kernel.shape[rhs[0]] > 2
    over = [kernel.shape[axis] for axis in rhs[1:]]
    if is_plain and is_large(output.dtype, rows=[kernel.shape[rhs[0]]], columns=places, over=over):
        _by_products(to, one, form)
    else:
        _direct(to, one, form)


def _by_products(to: Body, one: Statement, form: Stored) -> None:
    """Write a convolution as one matrix product for each image. Each column of the matrix is a window."""
    (array, kernel), (output,), params = one.inputs, one.outputs, one.params
    numbers = params["dimension_numbers"]
    lhs, rhs, out = numbers.lhs_spec, numbers.rhs_spec, numbers.out_spec
    places = [output.shape[axis] for axis in out[2:]]
    over = [kernel.shape[axis] for axis in rhs[1:]]
    weights = Matrix.of(to, one, kernel, (), rhs[:1], rhs[1:])
    name = array.name if isinstance(array, Value) else "number"
    columns = Value(f"{name.rstrip('_')}_columns", (*over, *places), output.dtype)
    windows = to.reserve(columns, one, to.new_name(columns.name))
    to.add(describe(one, "convolution"), one)
    if _reaches_out(one):
        fill(to, windows, literal(0, output.dtype), one)
    with to.loops((output.shape[out[0]],), one) as (n,):
        with to.loops(over, one) as (c, *taps):
            edges = _all_edges(to, one, taps)

            def copy(found: Index, sources: Index) -> None:
                at = dict(zip(lhs, (n, c, *sources), strict=True))
                text = to.item(array, tuple([at[axis] for axis in range(len(at))]))
                to.add(f"{windows.item((c, *taps, *found))} = {text};", one)

            _window_loops(to, one, edges, copy)
        product = Matrix.of(to, one, columns, (), range(len(over)), range(len(over), len(columns.shape)))
        at = {out[0]: n, out[1]: "0"}
        corner = tuple([at.get(axis, "0") for axis in range(len(out))])
        row = math.prod(output.shape[out[1] + 1 :])
        multiply(to, one, weights, product, (), form, corner, row)


def _reaches_out(one: Statement) -> bool:
    """Return whether windows contain padding, or zeros between the items of a dilated input."""
    return any(low > 0 or high > 0 for low, high in one.params["padding"]) or max(one.params["lhs_dilation"]) > 1


def _all_edges(to: Body, one: Statement, taps: Sequence[str]) -> list[tuple[str, str, Any]]:
    numbers, array, output = one.params["dimension_numbers"], one.inputs[0], one.outputs[0]
    return [
        _edges(to, one, axis, tap, array.shape[numbers.lhs_spec[2 + axis]], output.shape[numbers.out_spec[2 + axis]])
        for axis, tap in enumerate(taps)
    ]


def _direct(to: Body, one: Statement, form: Stored) -> None:
    """Write a convolution as loops over the weights. Each step adds products of one weight to the output."""
    (array, kernel), (output,), params = one.inputs, one.outputs, one.params
    numbers = params["dimension_numbers"]
    lhs, rhs, out = numbers.lhs_spec, numbers.rhs_spec, numbers.out_spec
    groups, batch_groups = params["feature_group_count"], params["batch_group_count"]
    to.add(describe(one, "convolution"), one)
    fill(to, form, literal(0, output.dtype), one)
    batches, features = output.shape[out[0]], output.shape[out[1]]
    inside = kernel.shape[rhs[1]]
    window = [kernel.shape[axis] for axis in rhs[2:]]
    with to.loops((batches, features, inside, *window), one) as index:
        n, o, c, *taps = index
        weight = to.new_name("weight_item")
        at = {rhs[0]: o, rhs[1]: c, **dict(zip(rhs[2:], taps, strict=True))}
        text = to.item(kernel, tuple([at[axis] for axis in range(len(kernel.shape))]))
        to.add(f"const {C_TYPES[output.dtype]} {weight} = {text};", one)
        feature = c if groups == 1 else total(scaled(_group(o, features // groups, groups), inside), c)
        batch = n if batch_groups == 1 else total(scaled(_group(o, features // batch_groups, batch_groups), batches), n)
        edges = _all_edges(to, one, taps)
        _window_loops(to, one, edges, lambda places, sources: _add_product(
            to, one, form, dict(zip(out, (n, o, *places), strict=True)),
            array, dict(zip(lhs, (batch, feature, *sources), strict=True)), weight,
        ))  # fmt: skip


def _group(feature: str, size: int, count: int) -> str:
    return "0" if count == 1 else divided(feature, size)


def _add_product(
    to: Body, one: Statement, form: Stored, at: dict[int, str], array: Operand, source: dict[int, str], weight: str
) -> None:
    text = to.item(array, tuple([source[axis] for axis in range(len(source))]))
    to.touch(form)
    to.add(f"{form.item(tuple([at[axis] for axis in range(len(at))]))} += {weight} * {text};", one)


def _edges(to: Body, one: Statement, axis: int, tap: str, size: int, places: int) -> tuple[str, str, Any]:
    """Return the range of output indices, along an axis, for which one item of the window is inside of the input.

    The output with index `p` reads `input[(p * stride + tap * dilation - low) / lhs_dilation]`, where `low` is the
    padding before the input. If the index is not a whole number, the item is a zero between the items of the input.

    Args:
        to: Receives the lines that compute the range.
        one: The convolution.
        axis: The spatial axis.
        tap: C expression of the item's index in the window.
        size: Size of the input.
        places: Size of the output.

    Returns:
        - The first index of the range.
        - The index after the last one.
        - A function from an output index to a pair: a C test whether the input index is a whole number, and the input
          index. The test is `""` if it is always a whole number.
    """
    params = one.params
    stride, low = params["window_strides"][axis], params["padding"][axis][0]
    dilation, between = params["rhs_dilation"][axis], params["lhs_dilation"][axis]
    span = (size - 1) * between + 1 if size else 0
    offset = scaled(tap, dilation, -low)  # of place 0, in the dilated input

    def source(place: str) -> tuple[str, str]:
        text = total(scaled(place, stride), offset)
        if between == 1:
            return "", text
        inner = text if text.isidentifier() else f"({text})"
        return f"{inner} % {between} == 0", divided(text, between)

    if is_number(offset):
        first = max(0, -(int(offset) // stride))
        last = min(places, (span - 1 - int(offset)) // stride + 1)
        return str(first), str(max(last, first)), source
    first, end = "0", str(places)
    taps = one.inputs[1].shape[params["dimension_numbers"].rhs_spec[2 + axis]]
    needs_low = low > 0
    needs_high = (places - 1) * stride + (taps - 1) * dilation - low > span - 1
    if needs_low:
        first = to.new_name("first")
        to.add(f"const int {first} = {offset} < 0 ? {divided(scaled(offset, -1, stride - 1), stride)} : 0;", one)
    if needs_high:
        end = to.new_name("end")
        room = scaled(offset, -1, span - 1)
        reach = scaled(divided(room, stride), 1, 1)
        to.add(f"const int {end} = {room} < 0 ? 0 : {reach} < {places} ? {reach} : {places};", one)
    return first, end, source


def _window_loops(to: Body, one: Statement, edges: list[tuple[str, str, Any]], write: Any) -> None:
    """Write loops over the indices of the output that `_edges` returns for each axis. `write` adds their content."""

    def inner(axis: int, places: tuple[str, ...], tests: tuple[str, ...], sources: tuple[str, ...]) -> None:
        if axis == len(edges):
            if tests:
                with to.block(f"if ({' && '.join(tests)})", one):
                    write(places, sources)
            else:
                write(places, sources)
            return
        first, end, source = edges[axis]
        if first == "0" and end == "1":
            test, index = source("0")
            return inner(axis + 1, (*places, "0"), (*tests, test) if test else tests, (*sources, index))
        name = to.variable()
        with to.block(f"for (int {name} = {first}; {name} < {end}; {name}++)", one, 1):
            test, index = source(name)
            inner(axis + 1, (*places, name), (*tests, test) if test else tests, (*sources, index))

    inner(0, (), (), ())
