"""Pooling and its gradients in C."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mithril_nb.emission.c.arithmetic import divided, is_number, scaled, total
from mithril_nb.emission.c.primitives.shapes import combined, combiner, fill, neutral
from mithril_nb.emission.c.rules import rule
from mithril_nb.emission.c.types import C_TYPES, literal
from mithril_nb.emission.c.writing import Body, Index
from mithril_nb.emission.program import Statement
from mithril_nb.emission.unsupported import unsupported

_POOLS = {
    "reduce_window_max": "max", "reduce_window_min": "min", "reduce_window_sum": "add", "reduce_window_mul": "mul",
}  # fmt: skip


@rule(*_POOLS)
def pool(to: Body, one: Statement) -> None:
    _pool(to, one, _POOLS[one.primitive], "")


@rule("reduce_window")
def reduce_window(to: Body, one: Statement) -> None:
    if len(one.inputs) != 2:
        raise unsupported(one, "c", "windows of several arrays")
    _pool(to, one, combiner(one), to.item(one.inputs[1], ()))


def _pool(to: Body, one: Statement, name: str, start: str) -> None:
    source, (output,) = one.inputs[0], one.outputs
    form = to.reserve(output, one)
    start = start or neutral(name, output.dtype)
    with to.loops(output.shape, one) as outer:
        local = to.new_name("window_item")
        to.add(f"{C_TYPES[output.dtype]} {local} = {start};", one)

        def write(index: Index) -> None:
            to.add(combined(to, name, output.dtype, local, to.item(source, index)), one)

        _over_window(to, one, source.shape, outer, write)
        to.touch(form)
        to.add(f"{form.item(outer)} = {local};", one)


@rule("select_and_scatter_add")
def unpool(to: Body, one: Statement) -> None:
    """Write the gradient of max or min pooling. It adds each item at the first best item of its window."""
    source, (output,) = one.inputs[0], one.outputs
    form = to.reserve(output, one)
    fill(to, form, literal(0, output.dtype), one)
    with to.loops(source.shape, one) as outer:
        places = _best_place(to, one, outer)
        text = to.item(source, outer)
        to.touch(form)
        to.add(f"if ({places[0]} >= 0)", one)
        to.add(f"    {form.item(tuple(places))} += {text};", one)


@rule("select_and_gather_add")
def pool_of_other(to: Body, one: Statement) -> None:
    """Find the first best item of each window of the second operand, and read the first operand at its index."""
    source = one.inputs[0]
    (output,) = one.outputs
    form = to.reserve(output, one)
    with to.loops(output.shape, one) as outer:
        places = _best_place(to, one, outer)
        text = to.item(source, tuple(places))
        to.touch(form)
        to.add(f"{form.item(outer)} = {places[0]} < 0 ? {literal(0, output.dtype)} : {text};", one)


def _best_place(to: Body, one: Statement, outer: Index) -> list[str]:
    """Write the search for the first best item of a window, and return the names of variables with its index.

    The best item is the largest or the smallest. The index is -1 if all items of the window are outside the array.
    """
    operand = one.inputs[1]
    if not one.selected:
        raise unsupported(one, "c", "selection by a primitive other than ge and le")
    best = to.new_name("best")
    places = [to.new_name(f"place_{axis}") for axis in range(len(outer))]
    to.add(f"{C_TYPES[operand.dtype]} {best} = 0;", one)
    to.add(f"int {', '.join(f'{place} = -1' for place in places)};", one)

    def write(index: Index) -> None:
        text = to.item(operand, index)
        with to.block(f"if ({places[0]} < 0 || !({best} {'>=' if one.selected == 'max' else '<='} {text}))", one):
            to.add(f"{best} = {text};", one)
            for place, name in zip(places, index, strict=True):
                to.add(f"{place} = {name};", one)

    _over_window(to, one, operand.shape, outer, write)
    return places


def _over_window(to: Body, one: Statement, shape: Sequence[int], outer: Index, write: Callable[[Index], None]) -> None:
    """Write the loops over the items of a window that are inside the array."""
    params = one.params
    sizes, strides = params["window_dimensions"], params["window_strides"]
    ones = (1,) * len(sizes)
    dilations, between = params.get("window_dilation") or ones, params.get("base_dilation") or ones
    with to.loops(sizes, one) as inner:
        index: list[str] = []
        tests: list[str] = []
        for axis, size in enumerate(shape):
            low, _ = params["padding"][axis]
            text = total(scaled(outer[axis], strides[axis]), scaled(inner[axis], dilations[axis], -low))
            steps = 0 if outer[axis] == "0" else _last(one, axis)
            largest = steps * strides[axis] + (sizes[axis] - 1) * dilations[axis] - low
            span = (size - 1) * between[axis] + 1
            if not text.isidentifier() and not is_number(text) and (low or largest >= span or between[axis] > 1):
                name = to.new_name("at")
                to.add(f"const int {name} = {text};", one)
                text = name
            if low > 0:
                tests.append(f"{text} >= 0")
            if largest >= span:
                tests.append(f"{text} < {span}")
            if between[axis] > 1:
                tests.append(f"{text} % {between[axis]} == 0")
                text = divided(text, between[axis])
            index.append(text)
        if tests:
            with to.block(f"if ({' && '.join(tests)})", one):
                write(tuple(index))
        else:
            write(tuple(index))


def _last(one: Statement, axis: int) -> int:
    """Return the index of the last window along an axis."""
    windows = one.inputs[0] if one.primitive == "select_and_scatter_add" else one.outputs[0]
    return windows.shape[axis] - 1
