"""Helper functions of emitted NumPy source: windows, indexing, sorting."""

import functools

import numpy as np


def counted(count, like):
    """Return the integers from 0 to `count` - 1."""
    return np.arange(count)


def filled(shape, value, like):
    """Return an array of the dtype of `like` that is filled with a value."""
    return np.full(shape, np.asarray(value).astype(like.dtype))


def limits(x):
    """Return the least and the largest number of the dtype of an array."""
    return (-np.inf, np.inf) if x.dtype.kind == "f" else (np.iinfo(x.dtype).min, np.iinfo(x.dtype).max)


def changed(x, where, updates, kind):
    """Change items of a new flat array by updates, one after the other, and return it."""
    if kind == "set":
        x[where] = updates
    else:
        getattr(np, kind).at(x, where, updates)
    return x


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
    return functools.reduce(np.maximum, items(x, size, fill=limits(x)[0], **options))


def min_pool(x, size, **options):
    """Return the minimum of each window."""
    return functools.reduce(np.minimum, items(x, size, fill=limits(x)[1], **options))


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
        x, groups = features_of_groups(x, batch_groups), batch_groups
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
