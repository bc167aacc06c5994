"""Views, joined and padded arrays, reductions, cumulative operations and sorting in C."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from mithril_nb.emission.c.memory import is_reindexed
from mithril_nb.emission.c.types import (
    C_TYPES,
    c_shape,
    dims,
    enclosed,
    literal,
    pointer_type,
    remainder,
    scaled,
    total,
)
from mithril_nb.emission.c.writing import RULES, CBody, Index, InMemory, View, by_axis, rule
from mithril_nb.emission.params import neutral
from mithril_nb.emission.program import INFIX, KEEPDIMS, REDUCTIONS, Number, Operand, Statement

RULES.update({
    **dict.fromkeys(("copy", "copy_p"), lambda to, op: to.view(op, lambda index: index)),
    **dict.fromkeys(("empty", "empty2"), lambda to, op: to.fill(to.reserve(op.output), literal(0, op.dtype))),
    "broadcast_in_dim": lambda to, op: to.view(op, lambda index: tuple([
        "0" if size == 1 else index[axis]
        for axis, size in zip(op["broadcast_dimensions"], op.operand.shape, strict=True)
    ])),
    "transpose": lambda to, op: to.view(op, lambda index: tuple([
        index[op["permutation"].index(axis)] for axis in range(len(op.shape))
    ])),
    "slice": lambda to, op: to.view(op, lambda index: tuple(
        map(scaled, index, op["strides"] or [1] * len(op.shape), op["start_indices"])
    )),
    "rev": lambda to, op: to.view(op, lambda index: tuple([
        scaled(name, -1, op.shape[axis] - 1) if axis in op["dimensions"] else name for axis, name in enumerate(index)
    ])),
    "tile": lambda to, op: to.view(op, lambda index: tuple([
        name if size > 1 and count == 1 else remainder(name, size)
        for name, size, count in zip(index, op.operand.shape, op["reps"], strict=True)
    ])),
    **{name: lambda to, op: _reduce(to, op, op["axes"], REDUCTIONS[op.primitive]) for name in REDUCTIONS},
    "sort": lambda to, op: _sorted(
        to, op, op["dimension"], op.inputs, [(key, "order") for key in range(op["num_keys"])]
    ),
    "top_k": lambda to, op: _sorted(
        to, op, op.params.get("axis", -1) % len(op.operand.shape), op.inputs[:1], [(0, "order_down")], op["k"]
    ),
})  # fmt: skip


@rule("reshape", "squeeze", "expand_dims")
def reshape(to: CBody, op: Statement) -> None:
    if op.primitive != "reshape" or is_reindexed(op):

        def index_of(index: Index) -> Index:
            large = iter([name for name, size in zip(index, op.shape, strict=True) if size != 1])
            return tuple(["0" if size == 1 else next(large) for size in op.operand.shape])

        return to.view(op, index_of)
    # Other reshapes would need divisions and remainders in each subscript.
    output, form, shape = op.output, to.stored(op.operand), c_shape(op.output)
    if to.is_in_memory(output):
        new = to.reserve(output)
        to.add(f"memcpy({new.pointer}, {form.pointer}, {output.size} * sizeof({C_TYPES[output.dtype]}));")
        return None
    # Declare a pointer with the new shape to the same memory.
    before, after = pointer_type(output.dtype, shape, is_const=True)
    to.add(f"{before}{output.name}{after} = ({before}{after}){form.pointer};  // {dims(shape)}")
    to.forms[output] = InMemory(output.name, shape, form.buffer)
    return None


def _shifted(axis: int, first: int) -> Callable[[Index], Index]:
    return lambda index: (*index[:axis], scaled(index[axis], 1, first), *index[axis + 1 :])


def _inserted(index: Index, axis: int, text: str) -> Index:
    return (*index[:axis], text, *index[axis:])


@rule("split")
def split(to: CBody, op: Statement) -> None:
    first = 0
    for number, size in enumerate(op["sizes"]):
        to.view(op, _shifted(op["axis"], first), number)
        first += size


@rule("unstack")
def unstack(to: CBody, op: Statement) -> None:
    for number in range(len(op.outputs)):
        to.view(op, lambda index, number=number: _inserted(index, op["axis"], str(number)), number)


@rule("iota")
def iota(to: CBody, op: Statement) -> None:
    kind = C_TYPES[op.dtype]

    def item(index: Index) -> str:
        name = index[op["dimension"]]
        if name.isdigit():
            return literal(int(name), op.dtype)
        return name if kind == "int32_t" else f"({kind}){enclosed(name)}"

    to.viewed(op.output, View(item))


@rule("bitcast_convert_type")
def bitcast(to: CBody, op: Statement) -> None:
    if op.operand.shape != op.shape:  # one item would become several
        raise to.unsupported("dtypes of different widths")
    form = to.reserve(op.output)
    convert = to.helpers.use("bits_of", op.dtype)
    with to.loops(op.shape) as index:
        item = to.new_name("item")
        to.add(f"const {C_TYPES[op.operand.dtype]} {item} = {to.item(op.operand, index)};")
        to.add(f"{form.item(index)} = {convert}(&{item});")


@rule("concatenate")
def concatenate(to: CBody, op: Statement) -> None:
    axis = op["dimension"]
    form, first = to.reserve(op.output), 0
    for part in op.inputs:
        to.copy(part, form, _shifted(axis, first))
        first += part.shape[axis]


@rule("stack")
def stack(to: CBody, op: Statement) -> None:
    form = to.reserve(op.output)
    for number, part in enumerate(op.inputs):
        to.copy(part, form, lambda index, number=number: _inserted(index, op["axis"], str(number)))


@rule("pad")
def pad(to: CBody, op: Statement) -> None:
    source, value = op.inputs
    form = to.reserve(op.output)
    to.fill(form, to.item(value, ()))
    with to.loops(source.shape) as index:
        target: list[str] = []
        tests: list[str] = []
        for name, (low, high, inner), size in zip(index, op["padding_config"], op.shape, strict=True):
            target.append(scaled(name, int(inner) + 1, int(low)))
            bounds = ((low, ">= 0"), (high, f"< {size}"))  # a negative width removes items
            tests += [f"{target[-1]} {bound}" for width, bound in bounds if width < 0]
        text = to.item(source, index)
        test = f"if ({' && '.join(tests)}) " if tests else ""
        to.add(f"{test}{form.item(tuple(target))} = {text};")


COMBINERS = REDUCTIONS.values()


def combined(to: CBody, name: str, dtype: str, left: str, right: str) -> str:
    """Return a C statement that combines two expressions and assigns the result to `left`, such as `a += b;`."""
    if dtype == "bool":
        name = {"max": "or", "min": "and", "add": "or", "mul": "and"}.get(name, name)
    if name in ("max", "min"):
        helper = to.helpers.use({"max": "maximum", "min": "minimum"}[name], dtype)
        return f"{left} = {helper}({left}, {right});"
    return f"{left} {INFIX[name]}= {right};"


@rule("reduce")
def reduce_by_function(to: CBody, op: Statement) -> None:
    if len(op.inputs) != 2:  # the function combines one item of each array
        raise to.unsupported("a reduction of several arrays")
    _reduce(to, op, op["dimensions"], to.combiner(op, COMBINERS), to.item(op.inputs[1], ()))


def _reduce(to: CBody, op: Statement, axes: Any, name: str, start: str = "") -> None:
    source, output = op.operand, op.output
    form = to.reserve(output)
    rank = len(source.shape)
    kept_axes = [axis for axis in range(rank) if axis not in axes]
    keepdims = op.params.get(KEEPDIMS)
    start = start or literal(neutral(name, output.dtype), output.dtype)

    def result_index(index: Index) -> Index:
        return tuple(["0" if axis in axes else index[axis] for axis in range(rank) if keepdims or axis in kept_axes])

    if rank - 1 in axes or not kept_axes:
        # The last axis is reduced, so the items of a result are neighbours: combine them in a variable.
        with to.loops([source.shape[axis] for axis in kept_axes]) as outer:
            local = form.item(()) if not form.shape and not form.is_pointer else to.new_name(f"{output.name}_item")
            declared = "" if local == form.text else f"{C_TYPES[output.dtype]} "
            to.add(f"{declared}{local} = {start};")
            with to.loops([source.shape[axis] for axis in axes]) as inner:
                text = to.item(source, by_axis(dict(zip((*kept_axes, *axes), (*outer, *inner), strict=True)), rank))
                to.add(combined(to, name, output.dtype, local, text))
            if declared:
                index = by_axis(dict(zip(kept_axes, outer, strict=True)), rank)
                to.add(f"{form.item(result_index(index))} = {local};")
        return
    # In the order of memory, each row is added to the results, which the compiler does with vectors.
    to.fill(form, start)
    with to.loops(source.shape) as index:
        text = to.item(source, index)
        to.add(combined(to, name, output.dtype, form.item(result_index(index)), text))


@rule("argmax", "argmin")
def argmax(to: CBody, op: Statement) -> None:
    source, (axis,) = op.operand, op["axes"]
    form = to.reserve(op.output)
    # The helpers count NaN as the largest and as the smallest number, because JAX returns the index of the first NaN.
    order = to.helpers.use("is_above" if op.primitive == "argmax" else "is_below", source.dtype)
    with to.loops(_without(source.shape, axis)) as outer:
        best, position = to.new_name("best"), to.new_name("best_place")
        first = to.item(source, _inserted(outer, axis, "0"))
        to.add(f"{C_TYPES[source.dtype]} {best} = {first};")
        to.add(f"int {position} = 0;")
        variable = to.variable()
        with to.block(f"for (int {variable} = 1; {variable} < {source.shape[axis]}; {variable}++)", 1):
            item = to.item(source, _inserted(outer, axis, variable))
            with to.block(f"if ({order}({item}, {best}))"):
                to.add(f"{best} = {item};")
                to.add(f"{position} = {variable};")
        to.add(f"{form.item(outer)} = {_cast(op.dtype)}{position};")


def _without(shape: Sequence[int], axis: int) -> list[int]:
    return [*shape[:axis], *shape[axis + 1 :]]


def _cast(dtype: str) -> str:
    return "" if dtype == "int32" else f"({C_TYPES[dtype]})"


@rule("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp")
def cumulative(to: CBody, op: Statement) -> None:
    source, dtype = op.operand, op.dtype
    axis, size = op["axis"], source.shape[op["axis"]]
    form = to.reserve(op.output)
    # The sum of no exponentials has the logarithm -inf, the neutral number of a maximum.
    name = {"cumsum": "add", "cumprod": "mul", "cummin": "min"}.get(op.primitive, "max")
    with to.loops(_without(source.shape, axis)) as outer:
        local = to.new_name("so_far")
        to.add(f"{C_TYPES[dtype]} {local} = {literal(neutral(name, dtype), dtype)};")
        variable = to.variable()
        with to.block(f"for (int {variable} = 0; {variable} < {size}; {variable}++)", 1):
            along = scaled(variable, -1, size - 1) if op["reverse"] else variable
            index = _inserted(outer, axis, along)
            text = to.item(source, index)
            if op.primitive == "cumlogsumexp":
                to.add(f"{local} = {to.helpers.use('log_add_exp', dtype)}({local}, {text});")
            else:
                to.add(combined(to, name, dtype, local, text))
            to.add(f"{form.item(index)} = {local};")


@rule("dynamic_slice")
def dynamic_slice(to: CBody, op: Statement) -> None:
    source, *starts = op.inputs
    firsts = _starts(to, starts, source.shape, op["slice_sizes"])
    to.view(op, lambda index: tuple(map(total, firsts, index)))


def _starts(to: CBody, starts: Iterable[Operand], shape: Sequence[int], sizes: Sequence[int]) -> list[str]:
    # XLA moves a slice that is partly outside of the array inside.
    texts: list[str] = []
    for start, size, length in zip(starts, shape, sizes, strict=True):
        if isinstance(start, Number) or size == length:
            # A constant needs no variable, and a slice of the whole axis no start.
            texts.append(str(max(0, min(int(start.value.real), size - length))) if isinstance(start, Number) else "0")
        else:
            texts.append(to.new_name("start"))
            clamp = to.helpers.use("clamp_index")
            to.add(f"const int {texts[-1]} = {clamp}({to.item(start, ())}, {size - length});")
    return texts


@rule("dynamic_update_slice")
def dynamic_update_slice(to: CBody, op: Statement) -> None:
    source, update, *starts = op.inputs
    form = to.reserve(op.output)
    to.copy(source, form)
    firsts = _starts(to, starts, source.shape, update.shape)
    rank = len(firsts)  # a random key has one axis more
    to.copy(update, form, lambda index: (*map(total, firsts, index), *index[rank:]))


def _sorted(
    to: CBody, op: Statement, axis: int, arrays: Sequence[Operand], keys: list[tuple[int, str]], count: int = -1
) -> None:
    shape = arrays[0].shape
    size = shape[axis]
    if any(array.dtype.startswith("key") for array in arrays):  # of two words
        raise to.unsupported("random keys")
    forms = [to.reserve(value) for value in op.outputs]
    order = to.array(to.new_name("order"), (size,), "int32")
    spare = to.array(to.new_name("spare"), (size,), "int32")
    # For each array, a copy of the row that is sorted.
    rows = [to.array(to.new_name(f"row_{number}"), (size,), array.dtype) for number, array in enumerate(arrays)]
    with to.loops(_without(shape, axis)) as outer:
        variable = to.variable()
        index = _inserted(outer, axis, variable)
        with to.block(f"for (int {variable} = 0; {variable} < {size}; {variable}++)", 1):
            to.add(f"{order.text}[{variable}] = {variable};")
            for array, row in zip(arrays, rows, strict=True):
                text = to.item(array, index)
                to.add(f"{row.text}[{variable}] = {text};")
        # Sort by the last key first: the sorts are stable, so later sorts keep this order among equal items.
        for key, helper in reversed(keys):
            name = to.helpers.use(helper, arrays[key].dtype)
            to.add(f"{name}({size}, {rows[key].text}, {order.text}, {spare.text});")
        with to.block(f"for (int {variable} = 0; {variable} < {size if count < 0 else count}; {variable}++)", 1):
            for form, row in zip(forms, rows, strict=False):
                to.add(f"{form.item(index)} = {row.text}[{order.text}[{variable}]];")
            if len(forms) > len(rows):  # top_k returns positions too
                to.add(f"{forms[-1].item(index)} = {_cast(op.outputs[-1].dtype)}{order.text}[{variable}];")
