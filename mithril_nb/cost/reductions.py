"""Reductions, windows, running sums, sorting, and places looked up or written by index."""

from __future__ import annotations

from math import ceil, log2, prod
from typing import Any

from mithril_nb.cost.rules import Work, items, nbytes, rule, size, sum_of
from mithril_nb.stages.records import Equation

_COMBINER = "combiner_equations"


@rule(
    "reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or", "reduce_xor",
    formula="in - out",
)  # fmt: skip
def reduction(equation: Equation) -> Work:
    """Combining `k` items takes `k - 1` operations: `in - out`."""
    return Work(size(equation.inputs[0]) - size(equation.outputs[0]))


@rule("reduce", formula="(in - out)·combiner")
def generic_reduction(equation: Equation) -> Work:
    """As a reduction, with each equation of the combiner counted: `(in - out)·combiner`."""
    return Work((size(equation.inputs[0]) - size(equation.outputs[0])) * _combiner(equation))


@rule("argmax", "argmin", formula="9·(in - out), 7·(in - out) for integers")
def arg_extremum(equation: Equation) -> Work:
    """Comparing values and places, with NaN first among floats: `9·(in - out)`."""
    is_float = "float" in equation.inputs[0].dtype
    return Work((9 if is_float else 7) * (size(equation.inputs[0]) - size(equation.outputs[0])))


@rule("reduce_window_max", "reduce_window_min", "reduce_window_sum", formula="n·(window - 1)")
def window_reduction(equation: Equation) -> Work:
    """Combining the `window` items under each place of the result: `n·(window - 1)`."""
    return Work(items(equation) * (_window(equation) - 1))


@rule("reduce_window", formula="n·(window - 1)·combiner")
def generic_window_reduction(equation: Equation) -> Work:
    """As a window reduction, with each equation of the combiner counted: `n·(window - 1)·combiner`."""
    return Work(items(equation) * (_window(equation) - 1) * _combiner(equation))


@rule("select_and_scatter_add", formula="source·window")
def select_and_scatter_add(equation: Equation) -> Work:
    """For each item of the source `window - 1` comparisons and one addition: `source·window`."""
    return Work(size(equation.inputs[0]) * _window(equation))


@rule("select_and_gather_add", formula="3·n·(window - 1)")
def select_and_gather_add(equation: Equation) -> Work:
    """For each pair under a window a comparison and two selections: `3·n·(window - 1)`."""
    return Work(3 * items(equation) * (_window(equation) - 1))


@rule("cumsum", "cumprod", "cummax", "cummin", formula="n·(length - 1), as XLA's window reduction")
def running(equation: Equation) -> Work:
    """JAX lowers it to a window as long as the axis: `n·(length - 1)`."""
    return Work(items(equation) * (_length(equation) - 1))


@rule("cumlogsumexp", formula="8·n·(length - 1) + 2·n·(length - 1) transcendentals")
def running_logsumexp(equation: Equation) -> Work:
    """As a running sum whose combiner takes 8 operations and 2 transcendentals."""
    pairs = items(equation) * (_length(equation) - 1)
    return Work(8 * pairs, 2 * pairs)


@rule("sort", formula="n·ceil(log2 n)")
def sort(equation: Equation) -> Work:
    """Comparisons as XLA counts them: `n·ceil(log2 n)`, over all items of the first operand."""
    count = size(equation.inputs[0])
    return Work(count * ceil(log2(count)) if count > 1 else 0)


def _slice_bytes(equation: Equation) -> int | None:
    made = tuple(map(nbytes, equation.outputs))
    return sum_of(*made, *made, *map(nbytes, equation.inputs[1:]))


def _update_bytes(equation: Equation) -> int | None:
    update = nbytes(equation.inputs[1])
    return sum_of(update, update, *map(nbytes, equation.inputs[2:]))


def _scatter_bytes(equation: Equation) -> int | None:
    updates = nbytes(equation.inputs[2])
    return sum_of(updates, updates, updates, nbytes(equation.inputs[1]))


@rule("dynamic_slice", formula="0: moves data", moved=_slice_bytes)
def dynamic_slice(equation: Equation) -> Work:
    """Reading a slice takes no arithmetic: `0`."""
    return Work(0)


@rule("dynamic_update_slice", formula="0: moves data", moved=_update_bytes)
def dynamic_update_slice(equation: Equation) -> Work:
    """Writing a slice takes no arithmetic: `0`."""
    return Work(0)


@rule("gather", formula="0, or 4·indices - rows + n to fill what is out of bounds", moved=_slice_bytes)
def gather(equation: Equation) -> Work:
    """Looking up takes no arithmetic; in fill mode each index is checked and each item selected.

    Two comparisons and an `and` for each index, a reduction over those of a row, one selection for each item.
    """
    if equation.param.get("mode") != "FILL_OR_DROP":
        return Work(0)
    indices = size(equation.inputs[1])
    depth = int(equation.inputs[1].shape[-1]) if equation.inputs[1].shape else 1
    rows = indices // max(depth, 1)
    return Work(3 * indices + (indices - rows) + items(equation))


@rule("scatter", "scatter-update", formula="0, or indices if clipped", moved=_scatter_bytes)
def scatter_write(equation: Equation) -> Work:
    """Writing takes no arithmetic; clipping takes one operation for each index."""
    return Work(_clipping(equation))


@rule(
    "scatter-add", "scatter-mul", "scatter-min", "scatter-max", "scatter-sub", "scatter_add", "scatter_mul",
    formula="updates, + indices if clipped", moved=_scatter_bytes,
)  # fmt: skip
def scatter_combine(equation: Equation) -> Work:
    """One operation for each item of the updates; clipping takes one more for each index."""
    return Work(size(equation.inputs[2]) + _clipping(equation))


def _clipping(equation: Equation) -> int:
    return size(equation.inputs[1]) if equation.param.get("mode") == "CLIP" else 0


def _window(equation: Equation) -> int:
    sizes: Any = equation.param["window_dimensions"]
    return prod(sizes)


def _combiner(equation: Equation) -> int:
    count = equation.param.get(_COMBINER, 1)
    return count if isinstance(count, int) else 1


def _length(equation: Equation) -> int:
    axis: Any = equation.param["axis"]
    return int(equation.inputs[0].shape[axis])
