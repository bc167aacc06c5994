"""Helper functions of emitted PyTorch source: windows, indexing, sorting."""

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


def changed(x, where, updates, kind):
    """Change items of a new flat array by updates, one after the other, and return it."""
    if kind == "set":
        return x.index_put((where,), updates)
    if kind in ("add", "subtract"):
        return x.index_add(0, where, updates if kind == "add" else -updates)
    name = {"multiply": "prod", "minimum": "amin", "maximum": "amax"}[kind]
    return x.scatter_reduce(0, where, updates, name)


def reduce_prod(x, axes, keepdim):
    """Return the product along some axes."""
    for axis in sorted(axes, reverse=True):
        x = torch.prod(x, dim=axis, keepdim=keepdim, dtype=x.dtype)
    return x


def windows(x, size, strides=None, padding=None, base_dilation=None, window_dilation=None, fill=0):
    """Return each window of x: the windows along the first axes, their items along the last axis."""
    rank = len(size)
    padding, base = padding or [(0, 0)] * rank, base_dilation or [1] * rank
    x = pad(x, fill, [(*pair, gap - 1) for pair, gap in zip(padding, base)])
    dilation, strides = window_dilation or [1] * rank, strides or [1] * rank
    spans = [(one - 1) * gap + 1 for one, gap in zip(size, dilation)]
    counts = [max(-(-(one - span + 1) // step), 0) for one, span, step in zip(x.shape, spans, strides)]
    if 0 in counts:  # no window fits
        return x.new_zeros([*counts, math.prod(size)])
    for axis, (span, step) in enumerate(zip(spans, strides)):
        x = x.unfold(axis, span, step)
    return x[(slice(None),) * rank + tuple(slice(None, None, gap) for gap in dilation)].flatten(rank)


def conv(x, kernel, strides=None, padding=None, lhs_dilation=None, rhs_dilation=None, groups=1, batch_groups=1):
    """Return the convolution (cross-correlation) of x (batch, features, ...) and kernel (outputs, features, ...)."""
    rank = x.ndim - 2
    if batch_groups > 1:  # each group of the batch has its own outputs
        x, groups = features_of_groups(x, batch_groups), batch_groups
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
    if max(rhs_dilation) > 1 and not kernel.is_floating_point():  # PyTorch has no dilated convolution of integers
        kernel = pad(kernel, 0, [(0, 0, 0), (0, 0, 0), *[(0, 0, gap - 1) for gap in rhs_dilation]])
        rhs_dilation = (1,) * rank
    edges = tuple(before for before, _ in padding)
    return function(x, kernel, None, tuple(strides), edges, tuple(rhs_dilation), groups)


def top_k(x, k):
    """Return the k largest items along the last axis, and their indices."""
    found = torch.sort(x, dim=-1, descending=True, stable=True)
    return found.values[..., :k], found.indices[..., :k].to(torch.int32)
