"""Gather and scatter in C."""

from __future__ import annotations

from typing import Any

import numpy as np

from mithril_nb.emission.c.arithmetic import total
from mithril_nb.emission.c.primitives.shapes import combined
from mithril_nb.emission.c.rules import rule
from mithril_nb.emission.c.types import c_shape, is_float, literal
from mithril_nb.emission.c.writing import Body, Index
from mithril_nb.emission.program import Operand, Statement
from mithril_nb.emission.unsupported import unsupported


@rule("gather")
def gather(to: Body, one: Statement) -> None:
    (source, indices), (output,), params = one.inputs, one.outputs, one.params
    numbers, sizes = params["dimension_numbers"], params["slice_sizes"]
    rank = len(output.shape)
    offset_axes = list(numbers.offset_dims)
    batch_axes = [axis for axis in range(rank) if axis not in offset_axes]
    kept = [
        axis
        for axis in range(len(source.shape))
        if axis not in (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    ]
    form = to.reserve(output, one)
    mode = params["mode"].name
    with to.loops([output.shape[axis] for axis in batch_axes], one) as batch:
        names = _starts(
            to, one, source, indices, batch, list(sizes), numbers.start_index_map,
            numbers.operand_batching_dims, numbers.start_indices_batching_dims, mode != "FILL_OR_DROP",
        )  # fmt: skip
        starts, test = names
        extra = c_shape(output)[rank:]
        with to.loops([*(output.shape[axis] for axis in offset_axes), *extra], one) as inner:
            offsets = dict(zip(kept, inner[: len(kept)], strict=True))
            place = [total(starts.get(axis, "0"), offsets.get(axis, "0")) for axis in range(len(source.shape))]
            at = {**dict(zip(batch_axes, batch, strict=True)), **dict(zip(offset_axes, inner, strict=False))}
            text = to.item(source, (*place, *inner[len(kept) :]))
            to.touch(form)
            if mode == "FILL_OR_DROP" and test:
                text = f"{test} ? {text} : {_filling(params['fill_value'], output.dtype)}"
            to.add(f"{form.item((*(at[axis] for axis in range(rank)), *inner[len(kept) :]))} = {text};", one)


def _filling(value: Any, dtype: str) -> str:
    if value is not None:
        return literal(value, dtype)
    if is_float(dtype):
        return "NAN"
    if dtype == "bool":
        return "true"
    info = np.iinfo(dtype if not dtype.startswith("key") else "uint32")
    return literal(int(info.min if dtype.startswith("int") else info.max), dtype)


def _starts(
    to: Body, one: Statement, source: Operand, indices: Operand, batch: Index, sizes: list[int],
    start_map: Any, operand_batch: Any, index_batch: Any, is_clipped: bool,
) -> tuple[dict[int, str], str]:  # fmt: skip
    """Write variables with the start of a window along each axis. A window partly outside the array is moved inside.

    Returns:
        - A dict from an axis to the name of its variable. Axes that always start at 0 are left out.
        - A C test whether the window was inside before it was moved; `""` if `is_clipped`.
    """
    starts: dict[int, str] = {}
    tests: list[str] = []
    for column, axis in enumerate(start_map):
        largest = source.shape[axis] - sizes[axis]
        text = to.item(indices, (*batch, str(column)))
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
    for axis, place in zip(operand_batch, index_batch, strict=True):
        starts[axis] = batch[place]
    return starts, " && ".join(tests)


_COMBINERS = {
    "scatter": "", "scatter-add": "add", "scatter-mul": "mul", "scatter-min": "min", "scatter-max": "max",
    "scatter-sub": "sub",
}  # fmt: skip


@rule(*_COMBINERS)
def scatter(to: Body, one: Statement) -> None:
    (source, indices, updates), (output,), params = one.inputs, one.outputs, one.params
    numbers = params["dimension_numbers"]
    if one.primitive == "scatter" and not _is_replacement(one):
        raise unsupported(one, "c", "an update function that reads the old item")
    rank = len(updates.shape)
    window_axes = list(numbers.update_window_dims)
    batch_axes = [axis for axis in range(rank) if axis not in window_axes]
    skipped = (*numbers.inserted_window_dims, *numbers.operand_batching_dims)
    kept = [axis for axis in range(len(source.shape)) if axis not in skipped]
    sizes = [1] * len(source.shape)
    for axis, update_axis in zip(kept, window_axes, strict=True):
        sizes[axis] = updates.shape[update_axis]
    form = to.reserve(output, one)
    to.copy(source, form, one)
    mode, name = params["mode"].name, _COMBINERS[one.primitive]
    with to.loops([updates.shape[axis] for axis in batch_axes], one) as batch:
        starts, test = _starts(
            to, one, source, indices, batch, sizes, numbers.scatter_dims_to_operand_dims,
            numbers.operand_batching_dims, numbers.scatter_indices_batching_dims, mode == "CLIP",
        )  # fmt: skip
        if test:
            with to.block(f"if ({test})", one):
                _write_window(to, one, batch, batch_axes, window_axes, kept, starts, name)
        else:
            _write_window(to, one, batch, batch_axes, window_axes, kept, starts, name)


def _write_window(
    to: Body, one: Statement, batch: Index, batch_axes: list[int], window_axes: list[int], kept: list[int],
    starts: dict[int, str], name: str,
) -> None:  # fmt: skip
    source, _, updates = one.inputs
    (output,) = one.outputs
    form = to.forms[output]
    extra = c_shape(output)[len(output.shape) :]
    with to.loops([*(updates.shape[axis] for axis in window_axes), *extra], one) as inner:
        at = {**dict(zip(batch_axes, batch, strict=True)), **dict(zip(window_axes, inner, strict=False))}
        rest = inner[len(window_axes) :]
        text = to.item(updates, (*(at[axis] for axis in range(len(updates.shape))), *rest))
        offsets = dict(zip(kept, inner, strict=False))
        place = [total(starts.get(axis, "0"), offsets.get(axis, "0")) for axis in range(len(source.shape))]
        to.touch(form)
        item = to.item(output, (*place, *rest))
        if name == "sub":
            to.add(f"{item} -= {text};", one)
        else:
            to.add(combined(to, name, output.dtype, item, text) if name else f"{item} = {text};", one)


def _is_replacement(one: Statement) -> bool:
    return all(not body.statements and body.outputs == body.inputs[1:] for body in one.bodies)
