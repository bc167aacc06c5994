"""Helper functions of emitted GGML source: convolutions, windows, gathers and scatters."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the package may be missing here; an emitted file imports it
    from ggml import ggml

    from mithril_nb.emission.ggml.helpers.graphs import full, joined, new, pad, reshape, sizes, sliced
    from mithril_nb.emission.ggml.helpers.numbers import clamp, where


def conv(ctx, x, kernel, strides, padding, lhs_dilation=(1, 1), rhs_dilation=(1, 1), groups=1, batch_groups=1):
    """Return a convolution of x (batch, features, height, width) and a kernel (outputs, features, height, width)."""
    config = [(*pair, gap - 1) for pair, gap in zip(padding, lhs_dilation)]
    x = pad(ctx, x, 0, config[::-1])
    count = max(groups, batch_groups)
    dim = 2 if groups > 1 else 3  # x is divided along its features or its batch; the kernel along its outputs
    found = []
    for place in range(count):
        part = part_of(ctx, x, dim, place, count)
        kernel_part = part_of(ctx, kernel, 3, place, count)
        (down, right), (rows, columns) = strides, rhs_dilation
        found.append(ggml.ggml_conv_2d(ctx, kernel_part, part, right, down, 0, 0, columns, rows))
    return joined(ctx, 2, found)


def part_of(ctx, x, dim, place, count):
    """Return part number `place` of `count` equal parts along `dim`, where 0 is the last axis."""
    width = sizes(x)[dim] // count
    return x if count == 1 else sliced(ctx, x, dim, place * width, width)


def bounded(ctx, x, count, is_dropped):
    """Return indices limited to 0 ... count - 1, and a mask of the indices outside; None without is_dropped."""
    inside = clamp(ctx, x, 0, count - 1)
    if not is_dropped:
        return inside, None
    return inside, ggml.ggml_step(ctx, ggml.ggml_abs(ctx, ggml.ggml_sub(ctx, x, inside)))


def as_index(ctx, x):
    """Return indices as a tensor with one axis and dtype int32, which GGML needs to read rows."""
    return ggml.ggml_cast(ctx, ggml.ggml_reshape_1d(ctx, x, ggml.ggml_nelements(x)), ggml.GGML_TYPE_I32)


def rows(ctx, table, indices, fill=None):
    """Return the rows at `indices` of a table (count, width).

    For an index outside of the table, return a row of `fill`, or the nearest row if `fill` is None.
    """
    width, count = sizes(table)[:2]
    inside, outside = bounded(ctx, indices, count, fill is not None)
    found = ggml.ggml_get_rows(ctx, table, as_index(ctx, inside))
    if outside is None:
        return found
    mask = ggml.ggml_repeat(ctx, ggml.ggml_reshape_2d(ctx, outside, 1, ggml.ggml_nelements(outside)), found)
    return where(ctx, mask, full(ctx, fill, ggml.ggml_nelements(indices), width), found)


def add_rows(ctx, rows, indices, count, is_dropped=False):
    """Return zeros (count, width) with each row added at its index.

    A row whose index is outside of the table is left out if is_dropped is true, else added to the nearest row.
    """
    width = sizes(rows)[0]
    inside, outside = bounded(ctx, indices, count, is_dropped)
    table = new(ctx, count + is_dropped, width)
    if outside is not None:  # one row more, for the rows left out
        inside = where(ctx, outside, ggml.ggml_fill(ctx, inside, count), inside)
    found = ggml.ggml_get_rows_back(ctx, rows, as_index(ctx, inside), table)
    return sliced(ctx, found, 1, 0, count) if is_dropped else found


def places_of(ctx, indices, shape, starts, bounds, along, is_dropped):
    """Return the index of each item of windows in a flattened array, and a mask of the windows partly outside.

    If is_dropped is false, these windows are moved inside, and the second result is None.

    Args:
        ctx: The context.
        indices: The start of each window. The last axis of `indices` contains one index for each entry of `bounds`.
        shape: Shape of the array with the items of all windows.
        starts: `shape`, but with size 1 along the axes that lie within a window.
        bounds: For each index, the stride of its axis in the flattened array, and the number of possible starts.
        along: Pairs (axis of `shape`, stride) for axes along which each item is a stride after the item before it.
        is_dropped: True if windows that are partly outside are left out.
    """
    places, outside = full(ctx, 0, *shape), None
    for number, (distance, count) in enumerate(bounds):
        index = reshape(ctx, sliced(ctx, indices, 0, number, 1), *starts)
        inside, is_outside = bounded(ctx, index, count, is_dropped)
        places = ggml.ggml_add(ctx, places, ggml.ggml_scale(ctx, inside, distance))
        if is_dropped:
            outside = is_outside if outside is None else ggml.ggml_step(ctx, ggml.ggml_add(ctx, outside, is_outside))
    for axis, distance in along:
        steps = ggml.ggml_scale(ctx, ggml.ggml_arange(ctx, 0, shape[axis], 1), distance)
        one_axis = [size if place == axis else 1 for place, size in enumerate(shape)]
        places = ggml.ggml_add(ctx, places, reshape(ctx, steps, *one_axis))
    return places, None if outside is None else ggml.ggml_repeat(ctx, outside, places)


def gather(ctx, x, indices, shape, starts, bounds, along, fill=None):
    """Return windows of x. A window that is partly outside is filled with `fill`, or moved inside if `fill` is None.

    See places_of for the other arguments.
    """
    places, outside = places_of(ctx, indices, shape, starts, bounds, along, fill is not None)
    flat = ggml.ggml_reshape_2d(ctx, x, 1, ggml.ggml_nelements(x))
    found = reshape(ctx, ggml.ggml_get_rows(ctx, flat, as_index(ctx, places)), *shape)
    return found if outside is None else where(ctx, outside, full(ctx, fill, *shape), found)


def scatter_add(ctx, x, indices, updates, shape, starts, bounds, along, is_dropped=False):
    """Return x with `updates` added to its windows. See places_of for the arguments."""
    places, outside = places_of(ctx, indices, shape, starts, bounds, along, is_dropped)
    count = ggml.ggml_nelements(x)
    if outside is not None:  # one item more, for the items left out
        places = where(ctx, outside, ggml.ggml_fill(ctx, places, count), places)
    flat = ggml.ggml_reshape_2d(ctx, updates, 1, ggml.ggml_nelements(updates))
    sums = ggml.ggml_get_rows_back(ctx, flat, as_index(ctx, places), new(ctx, count + is_dropped, 1))
    sums = sliced(ctx, sums, 1, 0, count) if is_dropped else sums
    return ggml.ggml_add(ctx, x, ggml.ggml_reshape(ctx, sums, x))


def scatter(ctx, x, indices, updates, shape, starts, bounds, along, is_dropped=False):
    """Return x with its windows replaced by `updates`. See places_of for the arguments."""
    places, outside = places_of(ctx, indices, shape, starts, bounds, along, is_dropped)
    count = ggml.ggml_nelements(x)
    flat = ggml.ggml_reshape_2d(ctx, x, 1, count)
    if outside is not None:  # one item more, for the items left out
        places = where(ctx, outside, ggml.ggml_fill(ctx, places, count), places)
        flat = ggml.ggml_concat(ctx, flat, full(ctx, 0, 1, 1), 1)
    rows = ggml.ggml_reshape_2d(ctx, updates, 1, ggml.ggml_nelements(updates))
    found = ggml.ggml_set_rows(ctx, ggml.ggml_dup(ctx, flat), rows, as_index(ctx, places))
    return ggml.ggml_reshape(ctx, sliced(ctx, found, 1, 0, count), x)
