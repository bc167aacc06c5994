"""Helper functions of emitted MLX source, besides those of shared.py."""

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


def slid(x, size, counts, strides, gaps):
    """Return the windows of x, which all fit."""
    rank, where = len(size), []
    for axis, (count, one, gap, step) in enumerate(zip(counts, size, gaps, strides)):
        start = (mx.arange(count) * step).reshape([-1 if place == axis else 1 for place in range(2 * rank)])
        inner = (mx.arange(one) * gap).reshape([-1 if place == rank + axis else 1 for place in range(2 * rank)])
        where.append(start + inner)
    return x[tuple(where)].reshape((*counts, math.prod(size)))


def products(x, kernel, counts, strides, gaps, groups):
    """Return the convolution of x and kernel without padding."""
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


def to_integer(x, dtype, least, most):
    """Convert floats to integers, as XLA does: NaN becomes 0, a number out of range the least or largest integer."""
    found = mx.where((x > float(least)) & (x < float(most)), x, 0).astype(dtype)
    found = mx.where(x <= float(least), mx.array(least, dtype), found)
    largest = mx.array(most if most < 2**63 else -1, mx.int64).astype(dtype)  # MLX takes no larger number
    return mx.where(x >= float(most), largest, found)


# `mx.remainder` has the sign of y.
def remainder(x, y):
    """Return the remainder of x / y rounded towards zero: it has the sign of x."""
    size = mx.remainder(mx.abs(x), mx.abs(y))
    return mx.where(x < 0, -size, size).astype(x.dtype)


# MLX rounds halves to even, and has neither trunc nor copysign.
def round_away(x):
    """Round to the nearest integer, halves away from zero."""
    whole = mx.floor(mx.abs(x))
    return mx.sign(x) * (whole + (mx.abs(x) - whole >= 0.5))


# MLX has no erfc, and 1 - erf(x) has no digits left from x = 4 on.
def erfc(x):
    """Return 1 - erf(x). For |x| >= 1.5, compute it by a continued fraction, which loses no digits."""
    t = mx.maximum(mx.abs(x), 1.0)
    tail = mx.zeros_like(t)
    for k in range(60, 0, -1):
        tail = (k / 2) / (t + tail)
    tail = mx.exp(-t * t) / (t + tail) / math.sqrt(math.pi)
    return mx.where(mx.abs(x) < 1.5, 1 - mx.erf(x), mx.where(x < 0, 2 - tail, tail))


# MLX has float64 on CPUs only.
def exact(x):
    """Return floats in the widest dtype that MLX computes with on every device."""
    return x


# MLX has no function for it. The coefficients are those of g = 7 and n = 9.
def lgamma(x):
    """Return the logarithm of the gamma function by Lanczos' approximation."""
    z = mx.where(x < 0.5, 1 - x, x) - 1
    parts = (676.5203681218851, -1259.1392167224028, 771.3234287776531, -176.6150291621406, 12.507343278686905)
    parts += (-0.13857109526572012, 9.984369578019572e-06, 1.5056327351493116e-07)
    total = 0.9999999999998099
    for place, part in enumerate(parts):
        total = total + part / (z + place + 1)
    t = z + 7.5
    found = 0.5 * math.log(2 * math.pi) + (z + 0.5) * mx.log(t) - t + mx.log(total)
    return mx.where(x < 0.5, math.log(math.pi) - mx.log(mx.abs(mx.sin(math.pi * x))) - found, found)


def exp2(x):
    """Return 2**x."""
    return mx.power(2.0, x)


def bits_of(x):
    """Return the number of bits of one item of x."""
    return 8 * x.dtype.size


def unsigned(x):
    """Reinterpret integers as unsigned integers."""
    return x.view({1: mx.uint8, 2: mx.uint16, 4: mx.uint32, 8: mx.uint64}[x.dtype.size])


# Unsigned counts, so that negative ones are large and give 0 as well.
def shift_left(x, count):
    """Shift left; a negative count, or a count of all bits or more, gives 0."""
    count = unsigned(count)
    found = (unsigned(x) << mx.minimum(count, bits_of(x) - 1)).view(x.dtype)
    return mx.where(count < bits_of(x), found, mx.zeros_like(x))


def shift_right_logical(x, count):
    """Shift right and insert zeros; a negative count, or a count of all bits or more, gives 0."""
    count = unsigned(count)
    found = (unsigned(x) >> mx.minimum(count, bits_of(x) - 1)).view(x.dtype)
    return mx.where(count < bits_of(x), found, mx.zeros_like(x))


def shift_right_arithmetic(x, count):
    """Shift right and insert copies of the highest bit; a negative count shifts all bits."""
    signed = {1: mx.int8, 2: mx.int16, 4: mx.int32, 8: mx.int64}[x.dtype.size]
    return (x.view(signed) >> mx.minimum(unsigned(count), bits_of(x) - 1).view(signed)).view(x.dtype)


def cholesky(x):
    """Return the lower triangular L with L @ L.T = x; NaN where x is not positive definite."""
    found = mx.linalg.cholesky(x, stream=mx.cpu)
    is_positive = mx.all(mx.diagonal(found, 0, -2, -1) > 0, axis=-1)  # of other matrices, MLX returns any numbers
    return mx.where(is_positive[..., None, None], found, math.nan)


def triangular_solve(a, b, left_side, lower, transpose_a, conjugate_a, unit_diagonal):
    """Return x with a @ x = b (or x @ a = b), for a triangular a."""
    a = mx.tril(a) if lower else mx.triu(a)
    if unit_diagonal:
        eye = mx.eye(a.shape[-1], dtype=a.dtype)
        a = a * (1 - eye) + eye
    a, upper = (a.swapaxes(-1, -2), lower) if transpose_a else (a, not lower)
    if left_side:
        return mx.linalg.solve_triangular(a, b, upper=upper, stream=mx.cpu)
    found = mx.linalg.solve_triangular(a.swapaxes(-1, -2), b.swapaxes(-1, -2), upper=not upper, stream=mx.cpu)
    return found.swapaxes(-1, -2)


# MLX has linear algebra on CPUs only, hence the streams.
def svd(x, full_matrices, compute_uv):
    """Return the singular values, U, and V transposed; without `compute_uv`, only the singular values."""
    if not compute_uv:
        return (mx.linalg.svd(x, compute_uv=False, stream=mx.cpu),)
    u, s, v = mx.linalg.svd(x, stream=mx.cpu)
    if not full_matrices:
        u, v = u[..., :, : s.shape[-1]], v[..., : s.shape[-1], :]
    return s, u, v


def qr(x, full_matrices):
    """Return Q and R."""
    return mx.linalg.qr(x, stream=mx.cpu)


def eigh(x, lower):
    """Return the eigenvectors and eigenvalues of a symmetric matrix."""
    values, vectors = mx.linalg.eigh(x, UPLO="L" if lower else "U", stream=mx.cpu)
    return vectors, values


def lu(x):
    """Return L and U in one array, the row that each row is swapped with, and the final order of the rows."""
    found, swaps = mx.linalg.lu_factor(x, stream=mx.cpu)
    order = list(range(x.shape[-2]))
    for k, pivot in enumerate(swaps.tolist()):
        order[k], order[pivot] = order[pivot], order[k]
    return found, swaps.astype(mx.int32), mx.array(order, mx.int32)


def word(x):
    """Return the lowest 32 bits of integers."""
    return x.astype(mx.uint32)


def random_bits(key, shape, width=32):
    """Return random integers of shape (..., *shape) for keys of shape (..., 2)."""
    high, low = random_words(key, shape)
    return (high ^ low).astype({8: mx.uint8, 16: mx.uint16, 32: mx.uint32}[width])
