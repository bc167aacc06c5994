"""Views, joined and padded arrays, reductions and cumulative operations in C."""

from __future__ import annotations

from typing import Any

import numpy as np

from mithril_nb.emission.c.arithmetic import remainder, scaled, total
from mithril_nb.emission.c.fusion import is_reindexed
from mithril_nb.emission.c.rules import rule
from mithril_nb.emission.c.types import C_TYPES, c_shape, is_float, literal, pointer_type
from mithril_nb.emission.c.writing import Body, Index, Stored, View
from mithril_nb.emission.program import KEEPDIMS, Number, Statement
from mithril_nb.emission.unsupported import unsupported


@rule("broadcast_in_dim")
def broadcast(to: Body, one: Statement) -> None:
    axes, given = one.params["broadcast_dimensions"], one.inputs[0].shape

    def index_of(index: Index) -> Index:
        return tuple(["0" if size == 1 else index[axis] for axis, size in zip(axes, given, strict=True)])

    to.view(one, 0, index_of)


@rule("transpose")
def transpose(to: Body, one: Statement) -> None:
    order = one.params["permutation"]
    to.view(one, 0, lambda index: tuple([index[order.index(axis)] for axis in range(len(order))]))


@rule("copy", "copy_p")
def copy(to: Body, one: Statement) -> None:
    to.view(one, 0, lambda index: index)


@rule("reshape", "squeeze", "expand_dims")
def reshape(to: Body, one: Statement) -> None:
    source, output = one.inputs[0], one.outputs[0]
    if one.primitive != "reshape" or is_reindexed(one):

        def index_of(index: Index) -> Index:
            large = iter([name for name, size in zip(index, output.shape, strict=True) if size != 1])
            return tuple(["0" if size == 1 else next(large) for size in source.shape])

        return to.view(one, 0, index_of)
    form = to.stored(source, one)
    shape = c_shape(output)
    if not to.is_in_memory(output):
        # Declare a pointer with the new shape to the same memory.
        before, after = pointer_type(output.dtype, shape, is_const=True)
        shown = " x ".join(map(str, shape))
        to.add(f"{before}{output.name}{after} = ({before}{after}){form.pointer};  // {shown}", one)
        to.forms[output] = Stored(output.name, shape, form.buffer)
        return None
    new = to.reserve(output, one)
    to.touch(form)
    to.touch(new)
    to.add(f"memcpy({new.pointer}, {form.pointer}, {output.size} * sizeof({C_TYPES[output.dtype]}));", one)
    return None


@rule("slice")
def take_slice(to: Body, one: Statement) -> None:
    starts = one.params["start_indices"]
    steps = one.params["strides"] or [1] * len(starts)

    def index_of(index: Index) -> Index:
        return tuple([scaled(name, step, first) for name, step, first in zip(index, steps, starts, strict=True)])

    to.view(one, 0, index_of)


@rule("split")
def split(to: Body, one: Statement) -> None:
    first, axis = 0, one.params["axis"]
    for place, size in enumerate(one.params["sizes"]):

        def index_of(index: Index, first: int = first) -> Index:
            return (*index[:axis], scaled(index[axis], 1, first), *index[axis + 1 :])

        to.view(one, place, index_of)
        first += size


@rule("unstack")
def unstack(to: Body, one: Statement) -> None:
    axis = one.params["axis"]
    for place in range(len(one.outputs)):

        def index_of(index: Index, place: int = place) -> Index:
            return (*index[:axis], str(place), *index[axis:])

        to.view(one, place, index_of)


@rule("rev")
def reverse(to: Body, one: Statement) -> None:
    axes, shape = one.params["dimensions"], one.inputs[0].shape

    def index_of(index: Index) -> Index:
        return tuple([scaled(name, -1, shape[axis] - 1) if axis in axes else name for axis, name in enumerate(index)])

    to.view(one, 0, index_of)


@rule("iota")
def iota(to: Body, one: Statement) -> None:
    (output,), axis = one.outputs, one.params["dimension"]
    kind = C_TYPES[output.dtype]

    def item(index: Index) -> str:
        name = index[axis]
        if name.isdigit():
            return literal(int(name), output.dtype)
        return name if kind == "int32_t" else f"({kind}){name if name.isidentifier() else f'({name})'}"

    to.viewed(one, output, View(item))


@rule("empty", "empty2")
def empty(to: Body, one: Statement) -> None:
    (output,) = one.outputs
    fill(to, to.reserve(output, one), literal(0, output.dtype), one)


@rule("bitcast_convert_type")
def bitcast(to: Body, one: Statement) -> None:
    (given,), (output,) = one.inputs, one.outputs
    if given.shape != output.shape:
        raise unsupported(one, "c", "dtypes of different widths")
    form = to.reserve(output, one)
    convert = to.helpers.use("bits_of", output.dtype)
    with to.loops(output.shape, one) as index:
        item = to.new_name("item")
        to.add(f"const {C_TYPES[given.dtype]} {item} = {to.item(given, index)};", one)
        to.add(f"{form.item(index)} = {convert}(&{item});", one)


def fill(to: Body, form: Stored, text: str, one: Statement) -> None:
    """Write the expression `text` to every item of an array."""
    with to.loops(form.shape, one) as index:
        to.touch(form)
        to.add(f"{form.item(index)} = {text};", one)


@rule("concatenate")
def concatenate(to: Body, one: Statement) -> None:
    (output,), axis = one.outputs, one.params["dimension"]
    form, first = to.reserve(output, one), 0
    for part in one.inputs:

        def index_of(index: Index, first: int = first) -> Index:
            return (*index[:axis], scaled(index[axis], 1, first), *index[axis + 1 :])

        to.copy(part, form, one, index_of)
        first += part.shape[axis]


@rule("stack")
def stack(to: Body, one: Statement) -> None:
    (output,), axis = one.outputs, one.params["axis"]
    form = to.reserve(output, one)
    for place, part in enumerate(one.inputs):

        def index_of(index: Index, place: int = place) -> Index:
            return (*index[:axis], str(place), *index[axis:])

        to.copy(part, form, one, index_of)


@rule("tile")
def tile(to: Body, one: Statement) -> None:
    shape = one.inputs[0].shape

    def index_of(index: Index) -> Index:
        return tuple([name if size > 1 and count == 1 else remainder(name, size) for name, size, count in zip(
            index, shape, one.params["reps"], strict=True
        )])  # fmt: skip

    to.view(one, 0, index_of)


@rule("pad")
def pad(to: Body, one: Statement) -> None:
    (source, value), (output,) = one.inputs, one.outputs
    form = to.reserve(output, one)
    fill(to, form, to.item(value, ()), one)
    with to.loops(source.shape, one) as index:
        place: list[str] = []
        tests: list[str] = []
        for name, (low, high, inner), size in zip(index, one.params["padding_config"], output.shape, strict=True):
            place.append(scaled(name, int(inner) + 1, int(low)))
            if low < 0:
                tests.append(f"{place[-1]} >= 0")
            if high < 0:
                tests.append(f"{place[-1]} < {size}")
        text = to.item(source, index)
        to.touch(form)
        test = f"if ({' && '.join(tests)}) " if tests else ""
        to.add(f"{test}{form.item(tuple(place))} = {text};", one)


_REDUCTIONS = {
    "reduce_sum": "add", "reduce_prod": "mul", "reduce_max": "max", "reduce_min": "min", "reduce_and": "and",
    "reduce_or": "or", "reduce_xor": "xor",
}  # fmt: skip


def neutral(name: str, dtype: str) -> str:
    """Return the neutral number of an operation as a C expression, such as 0 for `add`."""
    if name in ("max", "min") and dtype != "bool":
        if is_float(dtype):
            return literal(-np.inf if name == "max" else np.inf, dtype)
        info = np.iinfo(dtype)
        return literal(int(info.min if name == "max" else info.max), dtype)
    if name == "and" and dtype != "bool":
        return literal(-1 if dtype.startswith("int") else int(np.iinfo(dtype).max), dtype)
    return literal({"mul": 1, "and": 1, "min": 1}.get(name, 0), dtype)


def combined(to: Body, name: str, dtype: str, left: str, right: str) -> str:
    """Return a C statement that combines two expressions and assigns the result to `left`, such as `a += b;`."""
    if name in ("max", "min") and dtype == "bool":
        name = {"max": "or", "min": "and"}[name]
    if name in ("max", "min"):
        helper = to.helpers.use({"max": "maximum", "min": "minimum"}[name], dtype)
        return f"{left} = {helper}({left}, {right});"
    if dtype == "bool":
        name = {"add": "or", "mul": "and"}.get(name, name)
    return f"{left} { ({'add': '+', 'mul': '*', 'and': '&', 'or': '|', 'xor': '^'}[name]) }= {right};"


@rule(*_REDUCTIONS)
def reduce(to: Body, one: Statement) -> None:
    _reduce(to, one, one.params["axes"], _REDUCTIONS[one.primitive])


def combiner(one: Statement) -> str:
    """Return the primitive with which a statement combines two items, such as `"add"`.

    Raises:
        UnsupportedPrimitiveError: The statement combines items with several primitives, or with an unsupported one.
    """
    if one.combiner not in _REDUCTIONS.values():
        raise unsupported(one, "c", f"combining items by a function other than {', '.join(_REDUCTIONS.values())}")
    return one.combiner


@rule("reduce")
def reduce_by_function(to: Body, one: Statement) -> None:
    if len(one.inputs) != 2:
        raise unsupported(one, "c", "a reduction of several arrays")
    _reduce(to, one, one.params["dimensions"], combiner(one), to.item(one.inputs[1], ()))


def _reduce(to: Body, one: Statement, axes: Any, name: str, start: str = "") -> None:
    source, (output,) = one.inputs[0], one.outputs
    form = to.reserve(output, one)
    rank = len(source.shape)
    kept = [axis for axis in range(rank) if axis not in axes]
    keepdims = one.params.get(KEEPDIMS)
    start = start or neutral(name, output.dtype)

    def place(index: Index) -> Index:
        return tuple(["0" if axis in axes else index[axis] for axis in range(rank) if keepdims or axis in kept])

    if rank - 1 in axes or not kept:
        # The last axis is reduced, so the items of a result are neighbours: combine them in a variable.
        with to.loops([source.shape[axis] for axis in kept], one) as outer:
            at = dict(zip(kept, outer, strict=True))
            local = form.item(()) if not form.shape and not form.is_pointer else to.new_name(f"{output.name}_item")
            declared = "" if local == form.text else f"{C_TYPES[output.dtype]} "
            to.add(f"{declared}{local} = {start};", one)
            with to.loops([source.shape[axis] for axis in axes], one) as inner:
                at |= dict(zip(axes, inner, strict=True))
                text = to.item(source, tuple([at[axis] for axis in range(rank)]))
                to.add(combined(to, name, output.dtype, local, text), one)
            if declared:
                to.touch(form)
                index = tuple([at.get(axis, "0") for axis in range(rank)])
                to.add(f"{form.item(place(index))} = {local};", one)
        return
    fill(to, form, start, one)
    with to.loops(source.shape, one) as index:
        text = to.item(source, index)
        to.touch(form)
        to.add(combined(to, name, output.dtype, form.item(place(index)), text), one)


@rule("argmax", "argmin")
def argmax(to: Body, one: Statement) -> None:
    (source,), (output,), (axis,) = one.inputs, one.outputs, one.params["axes"]
    form = to.reserve(output, one)
    order = to.helpers.use("is_above" if one.primitive == "argmax" else "is_below", source.dtype)
    kind = C_TYPES[source.dtype]
    shape = [size for place, size in enumerate(source.shape) if place != axis]
    with to.loops(shape, one) as outer:
        best, place = to.new_name("best"), to.new_name("best_place")
        first = to.item(source, (*outer[:axis], "0", *outer[axis:]))
        to.add(f"{kind} {best} = {first};", one)
        to.add(f"int {place} = 0;", one)
        variable = to.variable()
        with to.block(f"for (int {variable} = 1; {variable} < {source.shape[axis]}; {variable}++)", one, 1):
            item = to.item(source, (*outer[:axis], variable, *outer[axis:]))
            with to.block(f"if ({order}({item}, {best}))", one):
                to.add(f"{best} = {item};", one)
                to.add(f"{place} = {variable};", one)
        to.touch(form)
        cast = "" if C_TYPES[output.dtype] == "int32_t" else f"({C_TYPES[output.dtype]})"
        to.add(f"{form.item(outer)} = {cast}{place};", one)


@rule("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp")
def cumulative(to: Body, one: Statement) -> None:
    (source,), (output,) = one.inputs, one.outputs
    axis, size = one.params["axis"], source.shape[one.params["axis"]]
    form = to.reserve(output, one)
    name = {"cumsum": "add", "cumprod": "mul", "cummax": "max", "cummin": "min"}.get(one.primitive, "logsumexp")
    shape = [length for place, length in enumerate(source.shape) if place != axis]
    with to.loops(shape, one) as outer:
        local = to.new_name("so_far")
        start = neutral("max" if name == "logsumexp" else name, output.dtype)
        to.add(f"{C_TYPES[output.dtype]} {local} = {start};", one)
        variable = to.variable()
        with to.block(f"for (int {variable} = 0; {variable} < {size}; {variable}++)", one, 1):
            along = scaled(variable, -1, size - 1) if one.params["reverse"] else variable
            index = (*outer[:axis], along, *outer[axis:])
            text = to.item(source, index)
            if name == "logsumexp":
                to.add(f"{local} = {to.helpers.use('log_add_exp', output.dtype)}({local}, {text});", one)
            else:
                to.add(combined(to, name, output.dtype, local, text), one)
            to.touch(form)
            to.add(f"{form.item(index)} = {local};", one)


@rule("dynamic_slice")
def dynamic_slice(to: Body, one: Statement) -> None:
    source, *starts = one.inputs
    sizes = one.params["slice_sizes"]
    firsts = [start_index(to, one, *each) for each in zip(starts, source.shape, sizes, strict=True)]
    to.view(one, 0, lambda index: tuple([total(a, b) for a, b in zip(firsts, index, strict=True)]))


def start_index(to: Body, one: Statement, start: Any, size: int, length: int) -> str:
    """Return the start of a slice along an axis. A slice that is partly outside of the array is moved inside."""
    if size == length:
        return "0"
    if isinstance(start, Number):
        return str(max(0, min(int(start.value.real), size - length)))
    name = to.new_name("start")
    text = f"{to.helpers.use('clamp_index')}({to.item(start, ())}, {size - length})"
    to.add(f"const int {name} = {text};", one)
    return name


@rule("dynamic_update_slice")
def dynamic_update_slice(to: Body, one: Statement) -> None:
    source, update, *starts = one.inputs
    (output,) = one.outputs
    form = to.reserve(output, one)
    to.copy(source, form, one)
    firsts = [start_index(to, one, *each) for each in zip(starts, source.shape, update.shape, strict=True)]

    def index_of(index: Index) -> Index:
        place = [total(first, within) for first, within in zip(firsts, index, strict=False)]
        return (*place, *index[len(place) :])

    to.copy(update, form, one, index_of)
