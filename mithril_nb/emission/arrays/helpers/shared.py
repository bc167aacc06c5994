"""Helper functions of every array library, in the words of NumPy. `helper_sources` translates them."""

import math

import numpy as np


# PyTorch ends the process where it divides the least integer by -1, and C++, of which MLX is made, has no result there.
def int_divide(x, y):
    """Return x / y for integers, rounded towards zero, as XLA does: x / 0 is -1, and the least integer / -1 itself."""
    is_minus = (y + 1 == 0) & (y < 0)
    safe = np.where((y == 0) | is_minus, np.ones_like(y), y)
    quotient = x // safe
    quotient = quotient + ((quotient < 0) & (quotient * safe != x)).astype(quotient.dtype)
    return np.where(y == 0, np.zeros_like(quotient) - 1, np.where(is_minus, -x, quotient))


# The functions `round` of the libraries round halves to even.
def round_away(x):
    """Round to the nearest integer, halves away from zero."""
    whole = np.trunc(x)
    return whole + np.copysign((np.abs(x - whole) >= 0.5).astype(x.dtype), x)


def eq_to(x, y):
    """Return x == y in the order of sorting: NaN equals NaN."""
    return (x == y) | ((x != x) & (y != y))


def lt_to(x, y):
    """Return x < y in the order of sorting: NaN is the largest number."""
    return (x < y) | ((x == x) & (y != y))


def le_to(x, y):
    """Return x <= y in the order of sorting: NaN is the largest number."""
    return (x <= y) | (y != y)


def threefry2x32(key_0, key_1, x_0, x_1):
    """Return random bits from a key and counters: JAX's generator (Salmon et al., 2011)."""
    keys = (key_0, key_1, key_0 ^ key_1 ^ np.array(0x1BD11BDA, np.uint32))
    x = [x_0 + keys[0], x_1 + keys[1]]
    for step in range(5):
        for turn in ((13, 15, 26, 6), (17, 29, 16, 24))[step % 2]:
            x[0] = x[0] + x[1]
            x[1] = x[0] ^ ((x[1] << np.array(turn, np.uint32)) | (x[1] >> np.array(32 - turn, np.uint32)))
        x[0] = x[0] + keys[(step + 1) % 3]
        x[1] = x[1] + keys[(step + 2) % 3] + np.array(step + 1, np.uint32)
    return x[0], x[1]


def random_seed(seed):
    """Return the random key for a seed."""
    high = seed >> 32 if seed.dtype.itemsize == 8 else seed ^ seed
    return np.stack([word(high), word(seed)], -1)


def random_words(key, shape):
    """Return two arrays of random integers of shape (..., *shape) for keys of shape (..., 2)."""
    count = counted(math.prod(shape), key).reshape(shape)
    keys = [part.reshape((*part.shape, *[1] * len(shape))) for part in (key[..., 0], key[..., 1])]
    return threefry2x32(*keys, word(count >> 32), word(count))


def random_fold_in(key, number):
    """Return a new key, computed from a key and a number."""
    return np.stack(threefry2x32(key[..., 0], key[..., 1], np.zeros_like(number), number), -1)


def random_split(key, shape):
    """Return new keys of shape (..., *shape, 2) for keys of shape (..., 2)."""
    return np.stack(random_words(key, shape), -1)


# np.pad and mx.pad neither insert items between others nor remove items.
def pad(x, value, config):
    """Return x with `value` around and between its items; a negative width removes items.

    config: for each axis (before, after, between).
    """
    spans = [size + max(size - 1, 0) * between for size, (_, _, between) in zip(x.shape, config)]
    wider = [(max(before, 0), max(after, 0)) for before, after, _ in config]
    found = filled([before + span + after for span, (before, after) in zip(spans, wider)], value, x)
    found[tuple(slice(one[0], one[0] + span, way[2] + 1) for one, span, way in zip(wider, spans, config))] = x
    return found[tuple(slice(max(-way[0], 0), size - max(-way[1], 0)) for way, size in zip(config, found.shape))]


def windows(x, size, strides=None, padding=None, base_dilation=None, window_dilation=None, fill=0):
    """Return each window of x: the windows along the first axes, their items along the last axis."""
    rank = len(size)
    padding, base = padding or [(0, 0)] * rank, base_dilation or [1] * rank
    x = pad(x, fill, [(*pair, gap - 1) for pair, gap in zip(padding, base)])
    counts, strides, gaps = fitting(x.shape, size, strides, window_dilation)
    return filled([*counts, math.prod(size)], 0, x) if 0 in counts else slid(x, size, counts, strides, gaps)


def fitting(shape, size, strides, gaps):
    """Return how many windows fit along each axis, the step of the windows, and that of the items of a window."""
    strides, gaps = strides or [1] * len(size), gaps or [1] * len(size)
    spans = [(one - 1) * gap + 1 for one, gap in zip(size, gaps)]
    return [max(-(-(one - span + 1) // step), 0) for one, span, step in zip(shape, spans, strides)], strides, gaps


def conv(x, kernel, strides=None, padding=None, lhs_dilation=None, rhs_dilation=None, groups=1, batch_groups=1):
    """Return the convolution (cross-correlation) of x (batch, features, ...) and kernel (outputs, features, ...)."""
    rank = x.ndim - 2
    if batch_groups > 1:  # each group of the batch has its own outputs
        x, groups = features_of_groups(x, batch_groups), batch_groups
    if padding or lhs_dilation:
        config = [(*pair, gap - 1) for pair, gap in zip(padding or [(0, 0)] * rank, lhs_dilation or [1] * rank)]
        x = pad(x, 0, [(0, 0, 0), (0, 0, 0), *config])
    counts, strides, gaps = fitting(x.shape[2:], kernel.shape[2:], strides, rhs_dilation)
    if 0 in (*counts, *x.shape, *kernel.shape):
        return filled((x.shape[0], kernel.shape[0], *counts), 0, x)
    return products(x, kernel, counts, strides, gaps, groups)


def max_pool(x, size, **options):
    """Return the maximum of each window."""
    return windows(x, size, fill=limits(x)[0], **options).max(-1)


def min_pool(x, size, **options):
    """Return the minimum of each window."""
    return windows(x, size, fill=limits(x)[1], **options).min(-1)


def sum_pool(x, size, **options):
    """Return the sum of each window."""
    return windows(x, size, **options).sum(-1).astype(x.dtype)


def prod_pool(x, size, **options):
    """Return the product of each window."""
    return windows(x, size, fill=1, **options).prod(-1).astype(x.dtype)


# No library has a pooling that returns indices, in NumPy words, for every rank, stride and padding.
def picked(x, size, prefer, options):
    """Return, for each window, the index of its first largest (or smallest) item in the padded and flattened x.

    prefer: "max" or "min". Also return the shape of the padded x, and the padding.
    """
    worst = -math.inf if prefer == "max" else math.inf
    padding = options.get("padding") or [(0, 0)] * len(size)
    shape = tuple(one + before + after for one, (before, after) in zip(x.shape, padding))
    items = windows(x, size, fill=worst, **options)
    best = items.max(-1, keepdims=True) if prefer == "max" else items.min(-1, keepdims=True)
    first = np.argmax((items == best).astype(np.int32), -1, keepdims=True)
    options = {key: value for key, value in options.items() if key != "padding"}
    every = windows(counted(math.prod(shape), x).reshape(shape), size, **options)
    return np.take_along_axis(every, first, -1)[..., 0], shape, padding


def unpool(source, x, size, prefer, **options):
    """Return zeros like x, with each item of `source` added at the first largest (or smallest) item of its window."""
    if 0 in source.shape:
        return np.zeros_like(x)
    where, shape, padding = picked(x, size, prefer, options)
    found = changed(filled([math.prod(shape)], 0, source), where.reshape(-1), source.reshape(-1), "add")
    inner = tuple(slice(before, before + one) for one, (before, _) in zip(x.shape, padding))
    return found.reshape(shape)[inner]


def pool_of_other(other, x, size, prefer, **options):
    """Return the items of `other` where x has the first largest (or smallest) item of each window."""
    where, _, padding = picked(x, size, prefer, options)
    return pad(other, 0, [(*pair, 0) for pair in padding]).reshape(-1)[where]


# Groups of a batch occur in the gradient of a grouped kernel. Libraries have only groups of features.
def features_of_groups(x, groups):
    """Return a batch in which each group of images became further features of the images of the first group."""
    batch, features = x.shape[0] // groups, x.shape[1]
    x = np.moveaxis(x.reshape((groups, batch, *x.shape[1:])), 0, 1)
    return x.reshape((batch, groups * features, *x.shape[3:]))


# Flat indices, because no library scatters to several axes by every operation, and MLX has no mask for indices.
def places(shape, indices, start_index_map, slice_sizes, window_dims, batching, mode):
    """Return the indices of the items of slices in a flat array, and a mask that is true for slices inside the array.

    Both have the axes of `indices` except the last, then the axes of a slice. Indices outside of the array are moved
    inside.
    """
    batch, window = tuple(indices.shape[:-1]), [slice_sizes[axis] for axis in window_dims]
    starts = {axis: indices[..., column] for column, axis in enumerate(start_index_map)}
    for axis, place in zip(*(batching or ((), ()))):
        starts[axis] = counted(batch[place], indices).reshape([-1 if one == place else 1 for one in range(len(batch))])
    flat = zero = counted(1, indices).reshape(())
    is_inside = zero == 0
    for axis, size in enumerate(shape):
        start = np.broadcast_to(starts.get(axis, zero), batch).astype(np.int64)
        last = size - slice_sizes[axis]
        is_inside = is_inside & (start >= 0) & (start <= last)
        if mode == "clip":
            start = np.clip(start, 0, last)
        start = start.reshape((*batch, *[1] * len(window)))
        if axis in window_dims:
            at = len(batch) + window_dims.index(axis)
            steps = counted(slice_sizes[axis], indices)
            start = start + steps.reshape([-1 if one == at else 1 for one in range(len(batch) + len(window))])
        flat = flat * size + np.clip(start, 0, max(size - 1, 0))
    is_inside = np.broadcast_to(is_inside, batch).reshape((*batch, *[1] * len(window)))
    return np.broadcast_to(flat, (*batch, *window)), np.broadcast_to(is_inside, (*batch, *window))


def rows(table, indices, fill):
    """Return `table[indices]`; `fill` for an index outside of the table."""
    size = len(table)
    is_inside = (indices >= 0) & (indices < size)
    found = table[np.clip(indices, 0, size - 1)]
    is_inside = is_inside.reshape((*is_inside.shape, *[1] * (found.ndim - is_inside.ndim)))
    return np.where(is_inside, found, filled((), fill, table))


def gather(x, indices, offset_dims, collapsed, start_index_map, slice_sizes, batching=None, fill=None):
    """Return slices of x that start at `indices`.

    If a slice is partly outside of x, all its items are `fill`, or it is moved inside if `fill` is None.
    """
    mode = "clip" if fill is None else "fill"
    dropped = (*collapsed, *(batching[0] if batching else ()))
    window_dims = [axis for axis in range(x.ndim) if axis not in dropped]
    flat, is_inside = places(x.shape, indices, start_index_map, slice_sizes, window_dims, batching, mode)
    found = filled(flat.shape, 0, x) if 0 in flat.shape else x.reshape(-1)[flat]
    if fill is not None:
        found = np.where(is_inside, found, filled((), fill, x))
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
    if 0 in updates.shape:
        return x
    dropped = (*inserted, *(batching[0] if batching else ()))
    window_dims = [axis for axis in range(x.ndim) if axis not in dropped]
    batch_dims = [axis for axis in range(updates.ndim) if axis not in update_window_dims]
    updates = updates.transpose([*batch_dims, *update_window_dims]) if updates.ndim else updates
    sizes = [1] * x.ndim
    for axis, size in zip(window_dims, updates.shape[len(batch_dims) :]):
        sizes[axis] = size
    flat, is_inside = places(x.shape, indices, to_operand, sizes, window_dims, batching, mode)
    # Updates outside of x go to one more item at the end.
    flat = flat if mode == "clip" else np.where(is_inside, flat, math.prod(x.shape))
    found = np.concatenate([x.reshape(-1), filled([1], 0, x)])
    return changed(found, flat.reshape(-1), updates.reshape(-1), kind)[:-1].reshape(x.shape)


def dynamic_slice(x, starts, sizes):
    """Return a slice of x. A slice that is partly outside of x is moved inside."""
    starts = [min(max(int(start), 0), size - length) for start, size, length in zip(starts, x.shape, sizes)]
    return x[tuple(slice(start, start + length) for start, length in zip(starts, sizes))]


def dynamic_update_slice(x, update, starts):
    """Return x with a slice replaced. A slice that is partly outside of x is moved inside."""
    starts = [min(max(int(start), 0), size - length) for start, size, length in zip(starts, x.shape, update.shape)]
    found = np.copy(x)
    found[tuple(slice(start, start + length) for start, length in zip(starts, update.shape))] = update
    return found


# PyTorch and MLX have no lexsort. A stable sort by each key, the last key first, gives the same order.
def sort_together(arrays, axis, keys):
    """Sort arrays together: by the first, at ties by the second, and so on for `keys` arrays. The sort is stable."""
    order = np.argsort(arrays[keys - 1], axis=axis, kind="stable")
    for key in reversed(arrays[: keys - 1]):
        again = np.argsort(np.take_along_axis(key, order, axis), axis=axis, kind="stable")
        order = np.take_along_axis(order, again, axis)
    return [np.take_along_axis(one, order, axis) for one in arrays]


# Of equal items, JAX returns the first. A stable sort of the reversed axis, read from its end, keeps this order.
def top_k(x, k):
    """Return the k largest items along the last axis, and their indices."""
    order = np.argsort(x[..., ::-1], axis=-1, kind="stable").astype(np.int32)
    order = (x.shape[-1] - 1 - order)[..., ::-1][..., :k]
    return np.take_along_axis(x, order, -1), order


def cbrt(x):
    """Return the cube root."""
    return np.sign(x) * np.abs(x) ** (1 / 3)


def sign(x):
    """Return -1, 0 or 1, and NaN for NaN."""
    return np.where(x != x, x, np.sign(x))


def qr(x, full_matrices):
    """Return Q and R."""
    return np.linalg.qr(x, mode="complete" if full_matrices else "reduced")


def svd(x, full_matrices, compute_uv):
    """Return the singular values, U, and V transposed; without `compute_uv`, only the singular values."""
    if not compute_uv:
        return (np.linalg.svd(x, compute_uv=False),)
    u, s, v = np.linalg.svd(x, full_matrices=full_matrices)
    return s, u, v


def eigh(x, lower):
    """Return the eigenvectors and eigenvalues of a symmetric matrix."""
    values, vectors = np.linalg.eigh(x, UPLO="L" if lower else "U")
    return vectors, values


# The coefficients are the Bernoulli numbers B_2k / 2k; with z >= 10, 7 terms have an error below 1e-15.
def digamma(x):
    """Return the derivative of lgamma: an asymptotic series for x >= 10, and a recurrence below."""
    value = exact(x)
    z = np.where(value < 0.5, 1 - value, value)
    shift = np.zeros_like(z)
    for _ in range(10):
        shift = shift + np.where(z < 10, 1 / z, 0)
        z = np.where(z < 10, z + 1, z)
    series = 0
    for term in (1 / 12, -691 / 32760, 1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12):
        series = (series + term) / (z * z)
    found = np.log(z) - 0.5 / z - series - shift
    found = np.where(value < 0.5, found - math.pi / np.tan(math.pi * value), found)
    return found.astype(x.dtype)
