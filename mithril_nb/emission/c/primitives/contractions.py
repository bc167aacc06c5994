"""Matrix products and convolutions in C."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mithril_nb.emission.c.arithmetic import divided, is_number, scaled, total
from mithril_nb.emission.c.primitives.shapes import fill
from mithril_nb.emission.c.rules import rule
from mithril_nb.emission.c.types import C_TYPES, dims, is_float, literal
from mithril_nb.emission.c.writing import Body, Index, Stored
from mithril_nb.emission.program import Operand, Statement, Value
from mithril_nb.emission.unsupported import unsupported


@rule("dot_general")
def dot_general(to: Body, one: Statement) -> None:
    (left, right), (output,) = one.inputs, one.outputs
    if output.dtype == "bool":
        raise unsupported(one, "c", "bool operands")
    (left_over, right_over), (left_batch, right_batch) = one.params["dimension_numbers"]
    left_free = _others(left, (*left_over, *left_batch))
    right_free = _others(right, (*right_over, *right_batch))
    sizes = [left.shape[axis] for axis in (*left_batch, *left_free)]
    over = [left.shape[axis] for axis in left_over]
    right_sizes = [right.shape[axis] for axis in right_free]
    form = to.reserve(output, one)
    kind = C_TYPES[output.dtype]
    if _needs_packing(to, right, right_free):
        right, right_batch, right_over, right_free = _packed(to, one, right, right_batch, right_over, right_free)
    to.add(_comment(one, "product"), one)

    def item(value: Operand, axes: Sequence[int], index: Index) -> str:
        at = dict(zip(axes, index, strict=True))
        text = to.item(value, tuple([at[axis] for axis in range(len(value.shape))]))
        return text if value.dtype == output.dtype else f"({kind}){text}"

    with to.loops(sizes, one) as outer:
        batch, rows = outer[: len(left_batch)], outer[len(left_batch) :]
        if not right_sizes or all(size == 1 for size in right_sizes):
            sum_name = to.new_name("sum")
            to.add(f"{kind} {sum_name} = {literal(0, output.dtype)};", one)
            with to.loops(over, one) as inner:
                first = item(left, (*left_batch, *left_free, *left_over), (*outer, *inner))
                columns = ("0",) * len(right_sizes)
                second = item(right, (*right_batch, *right_over, *right_free), (*batch, *inner, *columns))
                to.add(f"{sum_name} += {first} * {second};", one)
            to.touch(form)
            to.add(f"{form.item((*outer, *('0' for _ in right_sizes)))} = {sum_name};", one)
            return
        with to.loops(right_sizes, one) as columns:
            to.touch(form)
            to.add(f"{form.item((*batch, *rows, *columns))} = {literal(0, output.dtype)};", one)
        with to.loops(over, one) as inner:
            factor = to.new_name("factor")
            text = item(left, (*left_batch, *left_free, *left_over), (*outer, *inner))
            to.add(f"const {kind} {factor} = {text};", one)
            with to.loops(right_sizes, one) as columns:
                second = item(right, (*right_batch, *right_over, *right_free), (*batch, *inner, *columns))
                to.add(f"{form.item((*batch, *rows, *columns))} += {factor} * {second};", one)


def _comment(one: Statement, what: str) -> str:
    names = [f"{each.name if isinstance(each, Value) else each.text} ({dims(each.shape)})" for each in one.inputs]
    return f"// {one.outputs[0].name} ({dims(one.outputs[0].shape)}): {what} of {' and '.join(names)}"


def _others(value: Operand, axes: Sequence[int]) -> list[int]:
    return [axis for axis in range(len(value.shape)) if axis not in axes]


def _needs_packing(to: Body, right: Operand, free: Sequence[int]) -> bool:
    """Return whether the inner loop over columns would jump in memory."""
    if not free or not isinstance(right, Value) or right.size < 16 or right.shape[free[-1]] == 1:
        return False
    if isinstance(to.forms.get(right), Stored):
        return free[-1] != len(right.shape) - 1
    # Through a view: look at the last subscript of an item.
    text = to.item(right, tuple([f"axis_{axis}" for axis in range(len(right.shape))]))
    return not text.endswith(f"[axis_{free[-1]}]")


def _packed(
    to: Body, one: Statement, right: Operand, batch: Sequence[int], over: Sequence[int], free: Sequence[int]
) -> tuple[Value, Sequence[int], Sequence[int], Sequence[int]]:
    """Write a copy of the right operand whose columns are next to each other."""
    assert isinstance(right, Value)
    axes = (*batch, *over, *free)
    copy = Value(f"{right.name}_columns", tuple([right.shape[axis] for axis in axes]), right.dtype)
    form = to.reserve(copy, one, to.new_name(copy.name))
    with to.loops(copy.shape, one) as index:
        at = dict(zip(axes, index, strict=True))
        text = to.item(right, tuple([at[axis] for axis in range(len(axes))]))
        to.add(f"{form.item(index)} = {text};", one)
    first, second = len(batch), len(batch) + len(over)
    return copy, range(first), range(first, second), range(second, len(axes))


@rule("conv_general_dilated")
def conv(to: Body, one: Statement) -> None:
    """Write a direct convolution: for each weight, its product with a window of the input is added to the output."""
    (array, kernel), (output,), params = one.inputs, one.outputs, one.params
    if not is_float(output.dtype) or array.dtype != output.dtype or kernel.dtype != output.dtype:
        raise unsupported(one, "c", "dtypes other than float32 and float64")
    numbers = params["dimension_numbers"]
    space = range(len(array.shape) - 2)
    lhs, rhs, out = numbers.lhs_spec, numbers.rhs_spec, numbers.out_spec
    groups, batch_groups = params["feature_group_count"], params["batch_group_count"]
    form = to.reserve(output, one)
    to.add(_comment(one, "convolution"), one)
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
        edges = [
            _edges(to, one, axis, taps[axis], array.shape[lhs[2 + axis]], output.shape[out[2 + axis]]) for axis in space
        ]
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
    """Return the first place of the output, the end, and the functions to the test and the index of the source.

    A place `p` reads item `(p * stride + tap * dilation - low) / lhs_dilation`, if it is inside.
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
    needs_low = low > 0
    needs_high = (places - 1) * stride + (params_size(one, axis) - 1) * dilation - low > span - 1
    if needs_low:
        first = to.new_name("first")
        to.add(f"const int {first} = {offset} < 0 ? {divided(scaled(offset, -1, stride - 1), stride)} : 0;", one)
    if needs_high:
        end = to.new_name("end")
        room = scaled(offset, -1, span - 1)
        reach = scaled(divided(room, stride), 1, 1)
        to.add(f"const int {end} = {room} < 0 ? 0 : {reach} < {places} ? {reach} : {places};", one)
    return first, end, source


def params_size(one: Statement, axis: int) -> int:
    """Return the size of the kernel of a convolution along an axis of space."""
    return one.inputs[1].shape[one.params["dimension_numbers"].rhs_spec[2 + axis]]


def _window_loops(to: Body, one: Statement, edges: list[tuple[str, str, Any]], write: Any) -> None:
    """Write the loops over the places that read inside the input."""

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
