"""Sorting in C: a stable merge sort of positions."""

from __future__ import annotations

from mithril_nb.emission.c.arithmetic import scaled
from mithril_nb.emission.c.rules import rule
from mithril_nb.emission.c.types import C_TYPES
from mithril_nb.emission.c.writing import Body
from mithril_nb.emission.program import Statement
from mithril_nb.emission.unsupported import unsupported


@rule("sort")
def sort(to: Body, one: Statement) -> None:
    axis = one.params["dimension"]
    keys = one.inputs[: one.params["num_keys"]]
    _ordered(to, one, axis, len(one.inputs), [(place, "order") for place in range(len(keys))])


@rule("top_k")
def top_k(to: Body, one: Statement) -> None:
    source = one.inputs[0]
    axis = one.params.get("axis", len(source.shape) - 1) % len(source.shape)
    _ordered(to, one, axis, 1, [(0, "order_down")], one.params["k"])


def _ordered(to: Body, one: Statement, axis: int, count: int, keys: list[tuple[int, str]], first: int = -1) -> None:
    """Write arrays sorted along an axis.

    Args:
        to: Receives the lines.
        one: The statement.
        axis: The axis.
        count: Number of operands that are sorted.
        keys: For each operand that determines the order: its index, and the helper function that sorts by it.
        first: Number of sorted items that are written; -1 for all.
    """
    arrays = one.inputs[:count]
    shape = arrays[0].shape
    size = shape[axis]
    if any(each.dtype.startswith("key") for each in arrays):
        raise unsupported(one, "c", "random keys")
    forms = [to.reserve(value, one) for value in one.outputs]
    order = to.array(to.new_name("order"), (size,), "int32", one)
    spare = to.array(to.new_name("spare"), (size,), "int32", one)
    # For each array, a copy of the row that is sorted.
    rows = [to.array(to.new_name(f"row_{place}"), (size,), each.dtype, one) for place, each in enumerate(arrays)]
    for each in (order, spare, *rows, *forms):
        to.touch(each)
    with to.loops([length for place, length in enumerate(shape) if place != axis], one) as outer:
        variable = to.variable()
        with to.block(f"for (int {variable} = 0; {variable} < {size}; {variable}++)", one, 1):
            to.add(f"{order.text}[{variable}] = {variable};", one)
            for array, row in zip(arrays, rows, strict=True):
                text = to.item(array, (*outer[:axis], variable, *outer[axis:]))
                to.add(f"{row.text}[{variable}] = {text};", one)
        # Sort by the last key first: the sorts are stable, so later sorts keep this order among equal items.
        for place, helper in reversed(keys):
            name = to.helpers.use(helper, arrays[place].dtype)
            to.add(f"{name}({size}, {rows[place].text}, {order.text}, {spare.text});", one)
        with to.block(f"for (int {variable} = 0; {variable} < {size if first < 0 else first}; {variable}++)", one, 1):
            index = (*outer[:axis], variable, *outer[axis:])
            for form, row in zip(forms, rows, strict=False):
                to.add(f"{form.item(index)} = {row.text}[{order.text}[{variable}]];", one)
            if len(forms) > len(rows):  # top_k returns positions too
                cast = "" if one.outputs[-1].dtype == "int32" else f"({C_TYPES[one.outputs[-1].dtype]})"
                to.add(f"{forms[-1].item(index)} = {cast}{scaled(f'{order.text}[{variable}]')};", one)
