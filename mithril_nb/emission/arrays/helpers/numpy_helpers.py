"""Helper functions of emitted NumPy source, besides those of shared.py."""

import functools
import math

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


# Poolings are loops over the items of a window: NumPy is slow along a last axis with few items.
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


# A product of matrices, because NumPy has no convolution of several axes.
def products(x, kernel, counts, strides, gaps, groups):
    """Return the convolution of x and kernel without padding."""
    rank, batch, outputs = x.ndim - 2, x.shape[0], kernel.shape[0]
    spans = tuple((one - 1) * gap + 1 for one, gap in zip(kernel.shape[2:], gaps))
    found = np.lib.stride_tricks.sliding_window_view(x, spans, axis=tuple(range(2, rank + 2)))
    found = found[(slice(None), slice(None), *(slice(None, None, one) for one in (*strides, *gaps)))]
    found = found.reshape(batch, groups, found.shape[1] // groups, *found.shape[2:])
    kernel = kernel.reshape(groups, outputs // groups, *kernel.shape[1:])
    axes = list(range(2, rank + 2))
    # (batch, features, space..., window...) x (outputs, features, window...)
    parts = [
        np.tensordot(found[:, group], kernel[group], axes=([1, *(axis + rank for axis in axes)], [1, *axes]))
        for group in range(groups)
    ]
    return np.moveaxis(parts[0] if groups == 1 else np.concatenate(parts, axis=-1), -1, 1)


# NumPy returns the least integer for NaN and for floats that do not fit, on x86 processors.
def to_integer(x, dtype, least, most):
    """Convert floats to integers, as XLA does: NaN becomes 0, a number out of range the least or largest integer."""
    found = np.where((x > least) & (x < most), x, 0).astype(dtype)
    return np.where(x >= most, dtype(most), np.where(x <= least, dtype(least), found))


def shift_left(x, count):
    """Shift left; a negative count, or a count of all bits or more, gives 0."""
    return np.where(count < 8 * x.dtype.itemsize, x << count, 0).astype(x.dtype)


def shift_right_logical(x, count):
    """Shift right and insert zeros; a negative count, or a count of all bits or more, gives 0."""
    unsigned = np.dtype(f"u{x.dtype.name.removeprefix('u')}")
    found = np.asarray(x).astype(unsigned) >> np.asarray(count).astype(unsigned)
    return np.where(count < 8 * x.dtype.itemsize, found, 0).astype(x.dtype)


def shift_right_arithmetic(x, count):
    """Shift right and insert copies of the highest bit; a negative count shifts all bits."""
    signed = np.dtype(x.dtype.name.removeprefix("u"))
    shift = np.minimum(count, 8 * x.dtype.itemsize - 1).astype(signed)
    return (np.asarray(x).view(signed) >> shift).view(x.dtype)


def erf(x):
    """Return the error function."""
    try:
        from scipy.special import erf as function
    except ImportError:  # slower
        function = np.frompyfunc(math.erf, 1, 1)
    return np.asarray(function(x), x.dtype)


def erfc(x):
    """Return 1 - erf(x), accurate for large x too."""
    try:
        from scipy.special import erfc as function
    except ImportError:  # slower
        function = np.frompyfunc(math.erfc, 1, 1)
    return np.asarray(function(x), x.dtype)


# SciPy may be missing where an exported file runs. The first guess is Winitzki's.
def erf_inv(y):
    """Return the x for which erf(x) = y, by Halley's method in float64."""
    z = np.abs(np.asarray(y, np.float64))
    w = -np.log1p(-(np.minimum(z, 1 - 2.0**-53) ** 2))
    guess = 2 / (np.pi * 0.147) + w / -2
    x = np.sqrt(np.sqrt(guess**2 + w / 0.147) - guess)
    for _ in range(3):
        excess = np.where(z < 0.5, erf(x) - z, (1 - z) - erfc(x))
        step = excess / (2 / np.sqrt(np.pi) * np.exp(-x * x))
        x = x - step / (1 + x * step)
    x = np.where(z < 1, x, np.where(z == 1, np.inf, np.nan))
    return np.copysign(x, y).astype(y.dtype)


def exact(x):
    """Return floats in the widest dtype."""
    return np.asarray(x, np.float64)


def lgamma(x):
    """Return the logarithm of the gamma function."""

    def one(value):
        is_pole = value <= 0 and value == int(value) if math.isfinite(value) else False
        return math.inf if is_pole else math.lgamma(value)

    return np.asarray(np.frompyfunc(one, 1, 1)(x)).astype(x.dtype)


# NumPy raises for a whole batch if one matrix is not positive definite.
def cholesky(x):
    """Return the lower triangular L with L @ L.T = x; NaN where x is not positive definite."""
    try:
        return np.linalg.cholesky(x)
    except np.linalg.LinAlgError:
        return np.stack([cholesky(one) for one in x]) if x.ndim > 2 else np.full_like(x, np.nan)


# NumPy has no solver of triangular systems, so the general one takes a triangular matrix.
def triangular_solve(a, b, left_side, lower, transpose_a, conjugate_a, unit_diagonal):
    """Return x with a @ x = b (or x @ a = b), for a triangular a."""
    a = np.tril(a) if lower else np.triu(a)
    if unit_diagonal:
        eye = np.eye(a.shape[-1], dtype=a.dtype)
        a = a * (1 - eye) + eye
    a = a.conj() if conjugate_a else a
    a = a.swapaxes(-1, -2) if transpose_a else a
    if left_side:
        return np.linalg.solve(a, b)
    return np.linalg.solve(a.swapaxes(-1, -2), b.swapaxes(-1, -2)).swapaxes(-1, -2)


# NumPy has no LU factors, only what it solves with them.
def lu(x):
    """Return L and U in one array, the row that each row is swapped with, and the final order of the rows."""
    shape = x.shape
    rows, columns = shape[-2:]
    found = np.array(x).reshape(-1, rows, columns)
    swaps = np.zeros((len(found), min(rows, columns)), np.int32)
    order = np.tile(np.arange(rows, dtype=np.int32), (len(found), 1))
    for k in range(min(rows, columns)):
        for matrix, swap, one in zip(found, swaps, order):
            pivot = k + int(np.argmax(np.abs(matrix[k:, k])))
            swap[k] = pivot
            matrix[[k, pivot]], one[[k, pivot]] = matrix[[pivot, k]], one[[pivot, k]]
            matrix[k + 1 :, k] /= matrix[k, k]
            matrix[k + 1 :, k + 1 :] -= np.outer(matrix[k + 1 :, k], matrix[k, k + 1 :])
    batch = shape[:-2]
    return found.reshape(shape), swaps.reshape(*batch, -1), order.reshape(*batch, -1)


def word(x):
    """Return the lowest 32 bits of integers."""
    return np.asarray(x).astype(np.uint32)


def random_bits(key, shape, width=32):
    """Return random integers of shape (..., *shape) for keys of shape (..., 2)."""
    high, low = random_words(key, shape)
    if width == 64:
        return (high.astype(np.uint64) << np.uint64(32)) | low.astype(np.uint64)
    return (high ^ low).astype(f"uint{width}")
