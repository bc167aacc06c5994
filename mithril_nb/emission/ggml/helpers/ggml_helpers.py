"""Helper functions and the class of a graph that emitted GGML source contains."""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:  # the package may be missing here; an emitted file imports it
    from ggml import ggml


class Graph:
    """A graph of GGML operations. It is built once, and each call computes it for other arrays.

    All tensors are float32. Masks contain 0 and 1. Integers are exact up to 2**24. GGML lists sizes from the last
    axis: an array of shape (5, 8) is a tensor with ne[0] = 8 and ne[1] = 5.
    """

    def __init__(self, nodes):
        size = 2 * nodes * ggml.ggml_tensor_overhead() + ggml.ggml_graph_overhead_custom(nodes, False)
        self.ctx = ggml.ggml_init(ggml.ggml_init_params(mem_size=size, mem_buffer=None, no_alloc=True))
        self.graph = ggml.ggml_new_graph_custom(self.ctx, nodes, False)
        self.backend = ggml.ggml_backend_cpu_init()
        ggml.ggml_backend_cpu_set_n_threads(self.backend, 1)
        self.memory = ggml.ggml_gallocr_new(ggml.ggml_backend_get_default_buffer_type(self.backend))
        self.lock = threading.Lock()  # the graph has one memory, so calls run one after the other
        self.inputs, self.constants, self.outputs = [], [], []

    def input(self, *shape):
        """Return a new tensor for an argument of the program."""
        self.inputs.append((new(self.ctx, *shape), shape))
        ggml.ggml_set_input(self.inputs[-1][0])
        return self.inputs[-1][0]

    def constant(self, array):
        """Return a tensor with the items of an array."""
        self.constants.append((new(self.ctx, *array.shape), np.asarray(array, np.float32, order="C")))
        ggml.ggml_set_input(self.constants[-1][0])
        ggml.ggml_set_output(self.constants[-1][0])  # so its memory is not used again
        return self.constants[-1][0]

    def output(self, tensor, *shape, dtype=np.float32):
        """Add a result of the program."""
        self.outputs.append((ggml.ggml_cont(self.ctx, tensor), shape, dtype))
        ggml.ggml_set_output(self.outputs[-1][0])
        ggml.ggml_build_forward_expand(self.graph, self.outputs[-1][0])

    def allocate(self):
        """Allocate the memory of all tensors, and return the graph."""
        if not ggml.ggml_gallocr_alloc_graph(self.memory, self.graph):
            raise MemoryError("GGML cannot allocate the tensors of the graph")
        for tensor, array in self.constants:
            store(tensor, array)
        return self

    def __call__(self, *arrays):
        """Return the results for some arguments, as NumPy arrays."""
        with self.lock:
            for (tensor, shape), array in zip(self.inputs, arrays):
                array = np.asarray(array, np.float32, order="C")
                if array.shape != shape:
                    raise ValueError(f"the graph is built for an array of shape {shape}, not {array.shape}")
                store(tensor, array)
            ggml.ggml_backend_graph_compute(self.backend, self.graph)
            return [load(*output) for output in self.outputs]

    def __del__(self):
        ggml.ggml_gallocr_free(self.memory)
        ggml.ggml_backend_free(self.backend)
        ggml.ggml_free(self.ctx)


# GGML ends the process at a tensor without memory.
def store(tensor, array):
    """Copy an array to a tensor, except to an unused tensor, which has no memory."""
    if ggml.ggml_get_data(tensor):
        ggml.ggml_backend_tensor_set(tensor, array.ctypes.data, 0, array.nbytes)


def load(tensor, shape, dtype):
    """Return a NumPy array with the items of a tensor."""
    array = np.empty(shape, np.float32)
    ggml.ggml_backend_tensor_get(tensor, array.ctypes.data, 0, array.nbytes)
    return array if dtype is np.float32 else array.astype(dtype)


def ne(*shape):
    """Return GGML's four sizes for a shape, the last axis first. Axes before the last three are merged."""
    four = (*(1,) * (4 - len(shape)), *shape)
    return (four[-1], four[-2], four[-3], math.prod(four[:-3]))


def sizes(tensor):
    """Return the four sizes of a tensor, the last axis first."""
    return tuple(tensor.contents.ne[:4])


def new(ctx, *shape):
    """Return a new tensor of a shape. Its items are undefined."""
    return ggml.ggml_new_tensor_4d(ctx, ggml.GGML_TYPE_F32, *ne(*shape))


def full(ctx, value, *shape):
    """Return a tensor of a shape that is filled with a number."""
    return ggml.ggml_fill(ctx, new(ctx, *shape), value)


def reshape(ctx, x, *shape):
    """Return the items of x in another shape."""
    return ggml.ggml_reshape_4d(ctx, x, *ne(*shape))


def transposed(ctx, x):
    """Return x with its last two axes swapped."""
    return ggml.ggml_cont(ctx, ggml.ggml_transpose(ctx, x))


# Most operations of GGML need contiguous tensors, hence `ggml_cont`.
def permuted(ctx, x, *axes):
    """Return x with its axes in another order, as by NumPy's transpose. The items are copied in memory."""
    places = [0, 1, 2, 3]
    for new, old in enumerate(axes):
        places[len(axes) - 1 - old] = len(axes) - 1 - new
    return ggml.ggml_cont(ctx, ggml.ggml_permute(ctx, x, *places))


# In halves: ggml_concat joins two tensors, and a chain would copy the first ones again and again.
def joined(ctx, dim, parts):
    """Return tensors joined along `dim`. GGML counts dimensions from the last axis: `dim` 0 is the last axis."""
    if len(parts) == 1:
        return parts[0]
    half = len(parts) // 2
    return ggml.ggml_concat(ctx, joined(ctx, dim, parts[:half]), joined(ctx, dim, parts[half:]), dim)


def split_at(x, dim):
    """Return three sizes of x: of all axes after `dim` together, of `dim`, and of all axes before it together."""
    return math.prod(sizes(x)[:dim]), sizes(x)[dim], math.prod(sizes(x)[dim + 1 :])


def sliced(ctx, x, dim, start, count, step=1):
    """Return x[start : start + count * step : step] along `dim`, where 0 is the last axis."""
    inner, size, outer = split_at(x, dim)
    row = inner * ggml.ggml_element_size(x)
    found = ggml.ggml_view_3d(ctx, x, inner, count, outer, step * row, size * row, start * row)
    return ggml.ggml_reshape_4d(ctx, ggml.ggml_cont(ctx, found), *sizes(x)[:dim], count, *sizes(x)[dim + 1 :])


def item(ctx, x, step, *shape):
    """Return x[step]. Its shape is `shape`."""
    count = math.prod(shape)
    found = ggml.ggml_view_1d(ctx, x, count, step * count * ggml.ggml_element_size(x))
    return reshape(ctx, found, *shape)


def stacked(ctx, items, *shape):
    """Return tensors of the same shape, stacked along a new first axis."""
    rows = [ggml.ggml_reshape_2d(ctx, one, math.prod(shape), 1) for one in items]
    return reshape(ctx, joined(ctx, 1, rows), len(items), *shape)


# A view of GGML has no negative strides.
def flipped(ctx, x, dim):
    """Return x in reverse order along `dim`, where 0 is the last axis."""
    inner, size, outer = split_at(x, dim)
    places = ggml.ggml_scale_bias(ctx, ggml.ggml_arange(ctx, 0, size, 1), -1, size - 1)
    rows = ggml.ggml_cast(ctx, ggml.ggml_repeat_4d(ctx, places, size, outer, 1, 1), ggml.GGML_TYPE_I32)
    return ggml.ggml_reshape(ctx, ggml.ggml_get_rows(ctx, ggml.ggml_reshape_3d(ctx, x, inner, size, outer), rows), x)


def pad(ctx, x, value, config):
    """Return x with `value` around and between its items; a negative width removes items.

    config: for each axis, the last axis first: (before, after, between).
    """
    for dim, (before, after, between) in enumerate(config):
        shape = list(sizes(x))
        inner, size, outer = split_at(x, dim)
        if between and size > 1:
            gaps = full(ctx, value, size * outer, between, inner)
            x = ggml.ggml_concat(ctx, ggml.ggml_reshape_3d(ctx, x, inner, 1, size * outer), gaps, 1)
            x = ggml.ggml_reshape_3d(ctx, x, inner, size * (between + 1), outer)
            size = size + (size - 1) * between
            x = sliced(ctx, x, 1, 0, size)
        x = ggml.ggml_reshape_3d(ctx, x, inner, size, outer)
        kept = size + min(before, 0) + min(after, 0)
        if kept < size:
            x = sliced(ctx, x, 1, max(-before, 0), kept)
        first, last = (full(ctx, value, outer, width, inner) if width > 0 else None for width in (before, after))
        x = joined(ctx, 1, [one for one in (first, x, last) if one is not None])
        shape[dim] = size + before + after
        x = ggml.ggml_reshape_4d(ctx, x, *shape)
    return x


# GGML compares by `step`, which is 0 for NaN.
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


# GGML has no maximum along an axis, but pools one window as wide as the axis.
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


# The coefficients are those of XLA and Eigen for float32. GGML has `ggml_gelu_erf`, but no erf.
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


# The coefficients are those of Cephes, as in XLA.
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


# GGML has neither groups nor a dilated input, which the gradients of convolutions have.
def conv(ctx, x, kernel, strides, padding, lhs_dilation=(1, 1), rhs_dilation=(1, 1), groups=1, batch_groups=1):
    """Return a convolution of x (batch, features, height, width) and a kernel (outputs, features, height, width)."""
    config = [(*pair, gap - 1) for pair, gap in zip(padding, lhs_dilation)]
    x = pad(ctx, x, 0, config[::-1])
    count = max(groups, batch_groups)
    dim = 2 if groups > 1 else 3  # x is divided along its features or its batch; the kernel along its outputs
    found = []
    for place in range(count):
        part = part_of(ctx, x, dim, place, count)
        kernel_part = part_of(ctx, kernel, 3, place, count)
        (down, right), (rows, columns) = strides, rhs_dilation
        found.append(ggml.ggml_conv_2d(ctx, kernel_part, part, right, down, 0, 0, columns, rows))
    return joined(ctx, 2, found)


def part_of(ctx, x, dim, place, count):
    """Return part number `place` of `count` equal parts along `dim`, where 0 is the last axis."""
    width = sizes(x)[dim] // count
    return x if count == 1 else sliced(ctx, x, dim, place * width, width)


def bounded(ctx, x, count, is_dropped):
    """Return indices limited to 0 ... count - 1, and a mask of the indices outside; None without is_dropped."""
    inside = clamp(ctx, x, 0, count - 1)
    if not is_dropped:
        return inside, None
    return inside, ggml.ggml_step(ctx, ggml.ggml_abs(ctx, ggml.ggml_sub(ctx, x, inside)))


# Indices are float32, because GGML computes with no integers.
def as_index(ctx, x):
    """Return indices as a tensor with one axis and dtype int32, which GGML needs to read rows."""
    return ggml.ggml_cast(ctx, ggml.ggml_reshape_1d(ctx, x, ggml.ggml_nelements(x)), ggml.GGML_TYPE_I32)


def rows(ctx, table, indices, fill=None):
    """Return the rows at `indices` of a table (count, width).

    For an index outside of the table, return a row of `fill`, or the nearest row if `fill` is None.
    """
    width, count = sizes(table)[:2]
    inside, outside = bounded(ctx, indices, count, fill is not None)
    found = ggml.ggml_get_rows(ctx, table, as_index(ctx, inside))
    if outside is None:
        return found
    mask = ggml.ggml_repeat(ctx, ggml.ggml_reshape_2d(ctx, outside, 1, ggml.ggml_nelements(outside)), found)
    return where(ctx, mask, full(ctx, fill, ggml.ggml_nelements(indices), width), found)


# The backward pass of `get_rows` is GGML's only operation that adds items at the same index.
def add_rows(ctx, rows, indices, count, is_dropped=False):
    """Return zeros (count, width) with each row added at its index.

    A row whose index is outside of the table is left out if is_dropped is true, else added to the nearest row.
    """
    width = sizes(rows)[0]
    inside, outside = bounded(ctx, indices, count, is_dropped)
    table = new(ctx, count + is_dropped, width)
    if outside is not None:  # one row more, for the rows left out
        inside = where(ctx, outside, ggml.ggml_fill(ctx, inside, count), inside)
    found = ggml.ggml_get_rows_back(ctx, rows, as_index(ctx, inside), table)
    return sliced(ctx, found, 1, 0, count) if is_dropped else found


def places_of(ctx, indices, shape, starts, bounds, along, is_dropped):
    """Return the index of each item of windows in a flattened array, and a mask of the windows partly outside.

    If is_dropped is false, these windows are moved inside, and the second result is None.

    Args:
        ctx: The context.
        indices: The start of each window. The last axis of `indices` contains one index for each entry of `bounds`.
        shape: Shape of the array with the items of all windows.
        starts: `shape`, but with size 1 along the axes that lie within a window.
        bounds: For each index, the stride of its axis in the flattened array, and the number of possible starts.
        along: Pairs (axis of `shape`, stride) for axes along which each item is a stride after the item before it.
        is_dropped: True if windows that are partly outside are left out.
    """
    places, outside = full(ctx, 0, *shape), None
    for number, (distance, count) in enumerate(bounds):
        index = reshape(ctx, sliced(ctx, indices, 0, number, 1), *starts)
        inside, is_outside = bounded(ctx, index, count, is_dropped)
        places = ggml.ggml_add(ctx, places, ggml.ggml_scale(ctx, inside, distance))
        if is_dropped:
            outside = is_outside if outside is None else ggml.ggml_step(ctx, ggml.ggml_add(ctx, outside, is_outside))
    for axis, distance in along:
        steps = ggml.ggml_scale(ctx, ggml.ggml_arange(ctx, 0, shape[axis], 1), distance)
        one_axis = [size if place == axis else 1 for place, size in enumerate(shape)]
        places = ggml.ggml_add(ctx, places, reshape(ctx, steps, *one_axis))
    return places, None if outside is None else ggml.ggml_repeat(ctx, outside, places)


def gather(ctx, x, indices, shape, starts, bounds, along, fill=None):
    """Return windows of x. A window that is partly outside is filled with `fill`, or moved inside if `fill` is None.

    See places_of for the other arguments.
    """
    places, outside = places_of(ctx, indices, shape, starts, bounds, along, fill is not None)
    flat = ggml.ggml_reshape_2d(ctx, x, 1, ggml.ggml_nelements(x))
    found = reshape(ctx, ggml.ggml_get_rows(ctx, flat, as_index(ctx, places)), *shape)
    return found if outside is None else where(ctx, outside, full(ctx, fill, *shape), found)


def scatter_add(ctx, x, indices, updates, shape, starts, bounds, along, is_dropped=False):
    """Return x with `updates` added to its windows. See places_of for the arguments."""
    places, outside = places_of(ctx, indices, shape, starts, bounds, along, is_dropped)
    count = ggml.ggml_nelements(x)
    if outside is not None:  # one item more, for the items left out
        places = where(ctx, outside, ggml.ggml_fill(ctx, places, count), places)
    flat = ggml.ggml_reshape_2d(ctx, updates, 1, ggml.ggml_nelements(updates))
    sums = ggml.ggml_get_rows_back(ctx, flat, as_index(ctx, places), new(ctx, count + is_dropped, 1))
    sums = sliced(ctx, sums, 1, 0, count) if is_dropped else sums
    return ggml.ggml_add(ctx, x, ggml.ggml_reshape(ctx, sums, x))


def scatter(ctx, x, indices, updates, shape, starts, bounds, along, is_dropped=False):
    """Return x with its windows replaced by `updates`. See places_of for the arguments."""
    places, outside = places_of(ctx, indices, shape, starts, bounds, along, is_dropped)
    count = ggml.ggml_nelements(x)
    flat = ggml.ggml_reshape_2d(ctx, x, 1, count)
    if outside is not None:  # one item more, for the items left out
        places = where(ctx, outside, ggml.ggml_fill(ctx, places, count), places)
        flat = ggml.ggml_concat(ctx, flat, full(ctx, 0, 1, 1), 1)
    rows = ggml.ggml_reshape_2d(ctx, updates, 1, ggml.ggml_nelements(updates))
    found = ggml.ggml_set_rows(ctx, ggml.ggml_dup(ctx, flat), rows, as_index(ctx, places))
    return ggml.ggml_reshape(ctx, sliced(ctx, found, 1, 0, count), x)
