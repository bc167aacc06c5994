"""Gather and scatter in C."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext

from mithril_nb.emission.c.primitives.shapes import combined
from mithril_nb.emission.c.types import c_shape, literal, total
from mithril_nb.emission.c.writing import CBody, Index, by_axis, rule
from mithril_nb.emission.params import Slices, fill_of, slices_of
from mithril_nb.emission.program import Statement


@rule("gather")
def gather(to: CBody, op: Statement) -> None:
    slices, fill, form = slices_of(op), fill_of(op), to.reserve(op.output)
    with to.loops([op.shape[axis] for axis in slices.outer]) as batch:
        starts, test = _starts(to, slices, batch, fill is None)
        with _window(to, op, slices, batch, starts) as (item, target):
            text = to.item(slices.array, target)
            if test and fill is not None:
                text = f"{test} ? {text} : {literal(fill.value, op.dtype)}"
            to.add(f"{form.item(item)} = {text};")


@contextmanager
def _window(
    to: CBody, op: Statement, slices: Slices, batch: Index, starts: Mapping[int, str]
) -> Iterator[tuple[Index, Index]]:
    extra = c_shape(op.output)[len(op.shape) :]  # of random keys
    with to.loops([*(slices.shape[axis] for axis in slices.window), *extra]) as inner:
        at = dict(zip((*slices.outer, *slices.window), (*batch, *inner), strict=False))
        offsets = dict(zip(slices.window_axes, inner, strict=False))
        target = [total(starts.get(axis, "0"), offsets.get(axis, "0")) for axis in range(len(slices.array.shape))]
        rest = inner[len(slices.window) :]
        yield (*by_axis(at, len(slices.shape)), *rest), (*target, *rest)


def _starts(to: CBody, slices: Slices, batch: Index, is_clipped: bool) -> tuple[dict[int, str], str]:
    """Write variables with the start of a slice, moved inside of the array, along each axis where it is not always 0.

    Return the names of the variables by axis, and a C test whether the slice was inside before; `""` if `is_clipped`.
    """
    starts: dict[int, str] = {}
    tests: list[str] = []
    for column, axis in enumerate(slices.mapped):
        largest = slices.array.shape[axis] - slices.sizes[axis]
        text = to.item(slices.indices, (*batch, str(column)))
        if not is_clipped:
            start = to.new_name("wanted")
            to.add(f"const int64_t {start} = {text};")  # an index may be an int64 or a uint32
            tests += [f"{start} >= 0", f"{start} <= {largest}"]
            text = start
        if largest:  # else the only start is 0
            starts[axis] = to.new_name("start")
            to.add(f"const int {starts[axis]} = {to.helpers.use('clamp_index')}({text}, {largest});")
    # Each batch of indices refers to its own part of the array.
    starts |= {axis: batch[column] for axis, column in slices.batching}
    return starts, " && ".join(tests)


_COMBINERS = {
    "scatter": "", "scatter-add": "add", "scatter-mul": "mul", "scatter-min": "min", "scatter-max": "max",
    "scatter-sub": "sub",
}  # fmt: skip


@rule(*_COMBINERS)
def scatter(to: CBody, op: Statement) -> None:
    slices, name = slices_of(op), _COMBINERS[op.primitive]
    # `jax.lax.scatter_apply` passes any function of the old item.
    if not name and any(body.statements or body.outputs != body.inputs[1:] for body in op.bodies):
        raise to.unsupported("an update function that reads the old item")
    form = to.reserve(op.output)
    to.copy(slices.array, form)
    with to.loops([slices.shape[axis] for axis in slices.outer]) as batch:
        starts, test = _starts(to, slices, batch, op["mode"].name == "CLIP")
        with to.block(f"if ({test})") if test else nullcontext():
            with _window(to, op, slices, batch, starts) as (item, target):
                text = to.item(op.inputs[2], item)
                old = form.item(target)
                to.add(combined(to, name, op.dtype, old, text) if name else f"{old} = {text};")
