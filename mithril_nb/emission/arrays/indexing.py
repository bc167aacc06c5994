"""Rules for gathers, scatters, dynamic slices and random numbers."""

from __future__ import annotations

from typing import Any

from mithril_nb.emission.arrays.rules import Context, plain, rule, sizes
from mithril_nb.emission.program import Statement
from mithril_nb.emission.slices import fill_of


@rule("gather")
def _gather(to: Context, one: Statement) -> str:
    array, indices = one.inputs
    params, numbers = one.params, one.params["dimension_numbers"]
    fill = fill_of(one)
    filled = [] if fill is None else [f"fill={to.dialect.number(fill)}"]
    offsets = [axis for axis in range(len(one.outputs[0].shape)) if axis not in numbers.offset_dims]
    # One index picks a row: `table[indices]`.
    is_rows = (
        numbers.start_index_map == (0,)
        and numbers.collapsed_slice_dims == (0,)
        and not numbers.operand_batching_dims
        and tuple(params["slice_sizes"]) == (1, *array.shape[1:])
        and offsets == list(range(len(indices.shape) - 1))
    )
    if is_rows and fill is not None:
        return to.helper("rows", to.array(array), f"{to.array(indices)}[..., 0]", *filled)
    shown = [
        f"offset_dims={plain(numbers.offset_dims)}",
        f"collapsed={plain(numbers.collapsed_slice_dims)}",
        f"start_index_map={plain(numbers.start_index_map)}",
        f"slice_sizes={plain(params['slice_sizes'])}",
    ]
    if numbers.operand_batching_dims:
        shown.append(f"batching={plain((numbers.operand_batching_dims, numbers.start_indices_batching_dims))}")
    return to.helper("gather", to.array(array), to.array(indices), *shown, *filled)


_KINDS = {
    "scatter": "set", "scatter-add": "add", "scatter_add": "add", "scatter-mul": "multiply", "scatter_mul": "multiply",
    "scatter-min": "minimum", "scatter_min": "minimum", "scatter-max": "maximum", "scatter_max": "maximum",
    "scatter-sub": "subtract", "scatter_sub": "subtract",
}  # fmt: skip


@rule(*_KINDS)
def _scatter(to: Context, one: Statement) -> str:
    params, numbers = one.params, one.params["dimension_numbers"]
    shown = [
        f"kind={_KINDS[one.primitive]!r}",
        f"update_window_dims={plain(numbers.update_window_dims)}",
        f"inserted={plain(numbers.inserted_window_dims)}",
        f"to_operand={plain(numbers.scatter_dims_to_operand_dims)}",
    ]
    if numbers.operand_batching_dims:
        shown.append(f"batching={plain((numbers.operand_batching_dims, numbers.scatter_indices_batching_dims))}")
    if params["mode"].name == "CLIP":  # in the other modes, XLA drops slices outside of the array
        shown.append("mode='clip'")
    return to.helper("scatter", *to.arrays(one), *shown)


def _starts(to: Context, indices: Any) -> str:
    texts = [to.operand(each) for each in indices]
    return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"


@rule("dynamic_slice")
def _dynamic_slice(to: Context, one: Statement) -> str:
    array, *indices = one.inputs
    return to.helper("dynamic_slice", to.array(array), _starts(to, indices), sizes(one.params["slice_sizes"]))


@rule("dynamic_update_slice")
def _dynamic_update_slice(to: Context, one: Statement) -> str:
    array, update, *indices = one.inputs
    return to.helper("dynamic_update_slice", to.array(array), to.array(update), _starts(to, indices))


@rule("random_bits")
def _random_bits(to: Context, one: Statement) -> str:
    width = one.params["bit_width"]
    if width not in (8, 16, 32, 64) or (width == 64 and to.library != "numpy"):
        raise to.unsupported(one, f"{width} bits")
    widths = [str(width)] if width != 32 else []
    return to.helper("random_bits", to.array(one.inputs[0]), sizes(one.params["shape"]), *widths)


@rule("random_split")
def _random_split(to: Context, one: Statement) -> str:
    return to.helper("random_split", to.array(one.inputs[0]), sizes(one.params["shape"]))
