"""Helper functions of emitted PyTorch source: numbers, random numbers, linear algebra."""

import math

import torch


def int_divide(x, y):
    """Return x / y for integers, rounded towards zero, as XLA does."""
    is_minus = (y == -1) & (y < 0)  # PyTorch ends the process where it divides the least integer by -1
    safe = torch.where((y == 0) | is_minus, torch.ones_like(y), y)
    found = torch.where(is_minus, -x, torch.div(x, safe, rounding_mode="trunc"))
    return torch.where(y == 0, -torch.ones_like(x), found)


def to_integer(x, dtype, least, most):
    """Convert floats to integers, as XLA does: NaN becomes 0, a number out of range the least or largest integer."""
    x = x.to(torch.promote_types(x.dtype, torch.float32))
    found = torch.where((x > least) & (x < most), x, 0).to(dtype)
    return torch.where(x >= most, most, torch.where(x <= least, least, found)).to(dtype)


def round_away(x):
    """Round to the nearest integer, halves away from zero."""
    whole = torch.trunc(x)
    return whole + torch.copysign((torch.abs(x - whole) >= 0.5).to(x.dtype), x)


def shift_left(x, count, bits):
    """Shift left; a negative count, or a count of all bits or more, gives 0."""
    fits = (count >= 0) & (count < bits)
    return torch.where(fits, x << torch.clamp(count, 0, bits - 1), torch.zeros_like(x))


def shift_right_logical(x, count, bits):
    """Shift right and insert zeros; a negative count, or a count of all bits or more, gives 0."""
    fits = (count >= 0) & (count < bits)
    shift = torch.clamp(count, 0, bits - 1).to(torch.int64)
    mask = (torch.full_like(shift, 2) << (bits - 1 - shift)) - 1  # the bits that remain
    found = (x.to(torch.int64) >> shift) & mask
    return torch.where(fits, found, torch.zeros_like(found)).to(x.dtype)


def shift_right_arithmetic(x, count, bits):
    """Shift right and insert copies of the highest bit; a negative count shifts all bits."""
    shift = torch.where(count < 0, bits - 1, torch.clamp(count, max=bits - 1))
    if x.dtype == torch.uint8:
        return (x.view(torch.int8) >> shift.view(torch.int8)).view(torch.uint8)
    if x.dtype == torch.int64 and bits == 32:  # uint32
        return (x.to(torch.int32) >> shift).to(torch.int64) & 0xFFFFFFFF
    return x >> shift


def cholesky(x):
    """Return the lower triangular L with L @ L.T = x; NaN where x is not positive definite."""
    found, info = torch.linalg.cholesky_ex(x)
    return torch.where((info == 0)[..., None, None], found, torch.full_like(found, math.nan))


def triangular_solve(a, b, left_side, lower, transpose_a, conjugate_a, unit_diagonal):
    """Return x with a @ x = b (or x @ a = b), for a triangular a."""
    a = torch.tril(a) if lower else torch.triu(a)
    a = a.conj() if conjugate_a else a
    upper = not lower
    if transpose_a:
        a, upper = a.mT, not upper
    return torch.linalg.solve_triangular(a, b, upper=upper, left=left_side, unitriangular=unit_diagonal)


def qr(x, full_matrices):
    """Return Q and R."""
    return torch.linalg.qr(x, mode="complete" if full_matrices else "reduced")


def svd(x, full_matrices, compute_uv):
    """Return the singular values, U, and V transposed; without `compute_uv`, only the singular values."""
    if not compute_uv:
        return (torch.linalg.svdvals(x),)
    u, s, v = torch.linalg.svd(x, full_matrices=full_matrices)
    return s, u, v


def eigh(x, lower):
    """Return the eigenvectors and eigenvalues of a symmetric matrix."""
    values, vectors = torch.linalg.eigh(x, UPLO="L" if lower else "U")
    return vectors, values


def lu(x):
    """Return L and U in one array, the row that each row is swapped with, and the final order of the rows."""
    found, swaps = torch.linalg.lu_factor(x)
    rows = x.shape[-2]
    order = torch.arange(rows, dtype=torch.int32).broadcast_to((*x.shape[:-2], rows)).clone()
    flat, pivots = order.reshape(-1, rows), swaps.reshape(-1, swaps.shape[-1]) - 1
    for one, swap in zip(flat, pivots):
        for k, pivot in enumerate(swap.tolist()):
            one[[k, pivot]] = one[[pivot, k]]
    return found, swaps - 1, flat.reshape(order.shape)


def threefry2x32(key_0, key_1, x_0, x_1):
    """Return random bits from a key and counters: JAX's generator (Salmon et al., 2011). All numbers are int64."""
    mask = 0xFFFFFFFF
    keys = (key_0, key_1, key_0 ^ key_1 ^ 0x1BD11BDA)
    x = [(x_0 + keys[0]) & mask, (x_1 + keys[1]) & mask]
    for step in range(5):
        for turn in ((13, 15, 26, 6), (17, 29, 16, 24))[step % 2]:
            x[0] = (x[0] + x[1]) & mask
            x[1] = x[0] ^ (((x[1] << turn) & mask) | (x[1] >> (32 - turn)))
        x[0] = (x[0] + keys[(step + 1) % 3]) & mask
        x[1] = (x[1] + keys[(step + 2) % 3] + step + 1) & mask
    return x[0], x[1]


def word(x):
    """Return the lowest 32 bits of integers."""
    return x.to(torch.int64) & 0xFFFFFFFF


def random_bits(key, shape, width=32):
    """Return random integers of shape (..., *shape) for keys of shape (..., 2)."""
    high, low = random_words(key, shape)
    found = high ^ low
    return found if width == 32 else (found & (2**width - 1)).to(torch.uint8 if width == 8 else torch.int32)
