"""Rules for reductions, windows, cumulative operations, sorting, gather and scatter."""

from __future__ import annotations

from typing import Any

from mithril_nb.cost.formulas.rules import Formula, Letters, counted, items, of_items, rule, without_arithmetic
from mithril_nb.cost.formulas.sizes import as_size, bytes_sum, count, length, repeated, times
from mithril_nb.cost.formulas.symbols import Expression, call
from mithril_nb.stages.records import Equation
from mithril_nb.stages.trace.params import COMBINER, equations_of

_VECTOR = "of one vector in a kernel"


@rule(
    "reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or", "reduce_xor",
    "mosaic_gpu_reduce_sum", "mosaic_gpu_reduce_max", "mosaic_gpu_reduce_min", "mosaic_gpu_reduce_prod",
    flops="in - out",
)  # fmt: skip
def reduction(equation: Equation) -> Letters:
    """Combining `k` elements takes `k - 1` operations: `in - out`."""
    elements = count(equation.inputs[0])
    return {"in": elements, "out": 0 if elements == 0 else count(equation.outputs[0])}


@rule("reduce", flops="(in - out)·combiner", transcendentals="(in - out)·calls")
def generic_reduction(equation: Equation) -> Formula | str:
    """The equations of the combiner, as often as `reduction` combines two elements: `(in - out)·combiner`."""
    return _combined("(in - out)", reduction(equation), equation)


@rule("argmax", "argmin", flops="9·(in - out)", note="7·(in - out) for integers")
def arg_extremum(equation: Equation) -> Formula:
    """Comparisons and selections of values and indices: 7 for each pair that is combined, 9 for floats.

    `in` elements are reduced to `out`, so there are `in - out` pairs. Floats are also checked for NaN. The factors are
    counted in the lowered module.
    """
    is_float = "float" in equation.inputs[0].dtype
    return Formula("9·(in - out)" if is_float else "7·(in - out)", reduction(equation))


@rule("reduce_window_max", "reduce_window_min", "reduce_window_sum", flops="n·(window - 1)")
def window_reduction(equation: Equation) -> Letters:
    """Combining `window` elements for each element of the result: `n·(window - 1)`."""
    return {"n": items(equation), "window": _window(equation)}


@rule("reduce_window", flops="n·(window - 1)·combiner", transcendentals="n·(window - 1)·calls")
def generic_window_reduction(equation: Equation) -> Formula | str:
    """The equations of the combiner, for each element of a window but the first: `n·(window - 1)·combiner`."""
    return _combined("n·(window - 1)", window_reduction(equation), equation)


@rule("select_and_scatter", "select_and_scatter_add", flops="source·window")
def select_and_scatter_add(equation: Equation) -> Letters:
    """`window - 1` comparisons and one addition for each element of the source: `source·window`."""
    return {"source": count(equation.inputs[0]), "window": _window(equation)}


# A comparison and two selections for each pair in a window.
rule("select_and_gather_add", flops="3·n·(window - 1)")(window_reduction)


@rule(
    "cumsum", "cumprod", "cummax", "cummin",
    flops="n - rows", note="one operation for each element but the first of a row", xla="n·(N - 1)",
)  # fmt: skip
def running(equation: Equation) -> Letters:
    """One operation for each element but the first of each row along the axis, as in a sequential loop: `n - rows`.

    JAX lowers a cumulative operation to a reduction over windows as long as the axis. XLA counts this as `n·(N - 1)`,
    where `N` is the length of the axis.
    On CPU, XLA rewrites these to windows of 16 elements, with about `17·n` operations in all.
    """
    axis: Any = equation.param["axis"]
    operand = equation.inputs[0]
    # Rows along axis 0 are columns. An empty axis has no first element, so nothing is left out.
    rows = times(length(operand, other) for other in range(len(operand.shape)) if other != axis)
    along = length(operand, axis)
    return {"n": items(equation), "rows": 0 if along == 0 else rows, "N": call("max", along, 1)}


# Combining two elements takes 8 operations and 2 transcendentals in the lowered module.
rule("cumlogsumexp", flops="8·(n - rows)", transcendentals="2·(n - rows)", xla="8·n·(N - 1)")(running)
rule("masked_cumsum", "masked_cummax", "masked_cummin", flops="n", note=_VECTOR)(of_items)


@rule("sort", flops="n·log2(N)", note="comparisons", xla="n·ceil(log2(n))")
def sort(equation: Equation) -> Letters:
    """Comparisons to sort `n` elements along an axis of length `N`: `n·log2(N)`.

    Source: Knuth, The Art of Computer Programming 3, §5.3.1. If several operands are sorted together, only the first
    counts. XLA ignores the axis and counts `n·ceil(log2(n))`.
    """
    operand, axis = equation.inputs[0], equation.param.get("dimension", -1)
    assert isinstance(axis, int)
    return {"n": count(operand), "N": length(operand, axis) if operand.shape else 1}


@rule("masked_sort", "unique", "scan_count", flops="n·log2(n)", note=f"comparisons, {_VECTOR}")
def vector_sort(equation: Equation) -> Letters:
    """Comparisons to sort one vector: `n·log2(n)`, as in `sort`."""
    return {"n": count(equation.inputs[0])}


@rule("top_k", flops="n·(1 + log2(k))", note="comparisons", xla="0")
def top_k(equation: Equation) -> Letters:
    """Comparisons with a heap of the `k` largest elements: `n·(1 + log2(k))`.

    Each element is compared with the smallest element in the heap. In the worst case, all of them replace it, with
    `log2(k)` comparisons each. Source: Knuth, The Art of Computer Programming 3, §5.2.3.
    """
    return {"n": count(equation.inputs[0]), "k": as_size(equation.param["k"])}


@rule("approx_top_k", flops="n + out·log2(k)", note="comparisons", xla="0")
def approximate_top_k(equation: Equation) -> Letters:
    """The maximum of each bin, then a sort of the maxima: `n + out·log2(k)` (Chern et al., TPU-KNN, 2022, §5)."""
    operand, result, axis = equation.inputs[0], equation.outputs[0], equation.param["reduction_dimension"]
    assert isinstance(axis, int)
    return {"n": count(operand), "out": count(result), "k": length(result, axis)}


def _slice_bytes(equation: Equation) -> Expression | None:
    # As in XLA: the elements of the slice are read and written; the rest of the operand does not count.
    return bytes_sum(*equation.outputs, *equation.outputs, *equation.inputs[1:])


def _update_bytes(equation: Equation) -> Expression | None:
    # As in XLA: the result aliases the operand, so only the update is read and written.
    return bytes_sum(equation.inputs[1], equation.inputs[1], *equation.inputs[2:])


def _scatter_bytes(equation: Equation) -> Expression | None:
    # As in XLA: the updates are read, the elements that they replace are read and written, and the indices are read.
    return bytes_sum(*(equation.inputs[2],) * 3, equation.inputs[1])


without_arithmetic("slice", "dynamic_slice", note="moves data", moved=_slice_bytes)
without_arithmetic("dynamic_update_slice", note="moves data", moved=_update_bytes)


@rule("gather", flops="0", note="4·indices - rows + n if an index out of bounds gives a fill value", moved=_slice_bytes)
def gather(equation: Equation) -> Formula:
    """`0`, or `4·indices - rows + n` in the mode that replaces elements with an index out of bounds by a fill value.

    In this mode, each index takes two comparisons and an `and`. Each index but the first of its row takes one more
    operation, which reduces the row. Each of the `n` elements of the result takes a selection.
    """
    if equation.param.get("mode") != "FILL_OR_DROP":
        return Formula("0", note="moves data")
    starts = equation.inputs[1]
    depth = length(starts, -1) if starts.shape else 1
    rows = 0 if depth == 0 else times(length(starts, axis) for axis in range(len(starts.shape) - 1))
    letters = {"indices": count(starts), "rows": rows, "n": items(equation)}
    return Formula("4·indices - rows + n", letters, note="an index out of bounds gives a fill value")


@rule("scatter", "scatter-update", flops="0", note="+ indices if clipped", moved=_scatter_bytes)
def scatter_write(equation: Equation) -> Formula | str:
    """`0`, or one operation for each index if indices are clipped. The equations of a combiner count too."""
    if equation.param.get(COMBINER):
        clipped = {"indices": count(equation.inputs[1])} if _clips(equation) else {}
        return _combined("updates", {"updates": count(equation.inputs[2]), **clipped}, equation, *clipped)
    if not _clips(equation):
        return Formula("0", note="moves data")
    return Formula("indices", {"indices": count(equation.inputs[1])}, note="clipped")


@rule(
    "scatter-add", "scatter-mul", "scatter-min", "scatter-max", "scatter-sub", "scatter_add", "scatter_mul",
    flops="updates", note="+ indices if clipped", moved=_scatter_bytes,
)  # fmt: skip
def scatter_combine(equation: Equation) -> Formula:
    """One operation for each element of the updates, and one for each index if indices are clipped."""
    letters = {"updates": count(equation.inputs[2])}
    if not _clips(equation):
        return Formula("updates", letters)
    return Formula("updates + indices", {**letters, "indices": count(equation.inputs[1])}, note="clipped")


def _clips(equation: Equation) -> bool:
    return equation.param.get("mode") == "CLIP"


def _window(equation: Equation) -> Expression:
    sizes: Any = equation.param["window_dimensions"]
    return times(map(as_size, sizes))


def _combined(times: str, letters: Letters, equation: Equation, *more: str) -> Formula | str:
    """Return the formula of an equation that runs a combiner: the function that combines two elements.

    If the combiner contains an equation of unknown cost, return a text that names this equation.
    """
    flops, calls, theirs = 0, 0, 0
    for inner in equations_of(equation.param.get(COMBINER, ())):
        # The equations inside a call are in this list too, so the call counts 0.
        if inner.is_call or not inner.is_used:
            continue
        each = counted(inner)
        by_xla = each.rule.value(each.rule.xla) if each.rule and each.rule.xla else each.figures["flops"]
        counts = (each.figures["flops"], each.figures["transcendentals"], by_xla)
        runs = [repeated(value if isinstance(value, int) else None, inner.repeats) for value in counts]
        if None in runs:
            return f"inside {inner.primitive} ({each.formula})"
        flops, calls, theirs = (total + (value or 0) for total, value in zip((flops, calls, theirs), runs, strict=True))
    sizes = {**letters, "combiner": flops, "calls": calls, "theirs": theirs}
    return Formula(
        " + ".join([f"{times}·combiner", *more]),
        sizes,
        f"{times}·calls" if calls else "0",
        note="clipped" if more else "",
        xla=" + ".join([f"{times}·theirs", *more]) if theirs != flops else None,
    )
