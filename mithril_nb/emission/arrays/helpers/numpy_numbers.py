"""Helper functions of emitted NumPy source: numbers, random numbers, linear algebra."""

import math

import numpy as np


def int_divide(x, y):
    """Return x / y for integers, rounded towards zero, as XLA does."""
    quotient = np.floor_divide(x, np.where(y == 0, 1, y))
    quotient = quotient + ((quotient < 0) & (quotient * y != x)).astype(quotient.dtype)
    return np.where(y == 0, np.array(-1).astype(quotient.dtype), quotient)


def to_integer(x, dtype, least, most):
    """Convert floats to integers, as XLA does: NaN becomes 0, a number out of range the least or largest integer."""
    found = np.where((x > least) & (x < most), x, 0).astype(dtype)
    return np.where(x >= most, dtype(most), np.where(x <= least, dtype(least), found))


def round_away(x):
    """Round to the nearest integer, halves away from zero."""
    whole = np.trunc(x)
    return whole + np.copysign(np.abs(x - whole) >= 0.5, x).astype(x.dtype)


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


def cholesky(x):
    """Return the lower triangular L with L @ L.T = x; NaN where x is not positive definite."""
    try:
        return np.linalg.cholesky(x)
    except np.linalg.LinAlgError:
        return np.stack([cholesky(one) for one in x]) if x.ndim > 2 else np.full_like(x, np.nan)


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
