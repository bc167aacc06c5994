"""MACs are half the FLOPs of matrix products and convolutions; convolutions against a count of each multiply-add."""

from __future__ import annotations

import random
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl
from jax_programs import spec

import mithril_nb as ml
from mithril_nb.inspection import inspect_function as inspect


def convolution(seed: int) -> tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]:
    """Return random shapes of an image and a kernel, and the other arguments of `conv_general_dilated`."""
    pick = random.Random(seed)
    rank = pick.choice([1, 1, 2, 2, 3])
    groups = pick.choice([1, 1, 2, 3])
    by_batch = pick.random() < 0.2
    channels, filters, batch = pick.randint(1, 2), groups * pick.randint(1, 2), pick.randint(1, 2)
    if pick.random() < 0.2:
        groups, filters = channels, channels  # depthwise
    dilations = [[pick.choice([1, 1, 2, 3]) for _ in range(rank)] for _ in range(2)]
    if pick.random() < 0.4:
        dilations[0] = [1] * rank
    taps = [pick.randint(1, 3) for _ in range(rank)]
    sizes, pads = [], []
    for base, window, tap in zip(*dilations, taps, strict=True):
        extent = (tap - 1) * window + 1
        low, high = pick.randint(-1, 3), pick.randint(-1, 3)
        sizes.append(next(n for n in range(pick.randint(3, 6), 20) if (n - 1) * base + 1 + low + high >= extent))
        pads.append((low, high))
    if by_batch:
        image, kernel = (batch * groups, channels, *sizes), (filters, channels, *taps)
    else:
        image, kernel = (batch, channels * groups, *sizes), (filters, channels, *taps)
    return image, kernel, {
        "window_strides": [pick.choice([1, 1, 2, 3]) for _ in range(rank)],
        "padding": pads,
        "lhs_dilation": dilations[0],
        "rhs_dilation": dilations[1],
        "batch_group_count" if by_batch else "feature_group_count": groups,
    }  # fmt: skip


def multiply_adds(equation: Any) -> int:
    """Count the elements of the image in the windows of all results, for each pair of channels."""
    param = equation.params
    numbers = param["dimension_numbers"]
    image, kernel = (one.aval.shape for one in equation.invars)
    # An image of ones, with zeros between its elements and around it.
    ones = np.ones([image[axis] for axis in numbers.lhs_spec[2:]], np.int8)
    grown = np.zeros([(n - 1) * base + 1 for n, base in zip(ones.shape, param["lhs_dilation"], strict=True)], np.int8)
    grown[tuple(slice(None, None, base) for base in param["lhs_dilation"])] = ones
    grown = np.pad(grown, [(max(low, 0), max(high, 0)) for low, high in param["padding"]])
    grown = grown[tuple(slice(max(-low, 0), high if high < 0 else None) for low, high in param["padding"])]
    extents = [
        (kernel[axis] - 1) * window + 1
        for axis, window in zip(numbers.rhs_spec[2:], param["rhs_dilation"], strict=True)
    ]
    steps = (*param["window_strides"], *param["rhs_dilation"])
    if any(n < extent for n, extent in zip(grown.shape, extents, strict=True)):
        return 0  # no window fits
    windows = np.lib.stride_tricks.sliding_window_view(grown, extents)[tuple(slice(None, None, one) for one in steps)]
    found = int(windows.sum(dtype=np.int64))
    batch = image[numbers.lhs_spec[0]] // param["batch_group_count"]
    channels = image[numbers.lhs_spec[1]] // param["feature_group_count"]
    assert channels == kernel[numbers.rhs_spec[1]]
    return found * batch * kernel[numbers.rhs_spec[0]] * channels


@pytest.mark.parametrize(
    "seeds", [range(start, start + 25) for start in range(0, 200, 25)], ids=lambda seeds: f"{seeds.start}"
)
def test_random_convolutions_and_their_gradients(seeds: range) -> None:
    rank_dims = {1: ("NCH", "OIH", "NCH"), 2: ("NCHW", "OIHW", "NCHW"), 3: ("NCHWD", "OIHWD", "NCHWD")}
    for seed in seeds:
        image, kernel, options = convolution(seed)

        def convolve(x: Any, w: Any, options: Any = options, rank: int = len(image) - 2) -> Any:
            return lax.conv_general_dilated(x, w, dimension_numbers=rank_dims[rank], **options)

        def gradient(x: Any, w: Any, convolve: Any = convolve) -> Any:
            return jax.grad(lambda x, w: (convolve(x, w) ** 2).sum(), (0, 1))(x, w)

        for fn in (convolve, gradient):
            closed = jax.make_jaxpr(fn)(spec(*image), spec(*kernel))
            equations = [one for one in closed.jaxpr.eqns if one.primitive.name == "conv_general_dilated"]
            expected = [multiply_adds(one) for one in equations]
            assert len(set(expected)) == 1, (seed, fn)  # both gradients have the products of the convolution
            program = inspect(fn, spec(*image), spec(*kernel))
            rows = [row for row in program.cost().rows if row.opcode == "conv_general_dilated"]
            assert [row.macs for row in rows] == expected, (seed, fn)
            assert [row.flops for row in rows] == [2 * count for count in expected], (seed, fn)
            assert program.cost().macs == sum(expected)
            if seed % 4:
                continue  # lowering takes most of the time
            lowered = [row for row in program.cost("lowered").rows if row.opcode == "convolution"]
            assert sum(row.flops or 0 for row in lowered) == 2 * sum(expected), (seed, fn)
        if min(pad for pads in options["padding"] for pad in pads) >= 0:
            # With ones as operands, the sum of the result is the number of products without padding.
            assert int(np.asarray(convolve(jnp.ones(image), jnp.ones(kernel))).sum()) == multiply_adds(equations[0])


def test_complex_products_count_half_of_their_flops() -> None:
    dot = inspect(jnp.matmul, spec(4, 5, dtype="complex64"), spec(5, 6, dtype="complex64")).cost()
    assert (dot.macs, dot.total.flops) == (4 * 4 * 5 * 6, 8 * 4 * 5 * 6)
    image, kernel = spec(2, 3, 8, 8, dtype="complex64"), spec(4, 3, 3, 3, dtype="complex64")
    cost = inspect(lambda x, w: lax.conv(x, w, (2, 2), "SAME"), image, kernel).cost()
    (row,) = cost.rows
    assert row.macs == (row.flops or 0) // 2
    assert (row.macs or 0) > 3 * 2 * 4 * 3 * 9 * 9  # three real convolutions and some sums


def test_products_in_kernels_and_library_calls_count() -> None:
    def kernel(x: Any, y: Any, out: Any) -> None:
        out[...] = jnp.tanh(x[...] @ y[...])

    tile = pl.BlockSpec((8, 8), lambda i: (i, 0))
    call = pl.pallas_call(
        kernel, grid=(4,), in_specs=[tile, pl.BlockSpec((8, 8), lambda i: (0, 0))], out_specs=tile,
        out_shape=spec(32, 8), interpret=True,
    )  # fmt: skip
    assert inspect(call, spec(32, 8), spec(8, 8)).cost().macs == 32 * 8 * 8
    scaled = inspect(
        lambda x, y, s, t: jax.nn.scaled_matmul(x, y, s, t),
        *(spec(1, 4, 64), spec(1, 5, 64), spec(1, 4, 2), spec(1, 5, 2)),
    ).cost()
    assert scaled.macs == (scaled.total.flops or 0) // 2 >= prod((4, 5, 64))


def test_unknown_macs_are_unknown_and_not_zero() -> None:
    def python(x: Any) -> Any:
        return jax.pure_callback(lambda x: x, spec(4), x)

    assert inspect(python, spec(4)).cost().macs is None
    assert inspect(lambda x: lax.while_loop(lambda c: c[0] < 3, lambda c: c * 2, x), spec(4)).cost().macs == 0
    assert inspect(lambda x: lax.while_loop(lambda c: c[0, 0] < 3, lambda c: c @ c, x), spec(4, 4)).cost().macs is None
    both = inspect(lambda x: lax.cond(x.sum() > 0, lambda x: x @ x, lambda x: (x @ x) @ x, x), spec(4, 4)).cost()
    assert both.macs == 2 * 4**3
    ml.register_cost("pure_callback", lambda equation: 100)
    try:
        assert inspect(python, spec(4)).cost().macs is None  # 100 FLOPs of an unknown kind
        ml.register_cost("pure_callback", lambda equation: 0)
        assert inspect(python, spec(4)).cost().macs == 0
        ml.register_cost("dot_general", lambda equation: 10)
        assert inspect(jnp.matmul, spec(3, 3), spec(3, 3)).cost().macs == 5
    finally:
        ml.register_cost("pure_callback", None)
        ml.register_cost("dot_general", None)
