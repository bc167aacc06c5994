"""Helper functions of emitted MLX source: windows, indexing, sorting."""

import math

import mlx.core as mx


def counted(count, like):
    """Return the integers from 0 to `count` - 1."""
    return mx.arange(count).astype(mx.int64)


def filled(shape, value, like):
    """Return an array of the dtype of `like` that is filled with a value."""
    return mx.full(shape, value, like.dtype).astype(like.dtype)  # with the dtype bool, mx.full returns int32


def limits(x):
    """Return the least and the largest number of the dtype of an array."""
    is_float = mx.issubdtype(x.dtype, mx.floating)
    return (-math.inf, math.inf) if is_float else (mx.iinfo(x.dtype).min, mx.iinfo(x.dtype).max)


def changed(x, where, updates, kind):
    """Change items of a new flat array by updates, one after the other, and return it."""
    if kind == "set":
        x[where] = updates
        return x
    return getattr(x.at[where], kind)(updates)


def windows(x, size, strides=None, padding=None, base_dilation=None, window_dilation=None, fill=0):
    """Return each window of x: the windows along the first axes, their items along the last axis."""
    rank = len(size)
    padding, base = padding or [(0, 0)] * rank, base_dilation or [1] * rank
    x = pad(x, fill, [(*pair, gap - 1) for pair, gap in zip(padding, base)])
    gaps, steps = window_dilation or [1] * rank, strides or [1] * rank
    spans = [(one - 1) * gap + 1 for one, gap in zip(size, gaps)]
    counts = [max(-(-(one - span + 1) // step), 0) for one, span, step in zip(x.shape, spans, steps)]
    if 0 in counts:  # no window fits
        return mx.zeros([*counts, math.prod(size)], x.dtype)
    where = []
    for axis, (count, one, gap, step) in enumerate(zip(counts, size, gaps, steps)):
        start = (mx.arange(count) * step).reshape([-1 if place == axis else 1 for place in range(2 * rank)])
        inner = (mx.arange(one) * gap).reshape([-1 if place == rank + axis else 1 for place in range(2 * rank)])
        where.append(start + inner)
    return x[tuple(where)].reshape((*counts, math.prod(size)))


def conv(x, kernel, strides=None, padding=None, lhs_dilation=None, rhs_dilation=None, groups=1, batch_groups=1):
    """Return the convolution (cross-correlation) of x (batch, features, ...) and kernel (outputs, features, ...)."""
    rank = x.ndim - 2
    if batch_groups > 1:  # each group of the batch has its own outputs
        x, groups = features_of_groups(x, batch_groups), batch_groups
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
