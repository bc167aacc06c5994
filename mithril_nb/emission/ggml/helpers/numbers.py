"""Helper functions of emitted GGML source: comparisons, selections, reductions and mathematics."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the package may be missing here; an emitted file imports it
    from ggml import ggml

    from mithril_nb.emission.ggml.helpers.graphs import sizes, transposed


def is_number(ctx, x):
    """Return 1 where x is not NaN, and 0 elsewhere."""
    return ggml.ggml_step(ctx, ggml.ggml_scale_bias(ctx, ggml.ggml_abs(ctx, x), 1, 1))


def is_finite(ctx, x):
    """Return 1 where x is finite, and 0 elsewhere. For infinity and NaN, x - x is NaN."""
    return is_number(ctx, ggml.ggml_sub(ctx, x, x))


def negation(ctx, mask):
    """Return 1 where the mask is 0, and 0 where it is 1."""
    return ggml.ggml_scale_bias(ctx, mask, -1, 1)


def at_least(ctx, x, y):
    """Return 1 where x >= y, and 0 elsewhere."""
    found = negation(ctx, ggml.ggml_step(ctx, ggml.ggml_sub(ctx, y, x)))
    return ggml.ggml_mul(ctx, ggml.ggml_mul(ctx, found, is_number(ctx, x)), is_number(ctx, y))


def equal(ctx, x, y):
    """Return 1 where x == y, and 0 elsewhere."""
    return ggml.ggml_mul(ctx, at_least(ctx, x, y), at_least(ctx, y, x))


def either(ctx, x, y):
    """Return 1 where mask x or mask y is 1, and 0 elsewhere."""
    return ggml.ggml_step(ctx, ggml.ggml_add(ctx, x, y))


def where(ctx, mask, x, y):
    """Return the items of x where the mask is 1, and the items of y where it is 0.

    GGML has no such operation, and mask * x + (1 - mask) * y is NaN if an item is infinite or NaN. So the items are
    selected by their index, as rows with one item.
    """
    width = sizes(x)[0]
    count = ggml.ggml_nrows(x)
    rows = ggml.ggml_reshape_3d(ctx, ggml.ggml_concat(ctx, y, x, 0), 1, 2 * width, count)
    first = ggml.ggml_scale(ctx, ggml.ggml_reshape_2d(ctx, mask, width, count), width)
    places = ggml.ggml_add(ctx, first, ggml.ggml_arange(ctx, 0, width, 1))
    return ggml.ggml_reshape(ctx, ggml.ggml_get_rows(ctx, rows, ggml.ggml_cast(ctx, places, ggml.GGML_TYPE_I32)), x)


def maximum(ctx, x, y):
    """Return the larger of two items; y if one of them is NaN."""
    return where(ctx, ggml.ggml_step(ctx, ggml.ggml_sub(ctx, x, y)), x, y)


def minimum(ctx, x, y):
    """Return the smaller of two items; y if one of them is NaN."""
    return where(ctx, ggml.ggml_step(ctx, ggml.ggml_sub(ctx, y, x)), x, y)


def clamp(ctx, x, least, most):
    """Return x limited to least ... most. `ggml_clamp` overwrites its argument, so it receives a copy."""
    return ggml.ggml_clamp(ctx, ggml.ggml_dup(ctx, x), least, most)


def column_sums(ctx, x, width):
    """Return x.reshape(-1, width).sum(axis=0)."""
    columns = transposed(ctx, ggml.ggml_reshape_2d(ctx, x, width, ggml.ggml_nelements(x) // width))
    return ggml.ggml_reshape_1d(ctx, ggml.ggml_sum_rows(ctx, columns), width)


def largest(ctx, x):
    """Return the largest item along the last axis, and keep the axis with size 1."""
    width = sizes(x)[0]
    found = ggml.ggml_pool_1d(ctx, x, ggml.GGML_OP_POOL_MAX, width, width, 0)
    # If all items are -inf, GGML returns the lowest finite number. Then is_there is 0, and its logarithm is -inf.
    is_there = ggml.ggml_step(ctx, ggml.ggml_scale_bias(ctx, found, 1, 3.4028234663852886e38))
    return ggml.ggml_add(ctx, found, ggml.ggml_log(ctx, is_there))


def smallest(ctx, x):
    """Return the smallest item along the last axis, and keep the axis with size 1."""
    return ggml.ggml_neg(ctx, largest(ctx, ggml.ggml_neg(ctx, x)))


def first_largest(ctx, x):
    """Return the index of the first largest item along the last axis, and keep the axis with size 1."""
    width = sizes(x)[0]
    places = ggml.ggml_repeat(ctx, ggml.ggml_arange(ctx, 0, width, 1), x)
    is_largest = equal(ctx, x, ggml.ggml_repeat(ctx, largest(ctx, x), x))
    return smallest(ctx, where(ctx, is_largest, places, ggml.ggml_fill(ctx, x, width)))


def ascending(ctx, x):
    """Return x in ascending order along the last axis."""
    width, count = sizes(x)[0], ggml.ggml_nrows(x)
    order = ggml.ggml_reshape_2d(ctx, ggml.ggml_argsort(ctx, x, ggml.GGML_SORT_ORDER_ASC), width, count)
    return ggml.ggml_reshape(ctx, ggml.ggml_get_rows(ctx, ggml.ggml_reshape_3d(ctx, x, 1, width, count), order), x)


def power(ctx, x, exponent):
    """Return x to the power of an integer."""
    if exponent < 0:
        return ggml.ggml_div(ctx, ggml.ggml_fill(ctx, x, 1), power(ctx, x, -exponent))
    if exponent < 2:
        return x if exponent else ggml.ggml_fill(ctx, x, 1)
    half = power(ctx, ggml.ggml_sqr(ctx, x), exponent // 2)
    return ggml.ggml_mul(ctx, half, x) if exponent % 2 else half


def round_to_even(ctx, x):
    """Return the nearest whole number. Halves become even; `ggml_round` rounds them away from 0."""
    found = ggml.ggml_round(ctx, x)
    even = ggml.ggml_scale(ctx, ggml.ggml_round(ctx, ggml.ggml_scale(ctx, x, 0.5)), 2)
    distance = ggml.ggml_abs(ctx, ggml.ggml_sub(ctx, x, found))
    return where(ctx, equal(ctx, distance, ggml.ggml_fill(ctx, x, 0.5)), even, found)


def raised(ctx, x, exponent):
    """Return x to the power of an array, computed as exp(exponent * log(|x|)) with the right sign."""
    size = ggml.ggml_exp(ctx, ggml.ggml_mul(ctx, exponent, ggml.ggml_log(ctx, ggml.ggml_abs(ctx, x))))
    half = ggml.ggml_floor(ctx, ggml.ggml_scale(ctx, exponent, 0.5))
    is_odd = ggml.ggml_sub(ctx, exponent, ggml.ggml_scale(ctx, half, 2))
    signed = ggml.ggml_mul(ctx, size, ggml.ggml_scale_bias(ctx, is_odd, -2, 1))
    is_whole = equal(ctx, exponent, ggml.ggml_floor(ctx, exponent))
    signed = where(ctx, is_whole, signed, ggml.ggml_fill(ctx, x, math.nan))
    found = where(ctx, ggml.ggml_step(ctx, ggml.ggml_neg(ctx, x)), signed, size)
    return where(ctx, ggml.ggml_step(ctx, ggml.ggml_abs(ctx, exponent)), found, ggml.ggml_fill(ctx, x, 1))


def remainder(ctx, x, divisor):
    """Return the remainder of x divided by a power of two, with the sign of x."""
    quotient = ggml.ggml_trunc(ctx, ggml.ggml_scale(ctx, x, 1 / divisor))
    return ggml.ggml_sub(ctx, x, ggml.ggml_scale(ctx, quotient, divisor))


def expm1(ctx, x):
    """Return exp(x) - 1. Unlike `ggml_expm1`, it is accurate for small x.

    With u = exp(x), it computes (u - 1) * x / log(u), in which rounding errors of u cancel.
    """
    u = ggml.ggml_exp(ctx, x)
    change = ggml.ggml_scale_bias(ctx, u, 1, -1)
    small = ggml.ggml_mul(ctx, change, ggml.ggml_div(ctx, x, ggml.ggml_log(ctx, u)))
    small = where(ctx, equal(ctx, u, ggml.ggml_fill(ctx, u, 1)), x, small)
    is_small = ggml.ggml_step(ctx, ggml.ggml_scale_bias(ctx, ggml.ggml_abs(ctx, x), -1, 0.5))
    return where(ctx, is_small, small, change)


def sinh(ctx, x):
    """Return the hyperbolic sine."""
    return ggml.ggml_scale(ctx, ggml.ggml_sub(ctx, expm1(ctx, x), expm1(ctx, ggml.ggml_neg(ctx, x))), 0.5)


def cosh(ctx, x):
    """Return the hyperbolic cosine."""
    both = ggml.ggml_add(ctx, ggml.ggml_exp(ctx, x), ggml.ggml_exp(ctx, ggml.ggml_neg(ctx, x)))
    return ggml.ggml_scale(ctx, both, 0.5)


def log1p(ctx, x):
    """Return log(1 + x). It is accurate for small x: with u = 1 + x, log(u) * x / (u - 1) cancels rounding errors."""
    u = ggml.ggml_scale_bias(ctx, x, 1, 1)
    change = ggml.ggml_scale_bias(ctx, u, 1, -1)
    is_small = equal(ctx, u, ggml.ggml_fill(ctx, u, 1))
    is_exact = either(ctx, is_small, equal(ctx, u, ggml.ggml_fill(ctx, u, math.inf)))
    ratio = where(ctx, is_exact, ggml.ggml_fill(ctx, x, 1), ggml.ggml_div(ctx, x, change))
    return where(ctx, is_small, x, ggml.ggml_mul(ctx, ggml.ggml_log(ctx, u), ratio))


def erf(ctx, x):
    """Return the error function: x times a ratio of polynomials of x * x for |x| < 4, else 1 or -1."""
    x = clamp(ctx, x, -4, 4)
    square = ggml.ggml_sqr(ctx, x)
    above = (-2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05,
             -7.34990630326855e-04, -2.95459980854025e-03, -1.60960333262415e-02)  # fmt: skip
    below = (-1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03, -7.37332916720468e-03,
             -1.42647390514189e-02)  # fmt: skip
    ratio = ggml.ggml_div(ctx, polynomial(ctx, square, above), polynomial(ctx, square, below))
    return ggml.ggml_mul(ctx, x, ratio)


def erfc(ctx, x):
    """Return 1 - erf(x). For |x| > 1, it is exp(-x * x) / |x| times a polynomial of 1 / (x * x), to lose no digits."""
    near = (0.02326819970068386, -0.1387039388740657, 0.3687424674597105, -0.5824733027278666, 0.6210004621745983,
            -0.4944515323274145, 0.3404879937665872, -0.2741127028184656, 0.5638259427386472)  # fmt: skip
    far = (-10.47766399936249, 12.97719955372516, -7.495518717768503, 2.921019019210786, -1.015265279202700,
           0.4218463358204948, -0.2820767439740514, 0.5641895067754075)  # fmt: skip
    size = ggml.ggml_abs(ctx, x)
    inverse = ggml.ggml_div(ctx, ggml.ggml_fill(ctx, x, 1), size)
    square = ggml.ggml_sqr(ctx, inverse)
    is_near = ggml.ggml_step(ctx, ggml.ggml_scale_bias(ctx, size, -1, 2))
    factor = where(ctx, is_near, polynomial(ctx, square, near), polynomial(ctx, square, far))
    tail = ggml.ggml_mul(ctx, ggml.ggml_exp(ctx, ggml.ggml_neg(ctx, ggml.ggml_sqr(ctx, x))), inverse)
    tail = ggml.ggml_mul(ctx, tail, factor)
    tail = where(ctx, ggml.ggml_step(ctx, x), tail, ggml.ggml_scale_bias(ctx, tail, -1, 2))
    is_small = ggml.ggml_step(ctx, ggml.ggml_scale_bias(ctx, size, -1, 1))
    return where(ctx, is_small, negation(ctx, erf(ctx, x)), tail)


def polynomial(ctx, x, coefficients):
    """Return a polynomial of x. The first coefficient is that of the highest power."""
    found = ggml.ggml_fill(ctx, x, coefficients[0])
    for each in coefficients[1:]:
        found = ggml.ggml_scale_bias(ctx, ggml.ggml_mul(ctx, found, x), 1, each)
    return found
