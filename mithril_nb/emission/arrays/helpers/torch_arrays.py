"""Helper functions of emitted PyTorch source: windows, indexing, sorting."""

import math

import torch


def reduce_all(x, axes, keepdim):
    """Return whether all items along some axes are true."""
    for axis in sorted(axes, reverse=True):
        x = torch.all(x, dim=axis, keepdim=keepdim)
    return x


def reduce_any(x, axes, keepdim):
    """Return whether any item along some axes is true."""
    for axis in sorted(axes, reverse=True):
        x = torch.any(x, dim=axis, keepdim=keepdim)
    return x


def reduce_prod(x, axes, keepdim):
    """Return the product along some axes."""
    for axis in sorted(axes, reverse=True):
        x = torch.prod(x, dim=axis, keepdim=keepdim, dtype=x.dtype)
    return x


def pad(x, value, config):
    """Return x with `value` around and between its items; a negative width removes items.

    config: for each axis (before, after, between).
    """
    for axis, (before, after, between) in enumerate(config):
        size = x.shape[axis]
        if between and size > 1:
            x = x.movedim(axis, -1)
            rest = torch.full((*x.shape, between), value, dtype=x.dtype, device=x.device)
            x = torch.cat([x[..., None], rest], -1).flatten(-2)[..., : size + (size - 1) * between].movedim(-1, axis)
        x = x.narrow(axis, max(-before, 0), x.shape[axis] - max(-before, 0) - max(-after, 0))
        ends = []
        for width in (before, after):
            shape = [max(width, 0) if one == axis else length for one, length in enumerate(x.shape)]
            ends.append(torch.full(shape, value, dtype=x.dtype, device=x.device))
        if before > 0 or after > 0:
            x = torch.cat([ends[0], x, ends[1]], axis)
    return x


def windows(x, size, strides=None, padding=None, base_dilation=None, window_dilation=None, fill=0):
    """Return each window of x: the windows along the first axes, their items along the last."""
    rank = len(size)
    padding, base = padding or [(0, 0)] * rank, base_dilation or [1] * rank
    x = pad(x, fill, [(*pair, gap - 1) for pair, gap in zip(padding, base)])
    dilation, strides = window_dilation or [1] * rank, strides or [1] * rank
    spans = [(one - 1) * gap + 1 for one, gap in zip(size, dilation)]
    counts = [max(-(-(one - span + 1) // step), 0) for one, span, step in zip(x.shape, spans, strides)]
    if 0 in counts:  # no window fits
        return x.new_zeros([*counts, *size])
    for axis, (span, step) in enumerate(zip(spans, strides)):
        x = x.unfold(axis, span, step)
    return x[(slice(None),) * rank + tuple(slice(None, None, gap) for gap in dilation)]


def max_pool(x, size, **options):
    """Return the maximum of each window."""
    least = -math.inf if x.is_floating_point() else torch.iinfo(x.dtype).min
    return windows(x, size, fill=least, **options).amax(tuple(range(-len(size), 0)))


def min_pool(x, size, **options):
    """Return the minimum of each window."""
    most = math.inf if x.is_floating_point() else torch.iinfo(x.dtype).max
    return windows(x, size, fill=most, **options).amin(tuple(range(-len(size), 0)))


def sum_pool(x, size, **options):
    """Return the sum of each window."""
    return windows(x, size, **options).sum(tuple(range(-len(size), 0)), dtype=x.dtype)


def prod_pool(x, size, **options):
    """Return the product of each window."""
    return windows(x, size, fill=1, **options).flatten(-len(size)).prod(-1, dtype=x.dtype)


def picked(x, size, prefer, options):
    """Return, for each window, the index of its first largest (or smallest) item in the padded and flattened x.

    prefer: "max" or "min". Also return the shape of the padded x, and the padding.
    """
    worst = -math.inf if prefer == "max" else math.inf
    padding = options.get("padding") or [(0, 0)] * len(size)
    shape = tuple(one + before + after for one, (before, after) in zip(x.shape, padding))
    flat = windows(x, size, fill=worst, **options).flatten(-len(size))
    best = flat.amax(-1, keepdim=True) if prefer == "max" else flat.amin(-1, keepdim=True)
    first = torch.argmax((flat == best).to(torch.int32), -1, keepdim=True)
    places = torch.arange(math.prod(shape), device=x.device).reshape(shape)
    options = {key: value for key, value in options.items() if key != "padding"}
    every = windows(places, size, **options).flatten(-len(size))
    return torch.gather(every, -1, first)[..., 0], shape, padding


def unpool(source, x, size, prefer, **options):
    """Return zeros like x, with each item of `source` added at the first largest (or smallest) item of its window."""
    if not source.numel():
        return x.new_zeros(x.shape)
    places, shape, padding = picked(x, size, prefer, options)
    found = source.new_zeros(math.prod(shape)).index_add(0, places.flatten(), source.flatten())
    inner = tuple(slice(before, before + one) for one, (before, _) in zip(x.shape, padding))
    return found.reshape(shape)[inner]


def pool_of_other(other, x, size, prefer, **options):
    """Return the items of `other` where x has the first largest (or smallest) item of each window."""
    places, _, padding = picked(x, size, prefer, options)
    return pad(other, 0, [(*pair, 0) for pair in padding]).flatten()[places]


def conv(x, kernel, strides=None, padding=None, lhs_dilation=None, rhs_dilation=None, groups=1, batch_groups=1):
    """Return the convolution (cross-correlation) of x (batch, features, ...) and kernel (outputs, features, ...)."""
    rank = x.ndim - 2
    if batch_groups > 1:  # each group of the batch has its own outputs
        batch, features = x.shape[0] // batch_groups, x.shape[1]
        x = x.reshape(batch_groups, batch, *x.shape[1:]).movedim(0, 1)
        x = x.reshape(batch, batch_groups * features, *x.shape[3:])
        groups = batch_groups
    strides, rhs_dilation = strides or (1,) * rank, rhs_dilation or (1,) * rank
    padding, gaps = padding or ((0, 0),) * rank, lhs_dilation or (1,) * rank
    same = all(before == after >= 0 for before, after in padding) and set(gaps) == {1}
    if not same:
        config = [(*pair, gap - 1) for pair, gap in zip(padding, gaps)]
        x = pad(x, 0, [(0, 0, 0), (0, 0, 0), *config])
        padding = ((0, 0),) * rank
    spans = [(one - 1) * gap + 1 for one, gap in zip(kernel.shape[2:], rhs_dilation)]
    room = [one + before + after for one, (before, after) in zip(x.shape[2:], padding)]
    counts = [max(-(-(one - span + 1) // step), 0) for one, span, step in zip(room, spans, strides)]
    if 0 in (*counts, *x.shape, *kernel.shape):
        return x.new_zeros((x.shape[0], kernel.shape[0], *counts))
    function = (torch.conv1d, torch.conv2d, torch.conv3d)[max(rank, 1) - 1]
    if rank == 0:
        return function(x[..., None], kernel[..., None], groups=groups)[..., 0]
    edges = tuple(before for before, _ in padding)
    return function(x, kernel, None, tuple(strides), edges, tuple(rhs_dilation), groups)


def places(shape, indices, start_index_map, slice_sizes, window_dims, batching, mode):
    """Return the indices of the items of slices in an array, and a mask that is true for slices inside the array.

    The indices are a list of arrays, one for each axis of the array. These arrays and the mask have the axes of
    `indices` except the last, then the axes of a slice.
    """
    device = indices.device
    batch, window = tuple(indices.shape[:-1]), [slice_sizes[axis] for axis in window_dims]
    starts = {axis: indices[..., column].to(torch.int64) for column, axis in enumerate(start_index_map)}
    for axis, place in zip(*(batching or ((), ()))):
        shape_of = [-1 if one == place else 1 for one in range(len(batch))]
        starts[axis] = torch.arange(batch[place], device=device).reshape(shape_of)
    is_inside, found = torch.ones(batch, dtype=torch.bool, device=device), []
    zero = torch.zeros((), dtype=torch.int64, device=device)
    for axis, size in enumerate(shape):
        start = torch.broadcast_to(starts.get(axis, zero), batch)
        last = size - slice_sizes[axis]
        is_inside = is_inside & (start >= 0) & (start <= last)
        if mode == "clip":
            start = torch.clamp(start, 0, last)
        start = start.reshape((*batch, *[1] * len(window)))
        if axis in window_dims:
            at = len(batch) + window_dims.index(axis)
            steps = torch.arange(slice_sizes[axis], device=device)
            start = start + steps.reshape([-1 if one == at else 1 for one in range(len(batch) + len(window))])
        found.append(torch.broadcast_to(start, (*batch, *window)))
    is_inside = torch.broadcast_to(is_inside.reshape((*batch, *[1] * len(window))), (*batch, *window))
    return found, is_inside


def outside(dtype, fill):
    """Return `fill`, or if it is None: NaN, True, the smallest signed or the largest unsigned integer."""
    if fill is not None:
        return fill
    if dtype.is_floating_point or dtype.is_complex:
        return math.nan
    return True if dtype == torch.bool else 255 if dtype == torch.uint8 else torch.iinfo(dtype).min


def rows(table, indices, fill=None):
    """Return `table[indices]`. For an index outside of the table, return the result of `outside`."""
    size = len(table)
    is_inside = (indices >= 0) & (indices < size)
    found = table[torch.clamp(indices, 0, size - 1)]
    is_inside = is_inside.reshape((*is_inside.shape, *[1] * (found.ndim - is_inside.ndim)))
    return torch.where(is_inside, found, torch.full((), outside(table.dtype, fill), dtype=table.dtype))


def gather(x, indices, offset_dims, collapsed, start_index_map, slice_sizes, batching=None, mode="clip", fill=None):
    """Return slices of x that start at `indices`.

    If a slice is partly outside of x, mode="clip" moves it inside. With mode="fill", all its items are replaced by the
    result of `outside`: `fill`, or a default for the dtype.
    """
    dropped = (*collapsed, *(batching[0] if batching else ()))
    window_dims = [axis for axis in range(x.ndim) if axis not in dropped]
    where, is_inside = places(x.shape, indices, start_index_map, slice_sizes, window_dims, batching, mode)
    if mode == "fill":
        where = [torch.clamp(one, 0, max(size - 1, 0)) for one, size in zip(where, x.shape)]
    found = x[tuple(where)] if x.ndim else torch.broadcast_to(x, is_inside.shape)
    if mode == "fill":
        found = torch.where(is_inside, found, torch.full((), outside(x.dtype, fill), dtype=x.dtype))
    batch = found.ndim - len(offset_dims)
    source, order = iter(range(batch)), []
    offsets = dict(zip(offset_dims, range(batch, found.ndim)))
    for axis in range(found.ndim):
        order.append(offsets[axis] if axis in offsets else next(source))
    return found.permute(order)


def scatter(x, indices, updates, kind, update_window_dims, inserted, to_operand, batching=None, mode="fill"):
    """Return x with slices that start at `indices` changed by `updates`: set, added, multiplied, and so on.

    If a slice is partly outside of x, mode="clip" moves it inside, and mode="fill" leaves it out.
    """
    dropped = (*inserted, *(batching[0] if batching else ()))
    window_dims = [axis for axis in range(x.ndim) if axis not in dropped]
    batch_dims = [axis for axis in range(updates.ndim) if axis not in update_window_dims]
    updates = updates.permute([*batch_dims, *update_window_dims])
    sizes = [1] * x.ndim
    for axis, size in zip(window_dims, updates.shape[len(batch_dims) :]):
        sizes[axis] = size
    where, is_inside = places(x.shape, indices, to_operand, sizes, window_dims, batching, mode)
    flat = torch.zeros_like(is_inside, dtype=torch.int64)
    for one, size in zip(where, x.shape):
        flat = flat * size + one
    # Updates outside of x go to one more item at the end.
    flat = flat if mode == "clip" else torch.where(is_inside, flat, torch.full_like(flat, x.numel()))
    found = torch.cat([x.reshape(-1), x.new_zeros(1)])
    flat, updates = flat.reshape(-1), updates.reshape(-1)
    if kind == "set":
        found = found.index_put((flat,), updates)
    elif kind in ("add", "subtract"):
        found = found.index_add(0, flat, updates if kind == "add" else -updates)
    else:
        name = {"multiply": "prod", "minimum": "amin", "maximum": "amax"}[kind]
        found = found.scatter_reduce(0, flat, updates, name)
    return found[:-1].reshape(x.shape)


def dynamic_slice(x, starts, sizes):
    """Return a slice of x. A slice that is partly outside of x is moved inside."""
    for axis, (start, length) in enumerate(zip(starts, sizes)):
        start = min(max(int(start), 0), x.shape[axis] - length)
        x = x.narrow(axis, start, length)
    return x


def dynamic_update_slice(x, update, starts):
    """Return x with a slice replaced. A slice that is partly outside of x is moved inside."""
    starts = [min(max(int(start), 0), size - length) for start, size, length in zip(starts, x.shape, update.shape)]
    found = x.clone()
    found[tuple(slice(start, start + length) for start, length in zip(starts, update.shape))] = update
    return found


def sort_together(arrays, axis, keys):
    """Sort arrays together: by the first, at ties by the second, and so on for `keys` arrays. The sort is stable."""
    order = torch.argsort(arrays[keys - 1], dim=axis, stable=True)
    for key in reversed(arrays[: keys - 1]):
        again = torch.argsort(torch.gather(key, axis, order), dim=axis, stable=True)
        order = torch.gather(order, axis, again)
    return [torch.gather(one, axis, order) for one in arrays]


def top_k(x, k):
    """Return the k largest items along the last axis, and their indices."""
    found = torch.sort(x, dim=-1, descending=True, stable=True)
    return found.values[..., :k], found.indices[..., :k].to(torch.int32)
