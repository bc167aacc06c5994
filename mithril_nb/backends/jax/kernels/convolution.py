"""Convolutions and pools."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from mithril_nb.backends.jax.kernels.registry import Result, kernel, promoted_all, widened
from mithril_nb.errors import ConnectionError
from mithril_nb.models.library.layers.windows import Windows, transposed_pads, windows
from mithril_nb.models.op import OPS
from mithril_nb.models.shape_inference.dims import MismatchError
from mithril_nb.program import Arrays, Call


@kernel("conv1d")
@kernel("conv2d")
@kernel("conv3d")
@kernel("convolution1d")
@kernel("convolution2d")
@kernel("primitive_convolution1d")
@kernel("primitive_convolution2d")
def _conv(call: Call, arrays: Arrays) -> Result:
    x, weight = promoted_all(arrays["input"], arrays["weight"])
    window = _windows(call, x.ndim - 2, weight.shape[2:])
    out = lax.conv_general_dilated(
        x,
        weight,
        window.stride,
        window.pads(x.shape[2:]),
        rhs_dilation=window.dilation,
        dimension_numbers=_LAYOUTS[x.ndim],
        feature_group_count=_groups(call),
    )
    return _shifted(out, arrays)


@kernel("conv_transpose1d")
@kernel("conv_transpose2d")
@kernel("conv_transpose3d")
def _conv_transpose(call: Call, arrays: Arrays) -> Result:
    (x, weight), groups = promoted_all(arrays["input"], arrays["weight"]), _groups(call)
    window = _windows(call, x.ndim - 2, weight.shape[2:])
    rows, columns, *size = weight.shape
    # This op is the gradient of a convolution: mirror the weight, and swap inputs and outputs in each group.
    parts = weight.reshape(groups, rows // groups, columns, *size).swapaxes(1, 2)
    mirrored = jnp.flip(parts.reshape(groups * columns, rows // groups, *size), tuple(range(2, x.ndim)))
    extra = call.options["output_padding"]
    assert isinstance(extra, int)
    # Not lax.conv_transpose, which has no groups.
    out = lax.conv_general_dilated(
        x,
        mirrored,
        (1,) * len(size),
        transposed_pads(window, extra),
        lhs_dilation=window.stride,
        rhs_dilation=window.dilation,
        dimension_numbers=_LAYOUTS[x.ndim],
        feature_group_count=groups,
    )
    return _shifted(out, arrays)


def _max_pool(axes: int, call: Call, arrays: Arrays) -> Result:
    x = arrays["input"]
    window, lead = _windows(call, axes), x.ndim - axes
    pads = window.pads(x.shape[lead:])
    if any(step > 1 for step in window.dilation):
        # reduce_window has no gradient for dilated windows: gather and reduce the elements, axis by axis.
        for axis, (size, step, gap, pad) in enumerate(
            zip(window.size, window.stride, window.dilation, pads, strict=True), start=lead
        ):
            count = (x.shape[axis] + sum(pad) - (size - 1) * gap - 1) // step + 1
            indices = np.arange(count)[:, None] * step + np.arange(size) * gap - pad[0]
            x = _over(x, axis, indices, (indices >= 0) & (indices < x.shape[axis]), -jnp.inf, jnp.max)
        return x
    # The gradient is a select_and_scatter, which goes to the first of equal items.
    # reduce_window has a gradient only if -inf is a Python number.
    unit, none = (1,) * lead, ((0, 0),) * lead
    size, stride = (*unit, *window.size), (*unit, *window.stride)
    return lax.reduce_window(x, -jnp.inf, lax.max, size, stride, (*none, *pads))


def _avg_pool(axes: int, call: Call, arrays: Arrays) -> Result:
    x = arrays["input"]
    window, lead = _windows(call, axes), x.ndim - axes
    unit, none = (1,) * lead, ((0, 0),) * lead
    pads = window.pads(x.shape[lead:])
    # In 16 bits, a sum over a large window would lose too much precision.
    wide = widened(x)
    sums = lax.reduce_window(
        wide,
        0.0,
        lax.add,
        (*unit, *window.size),
        (*unit, *window.stride),
        (*none, *pads),
        window_dilation=(*unit, *window.dilation),
    )
    if call.options.get("count_include_pad", True):
        # .item(), because the quotient of bfloat16 and a NumPy scalar would be float32.
        return (sums / np.prod(window.size).item()).astype(x.dtype)
    # Counts depend on sizes only, so NumPy computes them during tracing, and XLA receives a constant.
    counts = np.ones((1,) * axes, "float32")
    for axis, (length, pad) in enumerate(zip(x.shape[lead:], pads, strict=True)):
        starts = np.arange(sums.shape[axis + lead])[:, None] * window.stride[axis] - pad[0]
        indices = starts + np.arange(window.size[axis])
        inside = ((indices >= 0) & (indices < length)).sum(1)
        counts = counts * inside.reshape([-1 if other == axis else 1 for other in range(axes)])
    return (sums / counts.astype(wide.dtype)).astype(x.dtype)


# Each pool receives its number of spatial axes: the rank does not determine it, because the batch axis is optional.
for _op in ("max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d"):
    for _form in (_op, f"table_{_op}", f"primitive_{_op}"):
        if _form in OPS:
            kernel(_form)(partial(_max_pool if "max" in _op else _avg_pool, int(_op[-2])))


@kernel("adaptive_avg_pool2d")
def _adaptive_avg_pool(call: Call, arrays: Arrays) -> Result:
    x = arrays["input"]
    wide = widened(x)
    for axis, size in zip((2, 3), _size(call), strict=True):
        indices, inside = _shares(x.shape[axis], size)
        counts = jnp.asarray(inside.sum(1), wide.dtype).reshape([-1 if other == axis else 1 for other in range(4)])
        wide = _over(wide, axis, indices, inside, 0.0, jnp.sum) / counts
    return wide.astype(x.dtype)


@kernel("adaptive_max_pool2d")
def _adaptive_max_pool(call: Call, arrays: Arrays) -> Result:
    x = arrays["input"]
    for axis, size in zip((2, 3), _size(call), strict=True):
        x = _over(x, axis, *_shares(x.shape[axis], size), -jnp.inf, jnp.max)
    return x


_LAYOUTS = {3: ("NCH", "OIH", "NCH"), 4: ("NCHW", "OIHW", "NCHW"), 5: ("NCDHW", "OIDHW", "NCDHW")}


def _windows(call: Call, axes: int, size: tuple[int, ...] | None = None) -> Windows:
    try:
        window = windows(call.options, axes, size)
    except MismatchError as mismatch:
        # The value comes from an array, because shape inference has already checked all other values.
        raise ConnectionError(
            f"the {mismatch.port} of a window comes from an array, so it is unknown until the model runs.",
            (("needs", mismatch.need),),
            port=mismatch.port,
        ) from None
    assert window is not None, "a program is traced with the value of each attribute"
    return window


def _groups(call: Call) -> int:
    # A connected attribute is an integer of NumPy or JAX, and XLA takes a Python one.
    return operator.index(call.options.get("groups", 1))


def _size(call: Call) -> tuple[int, int]:
    height, width = call.options["output_size"]
    return height, width


def _shifted(out: jax.Array, arrays: Arrays) -> jax.Array:
    return out + arrays["bias"][(slice(None), *(None,) * (out.ndim - 2))] if "bias" in arrays else out


def _shares(length: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    # PyTorch's adaptive windows: they overlap where `count` does not divide the length, and differ in size.
    starts = np.arange(count) * length // count
    ends = -(-(np.arange(count) + 1) * length // count)
    indices = starts[:, None] + np.arange((ends - starts).max())
    return indices, indices < ends[:, None]


def _over(
    x: jax.Array, axis: int, indices: np.ndarray, inside: np.ndarray, fill: float, reduce: Callable[..., jax.Array]
) -> jax.Array:
    gathered = jnp.take(x, np.clip(indices, 0, x.shape[axis] - 1), axis=axis)
    if not inside.all():
        mask = inside.reshape([*(1,) * axis, *inside.shape, *(1,) * (x.ndim - axis - 1)])
        gathered = jnp.where(mask, gathered, fill)
    return reduce(gathered, axis=axis + 1)
