"""Helper functions of emitted GGML source: the graph, and operations that change shapes."""

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


def permuted(ctx, x, *axes):
    """Return x with its axes in another order, as by NumPy's transpose. The items are copied in memory."""
    places = [0, 1, 2, 3]
    for new, old in enumerate(axes):
        places[len(axes) - 1 - old] = len(axes) - 1 - new
    return ggml.ggml_cont(ctx, ggml.ggml_permute(ctx, x, *places))


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
