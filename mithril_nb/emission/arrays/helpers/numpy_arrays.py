"""Helper functions of emitted NumPy source: windows, indexing, sorting."""

import functools

import numpy as np


def pad(x, value, config):
    """Return x with `value` around and between its items; a negative width removes items.

    config: for each axis (before, after, between).
    """
    spans = [size + max(size - 1, 0) * between for size, (_, _, between) in zip(x.shape, config)]
    wider = [(max(before, 0), max(after, 0)) for before, after, _ in config]
    found = np.full([before + span + after for span, (before, after) in zip(spans, wider)], value, x.dtype)
    found[tuple(slice(one[0], one[0] + span, way[2] + 1) for one, span, way in zip(wider, spans, config))] = x
    return found[tuple(slice(max(-way[0], 0), size - max(-way[1], 0)) for way, size in zip(config, found.shape))]


def items(x, size, strides=None, padding=None, base_dilation=None, window_dilation=None, fill=0):
    """Yield an array with the first item of every window of x, then one with the second items, and so on."""
    rank = len(size)
    if padding or base_dilation:
        x = pad(x, fill, [(*a, b - 1) for a, b in zip(padding or [(0, 0)] * rank, base_dilation or [1] * rank)])
    steps, gaps = strides or [1] * rank, window_dilation or [1] * rank
    counts = [(have - (one - 1) * gap - 1) // step + 1 for have, one, gap, step in zip(x.shape, size, gaps, steps)]
    for first in np.ndindex(*size):
        starts = [place * gap for place, gap in zip(first, gaps)]
        yield x[tuple(slice(at, at + max(n, 0) * step, step) for at, n, step in zip(starts, counts, steps))]


def max_pool(x, size, **options):
    """Return the maximum of each window."""
    least = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    return functools.reduce(np.maximum, items(x, size, fill=least, **options))


def min_pool(x, size, **options):
    """Return the minimum of each window."""
    most = np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).max
    return functools.reduce(np.minimum, items(x, size, fill=most, **options))


def sum_pool(x, size, **options):
    """Return the sum of each window."""
    return functools.reduce(np.add, items(x, size, **options))


def prod_pool(x, size, **options):
    """Return the product of each window."""
    return functools.reduce(np.multiply, items(x, size, fill=1, **options))


def picks(x, size, prefer, **options):
    """For each array of `items`, yield a mask of the windows whose first largest (or smallest) item it contains."""
    worst = -np.inf if prefer == "max" else np.inf
    best = functools.reduce(np.maximum if prefer == "max" else np.minimum, items(x, size, fill=worst, **options))
    is_free = np.ones(best.shape, bool)
    for item in items(x, size, fill=worst, **options):
        is_first = is_free & ((item == best) | (item != item))
        is_free &= ~is_first
        yield is_first


def unpool(source, x, size, prefer, padding=None, **options):
    """Return zeros like x, with each item of `source` added at the first largest (or smallest) item of its window."""
    padding = padding or [(0, 0)] * x.ndim
    found = np.zeros([one + before + after for one, (before, after) in zip(x.shape, padding)], source.dtype)
    for to, is_first in zip(items(found, size, **options), picks(x, size, prefer, padding=padding, **options)):
        to += np.where(is_first, source, 0)
    return found[tuple(slice(before, before + one) for one, (before, _) in zip(x.shape, padding))]


def pool_of_other(other, x, size, prefer, **options):
    """Return the items of `other` where x has the first largest (or smallest) item of each window."""
    firsts = zip(items(other, size, **options), picks(x, size, prefer, **options))
    return functools.reduce(np.add, (np.where(is_first, item, 0) for item, is_first in firsts))


def conv(x, kernel, strides=None, padding=None, lhs_dilation=None, rhs_dilation=None, groups=1, batch_groups=1):
    """Return the convolution (cross-correlation) of x (batch, features, ...) and kernel (outputs, features, ...)."""
    rank = x.ndim - 2
    if batch_groups > 1:  # each group of the batch has its own outputs
        batch, features = x.shape[0] // batch_groups, x.shape[1]
        x = x.reshape(batch_groups, batch, *x.shape[1:])
        x = np.moveaxis(x, 0, 1).reshape(batch, batch_groups * features, *x.shape[3:])
        groups = batch_groups
    if padding or lhs_dilation:
        config = [(*pair, gap - 1) for pair, gap in zip(padding or [(0, 0)] * rank, lhs_dilation or [1] * rank)]
        x = pad(x, 0, [(0, 0, 0), (0, 0, 0), *config])
    dilation = [1, 1, *(rhs_dilation or [1] * rank)]
    spans = tuple((one - 1) * gap + 1 for one, gap in zip(kernel.shape[2:], dilation[2:]))
    if any(span > one for span, one in zip(spans, x.shape[2:])):  # no window fits
        sizes = [max(one - span + 1, 0) for span, one in zip(spans, x.shape[2:])]
        space = [-(-one // step) for one, step in zip(sizes, strides or [1] * rank)]
        return np.zeros((x.shape[0], kernel.shape[0], *space), x.dtype)
    found = np.lib.stride_tricks.sliding_window_view(x, spans, axis=tuple(range(2, rank + 2)))
    steps = (slice(None), slice(None), *(slice(None, None, one) for one in strides or [1] * rank))
    found = found[steps + tuple(slice(None, None, one) for one in dilation[2:])]
    batch, space = found.shape[0], found.shape[2 : rank + 2]
    outputs = kernel.shape[0]
    found = found.reshape(batch, groups, found.shape[1] // groups, *found.shape[2:])
    kernel = kernel.reshape(groups, outputs // groups, *kernel.shape[1:])
    axes = list(range(2, rank + 2))
    # (batch, features, space..., window...) x (outputs, features, window...)
    parts = [
        np.tensordot(found[:, group], kernel[group], axes=([1, *(axis + rank for axis in axes)], [1, *axes]))
        for group in range(groups)
    ]
    return np.moveaxis(parts[0] if groups == 1 else np.concatenate(parts, axis=-1), -1, 1)


def places(shape, indices, start_index_map, slice_sizes, window_dims, batching, mode):
    """Return the indices of the items of slices in an array, and a mask that is true for slices inside the array.

    The indices are a list of arrays, one for each axis of the array. These arrays and the mask have the axes of
    `indices` except the last, then the axes of a slice.
    """
    batch, window = indices.shape[:-1], [slice_sizes[axis] for axis in window_dims]
    starts = {axis: indices[..., column] for column, axis in enumerate(start_index_map)}
    for axis, place in zip(*(batching or ((), ()))):
        starts[axis] = np.arange(batch[place]).reshape([-1 if one == place else 1 for one in range(len(batch))])
    is_inside, found = np.ones(batch, bool), []
    for axis, size in enumerate(shape):
        start = np.broadcast_to(starts.get(axis, np.zeros((), np.int64)), batch).astype(np.int64)
        last = size - slice_sizes[axis]
        is_inside = is_inside & (start >= 0) & (start <= last)
        if mode == "clip":
            start = np.clip(start, 0, last)
        start = start.reshape((*batch, *[1] * len(window)))
        if axis in window_dims:
            at = len(batch) + window_dims.index(axis)
            steps = np.arange(slice_sizes[axis])
            start = start + steps.reshape([-1 if one == at else 1 for one in range(len(batch) + len(window))])
        found.append(np.broadcast_to(start, (*batch, *window)))
    is_inside = np.broadcast_to(is_inside.reshape((*batch, *[1] * len(window))), (*batch, *window))
    return found, is_inside


def outside(dtype, fill):
    """Return `fill`, or if it is None: NaN, True, the smallest signed or the largest unsigned integer."""
    if fill is None and dtype.kind in "iu":
        fill = np.iinfo(dtype).max if dtype.kind == "u" else np.iinfo(dtype).min
    usual = True if dtype.kind == "b" else np.nan
    return np.asarray(usual if fill is None else fill).astype(dtype)


def rows(table, indices, fill=None):
    """Return `table[indices]`. For an index outside of the table, return the result of `outside`."""
    size = len(table)
    is_inside = (indices >= 0) & (indices < size)
    found = table[np.clip(indices, 0, size - 1)]
    is_inside = is_inside.reshape((*is_inside.shape, *[1] * (found.ndim - is_inside.ndim)))
    return np.where(is_inside, found, outside(table.dtype, fill))


def gather(x, indices, offset_dims, collapsed, start_index_map, slice_sizes, batching=None, mode="clip", fill=None):
    """Return slices of x that start at `indices`.

    If a slice is partly outside of x, mode="clip" moves it inside. With mode="fill", all its items are replaced by the
    result of `outside`: `fill`, or a default for the dtype.
    """
    dropped = (*collapsed, *(batching[0] if batching else ()))
    window_dims = [axis for axis in range(x.ndim) if axis not in dropped]
    where, is_inside = places(x.shape, indices, start_index_map, slice_sizes, window_dims, batching, mode)
    if mode == "fill":
        where = [np.clip(one, 0, max(size - 1, 0)) for one, size in zip(where, x.shape)]
    found = x[tuple(where)] if x.ndim else np.broadcast_to(x, is_inside.shape)
    if mode == "fill":
        found = np.where(is_inside, found, outside(x.dtype, fill))
    batch = found.ndim - len(offset_dims)
    source, order = iter(range(batch)), []
    offsets = dict(zip(offset_dims, range(batch, found.ndim)))
    for axis in range(found.ndim):
        order.append(offsets[axis] if axis in offsets else next(source))
    return found.transpose(order)


def scatter(x, indices, updates, kind, update_window_dims, inserted, to_operand, batching=None, mode="fill"):
    """Return x with slices that start at `indices` changed by `updates`: set, added, multiplied, and so on.

    If a slice is partly outside of x, mode="clip" moves it inside, and mode="fill" leaves it out.
    """
    dropped = (*inserted, *(batching[0] if batching else ()))
    window_dims = [axis for axis in range(x.ndim) if axis not in dropped]
    batch_dims = [axis for axis in range(updates.ndim) if axis not in update_window_dims]
    updates = updates.transpose([*batch_dims, *update_window_dims])
    sizes = [1] * x.ndim
    for axis, size in zip(window_dims, updates.shape[len(batch_dims) :]):
        sizes[axis] = size
    where, is_inside = places(x.shape, indices, to_operand, sizes, window_dims, batching, mode)
    is_inside = np.ones_like(is_inside) if mode == "clip" else is_inside
    found = np.array(x)
    index = tuple(one[is_inside] for one in where)
    if not index:
        index, updates = (), updates.reshape(()) if is_inside.all() else np.asarray(x)
    else:
        updates = updates[is_inside]
    if kind == "set":
        found[index] = updates
    else:
        getattr(np, kind).at(found, index, updates)
    return found


def dynamic_slice(x, starts, sizes):
    """Return a slice of x. A slice that is partly outside of x is moved inside."""
    starts = [int(np.clip(start, 0, size - length)) for start, size, length in zip(starts, x.shape, sizes)]
    return x[tuple(slice(start, start + length) for start, length in zip(starts, sizes))]


def dynamic_update_slice(x, update, starts):
    """Return x with a slice replaced. A slice that is partly outside of x is moved inside."""
    found = np.array(x)
    starts = [int(np.clip(start, 0, size - length)) for start, size, length in zip(starts, x.shape, update.shape)]
    found[tuple(slice(start, start + length) for start, length in zip(starts, update.shape))] = update
    return found


def sort_together(arrays, axis, keys):
    """Sort arrays together: by the first, at ties by the second, and so on for `keys` arrays. The sort is stable."""
    order = np.argsort(arrays[keys - 1], axis=axis, kind="stable")
    for key in reversed(arrays[: keys - 1]):
        again = np.argsort(np.take_along_axis(key, order, axis), axis=axis, kind="stable")
        order = np.take_along_axis(order, again, axis)
    return [np.take_along_axis(one, order, axis) for one in arrays]


def top_k(x, k):
    """Return the k largest items along the last axis, and their indices."""
    order = np.flip(x.shape[-1] - 1 - np.argsort(np.flip(x, -1), axis=-1, kind="stable"), -1)[..., :k]
    return np.take_along_axis(x, order, -1), order.astype(np.int32)
