"""Helper functions of emitted PyTorch source, besides those of shared.py."""

import math

import torch


def counted(count, like):
    """Return the integers from 0 to `count` - 1, on the device of `like`."""
    return torch.arange(count, device=like.device)


def filled(shape, value, like):
    """Return an array of the dtype of `like` that is filled with a value."""
    return torch.full(shape, value, dtype=like.dtype, device=like.device)


def limits(x):
    """Return the least and the largest number of the dtype of an array."""
    return (-math.inf, math.inf) if x.is_floating_point() else (torch.iinfo(x.dtype).min, torch.iinfo(x.dtype).max)


# Without in-place changes, so that PyTorch can differentiate it.
def changed(x, where, updates, kind):
    """Change items of a new flat array by updates, one after the other, and return it."""
    if kind == "set":
        return x.index_put((where,), updates)
    if kind in ("add", "subtract"):
        return x.index_add(0, where, updates if kind == "add" else -updates)
    name = {"multiply": "prod", "minimum": "amin", "maximum": "amax"}[kind]
    return x.scatter_reduce(0, where, updates, name)


# torch.prod takes one axis.
def reduce_prod(x, axes, keepdim):
    """Return the product along some axes."""
    for axis in sorted(axes, reverse=True):
        x = torch.prod(x, dim=axis, keepdim=keepdim, dtype=x.dtype)
    return x


# `unfold` returns views, so windows take no memory before their items are combined.
def slid(x, size, counts, strides, gaps):
    """Return the windows of x, which all fit."""
    for axis, (one, gap, step) in enumerate(zip(size, gaps, strides)):
        x = x.unfold(axis, (one - 1) * gap + 1, step)
    return x[(slice(None),) * len(size) + tuple(slice(None, None, gap) for gap in gaps)].flatten(len(size))


# PyTorch's own convolutions where they fit: they take even padding as an argument, without a copy of x.
def conv(x, kernel, strides=None, padding=None, lhs_dilation=None, rhs_dilation=None, groups=1, batch_groups=1):
    """Return the convolution (cross-correlation) of x (batch, features, ...) and kernel (outputs, features, ...)."""
    rank = x.ndim - 2
    if batch_groups > 1:  # each group of the batch has its own outputs
        x, groups = features_of_groups(x, batch_groups), batch_groups
    padding, gaps = padding or ((0, 0),) * rank, lhs_dilation or (1,) * rank
    same = all(before == after >= 0 for before, after in padding) and set(gaps) == {1}
    if not same:
        config = [(*pair, gap - 1) for pair, gap in zip(padding, gaps)]
        x = pad(x, 0, [(0, 0, 0), (0, 0, 0), *config])
        padding = ((0, 0),) * rank
    room = [one + before + after for one, (before, after) in zip(x.shape[2:], padding)]
    counts, strides, rhs_dilation = fitting(room, kernel.shape[2:], strides, rhs_dilation)
    if 0 in (*counts, *x.shape, *kernel.shape):
        return x.new_zeros((x.shape[0], kernel.shape[0], *counts))
    function = (torch.conv1d, torch.conv2d, torch.conv3d)[max(rank, 1) - 1]
    if rank == 0:
        return function(x[..., None], kernel[..., None], groups=groups)[..., 0]
    if max(rhs_dilation) > 1 and not kernel.is_floating_point():  # PyTorch has no dilated convolution of integers
        kernel = pad(kernel, 0, [(0, 0, 0), (0, 0, 0), *[(0, 0, gap - 1) for gap in rhs_dilation]])
        rhs_dilation = (1,) * rank
    edges = tuple(before for before, _ in padding)
    return function(x, kernel, None, tuple(strides), edges, tuple(rhs_dilation), groups)


def top_k(x, k):
    """Return the k largest items along the last axis, and their indices."""
    found = torch.sort(x, dim=-1, descending=True, stable=True)
    return found.values[..., :k], found.indices[..., :k].to(torch.int32)


# A float16 holds no limit of int32, so the comparison is in float32.
def to_integer(x, dtype, least, most):
    """Convert floats to integers, as XLA does: NaN becomes 0, a number out of range the least or largest integer."""
    x = x.to(torch.promote_types(x.dtype, torch.float32))
    found = torch.where((x > least) & (x < most), x, 0).to(dtype)
    return torch.where(x >= most, most, torch.where(x <= least, least, found)).to(dtype)


# Shifts of PyTorch are those of C++, which has no result for a count of all bits or more.
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


# `torch.linalg.cholesky` raises where a matrix is not positive definite; `cholesky_ex` reports it.
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


# PyTorch has no arithmetic of uint32, so each sum and shift is cut to 32 bits.
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
