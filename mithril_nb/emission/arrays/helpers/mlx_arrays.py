"""Helper functions of emitted MLX source: windows, indexing, sorting."""

import math

import mlx.core as mx


def is_float(x):
    """Return whether an array has a floating dtype."""
    return mx.issubdtype(x.dtype, mx.floating)


def limits(x):
    """Return the smallest and the largest number of an array's dtype."""
    return (-math.inf, math.inf) if is_float(x) else (mx.iinfo(x.dtype).min, mx.iinfo(x.dtype).max)


def pad(x, value, config):
    """Return x with `value` around and between its items; a negative width removes items.

    config: for each axis (before, after, between).
    """
    for axis, (before, after, between) in enumerate(config):
        size = x.shape[axis]
        if between and size > 1:
            x = mx.moveaxis(x, axis, -1)
            rest = mx.full((*x.shape, between), value, x.dtype)
            x = mx.concatenate([x[..., None], rest], -1).reshape((*x.shape[:-1], size * (between + 1)))
            x = mx.moveaxis(x[..., : size + (size - 1) * between], -1, axis)
        cut = (slice(None),) * axis + (slice(max(-before, 0), x.shape[axis] - max(-after, 0)),)
        x = x[cut]
        for width, is_first in ((before, True), (after, False)):
            if width > 0:
                end = mx.full([width if one == axis else length for one, length in enumerate(x.shape)], value, x.dtype)
                x = mx.concatenate([end, x] if is_first else [x, end], axis)
    return x


def windows(x, size, strides=None, padding=None, base_dilation=None, window_dilation=None, fill=0):
    """Return each window of x: the windows along the first axes, their items along the last."""
    rank = len(size)
    padding, base = padding or [(0, 0)] * rank, base_dilation or [1] * rank
    x = pad(x, fill, [(*pair, gap - 1) for pair, gap in zip(padding, base)])
    gaps, steps = window_dilation or [1] * rank, strides or [1] * rank
    spans = [(one - 1) * gap + 1 for one, gap in zip(size, gaps)]
    counts = [max(-(-(one - span + 1) // step), 0) for one, span, step in zip(x.shape, spans, steps)]
    if 0 in counts:  # no window fits
        return mx.zeros([*counts, *size], x.dtype)
    where = []
    for axis, (count, one, gap, step) in enumerate(zip(counts, size, gaps, steps)):
        start = (mx.arange(count) * step).reshape([-1 if place == axis else 1 for place in range(2 * rank)])
        inner = (mx.arange(one) * gap).reshape([-1 if place == rank + axis else 1 for place in range(2 * rank)])
        where.append(start + inner)
    return x[tuple(where)]


def max_pool(x, size, **options):
    """Return the maximum of each window."""
    return windows(x, size, fill=limits(x)[0], **options).max(axis=tuple(range(-len(size), 0)))


def min_pool(x, size, **options):
    """Return the minimum of each window."""
    return windows(x, size, fill=limits(x)[1], **options).min(axis=tuple(range(-len(size), 0)))


def sum_pool(x, size, **options):
    """Return the sum of each window."""
    return windows(x, size, **options).sum(axis=tuple(range(-len(size), 0))).astype(x.dtype)


def prod_pool(x, size, **options):
    """Return the product of each window."""
    return windows(x, size, fill=1, **options).prod(axis=tuple(range(-len(size), 0))).astype(x.dtype)


def picked(x, size, prefer, options):
    """Return, for each window, the index of its first largest (or smallest) item in the padded and flattened x.

    prefer: "max" or "min". Also return the shape of the padded x, and the padding.
    """
    worst = -math.inf if prefer == "max" else math.inf
    padding = options.get("padding") or [(0, 0)] * len(size)
    shape = tuple(one + before + after for one, (before, after) in zip(x.shape, padding))
    items = windows(x, size, fill=worst, **options)
    flat = items.reshape((*items.shape[: len(size)], math.prod(size)))
    first = (mx.argmax if prefer == "max" else mx.argmin)(flat, axis=-1, keepdims=True)
    places = mx.arange(math.prod(shape)).reshape(shape)
    options = {key: value for key, value in options.items() if key != "padding"}
    every = windows(places, size, **options).reshape(flat.shape)
    return mx.take_along_axis(every, first, axis=-1)[..., 0], shape, padding


def unpool(source, x, size, prefer, **options):
    """Return zeros like x, with each item of `source` added at the first largest (or smallest) item of its window."""
    if not source.size:
        return mx.zeros_like(x)
    places, shape, padding = picked(x, size, prefer, options)
    found = mx.zeros(math.prod(shape), source.dtype).at[places.reshape(-1)].add(source.reshape(-1))
    inner = tuple(slice(before, before + one) for one, (before, _) in zip(x.shape, padding))
    return found.reshape(shape)[inner]


def pool_of_other(other, x, size, prefer, **options):
    """Return the items of `other` where x has the first largest (or smallest) item of each window."""
    places, _, padding = picked(x, size, prefer, options)
    return pad(other, 0, [(*pair, 0) for pair in padding]).reshape(-1)[places]


def conv(x, kernel, strides=None, padding=None, lhs_dilation=None, rhs_dilation=None, groups=1, batch_groups=1):
    """Return the convolution (cross-correlation) of x (batch, features, ...) and kernel (outputs, features, ...)."""
    rank = x.ndim - 2
    if batch_groups > 1:  # each group of the batch has its own outputs
        batch, features = x.shape[0] // batch_groups, x.shape[1]
        x = mx.moveaxis(x.reshape((batch_groups, batch, *x.shape[1:])), 0, 1)
        x = x.reshape((batch, batch_groups * features, *x.shape[3:]))
        groups = batch_groups
    strides, gaps = strides or [1] * rank, rhs_dilation or [1] * rank
    config = [(*pair, gap - 1) for pair, gap in zip(padding or [(0, 0)] * rank, lhs_dilation or [1] * rank)]
    x = pad(x, 0, [(0, 0, 0), (0, 0, 0), *config])
    spans = [(one - 1) * gap + 1 for one, gap in zip(kernel.shape[2:], gaps)]
    counts = [max(-(-(one - span + 1) // step), 0) for one, span, step in zip(x.shape[2:], spans, strides)]
    if 0 in (*counts, *x.shape, *kernel.shape):
        return mx.zeros((x.shape[0], kernel.shape[0], *counts), x.dtype)
    # Each group is a product of matrices: (batch, space, features of a window) x (features of a window, outputs).
    size = (1, 1, *kernel.shape[2:])
    options = {"strides": (1, 1, *strides), "window_dilation": (1, 1, *gaps)}
    found = windows(x, size, **options)
    batch, outputs, each = x.shape[0], kernel.shape[0], x.shape[1] // groups
    found = found.reshape((batch, groups, each, math.prod(counts), math.prod(size)))
    found = found.transpose(1, 0, 3, 2, 4).reshape((groups, batch * math.prod(counts), each * math.prod(size)))
    weights = kernel.reshape((groups, outputs // groups, each * math.prod(size)))
    result = found @ weights.swapaxes(-1, -2)
    result = result.reshape((groups, batch, math.prod(counts), outputs // groups)).transpose(1, 0, 3, 2)
    return result.reshape((batch, outputs, *counts))


def places(shape, indices, start_index_map, slice_sizes, window_dims, batching, mode):
    """Return the indices of the items of slices in an array, and a mask that is true for slices inside the array.

    The indices are a list of arrays, one for each axis of the array. These arrays and the mask have the axes of
    `indices` except the last, then the axes of a slice.
    """
    batch, window = tuple(indices.shape[:-1]), [slice_sizes[axis] for axis in window_dims]
    starts = {axis: indices[..., column].astype(mx.int64) for column, axis in enumerate(start_index_map)}
    for axis, place in zip(*(batching or ((), ()))):
        starts[axis] = mx.arange(batch[place]).reshape([-1 if one == place else 1 for one in range(len(batch))])
    is_inside, found = mx.ones(batch, dtype=mx.bool_), []
    for axis, size in enumerate(shape):
        start = mx.broadcast_to(starts.get(axis, mx.array(0)).astype(mx.int64), batch)
        last = size - slice_sizes[axis]
        is_inside = is_inside & (start >= 0) & (start <= last)
        if mode == "clip":
            start = mx.clip(start, 0, last)
        start = start.reshape((*batch, *[1] * len(window)))
        if axis in window_dims:
            at = len(batch) + window_dims.index(axis)
            steps = mx.arange(slice_sizes[axis]).astype(mx.int64)
            start = start + steps.reshape([-1 if one == at else 1 for one in range(len(batch) + len(window))])
        found.append(mx.broadcast_to(start, (*batch, *window)))
    is_inside = mx.broadcast_to(is_inside.reshape((*batch, *[1] * len(window))), (*batch, *window))
    return found, is_inside


def outside(x, fill):
    """Return `fill`, or if it is None: NaN, True, the smallest signed or the largest unsigned integer."""
    if fill is None:
        is_unsigned = mx.issubdtype(x.dtype, mx.unsignedinteger)
        fill = math.nan if is_float(x) else True if x.dtype == mx.bool_ else limits(x)[1 if is_unsigned else 0]
    return mx.array(fill, x.dtype)


def rows(table, indices, fill=None):
    """Return `table[indices]`. For an index outside of the table, return the result of `outside`."""
    size = len(table)
    is_inside = (indices >= 0) & (indices < size)
    found = table[mx.clip(indices, 0, size - 1)]
    is_inside = is_inside.reshape((*is_inside.shape, *[1] * (found.ndim - is_inside.ndim)))
    return mx.where(is_inside, found, outside(table, fill))


def gather(x, indices, offset_dims, collapsed, start_index_map, slice_sizes, batching=None, mode="clip", fill=None):
    """Return slices of x that start at `indices`.

    If a slice is partly outside of x, mode="clip" moves it inside. With mode="fill", all its items are replaced by the
    result of `outside`: `fill`, or a default for the dtype.
    """
    dropped = (*collapsed, *(batching[0] if batching else ()))
    window_dims = [axis for axis in range(x.ndim) if axis not in dropped]
    where, is_inside = places(x.shape, indices, start_index_map, slice_sizes, window_dims, batching, mode)
    if mode == "fill":
        where = [mx.clip(one, 0, max(size - 1, 0)) for one, size in zip(where, x.shape)]
    flat = mx.zeros(is_inside.shape, mx.int64)
    for one, size in zip(where, x.shape):
        flat = flat * size + one
    found = x.reshape(-1)[flat] if is_inside.size else mx.zeros(is_inside.shape, x.dtype)
    if mode == "fill":
        found = mx.where(is_inside, found, outside(x, fill))
    batch = found.ndim - len(offset_dims)
    source, order = iter(range(batch)), []
    offsets = dict(zip(offset_dims, range(batch, found.ndim)))
    for axis in range(found.ndim):
        order.append(offsets[axis] if axis in offsets else next(source))
    return found.transpose(order) if order else found


def scatter(x, indices, updates, kind, update_window_dims, inserted, to_operand, batching=None, mode="fill"):
    """Return x with slices that start at `indices` changed by `updates`: set, added, multiplied, and so on.

    If a slice is partly outside of x, mode="clip" moves it inside, and mode="fill" leaves it out.
    """
    dropped = (*inserted, *(batching[0] if batching else ()))
    window_dims = [axis for axis in range(x.ndim) if axis not in dropped]
    batch_dims = [axis for axis in range(updates.ndim) if axis not in update_window_dims]
    if updates.ndim:
        updates = updates.transpose([*batch_dims, *update_window_dims])
    sizes = [1] * x.ndim
    for axis, size in zip(window_dims, updates.shape[len(batch_dims) :]):
        sizes[axis] = size
    if not updates.size:
        return x
    where, is_inside = places(x.shape, indices, to_operand, sizes, window_dims, batching, mode)
    flat = mx.zeros(is_inside.shape, mx.int64)
    for one, size in zip(where, x.shape):
        flat = flat * size + one
    # Updates outside of x go to one more item at the end.
    flat = flat if mode == "clip" else mx.where(is_inside, flat, x.size)
    found = mx.concatenate([x.reshape(-1), mx.zeros(1, x.dtype)])
    flat, updates = flat.reshape(-1), updates.reshape(-1)
    if kind == "set":
        found[flat] = updates
    else:
        found = getattr(found.at[flat], kind)(updates)
    return found[:-1].reshape(x.shape)


def dynamic_slice(x, starts, sizes):
    """Return a slice of x. A slice that is partly outside of x is moved inside."""
    for axis, (start, length) in enumerate(zip(starts, sizes)):
        start = min(max(int(start), 0), x.shape[axis] - length)
        x = x[(slice(None),) * axis + (slice(start, start + length),)]
    return x


def dynamic_update_slice(x, update, starts):
    """Return x with a slice replaced. A slice that is partly outside of x is moved inside."""
    starts = [min(max(int(start), 0), size - length) for start, size, length in zip(starts, x.shape, update.shape)]
    found = mx.array(x)
    found[tuple(slice(start, start + length) for start, length in zip(starts, update.shape))] = update
    return found


def sort_together(arrays, axis, keys):
    """Sort arrays together: by the first, at ties by the second, and so on for `keys` arrays. The sort is stable."""
    order = mx.argsort(arrays[keys - 1], axis=axis)
    for key in reversed(arrays[: keys - 1]):
        again = mx.argsort(mx.take_along_axis(key, order, axis), axis=axis)
        order = mx.take_along_axis(order, again, axis)
    return [mx.take_along_axis(one, order, axis) for one in arrays]


def top_k(x, k):
    """Return the k largest items along the last axis, and their indices."""
    size = x.shape[-1]
    order = (size - 1 - mx.argsort(x[..., ::-1], axis=-1).astype(mx.int32))[..., ::-1][..., :k]
    return mx.take_along_axis(x, order, -1), order
