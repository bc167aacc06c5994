"""Gather and scatter in C."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext

from mithril_nb.emission.c.arithmetic import total
from mithril_nb.emission.c.primitives.shapes import combined
from mithril_nb.emission.c.rules import rule
from mithril_nb.emission.c.types import c_shape, literal
from mithril_nb.emission.c.writing import Body, Index
from mithril_nb.emission.program import Statement
from mithril_nb.emission.slices import Slices, fill_of, slices_of
from mithril_nb.emission.unsupported import unsupported


@rule("gather")
def gather(to: Body, one: Statement) -> None:
    (output,), slices = one.outputs, slices_of(one)
    rank = len(output.shape)
    form = to.reserve(output, one)
    fill = fill_of(one)
    with to.loops([output.shape[axis] for axis in slices.outer], one) as batch:
        starts, test = _starts(to, one, slices, batch, fill is None)
        with _window(to, one, slices, batch, starts, c_shape(output)[rank:]) as (item, place):
            text = to.item(slices.array, place)
            to.touch(form)
            if test and fill is not None:
                text = f"{test} ? {text} : {literal(fill.value, output.dtype)}"
            to.add(f"{form.item(item)} = {text};", one)


@contextmanager
def _window(
    to: Body, one: Statement, slices: Slices, batch: Index, starts: Mapping[int, str], extra: Sequence[int]
) -> Iterator[tuple[Index, Index]]:
    """Write loops over the items of a slice. Yield the index among the items of all slices, and that in the array.

    Args:
        to: Receives the lines.
        one: The statement.
        slices: The slices.
        batch: Index of the slice.
        starts: C expression of the start of the slice along axes of the array; 0 if missing.
        extra: Sizes of further axes of both arrays, for random keys.
    """
    with to.loops([*(slices.shape[axis] for axis in slices.window), *extra], one) as inner:
        at = dict(zip((*slices.outer, *slices.window), (*batch, *inner), strict=False))
        offsets = dict(zip(slices.kept, inner, strict=False))
        place = [total(starts.get(axis, "0"), offsets.get(axis, "0")) for axis in range(len(slices.array.shape))]
        rest = inner[len(slices.window) :]
        yield (*(at[axis] for axis in range(len(slices.shape))), *rest), (*place, *rest)


def _starts(to: Body, one: Statement, slices: Slices, batch: Index, is_clipped: bool) -> tuple[dict[int, str], str]:
    """Write variables with the start of a slice along each axis. A slice partly outside the array is moved inside.

    Returns:
        - A dict from an axis to the name of its variable. Axes that always start at 0 are left out.
        - A C test whether the slice was inside before it was moved; `""` if `is_clipped`.
    """
    starts: dict[int, str] = {}
    tests: list[str] = []
    for column, axis in enumerate(slices.mapped):
        largest = slices.array.shape[axis] - slices.sizes[axis]
        text = to.item(slices.indices, (*batch, str(column)))
        if not is_clipped:
            wanted = to.new_name("wanted")
            to.add(f"const int64_t {wanted} = {text};", one)
            tests += [f"{wanted} >= 0", f"{wanted} <= {largest}"]
            text = wanted
        if not largest:
            continue
        name = to.new_name("start")
        to.add(f"const int {name} = {to.helpers.use('clamp_index')}({text}, {largest});", one)
        starts[axis] = name
    starts |= {axis: batch[place] for axis, place in slices.batching}
    return starts, " && ".join(tests)


_COMBINERS = {
    "scatter": "", "scatter-add": "add", "scatter-mul": "mul", "scatter-min": "min", "scatter-max": "max",
    "scatter-sub": "sub",
}  # fmt: skip


@rule(*_COMBINERS)
def scatter(to: Body, one: Statement) -> None:
    (output,), slices, name = one.outputs, slices_of(one), _COMBINERS[one.primitive]
    if one.primitive == "scatter" and not _is_replacement(one):
        raise unsupported(one, "c", "an update function that reads the old item")
    form = to.reserve(output, one)
    to.copy(slices.array, form, one)
    with to.loops([slices.shape[axis] for axis in slices.outer], one) as batch:
        starts, test = _starts(to, one, slices, batch, one.params["mode"].name == "CLIP")
        with to.block(f"if ({test})", one) if test else nullcontext():
            with _window(to, one, slices, batch, starts, c_shape(output)[len(output.shape) :]) as (item, place):
                text = to.item(one.inputs[2], item)
                to.touch(form)
                old = form.item(place)
                if name == "sub":
                    to.add(f"{old} -= {text};", one)
                else:
                    to.add(combined(to, name, output.dtype, old, text) if name else f"{old} = {text};", one)


def _is_replacement(one: Statement) -> bool:
    return all(not body.statements and body.outputs == body.inputs[1:] for body in one.bodies)
